"""`dibs backup`, `dibs restore` and `dibs reset`: a SQLite store as a whole.

A restore and a reset replace everything that a store holds, in one transaction. Both refuse to do
that while the store is in use: a session is alive, a lease is held or a task is open, in any space
of the file. A person who means it types the name of each such space. Epochs keep rising, so what
was granted before is refused afterwards.
"""

from __future__ import annotations

import os

from dibs.dibs import DAEMON, DEFAULT_SPACE, POSTGRES, note_of
from dibs.dibs import open as open_space
from dibs.errors import CorruptError, InvalidError, NotFoundError, StateError, UnfitError
from dibs.operation import EVERYBODY, PEOPLE
from dibs.records import called, folder
from dibs.storage import sqlite_file
from dibs.storage.folder import Folder
from dibs.surroundings.wording import note, print_json, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.records import Overview
    from dibs.storage.folder import Note
    from dibs.surroundings.commands import Globals

BY = {"backup": EVERYBODY, "restore": PEOPLE, "reset": PEOPLE}
DESTRUCTIVE = ("restore", "reset")
ENDED = ("completed", "cancelled", "dead")
"""The states of tasks that nobody will work on."""


def backup(call: Globals, file: str) -> int:
    """Copy the store to a file while others use it; `dibs restore` puts it back.

    file: where to copy it to; the file must not exist yet
    example: ~/backups/dibs.db
    """
    with call.open() as space:
        space.backup(file)
    if call.json:
        print_json({"file": file})
    else:
        note(f"copied to {file}")
    return 0


def restore(call: Globals, file: str, *, discard: Sequence[str] = ()) -> int:
    """Replace the store with a backup; refused while anybody uses the store.

    Everything written after the backup is lost, and all sessions have to join again. Epochs and
    versions continue to rise, so nothing granted before the restore is valid after it.

    file: the backup, as `dibs backup` made it
    discard: a space in use that may be lost, by its name in the refusal; can be repeated
    example: ~/backups/dibs.db
    """
    mine = own_file(call)
    source = os.path.realpath(os.path.expanduser(file))
    if not os.path.isfile(source):
        raise NotFoundError(f"there is no file {folder(source)}", next="name the backup")
    if not os.path.exists(f"{source}.d/key"):
        raise NotFoundError(
            f"{folder(source)} has no key beside it",
            next=f"put {folder(source)}.d back, which dibs backup made with it",
        )
    key = Folder(source).key()
    found = sqlite_file.look(source, lambda db: sqlite_file.contents(db, source))
    if found["damage"]:
        raise UnfitError(f"{folder(source)} is damaged", next="restore another backup")
    if mine.key not in (None, key):
        raise UnfitError(
            f"{folder(source)} is a backup of another store: it has another key",
            next=f"move {folder(mine.path)} and {folder(mine.path)}.d away, then restore again",
        )
    if os.path.exists(mine.path):
        replace(call, mine, source, discard)
    else:
        sqlite_file.look(source, lambda db: sqlite_file.copy(db, mine.path, key))
    with call.open() as space:
        seq = space.events.last()
    if call.json:
        print_json({"file": file, "store": mine.path, "seq": seq})
    else:
        note(f"restored {folder(mine.path)} from {file}; all sessions have to join again")
    return 0


def reset(call: Globals, *, discard: Sequence[str] = ()) -> int:
    """Empty the store, for demos and tests; refused while anybody uses it or work is open.

    Everything in it is lost: agents, leases, tasks, messages, entries, tokens and the journal.

    discard: a space in use that may be lost, by its name in the refusal; can be repeated
    example: --discard my-demo
    """
    mine = own_file(call)
    if not os.path.exists(mine.path):
        raise NotFoundError(f"there is no store at {folder(mine.path)}", next="give --store")
    replace(call, mine, None, discard)
    if call.json:
        print_json({"store": mine.path})
    else:
        note(f"{folder(mine.path)} is empty now")
    return 0


def own_file(call: Globals) -> Note:
    """The SQLite store that the caller means."""
    if (call.store or "").startswith(DAEMON):
        raise InvalidError(
            "the daemon has the store", next="run this on its machine, without DIBS_URL"
        )
    if (call.store or "").startswith(POSTGRES):
        call.open().scope.store.driver.replace(None)  # which says how that is done
    return note_of(call.store, None, None)


def replace(call: Globals, mine: Note, source: str | None, discard: Sequence[str]) -> None:
    """Replace what a store holds, unless somebody uses it who is not to be discarded."""
    try:
        with call.open() as space:
            top = os.path.basename(space.scope.place.root)
            refuse_use(mine.path, top, discard)
            space.scope.store.driver.replace(source)
    except CorruptError as error:
        raise UnfitError(
            f"{error.message}, so it cannot be replaced where it is",
            next=f"move {folder(mine.path)} away, with -wal and -shm beside it; then restore again",
        ) from error


def refuse_use(path: str, top: str, discard: Sequence[str]) -> None:
    """Refuse if a space of a file is in use; top: what the repository's own space is called."""
    names = sqlite_file.look(path, sqlite_file.names_of_spaces)
    for name in names:
        with open_space(path, space=name) as space:
            uses = in_use(space.agents.overview(limit=1))
        label = top if name == DEFAULT_SPACE and top else name
        if uses and label not in discard:
            raise StateError(
                f"the space {called(label)} is in use: {uses}",
                next=f"let them finish, or lose what they have: --discard {quote(label)}",
            )


def in_use(now: Overview) -> str:
    """Who and what is there, in words; nothing if the space is idle."""
    found = {
        "a live session": bool(now.agents),
        "a held lease": bool(now.leases),
        "an open task": any(number for state, number in now.counts.items() if state not in ENDED),
    }
    return ", ".join(what for what, there in found.items() if there)
