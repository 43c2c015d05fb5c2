"""Other people's files: read and written as a whole, and changed only by insertions.

A file is written at once or not at all, through links that stay inside the checkout, and keeps its
mode. Its text only grows: insertions are remembered, so that they can be cut out again.

`.dibs/init.json` (`InitRecord`) says what was inserted where, so that it can be removed to the
byte. It is a convenience, not the truth: `git clean` may delete it at any time, and then our parts
are recognised by their text. It belongs to one machine and is not committed. It counts only if this
user's dibs wrote it, which its hash in the user's data folder proves: a record that somebody else
wrote could claim any file as ours.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dibs.digest import sha256
from dibs.errors import UnfitError
from dibs.storage.folder import Own
from dibs.surroundings.failures import user_dir

BOM = "\ufeff"
BLANK = " \t\r\n"
LIMIT = 4 << 20
RECORD = "init.json"


class Refusal(Exception):
    """A file that dibs must not change: where, why, and what to do about it.

    fault: whether the user has to fix something
    """

    fault = True

    def __init__(self, why: str, line: int | None = None, next: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.line = line
        self.next = next


class Draft:
    """A file's text with what was inserted into it.

    insertions: (place, text) in ascending order; places are counted in the current text
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.insertions: list[tuple[int, str]] = []
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def insert(self, place: int, text: str) -> None:
        """Insert a text, with the file's own line ends."""
        text = text.replace("\r\n", "\n").replace("\n", self.newline)
        self.text = self.text[:place] + text + self.text[place:]
        moved, grown = [], False
        for at, mine in self.insertions:
            if at <= place <= at + len(mine) and not grown:
                # It is inside an earlier insertion or touches it: treat both as one.
                mine = mine[: place - at] + text + mine[place - at :]
                grown = True
            elif at >= place:
                at += len(text)
            moved.append((at, mine))
        if not grown:
            moved.append((place, text))
        self.insertions = sorted(moved)


def undo(text: str, insertions: Sequence[tuple[int, str]]) -> str | None:
    """Cut insertions out again; None if one of them is not where it was."""
    for at, mine in reversed(insertions):
        if text[at : at + len(mine)] != mine:
            return None
        text = text[:at] + text[at + len(mine) :]
    return text


