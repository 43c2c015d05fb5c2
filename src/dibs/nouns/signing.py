"""Signatures: who made a claim or wrote a message, beyond what a row says.

The space key is 32 random bytes outside the database. It yields each agent's key, and an
agent's key signs what the agent holds and says. A row that was changed or made without dibs
does not fit its signature; it is refused by the transaction that wants to use it.

Not promised: a process that can read the space key can sign for everybody.
"""

from __future__ import annotations

import hmac

from dibs.errors import NotYoursError, UnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Row


class Keyring:
    def __init__(self, space_key: bytes, space: str) -> None:
        if len(space_key) != 32:
            raise UnfitError(
                f"the space key has {len(space_key)} bytes instead of 32",
                next="put the right key file back from a backup",
            )
        self._space_key = space_key
        self._space = space
        self._begun: dict[str, hmac.HMAC] = {}

    def check(self) -> str:
        """A text by which a space recognises its key, and nobody learns it."""
        return hmac.digest(self._space_key, b"dibs key check", "sha256").hex()

    def agent_key(self, agent: str) -> bytes:
        """An agent's own key: all it needs to sign what it holds and says."""
        return hmac.digest(self._space_key, b"agent:" + agent.encode(), "sha256")

    def sign(self, agent: str, *fields: object) -> str:
        """Sign the fields. Only the last may have line breaks in it, so none can pose as two."""
        begun = self._begun.get(agent)
        if begun is None:
            begun = hmac.new(self.agent_key(agent), f"{self._space}\n{agent}".encode(), "sha256")
            self._begun[agent] = begun
        signature = begun.copy()
        signature.update("\n".join(["", *map(str, fields)]).encode())
        return signature.hexdigest()

    def lease(self, row: Row) -> str:
        return self.sign(
            row["agent"], "lease", row["resource"], row["mode"], row["session"], row["epoch"],
            row["deadline"],
        )  # fmt: skip

    def task(self, row: Row) -> str:
        return self.sign(row["agent"], "task", row["id"], row["session"], row["epoch"], row["due"])

    def message(self, row: Row) -> str:
        return self.sign(
            row["sender"], "message", row["id"], row["session"], row["kind"], row["recipient"],
            row["channel"], row["thread"], row["reply_to"], row["body"],
        )  # fmt: skip

    def session_token(self, agent: str, session: int) -> str:
        """What a process shows to act in a session that another one keeps alive."""
        return f"{session}.{self.sign(agent, 'session', session)}"

    def same_token(self, token: str, agent: str, session: int) -> bool:
        expected = self.session_token(agent, session)
        return hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode())

    def fits(self, noun: str, row: Row) -> bool:
        sign = {"lease": self.lease, "task": self.task, "message": self.message}[noun]
        # As bytes: what somebody wrote into the column may be any text.
        return hmac.compare_digest((row["signature"] or "").encode(), sign(row).encode())

    def require(self, noun: str, row: Row, subject: str) -> None:
        """Refuse to act on a row that was not made by the one it names."""
        if not self.fits(noun, row):
            raise NotYoursError(
                f"the {noun} {subject} does not bear the signature of {row['agent']}: "
                "its row was changed without dibs",
                next="have a person look; verify lists every such row",
                subject=subject,
            )
