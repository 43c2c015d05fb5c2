"""Which store is meant, where this user's notes and keys are, and whether a store may be used."""

from __future__ import annotations

import os
import sys

from dibs.digest import sha256
from dibs.errors import InvalidError, UnfitError
from dibs.names.checkouts import index_around
from dibs.names.paths import find_place
from dibs.records import called, folder
from dibs.storage.folder import Note
from dibs.storage.private import Own, refused, user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.names.paths import Place

DATABASE = "dibs.db"


def note_of(url: str | None, start: str | None, user_dir: str | None) -> Note:
    """What this user's data folder says of a SQLite store, which git must not track."""
    path = own_store(find_place(start, user_dir or default_user_dir())) if url is None else url
    path = path.removeprefix("sqlite://")
    if "://" in path or not path or "\0" in path:
        raise InvalidError(
            f"{url!r} is not an address dibs knows",
            next="give a path, sqlite:///path, postgresql://user@host/database or http://host:port",
        )
    # SQLite follows symbolic links, and what lies beside the database has to as well.
    note = Note(user_dir or home_user_dir(), os.path.realpath(path))
    check_untracked(note)
    return note


def check_untracked(note: Note) -> None:
    """Refuse a store that git tracks: whoever has the repository has its key, and may write it.

    Before the database is opened, since a log beside it that came with a pull would be taken in.
    """
    store_dir = os.path.dirname(note.path)
    whole = os.path.basename(store_dir) == ".dibs"  # dibs keeps more there than the store
    if whole and os.path.lexists(f"{store_dir}/.git"):
        raise UnfitError(
            f"{folder(store_dir)} is a git repository of its own, so whoever can change that "
            "could change what dibs keeps there",
            next="remove it (git rm --cached .dibs for a submodule), or set DIBS_URL to a path "
            "elsewhere",
            untrusted=note.path,
        )
    around = index_around(os.path.dirname(store_dir) if whole else store_dir)
    if around is None:
        return
    top, index = around
    try:
        seen = os.stat(index)
    except OSError:
        return  # nothing is tracked yet
    note.index_now = f"{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}"
    if note.index_now == note.index:
        return
    from dibs.names.tracked import tracked  # an index is looked at once

    below, name = os.path.split(os.path.relpath(note.path, top))
    shared = frozenset({f"{below}/config.toml", f"{below}/.gitignore"})
    found = tracked(index, f"{below}/" if whole else os.path.join(below, name), shared)
    if found:
        raise UnfitError(
            f"git tracks {called(found)}: whoever can change this repository could read or change "
            "what dibs keeps there",
            next=f"git rm -r --cached {folder(below or name)}, commit that, and delete what dibs "
            "keeps there (not config.toml); dibs makes its own",
            untrusted=note.path,
        )


def space_key(user_dir: str, name: str) -> tuple[bytes, str | None]:
    """The key of a shared space on this machine, made if this machine has none yet."""
    own = Own(os.path.realpath(user_dir))
    file = f"keys/{sha256(name.encode()).hexdigest()[:32]}"
    made = own.once(file, os.urandom(32))
    return own.read(file) or b"", own.file(file) if made else None


def own_store(place: Place) -> str:
    """The store of a place, in a folder that git does not see."""
    own, file = Own(place.store_dir), os.path.join(place.store_dir, DATABASE)
    try:
        own.folder(make=True)
        if not os.path.lexists(file):
            own.once(".gitignore", b"*\n")
    except OSError as error:
        raise UnfitError(
            f"{folder(place.store_dir)} cannot be made: {error.strerror}",
            next="give another store, or make that folder writable",
        ) from error
    if os.path.islink(file):  # SQLite would follow it, and make the store wherever it leads
        raise refused(file, os.lstat(file))
    return file


def default_user_dir() -> str:
    home = home_user_dir()
    chosen = os.path.expandvars("$XDG_DATA_HOME")
    return os.path.join(chosen, "dibs") if chosen.startswith("/") else home


def home_user_dir() -> str:
    """The user's data folder by the home alone.

    Which stores are whose is noted there: of the environment, MCP clients give little more than
    HOME to their servers, which must find the same notes as the commands.
    """
    home = os.path.expanduser("~")
    if os.geteuid() == 0:
        home = home_of_root(home)
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "dibs")
    return os.path.join(home, ".local", "share", "dibs")


def home_of_root(home: str) -> str:
    """The home to use as root: never that of another user, who would be locked out of it.

    `sudo dibs` is refused there, since it was meant for that user; a container whose root has
    such a HOME is nobody else's.
    """
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return home  # there is none, and what dibs makes is root's
    if owner == 0:
        return home
    if os.path.expandvars("$SUDO_UID").isdigit():
        raise UnfitError(
            f"you are root, and your home {folder(home)} belongs to {user(owner)}, who could not "
            "use what dibs would make",
            next=f"run dibs as {user(owner)}, without sudo; or set HOME to the home of root",
            untrusted=home,
        )
    return os.path.expanduser("~root")
