"""Which stores are this user's own: a note of each, in the user's data folder.

A store comes with its key, and whoever made it knows both: a stranger's tokens would open a daemon
that serves it, and a stranger's signatures would be right. So a store is used only if this user
made or adopted it on this machine. The note is found by a hash of the store's key, so that a
repository may be moved or renamed, and a backup is known by the key that it carries.

It also says, for each place where the store was seen, its *life* (the inode of the database and
the time of the key file, which only a copy changes), and what need not be looked at again: the
schema that was compared, and the git index in which the store was not found. A store with another
life is an older copy that was put back, or was moved: it goes on as a restored backup does.

To open a store that is known needs no write. Where the note cannot be renewed, more is looked at
each time.

A store made before there were notes is its user's if it was used in this very boot, whose random
name only processes of this machine know, and git does not track it. Any other has to be adopted.
"""

from __future__ import annotations

import os

from dibs.errors import ReadOnlyError, UnavailableError, UnfitError
from dibs.records import folder
from dibs.storage.folder import OLDER, STORES, Folder, Note, Own, disk_error, fingerprint

PLACES = 100
"""How many places of one store are remembered."""
NOTES = 1_000
"""How many stores are remembered after they have gone."""
ADOPTED = "adopted"
"""A life that no store has: what was adopted goes on as a restored backup does."""


def make_key(note: Note) -> None:
    """Make the key of a new store, and note first that it is this user's."""
    key = os.urandom(32)
    file = f"{STORES}/{fingerprint(key)}"
    try:
        # Who was in a store that has been here before must not be mistaken for somebody in this.
        note.above = note.own.status(at(note)) is not None
        forget_gone(note.own)
        note.own.once(file, b"above\n" if note.above else b"new\n")
    except OSError as error:
        raise unwritable(note, error) from error
    beside = Folder(note.path)
    beside.make()
    beside.offer(key)
    note.read()
    if note.key != key:
        note.own.remove(file)  # somebody else was faster


def save(note: Note, life: str, schema: str, index: str, older: bool = False) -> None:
    """Write down what is known of the store at its place. Raises OSError where that cannot be.

    older: it is of an earlier release, and has not been brought to the schema of this one yet
    """
    head, *lines = (note.own.read(note.file) or b"new").split(b"\n")
    head = OLDER if older else b"new" if head == OLDER else head
    shown = note.path.replace("\n", "?")
    mine = os.fsencode(f"{note.place} {life} {schema} {index} {shown}")
    others = [line for line in lines if line and not line.startswith(note.place.encode())]
    note.own.write(note.file, b"\n".join([head, mine, *others[: PLACES - 1]]) + b"\n", sync=True)
    note.own.once(at(note), os.fsencode(note.file))
    note.read()


def forget_gone(own: Own) -> None:
    """Remove the notes of stores that are nowhere any more, if there are many: tests make many."""
    names = own.names(STORES)
    if len(names) < NOTES:
        return
    for name in names:
        file = f"{STORES}/{name}"
        _, *lines = (own.read(file) or b"").split(b"\n")
        seen = [line.split(b" ", 4) for line in lines if line]
        if seen and not any(os.path.lexists(path) for *_, path in seen):
            for place, *_ in seen:
                own.remove(f"{STORES}/at-{os.fsdecode(place)}")
            own.remove(file)


def forget(note: Note) -> None:
    """Remove what is noted of a store that is going to be deleted, and was never anybody else's."""
    if note.key is not None:
        note.own.remove(at(note))
        note.own.remove(note.file)


def at(note: Note) -> str:
    """The file that says that there was a store at this place."""
    return f"{STORES}/at-{note.place}"


def adopt(note: Note) -> None:
    """Note that this user wants to use the store."""
    try:
        save(note, ADOPTED, "-", "-")
    except OSError as error:
        raise unwritable(note, error) from error


def unknown(note: Note) -> UnfitError:
    return UnfitError(
        f"you did not make the store {folder(note.path)} on this machine, so others may know its "
        "key",
        next="have a person look at it with dibs adopt, or delete it",
        untrusted=note.path,
    )


def unwritable(note: Note, error: OSError) -> UnavailableError:
    found = disk_error(error, note.own.base)
    if isinstance(found, ReadOnlyError) and "owner" not in found.details:
        found.next = "dibs notes there which stores are yours: run dibs status here once, outside "
        found.next += "the sandbox"
    return found
