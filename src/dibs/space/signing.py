"""Signatures: they prove who made a claim or wrote a message.

The space key is 32 random bytes outside the database. Each agent's key is derived from it, and an
agent's key signs what the agent holds and says. A row that was changed or made without dibs does
not match its signature, and is refused by the transaction that wants to use it.

Rows are signed with keyed BLAKE2b. Releases before the chain used HMAC-SHA256, whose signatures
are twice as long. They remain valid. Tokens are still signed with it, since they outlive upgrades.

Not promised: a process that can read the space key can sign for everybody.
"""

from __future__ import annotations

from dibs.digest import Hmac, Keyed, same
from dibs.errors import NotYoursError, UnfitError
from dibs.records import called
from dibs.storage.ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.driver import Row

    Sign = Callable[[str, str], str]

SIZE = 16
"""How many bytes a signature of a row has."""
EARLIER = 64
"""How many digits a signature of an earlier release has."""


class Keyring:
    def __init__(self, space_key: bytes, space: str) -> None:
        if len(space_key) != 32:
            raise UnfitError(
                f"the space key has {len(space_key)} bytes instead of 32",
                next="restore the right key file from a backup",
            )
        self._space_key = space_key
        self._space = space
        self._begun: dict[str, Hmac] = {}
        self._keyed: dict[str, Keyed] = {}

    def check(self) -> str:
        """A text by which a space recognises its key without revealing it."""
        text: str = Hmac(self._space_key).digest(b"dibs key check").hexdigest()
        return text

    def ledger(self) -> Ledger:
        """The key of this space's journal."""
        return Ledger(Hmac(self._space_key).digest(b"ledger").digest(), self._space)

    def agent_key(self, agent: str) -> bytes:
        """An agent's own key, with which it signs what it holds and says."""
        key: bytes = Hmac(self._space_key).digest(b"agent:" + agent.encode()).digest()
        return key

    def sign(self, agent: str, fields: str) -> str:
        """Sign fields, one per line. Only the last may have line breaks, so none can fake two."""
        keyed = self._keyed.get(agent)
        if keyed is None:
            beginning = f"{self._space}\n{agent}\n".encode()
            keyed = self._keyed[agent] = Keyed(self.agent_key(agent), beginning, SIZE)
        return keyed.hash(fields)

    def sign_longer(self, agent: str, fields: str) -> str:
        """The same with HMAC-SHA256."""
        begun = self._begun.get(agent)
        if begun is None:
            begun = Hmac(self.agent_key(agent), f"{self._space}\n{agent}\n".encode())
            self._begun[agent] = begun
        text: str = begun.digest(fields.encode()).hexdigest()
        return text

    def lease(self, row: Row, sign: Sign | None = None) -> str:
        return (sign or self.sign)(
            row["agent"],
            f"lease\n{row['resource']}\n{row['base']}\n{row['kind']}\n{row['inode']}\n"
            f"{row['mode']}\n{row['task']}\n{row['session']}\n{row['epoch']}\n{row['deadline']}",
        )

    def task(self, row: Row, sign: Sign | None = None) -> str:
        return (sign or self.sign)(
            row["agent"], f"task\n{row['id']}\n{row['session']}\n{row['epoch']}\n{row['due']}"
        )

    def message(self, row: Row, sign: Sign | None = None) -> str:
        return (sign or self.sign)(
            row["sender"],
            f"message\n{row['id']}\n{row['session']}\n{row['kind']}\n{row['recipient']}\n"
            f"{row['channel']}\n{row['thread']}\n{row['reply_to']}\n{row['body']}",
        )

    def token(self, row: Row) -> str:
        """The signature of an access token's scope and expiry; by the space, not an agent."""
        # A valid one is signed as in earlier releases, which did not sign revocations.
        revoked = "" if row["revoked_at"] is None else f"revoked\n{row['revoked_at']}\n"
        return self.sign_longer(
            "",
            f"token\n{revoked}{row['id']}\n{row['scope']}\n{row['digest']}\n"
            f"{row['created_at']}\n{row['expires_at']}\n{row['deadline']}\n{row['created_by']}\n"
            f"{row['name']}",
        )

    def token_in(self, space: str, row: Row) -> str:
        """As `token`, in another space that has the same key."""
        return Keyring(self._space_key, space).token(row)

    def session_token(self, session: int, nonce: str) -> str:
        """The token with which a process acts in a session that another one keeps alive."""
        # Not signed by an agent, since a session may be renamed. One that an earlier release
        # began has no random part, and keeps its token.
        random = f"\n{nonce}" if nonce else ""
        signature = self.sign_longer("", f"session\n{session}{random}")
        return f"{session}.{signature}"

    def same_token(self, token: str, session: Row) -> bool:
        expected = self.session_token(session["id"], session["nonce"])
        return same(token.encode("utf-8", "replace"), expected.encode())

    def fits(self, noun: str, row: Row) -> bool:
        # As bytes: a forged column may hold any text, or something else.
        there = str(row["signature"]).encode("utf-8", "replace")
        if noun != "token" and len(there) == EARLIER:
            signature: str = getattr(self, noun)(row, self.sign_longer)
        else:
            signature = getattr(self, noun)(row)
        return same(there, signature.encode())

    def require(self, noun: str, row: Row, subject: str) -> None:
        """Refuse to act on a row that was not made by the agent it names."""
        if not self.fits(noun, row):
            raise NotYoursError(
                f"the {noun} {called(subject)} is not signed by "
                f"{called(row['agent'])}: "
                "something other than dibs has changed its row",
                next="tell a person; verify lists every such row",
                subject=subject,
            )
