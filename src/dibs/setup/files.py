"""The files of others: read and written whole, and changed by nothing but insertions.

A file is written at once or not at all, through links that stay inside the checkout, and keeps its
mode. A text in it only
grows: what is inserted is kept, so that it can be cut out again.

`.dibs/init.json` (`InitRecord`) says what was inserted where, so that it can be taken out to the
byte. It is a convenience, not the truth: `git clean` may take it at any time, and then our parts
are recognised by what they say. It belongs to one machine and is not committed. Only one that this
user's dibs wrote counts, by its hash in the user's data folder: what another wrote there could name
any file as ours.
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
    """A file that dibs does not dare to change: where, why, and what to do about it.

    fault: whether that is something the user has to fix
    """

    fault = True

    def __init__(self, why: str, line: int | None = None, next: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.line = line
        self.next = next


class Draft:
    """A file's text with what was inserted into it.

    insertions: (place, text) in ascending order, places counted in the text as it is now
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.insertions: list[tuple[int, str]] = []
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def insert(self, place: int, text: str) -> None:
        """Insert a text, its line ends written as the file's own."""
        text = text.replace("\r\n", "\n").replace("\n", self.newline)
        self.text = self.text[:place] + text + self.text[place:]
        moved, grown = [], False
        for at, mine in self.insertions:
            if at <= place <= at + len(mine) and not grown:
                # It falls into, or touches, what was inserted before: one insertion from now on.
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
    """What sets apart what is put at the end of a text."""
    return "" if not text.strip(BOM) else "\n" if text.endswith("\n") else "\n\n"


def cut_apart(text: str, start: int, end: int) -> str:
    """Cut a span out of a text, with the line that sets it apart."""
    newline = Draft(text).newline
    if text[:start].endswith(newline * 2):
        start -= len(newline)
    return text[:start] + text[end:]


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


class NotText(Refusal):
    """The file is there, and is no text."""


class Overruled(Refusal):
    """The user has decided otherwise, and that stands."""

    fault = False


def inside(path: str, root: str) -> bool:
    path, root = os.path.realpath(path), os.path.realpath(root)
    return path == root or path.startswith(root + os.sep)


def stay_inside(path: str, bounds: Iterable[str], store_dir: str) -> None:
    """Refuse a file to which a link leads out of these folders, and any link beside the store."""
    if not any(inside(path, root) for root in bounds):
        why = "a link on the way to it leads out of this checkout"
        raise Refusal(why, next="put a file or a folder in the place of the link")
    if path.startswith(f"{store_dir}/"):
        try:
            Own(store_dir).folder()
        except FileNotFoundError:
            return
        except UnfitError as error:
            raise Refusal(error.message, next=error.next or "") from None
        if os.path.islink(path):
            raise Refusal("it is a link", next="put a file in its place")


def read(path: str) -> str | None:
    """A file's text, every character as it is; None if there is no file."""
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
        raise Refusal(f"it cannot be read: {error.strerror}", next="let it be read") from None
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
    """Put a text in the place of a file's, at once; the folders that had to be made for it.

    mode: the permissions of a file that was not there
    """
    real = os.path.realpath(path)
    try:
        there = os.stat(real)
    except FileNotFoundError:
        there = None
    if there and not stat.S_ISREG(there.st_mode):
        raise Refusal("it is not a plain file", next="move it away")
    # To put another in its place would work, and would be against what its mode says.
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
    """Put a content in the place of a file's, at once, with the mode and the owner that it had."""
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
        pass  # only root may give files away, and everybody else owns what they write


def make_folders(folder: str) -> list[str]:
    """Make a folder and those above it that are missing; the outermost first."""
    missing: list[str] = []
    while folder and not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    for path in missing:
        os.mkdir(path)
    return missing


def remove_empty(folders: list[str]) -> None:
    """Remove those folders that are empty, the innermost first."""
    for folder in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # not empty, or gone: both are fine


def label(path: str, root: str) -> str:
    """A file as the user would name it: from this folder, if it is below."""
    below = os.path.relpath(path, root)
    return path if below.startswith("..") else below


class Note(NamedTuple):
    """What was done to one file.

    made: whether the file was not there before
    insertions: what was inserted, at places of the text as it was then
    parts: the names of what was added; without any, the file said the same before we came
    """

    made: bool
    insertions: list[tuple[int, str]]
    parts: list[str]


class InitRecord:
    """The notes of one space; paths below its root are saved from there, so that it can move.

    notes: by the path of a file
    folders: those that were made on the way
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
            # Gone, or not ours any more: see above.
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
        """Write it down; with nothing to say there is no file."""
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
            return  # then our parts are recognised by what they say


def written(content: bytes) -> str:
    """The name of what says, in the user's data folder, that dibs wrote this."""
    return f"inits/{sha256(content).hexdigest()[:40]}"
