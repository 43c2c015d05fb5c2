"""The folder of a vault: which files in it are dibs' own, and which are not.

A note has the digest of its text in its front matter. A file whose digest matches is dibs' own and
may be replaced. A file whose digest does not match was edited, and a file without one is somebody
else's: both are kept and reported. No separate list of files is needed, and a run may be killed at
any point. An empty file may be replaced.

`.dibs-vault.json` says up to which seq the notes were written. It is written last.

All paths are opened relative to the folder, without following links. A writer holds a lock.
"""

from __future__ import annotations

import ast
import fcntl
import os
import re
import stat

from dibs.arguments import NEWEST
from dibs.digest import sha256
from dibs.errors import UNREADABLE, BusyError, InvalidError
from dibs.records import folder as named
from dibs.records import read_json, to_text
from dibs.vault.names import AGENTS, DAYS, FILES, FOLDERS, TASKS, Ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

MANIFEST, LOCK = ".dibs-vault.json", ".dibs-vault.lock"
FORMAT = 1
"""The format of the notes: notes in another format are all written again."""
NEIGHBOURS = frozenset((".git", ".obsidian"))
"""What may be in a folder that will become a vault."""
PRIVATE = frozenset((".git", ".dibs"))
TEMPORARY = re.compile(r"\.dibs-vault~\d+")
LIMIT = 64 << 20
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DIGEST = re.compile(r'^digest: "([0-9a-f]{32})"\n', re.MULTILINE)
LINK = re.compile(r"\[\[([a-z]+/[^\]|]+)")
ABOUT = {"task": TASKS, "agent": AGENTS, "file": FILES, "day": DAYS}
NAME = re.compile(r'^dibs: "(\w+)"\nname: (".*")$', re.MULTILINE)


