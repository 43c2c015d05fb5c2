"""`dibs adopt`: use a store that somebody else made, after a look at its contents.

The contents were written by somebody else, so they are shown as data: cut and escaped.
"""

from __future__ import annotations

import os
import time

from dibs.errors import NotFoundError, UnfitError
from dibs.operation import PEOPLE
from dibs.records import folder
from dibs.surroundings.wording import note, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surroundings.commands import Globals

BY = PEOPLE
DESTRUCTIVE = ("adopt",)
SHOWN = 80


def main(call: Globals, *, yes: bool = False) -> int:
    """Look at a store that you did not make on this machine; with --yes, use it.

    Adopting it revokes its access tokens, and everybody in it has to join again.

    yes: adopt it
    example: --yes
    """
    from dibs.dibs import note_of
    from dibs.storage import adoption, sqlite_file

    mine = note_of(call.store, None, None)
    if mine.key is None or not os.path.exists(mine.path):
        raise NotFoundError(
            f"there is no store at {folder(mine.path)} to adopt", next="give --store"
        )
    if mine.known:
        return call.answer({"store": mine.path, "adopted": True}, "this store is yours already")
    found = sqlite_file.look(mine.path, lambda db: sqlite_file.contents(db, mine.path))
    if yes and found["damage"]:
        raise UnfitError(f"{folder(mine.path)} is damaged", next="restore a backup, or remove it")
    if yes:
        sqlite_file.take_over(mine.path, time.time_ns() // 1_000_000)
        adoption.adopt(mine)
        call.open().close()
    if call.json:
        print_json({"store": mine.path, "adopted": yes, **found})
        return 0
    draw(mine.path, found)
    if yes:
        note("adopted; its tokens are revoked, and everybody in it has to join again")
    else:
        note("not adopted; if you trust where it comes from: dibs adopt --yes")
    return 0


def draw(path: str, found: dict[str, Any]) -> None:
    say(f"store   {folder(path)}")
    for space in found["spaces"]:
        made, last = day(space["created_at"]), day(space["last_at"])
        says = f"{space['sessions']} sessions, {space['messages']} messages"
        say(f"space   {cut(space['name'])}: made {made}, last used {last}; {says}")
    say(f"agents  {', '.join(cut(one['name']) for one in found['agents']) or 'none'}")
    tokens = [f"{cut(one['name'])} ({cut(one['scope'])})" for one in found["tokens"]]
    say(f"tokens  {', '.join(tokens) or 'none'}")
    for damage in found["damage"]:
        say(f"damage  {cut(damage)}")


def cut(text: object) -> str:
    """A text of somebody else: quoted, and without anything that a terminal would act on."""
    return ascii(str(text)[:SHOWN])


def day(at: object) -> str:
    """A day by the wall clock; `never` for a number that is no valid time."""
    if not isinstance(at, int) or not 0 < at < 1 << 42:
        return "never"
    return time.strftime("%Y-%m-%d", time.localtime(at / 1000))
