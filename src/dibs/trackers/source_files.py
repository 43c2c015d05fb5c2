"""A file as the other side of a synchronisation: a checklist in Markdown, or beads' JSON lines.

It is read as a whole and, if something must change, replaced as a whole; unchanged lines stay the
same to the byte. If somebody else has written the file meanwhile, it is not replaced, and the next
run begins with their version.
"""

from __future__ import annotations

import json
import os
import stat
import time

from dibs.errors import ConflictError, InvalidError, NotFoundError
from dibs.records import quoted
from dibs.trackers import beads, markdown
from dibs.trackers.fields import OPEN
from dibs.trackers.hosts import Issue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.trackers.fields import Item
    from dibs.trackers.markdown import Line

FILE_LIMIT = 64 * 1024 * 1024


class File:
    """The common part of both: the text, and how it is replaced."""

    cancels = True
    complete = True
    at_once = True
    people = "assignee"
    now = ""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source
        self.read = contents(path)
        text = self.read.decode()
        self.mark = "\ufeff" if text.startswith("\ufeff") else ""
        self.lines = text.removeprefix(self.mark).split("\n")
        self.changed_ms = int(os.stat(path).st_mtime * 1000)

    def finish(self) -> None:
        """Replace the file, if it is still the one that was read."""
        data = (self.mark + "\n".join(self.lines)).encode()
        if data == self.read:
            return
        draft = f"{self.path}.{os.urandom(4).hex()}.part"
        mode = stat.S_IMODE(os.stat(self.path).st_mode)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
            if contents(self.path) != self.read:
                raise ConflictError(
                    f"{quoted(self.path)} has changed meanwhile, so it was not written",
                    next="run it again",
                )
            os.replace(draft, self.path)
        except BaseException:
            os.unlink(draft)
            raise


class MarkdownFile(File):
    def listed(self, since: str) -> Iterator[Issue]:
        items = {place: item for place, item in markdown.parse("\n".join(self.lines))}
        for line in markdown.lines_of("\n".join(self.lines)):
            item = items[f"line {line.number + 1}"]
            if isinstance(item, dict):
                yield issue_of(line.id, {}, item, self.changed_ms)

    def one(self, id: str) -> Issue | None:
        return next((issue for issue in self.listed("") if issue.id == id), None)

    def push(self, issue: Issue, changes: dict[str, Any], comment: str, marker: str) -> None:
        text = "\n".join(self.lines)
        line: Line = next(line for line in markdown.lines_of(text) if line.id == issue.number)
        if "state" in changes:
            line.box = markdown.BOXES[changes["state"]]
        if "title" in changes:
            line.title = changes["title"]
            # Until now its id was made from its title.
            line.said = {"id": markdown.escaped(line.id), **line.said}
        if "labels" in changes:
            line.said["labels"] = markdown.joined(changes["labels"])
        if "assignee" in changes:
            line.said["assignee"] = markdown.escaped(changes["assignee"])
        end = "\r" if self.lines[line.number].endswith("\r") else ""
        self.lines[line.number] = line.text() + end
        if comment:
            said = f"{line.head}  {markdown.RESULT}{' '.join(comment.split())}{end}"
            if self.lines[line.number + 1 : line.number + 2] != [said]:
                self.lines.insert(line.number + 1, said)


class BeadsFile(File):
    def listed(self, since: str) -> Iterator[Issue]:
        for number, line in enumerate(self.lines):
            if line.strip():
                for _, item in beads.parse(line):
                    record = json.loads(line) if isinstance(item, dict) else {}
                    yield issue_of(str(number), record, item, self.changed_ms)

    def one(self, id: str) -> Issue | None:
        return next((issue for issue in self.listed("") if issue.id == id), None)

    def push(self, issue: Issue, changes: dict[str, Any], comment: str, marker: str) -> None:
        record: Item = dict(issue.record)
        now = beads.moment(int(time.time() * 1000))
        for field, value in changes.items():
            if field != "state":
                record[field] = value
            elif value == OPEN:
                record |= {"status": "open"}
                record.pop("closed_at", None)
                record.pop("close_reason", None)
            else:
                record |= {"status": "closed", "closed_at": now}
                record |= {"close_reason": comment} if comment else {}
        record["updated_at"] = now
        place = int(issue.number)
        end = "\r" if self.lines[place].endswith("\r") else ""
        self.lines[place] = json.dumps(record, ensure_ascii=False) + end


def issue_of(number: str, record: Item, item: Item | InvalidError, changed_ms: int) -> Issue:
    issue = Issue(number, record, item)
    issue.changed_ms = issue.changed_ms or changed_ms
    return issue


def contents(path: str) -> bytes:
    """The text of a regular file; a link is followed, since the user named it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {quoted(path)}", next="check its name") from None
    except OSError as error:
        raise InvalidError(f"{quoted(path)} cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidError(f"{quoted(path)} is not a file")
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise InvalidError(f"{quoted(path)} has more than {FILE_LIMIT:,} bytes")
    try:
        data.decode()
    except UnicodeDecodeError:
        raise InvalidError(f"{quoted(path)} is not UTF-8") from None
    return data
