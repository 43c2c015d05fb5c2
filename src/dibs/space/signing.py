"""Signatures: who made a claim or wrote a message, beyond what a row says.

The space key is 32 random bytes outside the database. It yields each agent's key, and an
agent's key signs what the agent holds and says. A row that was changed or made without dibs
does not fit its signature; it is refused by the transaction that wants to use it.

Not promised: a process that can read the space key can sign for everybody.
"""

from __future__ import annotations

from dibs.digest import same, sha256
from dibs.errors import NotYoursError, UnfitError
from dibs.records import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.storage.driver import Row


BLOCK = 64
INNER = bytes(byte ^ 0x36 for byte in range(256))
OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Hmac:
    """HMAC-SHA256 (RFC 2104) of texts that all begin alike."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, beginning: bytes = b"") -> None:
        padded = key.ljust(BLOCK, b"\0")
        if len(padded) != BLOCK:
            raise ValueError(f"a key has at most {BLOCK} bytes here, not {len(key)}")
        self._inner: Any = sha256(padded.translate(INNER) + beginning)
        self._outer: Any = sha256(padded.translate(OUTER))

    def digest(self, rest: bytes) -> Any:
        """The hash object over the beginning and the rest: ask it for `digest` or `hexdigest`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(rest)
        outer.update(inner.digest())
        return outer


class Keyring:
    def __init__(self, space_key: bytes, space: str) -> None:
        if len(space_key) != 32:
            raise UnfitError(
                f"the space key has {len(space_key)} bytes instead of 32",
                next="put the right key file back from a backup",
            )
        self._space_key = space_key
        self._space = space
        self._begun: dict[str, Hmac] = {}

    def check(self) -> str:
        """A text by which a space recognises its key, and nobody learns it."""
        text: str = Hmac(self._space_key).digest(b"dibs key check").hexdigest()
        return text

    def agent_key(self, agent: str) -> bytes:
        """An agent's own key: all it needs to sign what it holds and says."""
        key: bytes = Hmac(self._space_key).digest(b"agent:" + agent.encode()).digest()
        return key

    def sign(self, agent: str, fields: str) -> str:
        """Sign fields, a line each. Only the last may have line breaks, so none can pose as two."""
        begun = self._begun.get(agent)
        if begun is None:
            begun = Hmac(self.agent_key(agent), f"{self._space}\n{agent}\n".encode())
            self._begun[agent] = begun
        text: str = begun.digest(fields.encode()).hexdigest()
        return text

    def lease(self, row: Row) -> str:
        return self.sign(
            row["agent"],
            f"lease\n{row['resource']}\n{row['base']}\n{row['kind']}\n{row['inode']}\n"
            f"{row['mode']}\n{row['task']}\n{row['session']}\n{row['epoch']}\n{row['deadline']}",
        )

    def task(self, row: Row) -> str:
        return self.sign(
            row["agent"], f"task\n{row['id']}\n{row['session']}\n{row['epoch']}\n{row['due']}"
        )

    def message(self, row: Row) -> str:
        return self.sign(
            row["sender"],
            f"message\n{row['id']}\n{row['session']}\n{row['kind']}\n{row['recipient']}\n"
            f"{row['channel']}\n{row['thread']}\n{row['reply_to']}\n{row['body']}",
        )

    def token(self, row: Row) -> str:
        """What an access token opens, and until when; signed by no agent: the daemon asks."""
        return self.sign(
            "",
            f"token\n{row['id']}\n{row['scope']}\n{row['digest']}\n{row['created_at']}\n"
            f"{row['expires_at']}\n{row['deadline']}\n{row['created_by']}\n{row['name']}",
        )

    def token_in(self, space: str, row: Row) -> str:
        """As `token`, in another space that has the same key."""
        return Keyring(self._space_key, space).token(row)

    def session_token(self, session: int, nonce: str) -> str:
        """What a process shows to act in a session that another one keeps alive."""
        # Signed by no agent, since a session may take another name. One that an earlier release
        # began has no random part, and keeps its token.
        random = f"\n{nonce}" if nonce else ""
        signature = self.sign("", f"session\n{session}{random}")
        return f"{session}.{signature}"

    def same_token(self, token: str, session: Row) -> bool:
        expected = self.session_token(session["id"], session["nonce"])
        return same(token.encode("utf-8", "replace"), expected.encode())

    def fits(self, noun: str, row: Row) -> bool:
        signature: str = getattr(self, noun)(row)
        # As bytes: what somebody wrote into the column may be any text, or no text at all.
        return same(str(row["signature"]).encode("utf-8", "replace"), signature.encode())

    def require(self, noun: str, row: Row, subject: str) -> None:
        """Refuse to act on a row that was not made by the one it names."""
        if not self.fits(noun, row):
            raise NotYoursError(
                f"the {noun} {called(subject)} does not bear the signature of "
                f"{called(row['agent'])}: "
                "its row was changed without dibs",
                next="have a person look; verify lists every such row",
                subject=subject,
            )
