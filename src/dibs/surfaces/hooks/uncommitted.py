"""What is uncommitted, kept before a command that could destroy it.

Every file that differs from HEAD or is untracked (not ignored) is kept. So is staged content that
differs from the file, and the positions of branches and stashes. Time and number of files are
bounded. Files that were left out, because they were too large or there was no time, are noted too,
and `dibs recover` says so.
"""

from __future__ import annotations

import json
import os
from stat import S_ISREG
from time import monotonic, time

from dibs.errors import DibsError, UnavailableError
from dibs.names.checkouts import git_directory
from dibs.surfaces.hooks.contents import FILE_LIMIT, UNKNOWN, Contents, read_file
from dibs.surfaces.hooks.notes import read_note, write
from dibs.surfaces.hooks.snapshots import SETTLED_MS, Kept, Snapshot, content_of, flight_name
from dibs.surfaces.hooks.threats import ANY, tells_git, threatened
from dibs.surroundings import failures
from dibs.surroundings.git import elsewhere, git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings.occasion import Edit

BUDGET_S = 0.7
FILES_LIMIT = 3_000
PATHS_LIMIT = 100
"""With more paths, git is asked about the whole checkout."""
SNAPSHOTS_LIMIT = 400


def keep(case: Case, edits: list[Edit]) -> None:
    """Keep what a tool that is about to run could destroy; a failure must not stop the tool."""
    try:
        if not case.occasion.command:
            for edit in edits:
                resource = case.resource(edit.path) if edit.kind == "remove" else None
                if resource and resource.file:
                    case.kept.keep(resource.file, case.agent.name)
            return
        scope = threatened(case, edits)
        if scope:
            take(case, scope)
    except (DibsError, OSError, ValueError) as error:
        failures.record(case.store_dir, f"what a command could destroy was not kept: {error}")


def take(case: Case, scope: dict[str, list[str]]) -> None:
    """Keep what is uncommitted in these checkouts, and note it all in a snapshot."""
    end = monotonic() + BUDGET_S
    flight = case.flights.of(case.occasion)
    at = round(time() * 1000)
    taken = Snapshot(f"{case.kept.place}/snapshots/{at}-{flight_name(flight)}", {
        "at": at, "agent": case.agent.name, "doing": flight.doing if flight else "", "tops": {},
        "refs": None, "stashes": {}, "left_out": {}, "lost": None, "commits": {}, "files": {},
    })  # fmt: skip
    whose = Whose(case)
    for top, paths in scope.items():
        try:
            found = ask_git(top, paths, end)
        except UnavailableError as error:
            taken.left_out[top] = error.message
            failures.record(case.store_dir, f"before {taken.doing}: {error.message}")
            continue
        taken.tops[top] = found.head
        if found.staged:
            keep_staged(case.kept, taken, top, found.staged, end)
        keep_files(case.kept, taken, top, found, whose, end)
        if ANY in paths:
            forget_authors(case, taken, top)
    if tells_git(case.occasion.command):
        taken.refs, taken.stashes = where_commits_are(case)
    if taken.files or taken.refs or taken.stashes or taken.left_out:
        taken.write(case.kept)
        for old in sorted(case.kept.own.names(f"{case.kept.place}/snapshots"))[:-SNAPSHOTS_LIMIT]:
            case.kept.own.remove(f"{case.kept.place}/snapshots/{old}")


def forget_authors(case: Case, taken: Snapshot, top: str) -> None:
    """Note who has something uncommitted in a checkout, now that all of it was checked."""
    owners = {one.agent for file, one in taken.files.items() if taken.top_of(file) == top}
    known = case.kept.authors(top)
    if UNKNOWN not in owners and not taken.left_out and known - owners - {case.agent.name}:
        names = sorted(owners | {case.agent.name})
        write(case.kept.own, case.kept.of(top, "authors"), "\n".join([*names, ""]))


class Uncommitted:
    """
    files: the paths that differ from what git has, each with git's ids
    staged: what is staged for a path, if the file differs from it
    """

    def __init__(self) -> None:
        self.head = ""
        self.files: dict[str, list[str]] = {}
        self.staged: dict[str, str] = {}


def ask_git(top: str, paths: list[str], end: float) -> Uncommitted:
    """Ask git what is uncommitted below some paths of a checkout."""
    some = () if ANY in paths or len(paths) > PATHS_LIMIT else ("--", *paths)
    said = git(
        "status", "--porcelain=v2", "-z", "--branch", "--no-renames", "--untracked-files=all",
        # For a submodule, git would start another git in it, with that repository's settings.
        "--ignore-submodules=all", *some, cwd=top,
        environment=elsewhere() | {"GIT_LITERAL_PATHSPECS": "1"},
        timeout_s=max(0.05, end - monotonic()),
    )  # fmt: skip
    found = Uncommitted()
    for entry in os.fsdecode(said).split("\0"):
        kind = entry[:1]
        if entry.startswith("# branch.oid "):
            found.head = entry[13:]
        elif kind == "1":
            _, state, _, _, _, _, head, index, path = entry.split(" ", 8)
            if state[1] != "D":
                found.files[path] = [head, index]
            if state[0] not in ".D" and state[1] != ".":
                found.staged[path] = index
        elif kind == "u":
            found.files[entry.split(" ", 10)[10]] = []
        elif kind == "?" and not entry.endswith("/"):
            found.files[entry[2:]] = []
    return found


