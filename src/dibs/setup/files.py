"""The files of others: read and written whole, and changed by nothing but insertions.

A file is written at once or not at all, through links, and keeps its mode. A text in it only
grows: what is inserted is kept, so that it can be cut out again.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BOM = "\ufeff"


class Refusal(Exception):
    """A file that dibs does not dare to change: where, why, and what to do about it."""

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


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


class NotText(Refusal):
    """The file is there, and is no text."""


def read(path: str) -> str | None:
    """A file's text, every character as it is; None if there is no file."""
    try:
        with open(path, "rb") as source:
            content = source.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refusal("it is a directory", next="move it away") from None
    except NotADirectoryError:
        raise Refusal("something above it is not a directory", next="move that away") from None
    except OSError as error:
        raise Refusal(f"it cannot be read: {error.strerror}", next="let it be read") from None
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
    if there is not None:
        if not stat.S_ISREG(there.st_mode):
            raise Refusal("it is not a plain file", next="move it away")
        # To put another in its place would work, and would be against what its mode says.
        if not there.st_mode & 0o222 or not os.access(real, os.W_OK):
            raise Refusal("it is read-only", next="make it writable, then run dibs init again")
    try:
        made = make_folders(os.path.dirname(real))
        replace(real, text.encode(), mode if there is None else None, there)
    except OSError as error:
        why = f"it cannot be written: {error.strerror}"
        raise Refusal(why, next="make it writable, then run dibs init again") from None
    return made


def replace(path: str, content: bytes, mode: int | None, old: os.stat_result | None) -> None:
    draft = f"{path}.dibs-{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    handle = os.open(draft, flags, 0o600 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as out:
            if old is not None:
                os.fchmod(out.fileno(), stat.S_IMODE(old.st_mode))
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    keep_owner(out.fileno(), old)
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def keep_owner(handle: int, old: os.stat_result) -> None:
    try:
        os.fchown(handle, old.st_uid, old.st_gid)
        os.fchmod(handle, stat.S_IMODE(old.st_mode))
    except PermissionError:
        pass  # only root may give files away, and everybody else owns what they write


def make_folders(folder: str) -> list[str]:
    """Make a folder and those above it that are missing; the outermost first."""
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        os.mkdir(path)
    return missing[::-1]


def remove_empty(folders: list[str]) -> None:
    """Remove those folders that are empty, the innermost first."""
    for folder in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # not empty, or gone: both are fine
