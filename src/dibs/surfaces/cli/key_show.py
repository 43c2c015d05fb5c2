"""`dibs key show`: the key that another machine needs for a space on a server."""

from __future__ import annotations

from dibs.errors import InvalidError, NotFoundError
from dibs.operation import PEOPLE
from dibs.records import called
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

BY = PEOPLE


def main(call: Globals) -> int:
    """Print this machine's key of a space on PostgreSQL, for another machine or for CI.

    Whoever has it can act as any agent of the space. Keep it where you keep passwords.
    """
    require_server(call)
    call.open().close()  # which makes the key of a space that is new
    name, key = call.space_there(), call.own_key()
    if key is None:
        raise NotFoundError(
            f"the data folder of this user has no key for the space {called(name)}",
            next="dibs uses DIBS_KEY here; dibs key import keeps that key on this machine",
        )
    if not call.json:
        note(f"the key of the space {called(name)}; on the other machine: dibs key import")
    return call.answer({"space": name, "key": key.hex()}, key.hex())


def require_server(call: Globals) -> None:
    """Only a space on a server has a key that other machines need."""
    from dibs.dibs import POSTGRES

    if not (call.store or "").startswith(POSTGRES):
        raise InvalidError(
            "only a space on PostgreSQL has a key to pass on: a SQLite store keeps its own beside "
            "it, and a daemon takes tokens",
            next="set DIBS_URL=postgresql://…, or see dibs token add --help",
        )