class Vault:
    """A folder of notes, open and locked for one writer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.written = 0
        self.seq: int | None = None
        self.mark: list[Any] = []
        self.format = 0
        self._kept: dict[str, str] = {}
        """The notes that were kept because dibs did not write them like this, and why."""
        self._told: set[str] = set()
        self._names: dict[str, set[str]] = {folder: set() for folder in ("", *FOLDERS)}
        """The notes that were written, by folder."""
        self._folders: dict[str, int] = {}
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (*self._folders.values(), self._lock):
            if handle >= 0:
                os.close(handle)
        self._folders, self._lock = {}, -1

    def _open(self) -> None:
        if not self.path.strip():
            raise InvalidError("the folder has no name", next="name a folder, or a new one")
        real = os.path.realpath(self.path)
        if inside := PRIVATE.intersection(part.casefold() for part in real.split(os.sep)):
            raise InvalidError(
                f"{named(self.path)} is inside {min(inside)}, where notes do not belong",
                next="name a separate folder",
            )
        try:
            os.makedirs(real, exist_ok=True)
            self._folders[""] = os.open(real, os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileExistsError, NotADirectoryError):
            raise InvalidError(
                f"{named(self.path)} is not a folder", next="name a folder, or a new one"
            ) from None
        except OSError as error:
            raise self._unfit("", error) from None
        except RecursionError:
            raise self._unfit("", OSError(0, "it has too many parents")) from None
        self._read_manifest()
        if self.seq is None and (others := self._others()):
            raise InvalidError(
                f"{named(self.path)} is neither empty nor a vault: it has {named(others[0])}",
                next="name an empty folder, or a new one",
            )
        self._take_lock()
        for name in FOLDERS:
            self._folders[name] = self._subfolder(name)
        self._remove_temporary()

    def _others(self) -> list[str]:
        ours = {*NEIGHBOURS, LOCK, MANIFEST}
        found = [one for one in os.listdir(self._folders[""]) if not TEMPORARY.fullmatch(one)]
        # A first run that was killed has no manifest yet, but only its own notes.
        others = [name for name in found if name not in ours]
        if LOCK in found and all(self._made_by_us(name) for name in others):
            return []
        return sorted(others)

    def _made_by_us(self, name: str) -> bool:
        if name not in FOLDERS:
            return name == "README.md" and bool(own_text(self._folders[""], name))
        handle = self._subfolder(name)
        try:
            inside = [one for one in os.listdir(handle) if not TEMPORARY.fullmatch(one)]
            return all(own_text(handle, one) for one in inside)
        finally:
            os.close(handle)

    def _take_lock(self) -> None:
        try:
            flags = os.O_RDWR | os.O_CREAT | SAFELY
            self._lock = os.open(LOCK, flags, 0o666, dir_fd=self._folders[""])
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another dibs is writing to {named(self.path)}", next="wait until it has finished"
            ) from None
        except OSError as error:
            raise self._unfit(LOCK, error) from None
        self._read_manifest()  # the previous holder of the lock may have written since

    def _subfolder(self, name: str) -> int:
        try:
            try:
                os.mkdir(name, dir_fd=self._folders[""])
            except FileExistsError:
                pass
            flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, dir_fd=self._folders[""])
        except OSError as error:
            raise self._unfit(name, error) from None

    def _unfit(self, name: str, error: OSError) -> InvalidError:
        return InvalidError(
            f"{named(os.path.join(self.path, name))} cannot be used: {error.strerror}",
            next="remove it, or name another folder",
        )

    def _remove_temporary(self) -> None:
        """Remove what a run left behind that was killed while writing."""
        for folder, handle in self._folders.items():
            for name in filter(TEMPORARY.fullmatch, os.listdir(handle)):
                try:
                    os.unlink(name, dir_fd=handle)
                except OSError as error:
                    raise self._unfit(os.path.join(folder, name), error) from None

    def _read_manifest(self) -> None:
        try:
            found = read_json(self._read("", MANIFEST) or "null")
            seq, mark, names = found["seq"], list(found["mark"]), found["notes"]
            written = {folder: {*map(str, names[folder])} for folder in self._names}
            if not isinstance(seq, int) or not 0 <= seq <= NEWEST:
                raise ValueError
            self.format = found["format"]
        except OSError as error:
            raise self._unfit(MANIFEST, error) from None
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # there is none yet, or it was damaged
        self.seq, self.mark = seq, mark
        self._names |= written

    def finish(self, seq: int, mark: list[Any]) -> None:
        """Record how far the notes are; mark: identifies the store"""
        self.seq, self.mark, self.format = seq, mark, FORMAT
        notes = {folder: sorted(names) for folder, names in self._names.items()}
        said = {"format": FORMAT, "seq": seq, "mark": mark, "notes": notes}
        self._replace("", MANIFEST, to_text(said) + "\n")

    def missing(self) -> bool:
        """Whether a written note is gone or empty."""
        return any(names - self._there(folder) for folder, names in self._names.items())

    def forget_missing(self) -> None:
        """Expect only the existing notes: the store no longer knows some of them."""
        for folder, names in self._names.items():
            names &= self._there(folder)

    def _there(self, folder: str) -> set[str]:
        with os.scandir(self._folders[folder]) as found:
            return {one.name.removesuffix(".md") for one in found if size_of(one)}

    def take_kept(self) -> dict[str, str]:
        """The notes that were left as they are, and why, each once."""
        kept = {path: why for path, why in self._kept.items() if path not in self._told}
        self._told |= kept.keys()
        return kept

    def has(self, path: str) -> bool:
        """Whether there is a note that is not empty."""
        folder, _, name = path.rpartition("/")
        try:
            found = os.stat(f"{name}.md", dir_fd=self._folders[folder], follow_symlinks=False)
        except OSError:
            return False
        return found.st_size > 0

    def write(self, path: str, text: str) -> None:
        """Write a note, unless it is already the same or no longer dibs' own."""
        folder, _, name = path.rpartition("/")
        file = f"{name}.md"
        try:
            before = self._read(folder, file)
        except OSError as error:
            self._kept[path] = f"cannot be read: {error.strerror}"
            return
        text = sealed(text)
        self._names[folder].add(name)
        if before == text:
            self._kept.pop(path, None)
            return
        if before and not is_ours(before):
            edited = DIGEST.search(before) is not None
            self._kept[path] = "was edited" if edited else "was not written by dibs"
            return
        self._kept.pop(path, None)
        self._replace(folder, file, text)
        self.written += 1

    def linked(self, path: str) -> list[Ref]:
        """The links of the existing note."""
        folder, _, name = path.rpartition("/")
        text = self._own(folder, name)
        found = [self._about(link) for link in dict.fromkeys(LINK.findall(text))]
        return [ref for ref in found if ref is not None]

    def _about(self, path: str) -> Ref | None:
        """What the existing note at a path is about; None if that is not its path."""
        folder, _, name = path.rpartition("/")
        said = NAME.search(self._own(folder, name)) if folder in FOLDERS else None
        try:
            # What `markup.yaml` writes is also a valid Python string.
            ref = said and Ref(ABOUT[said[1]], ast.literal_eval(said[2]))
            return ref if ref and ref.path == path else None
        except (*UNREADABLE, SyntaxError, MemoryError):
            return None  # it only looks like a note of dibs

    def _own(self, folder: str, name: str) -> str:
        return own_text(self._folders[folder], f"{name}.md")

    def _read(self, folder: str, file: str) -> str | None:
        return read_at(self._folders[folder], file)

    def _replace(self, folder: str, file: str, text: str) -> None:
        handle = self._folders[folder]
        temporary = f".dibs-vault~{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY
        try:
            made = os.open(temporary, flags, 0o666, dir_fd=handle)
            with open(made, "w", encoding="utf-8", newline="") as out:
                out.write(text)
            os.replace(temporary, file, src_dir_fd=handle, dst_dir_fd=handle)
        except OSError as error:
            raise InvalidError(
                f"{named(f'{self.path}/{folder}/{file}')} cannot be written: {error.strerror}",
                next="free some space, or name another folder",
            ) from None


def size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0  # it was just removed


def read_at(handle: int, file: str) -> str | None:
    """The text of a regular file; None if there is none. No link is followed."""
    try:
        opened = os.open(file, os.O_RDONLY | SAFELY, dir_fd=handle)
    except FileNotFoundError:
        return None
    with open(opened, "rb") as source:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is not a regular file")
        if found.st_size > LIMIT:
            raise OSError(0, "it is too large")
        data = source.read()
    # A git checkout may have changed the line endings.
    return data.replace(b"\r\n", b"\n").decode("utf-8", "replace")


def own_text(handle: int, file: str) -> str:
    """A note that dibs wrote; "" if it is missing, was changed or cannot be read."""
    try:
        text = read_at(handle, file) or ""
    except (OSError, ValueError):  # no file is called like that
        return ""
    return text if is_ours(text) else ""


def sealed(text: str) -> str:
    """A note with its digest, as the last field of its front matter."""
    head, mark, rest = text.partition("\n---\n")
    return f'{head}\ndigest: "{digest(text)}"{mark}{rest}'


def is_ours(text: str) -> bool:
    """Whether dibs wrote exactly this."""
    head, mark, rest = text.partition("\n---\n")
    said = DIGEST.search(f"{head}\n")
    if said is None:
        return False
    return said[1] == digest(f"{head}\n".replace(said[0], "", 1)[:-1] + mark + rest)


def digest(text: str) -> str:
    found: str = sha256(text.encode()).hexdigest()
    return found[:32]