def cut(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Cut spans out of a text; they do not overlap."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def gap_after(text: str) -> str:
    """What separates an addition from the text before it."""
    return "" if not text.strip(BOM) else "\n" if text.endswith("\n") else "\n\n"


def cut_apart(text: str, start: int, end: int) -> str:
    """Cut a span out of a text, with the line that separates it."""
    newline = Draft(text).newline
    if text[:start].endswith(newline * 2):
        start -= len(newline)
    return text[:start] + text[end:]


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


class NotText(Refusal):
    """The file exists, but is not text."""


class Overruled(Refusal):
    """The user has decided otherwise, and dibs respects that."""

    fault = False


def inside(path: str, root: str) -> bool:
    path, root = os.path.realpath(path), os.path.realpath(root)
    return path == root or path.startswith(root + os.sep)


def stay_inside(path: str, bounds: Iterable[str], store_dir: str) -> None:
    """Refuse a file that a link puts outside these folders, and any link beside the store."""
    if not any(inside(path, root) for root in bounds):
        why = "a link in its path leads out of this checkout"
        raise Refusal(why, next="replace the link with a file or a folder")
    if path.startswith(f"{store_dir}/"):
        try:
            Own(store_dir).folder()
        except FileNotFoundError:
            return
        except UnfitError as error:
            raise Refusal(error.message, next=error.next or "") from None
        if os.path.islink(path):
            raise Refusal("it is a link", next="replace it with a file")


def read(path: str) -> str | None:
    """A file's text, unchanged; None if there is no file."""
    try:
        # Without O_NONBLOCK a fifo would wait for its writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(os.path.realpath(path), flags)
        with open(handle, "rb") as source:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Refusal("it is not a plain file", next="move it away")
            content = source.read(LIMIT + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refusal("it is a directory", next="move it away") from None
    except NotADirectoryError:
        raise Refusal("something above it is not a directory", next="move that away") from None
    except OSError as error:
        raise Refusal(f"it cannot be read: {error.strerror}", next="make it readable") from None
    if len(content) > LIMIT:
        raise Refusal(f"it is larger than {LIMIT >> 20} MiB", next="make it smaller")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotText("it is not text in UTF-8", line, "save it as UTF-8") from None
    if "\0" in text:
        raise NotText("it is not text", next="move it away")
    return text


def write(path: str, text: str, mode: int) -> list[str]:
    """Replace the text of a file at once; return the folders that had to be created.

    mode: the permissions of a new file
    """
    real = os.path.realpath(path)
    try:
        there = os.stat(real)
    except FileNotFoundError:
        there = None
    if there and not stat.S_ISREG(there.st_mode):
        raise Refusal("it is not a plain file", next="move it away")
    # Replacing it would work, but its mode says not to change it.
    if there and not (there.st_mode & 0o222 and os.access(real, os.W_OK)):
        raise Refusal("it is read-only", next="make it writable, then run dibs init again")
    try:
        made = make_folders(os.path.dirname(real))
        replace(real, text.encode(), mode, there)
    except OSError as error:
        why = f"it cannot be written: {error.strerror}"
        raise Refusal(why, next="make it writable, then run dibs init again") from None
    return made


def replace(path: str, content: bytes, mode: int, old: os.stat_result | None) -> None:
    """Replace the content of a file at once, and keep its mode and owner."""
    draft = f"{path}.dibs-{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(draft, flags, mode if old is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            if old is not None:
                keep_owner(handle, old)
                os.fchmod(handle, stat.S_IMODE(old.st_mode))
            out.write(content)
            out.flush()
            os.fsync(handle)
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def keep_owner(handle: int, old: os.stat_result) -> None:
    try:
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(handle, old.st_uid, old.st_gid)
    except PermissionError:
        pass  # only root may change owners, and everybody else owns what they write


def make_folders(folder: str) -> list[str]:
    """Create a folder and the missing folders above it, the outermost first."""
    missing: list[str] = []
    while folder and not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    for path in missing:
        os.mkdir(path)
    return missing


def remove_empty(folders: list[str]) -> None:
    """Remove the empty ones of these folders, the innermost first."""
    for folder in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # not empty, or gone: both are fine


def label(path: str, root: str) -> str:
    """A file as the user would name it: relative to this folder, if it is below."""
    below = os.path.relpath(path, root)
    return path if below.startswith("..") else below


class Note(NamedTuple):
    """What was done to one file.

    made: whether the file did not exist before
    insertions: what was inserted, at places in the text as it was then
    parts: the names of what was added; if empty, the file said the same before dibs init
    """

    made: bool
    insertions: list[tuple[int, str]]
    parts: list[str]


class InitRecord:
    """The notes of one space; paths below its root are saved relative to it, so that it can move.

    notes: by the path of a file
    folders: the folders that were created
    """

    def __init__(self, root: str, store_dir: str) -> None:
        self.root = root
        self._own = Own(store_dir)
        self.clients: list[str] = []
        self.notes: dict[str, Note] = {}
        self.folders: list[str] = []
        try:
            self.load()
        except (OSError, ValueError, TypeError, KeyError, AttributeError, UnfitError):
            # Gone, or no longer ours: see above.
            self.clients, self.notes, self.folders = [], {}, []

    def load(self) -> None:
        content = self._own.read(RECORD)
        if content is None or Own(user_dir()).status(written(content)) is None:
            return
        said = json.loads(content)
        self.clients = [str(name) for name in said["clients"]]
        self.folders = [os.path.join(self.root, name) for name in said["folders"]]
        for name, note in said["files"].items():
            insertions = [(int(place), str(text)) for place, text in note["insertions"]]
            made = Note(bool(note["made"]), insertions, list(note["parts"]))
            self.notes[os.path.join(self.root, name)] = made

    def save(self) -> None:
        """Save it; if there is nothing to save, remove the file."""
        known, old = Own(user_dir()), self._own.read(RECORD)
        if old is not None:
            known.remove(written(old))
        if not self.notes:
            self._own.remove(RECORD)
            return
        notes = {label(path, self.root): note._asdict() for path, note in self.notes.items()}
        folders = [label(folder, self.root) for folder in self.folders]
        said = {"clients": self.clients, "folders": folders, "files": dict(sorted(notes.items()))}
        content = f"{json.dumps(said, indent=1)}\n".encode()
        self._own.write(RECORD, content)
        try:
            known.once(written(content), b"")
        except (OSError, UnfitError):
            return  # then our parts are recognised by their text


def written(content: bytes) -> str:
    """The name of the file in the user's data folder that proves that dibs wrote this."""
    return f"inits/{sha256(content).hexdigest()[:40]}"
