"""`dibs work import`: tasks from a file, a folder or a pipe, whichever tool wrote them."""

from __future__ import annotations

import sys

from dibs.arguments import Choice, Text
from dibs.errors import InvalidError
from dibs.operation import EVERYBODY
from dibs.records import called, quoted
from dibs.surroundings.wording import complaint, note, print_json, say
from dibs.trackers.formats import FOLDER, READERS, read, read_folder
from dibs.trackers.importing import Report, bring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals
    from dibs.trackers.fields import Found

BY = EVERYBODY
KINDS = {"format": Choice(*READERS, FOLDER), "prefix": Text(100)}
SHOWN = 20


def main(
    call: Globals, file: str = "-", *, format: str = "", prefix: str = "", dry_run: bool = False
) -> int:
    """Import tasks from a file: add what is new, update what has changed, leave the rest alone.

    The format is detected. A task that is claimed here stays with its claimer, and one that has
    ended here is not reopened. A wrong record is reported and the others are imported; the exit
    code is then 1.

    file: a file, the folder of Backlog.md, or - for the standard input
    format: the format of the file, if it cannot be detected
    prefix: text to put before each id, such as web- or github:OWNER/REPO#
    dry_run: only show what would be done
    example: issues.json --dry-run
    """
    found, format = records(file, format, prefix)
    with call.open() as space:
        report = bring(call.join(space, people=True), found, dry_run=dry_run)
    tell(call, report, {"format": format}, dry_run)
    return 1 if report.wrong else 0


def records(file: str, format: str, prefix: str) -> tuple[list[Found], str]:
    import os

    from dibs.trackers.source_files import FILE_LIMIT, contents

    if file != "-" and (format == FOLDER or os.path.isdir(file)):
        format, found = read_folder(file, prefix)
        if not found:
            raise InvalidError(f"there are no tasks of Backlog.md in {quoted(file)}")
        return found, format
    if file == "-":
        data = sys.stdin.buffer.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            raise InvalidError(f"more than {FILE_LIMIT:,} bytes on the standard input")
    else:
        data = contents(file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidError(f"line {line} is not UTF-8", next="convert the file first") from None
    format, found = read(text, format, prefix)
    return found, format


def tell(call: Globals, report: Report, facts: dict[str, object], dry_run: bool) -> None:
    """The outcome of the import: the data, and then each wrong record."""
    added, changed = report.ids("added"), report.ids("changed")
    if call.json:
        wrong = [{"place": place, **error.to_json()} for place, error in report.wrong]
        kept = len(report.ids("kept"))
        print_json({**facts, "added": added, "changed": changed, "kept": kept, "wrong": wrong})
        return
    would = "would be " if dry_run else ""
    kept = len(report.puts) - len(added) - len(changed)
    for done, ids in (("added", added), ("changed", changed)):
        for id in ids[:SHOWN]:
            say(f"{done} {called(id)}")
        if len(ids) > SHOWN:
            say(f"{done} {len(ids) - SHOWN:,} more")
    note(f"{len(added):,} {would}added, {len(changed):,} {would}changed, {kept:,} the same")
    for place, error in report.wrong[:SHOWN]:
        error.message = f"{place}: {error.message}"
        complaint(error)
    if len(report.wrong) > SHOWN:
        note(f"{len(report.wrong) - SHOWN:,} more are wrong; see them all with --json")
