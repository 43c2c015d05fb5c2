"""Which stores are this user's own: a note about each, in the user's data folder.

A store comes with its key, and its maker knows both: a stranger's tokens would be valid at a daemon
that serves it, and so would a stranger's signatures. So a store is used only if this user made or
adopted it on this machine. The note is found by a hash of the store's key, so a repository may be
moved or renamed, and a backup is recognised by the key it carries.

For each place where the store was seen, the note also has its *life* (the inode of the database and
the time of the key file, which only a copy changes), and what need not be checked again: the schema
that was compared, and the git index in which the store was not found. A store with another life is
an older copy that was put back, or was moved: it continues like a restored backup.

Opening a known store needs no write. If the note cannot be updated, more is checked each time.

A store made before there were notes belongs to its user if it was used in this boot, whose random
id only processes of this machine know, and git does not track it. Any other store must be adopted.
"""

from __future__ import annotations

import os

from dibs.errors import ReadOnlyError, UnavailableError, UnfitError
from dibs.records import folder
from dibs.storage.folder import OLDER, STORES, Folder, Note, Own, disk_error, fingerprint

PLACES = 100
"""How many places of one store are remembered."""
NOTES = 1_000
"""How many deleted stores are remembered."""
ADOPTED = "adopted"
"""A life that no store has: an adopted store continues like a restored backup."""


def make_key(note: Note) -> None:
    """Make the key of a new store, after recording that it is this user's."""
    key = os.urandom(32)
    file = f"{STORES}/{fingerprint(key)}"
    try:
        # Sessions of an earlier store here must not be mistaken for sessions of this one.
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
        note.own.remove(file)  # another process was faster


def save(note: Note, life: str, schema: str, index: str, older: bool = False) -> None:
    """Write down what is known about the store at its place. Raises OSError if that fails.

    older: it is from an earlier release, and has not been upgraded to this schema yet
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
    """Remove the notes of stores that no longer exist, if there are many, as after tests."""
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
    """Remove the note about a store that will be deleted and was never another user's."""
    if note.key is not None:
        note.own.remove(at(note))
        note.own.remove(note.file)


def at(note: Note) -> str:
    """The file that records that there was a store at this place."""
    return f"{STORES}/at-{note.place}"


def adopt(note: Note) -> None:
    """Record that this user wants to use the store."""
    try:
        save(note, ADOPTED, "-", "-")
    except OSError as error:
        raise unwritable(note, error) from error


def unknown(note: Note) -> UnfitError:
    return UnfitError(
        f"you did not make the store {folder(note.path)} on this machine, as far as "
        f"{folder(note.own.base)} records, so others may know its key",
        next="if you made it with another HOME, use that one; otherwise have a person check it "
        "with dibs adopt, or delete it",
        untrusted=note.path,
    )


def unwritable(note: Note, error: OSError) -> UnavailableError:
    found = disk_error(error, note.own.base)
    if isinstance(found, ReadOnlyError) and "owner" not in found.details:
        found.next = (
            "dibs records there which stores are yours: run dibs status here once, outside "
        )
        found.next += "the sandbox"
    return found