class Whose:
    """Whose work a file is that no edit tool wrote: that of the agent whose tool ran then."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._default = ""
        self._tools: list[tuple[float, float, str]] = []

    def of(self, status: os.stat_result) -> tuple[str, str]:
        """Who wrote it ("" if unclear), and who probably did if nobody is known."""
        case = self._case
        if not self._default:
            self._default = case.agent.name if case.is_alone() else UNKNOWN
            self._tools = tools(case.kept) + [
                (one.since, time(), one.agent)
                for one in case.flights.under_way()
                if one.command and one.session != case.session
            ]
        makers = {agent for began, ended, agent in self._tools if began <= status.st_mtime <= ended}
        return makers.pop() if len(makers) == 1 else "", self._default


def tools(contents: Contents) -> list[tuple[float, float, str]]:
    """When each agent's last tools began and ended."""
    found = []
    for line in (read_note(contents.own, f"{contents.place}/tools") or "").splitlines():
        try:
            began, ended, agent = line.split(" ", 2)
            found.append((float(began), float(ended), agent))
        except ValueError:
            continue  # damaged
    return found


def keep_files(
    contents: Contents, taken: Snapshot, top: str, found: Uncommitted, whose: Whose, end: float
) -> None:
    """Keep the files of one checkout; files that are unchanged since last time are not read."""
    cache = contents.of(top, "seen")
    try:
        seen = json.loads(read_note(contents.own, cache) or "{}")
    except (ValueError, RecursionError):
        seen = {}  # damaged
    now = {}
    for path, ids in found.files.items():
        file = os.path.join(top, path)
        if monotonic() > end or len(taken.files) >= FILES_LIMIT:
            taken.left_out[file] = "there was no time for it"
            continue
        try:
            status = os.lstat(file)
        except OSError:
            continue  # it was just removed
        mark = f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"
        known = seen.get(path)
        fresh = isinstance(known, list) and known[0] == mark and path not in found.staged
        if fresh and contents.has(known[1]):
            content_hash, agent = known[1:]
        else:
            content = content_of(file, status)
            if content is None:
                taken.left_out[file] = why_not(status)
                continue
            content_hash = contents.add(content)
            agent = contents.note(file, content_hash, *whose.of(status))
        if taken.at - status.st_mtime * 1000 > SETTLED_MS:
            now[path] = [mark, content_hash, agent]
        taken.files[file] = Kept([content_hash, agent, status.st_mode, mark, ids])
    if now != seen:
        write(contents.own, cache, json.dumps(now))


def keep_staged(
    contents: Contents, taken: Snapshot, top: str, staged: dict[str, str], end: float
) -> None:
    """Keep staged contents of files that differ by now, before those files are noted."""
    wanted = "".join(f"{one}\n" for one in dict.fromkeys(staged.values())).encode()
    look = git("cat-file", "--batch-check=%(objectsize) %(objectname)", cwd=top, input=wanted,
               environment=elsewhere(), timeout_s=max(0.05, end - monotonic()))  # fmt: skip
    small = [
        name for size, _, name in (line.partition(" ") for line in look.decode().splitlines())
        if size.isdecimal() and int(size) <= FILE_LIMIT
    ]  # fmt: skip
    said = git("cat-file", "--batch", cwd=top, input="\n".join([*small, ""]).encode(),
               environment=elsewhere(), timeout_s=max(0.05, end - monotonic()))  # fmt: skip
    found, at = {}, 0
    while at < len(said):
        line = said.index(b"\n", at)
        name, _, size = said[at:line].decode().split(" ")
        at = line + 1 + int(size)
        found[name] = contents.add(said[line + 1 : at])
        at += 1
    for path, name in staged.items():
        file = os.path.join(top, path)
        if name not in found:
            taken.left_out[file] = f"what was staged is larger than {FILE_LIMIT >> 20} MiB"
        elif found[name] not in [one.content_hash for one in contents.versions(file)]:
            contents.note(file, found[name])


def why_not(status: os.stat_result) -> str:
    if not S_ISREG(status.st_mode):
        return "it is not a file"
    large = status.st_size > FILE_LIMIT
    return f"it is larger than {FILE_LIMIT >> 20} MiB" if large else "it cannot be read"


def where_commits_are(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """The branches, and the stash entries with their messages, each by its commit."""
    top, root = case.place.top, case.place.root
    said = git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags",
               cwd=top if os.path.isdir(top) else root, environment=elsewhere(),
               timeout_s=BUDGET_S)  # fmt: skip
    refs = dict(line.split(" ", 1) for line in os.fsdecode(said).splitlines())
    stashes = {}
    try:
        log = read_file(f"{git_directory(root)}/logs/refs/stash") or b""
        for line in log.decode("utf-8", "replace").splitlines():
            who, _, message = line.partition("\t")
            stashes[who.split(" ")[1]] = message
    except IndexError:
        pass  # damaged
    return refs, stashes
