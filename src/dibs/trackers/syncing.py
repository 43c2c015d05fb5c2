"""Keep a source and the tasks here in sync: state, title, labels, assignee, closing comment.

A lease allows one run per source at a time. It takes the issues that have changed there since the
last run and the tasks that have changed here, and merges each field (`merging`). The last common
values are kept in the state, below `sync:SOURCE`: for each issue a hash of each field, and in
`cursor` where the next run begins.

If a run is killed at any point, the next run does the rest, and nothing twice. Changes from the
source are applied here first, which can be repeated. There, the closing comment comes first, with a
mark that is searched for before it is posted; then the issue is changed; then the common values are
saved, after each issue. The cursor moves at the end.
"""

from __future__ import annotations

import json

from dibs.digest import sha256
from dibs.errors import DibsError, InvalidError, UnavailableError
from dibs.records import called
from dibs.trackers.fields import OPEN
from dibs.trackers.importing import Report, bring
from dibs.trackers.merging import ASSIGNEE, Merge, hashed, merged, ours_of, theirs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.dibs import Agent
    from dibs.records import Task
    from dibs.trackers.fields import Item
    from dibs.trackers.hosts import GitHub, Issue
    from dibs.trackers.source_files import BeadsFile, MarkdownFile

    Tracker = GitHub | MarkdownFile | BeadsFile

CURSOR = "seen_until"
AGAIN = "again"
"""Follows the hashes of an issue that was skipped: the next run checks it in any case."""
PAGE = 1_000
RESULT_SHOWN = 8_000


class Known:
    """The last common values, as the state keeps them: issues by a part of their id's hash."""

    def __init__(self, agent: Agent, source: str) -> None:
        self._state, self._namespace = agent.state, f"sync:{source}"
        self._versions: dict[str, int] = {}
        self._parts: dict[str, dict[str, list[str]]] = {}
        self._changed: set[str] = set()
        self.cursor = ""
        after = ""
        while page := self._state.list(self._namespace, after=after, limit=PAGE):
            for entry in page:
                self._versions[entry.key] = entry.version
                if entry.key == CURSOR:
                    self.cursor = str(entry.value)
                else:
                    self._parts[entry.key] = entry.value
            after = page[-1].key

    def get(self, id: str) -> list[str] | None:
        return self._parts.get(part_of(id), {}).get(id)

    def left(self) -> list[str]:
        return [id for part in self._parts.values() for id, base in part.items() if AGAIN in base]

    def set(self, id: str, base: list[str]) -> None:
        if self.get(id) != base:
            self._parts.setdefault(part_of(id), {})[id] = base
            self._changed.add(part_of(id))

    def store(self) -> None:
        for key in sorted(self._changed):
            self._write(key, self._parts[key])
        self._changed.clear()

    def move(self, cursor: str) -> None:
        if cursor and cursor != self.cursor:
            self._write(CURSOR, cursor)

    def _write(self, key: str, value: Any) -> None:
        # With the version that was read: another run would have changed it.
        version = self._versions.get(key, 0)
        entry = self._state.set(self._namespace, key, value, expected_version=version)
        self._versions[key] = entry.version


def part_of(id: str) -> str:
    return str(sha256(id.encode()).hexdigest()[:2])


class Sync:
    """One run.

    accounts: the agents' accounts there; see `merging.ours_of`
    pushed: the issues that were changed there, and which fields
    left: the tasks that somebody is working on here although they have ended there
    """

    def __init__(
        self,
        agent: Agent,
        tracker: Tracker,
        rule: str,
        accounts: dict[str, str] | None,
        dry_run: bool,
    ) -> None:
        self._agent, self._tracker, self._rule = agent, tracker, rule
        self._accounts, self._dry_run = accounts, dry_run
        self._known = Known(agent, tracker.source)
        self.report = Report()
        self.pushed: dict[str, list[str]] = {}
        self.left: list[str] = []

    def run(self) -> None:
        tasks = {task.id: task for task in self._tasks()}
        issues = {issue.id: issue for issue in self._changed(tasks)}
        merges = {id: self._merge(tasks[id], issue) for id, issue in issues.items() if id in tasks}
        self._take_over(issues, merges)
        for id, merge in merges.items():
            if merge.there:
                self._push(issues[id], tasks[id], merge)
        if self._dry_run:
            return
        self._tracker.finish()
        self._known.store()
        self._known.move(self._tracker.now)

    def _tasks(self) -> Iterator[Task]:
        after = 0
        while page := self._agent.work.list(after=after, limit=PAGE):
            yield from page
            after = page[-1].seq

    def _changed(self, tasks: dict[str, Task]) -> Iterator[Issue]:
        """The issues that have changed there, and those whose tasks have changed here."""
        seen = set()
        for issue in self._tracker.listed(self._known.cursor):
            if isinstance(issue.item, InvalidError):
                self.report.wrong.append((f"issue {issue.number}", issue.item))
            elif issue.id not in seen:
                seen.add(issue.id)
                yield issue
        if self._tracker.complete:
            return
        left = set(self._known.left())
        for id, task in tasks.items():
            if id in seen or not id.startswith(f"{self._tracker.source}#"):
                continue
            if id in left or self._differs(task):
                one = self._tracker.one(id)
                if one is not None and one.id == id:
                    yield one

    def _differs(self, task: Task) -> bool:
        """Whether a task differs from the last common values, as far as can be seen here."""
        base = self._known.get(task.id)
        if base is None:
            return True
        ours = ours_of(
            task,
            lambda account: hashed(account) == base[ASSIGNEE],
            self._tracker.cancels,
            self._accounts,
        )
        pairs = zip(base, ours.values(), strict=False)
        return any(value is not None and hashed(value) != was for was, value in pairs)

    def _merge(self, task: Task, issue: Issue) -> Merge:
        cancels, base = self._tracker.cancels, self._known.get(task.id)
        ours = ours_of(task, lambda account: account == issue.assignee, cancels, self._accounts)
        newer = task.changed_at > issue.changed_ms
        return merged(base, ours, theirs_of(issue, cancels), self._rule, newer)

    def _take_over(self, issues: dict[str, Issue], merges: dict[str, Merge]) -> None:
        """Apply here what is new or has changed there."""
        found = []
        for id, issue in issues.items():
            assert isinstance(issue.item, dict)
            merge, item = merges.get(id), issue.item
            if merge is not None:
                ours = {"state", "title", "labels"} - merge.here.keys()
                item = {name: value for name, value in item.items() if name not in ours}
                if "assignee" in merge.there:
                    item["payload"] = self._assigned(item, merge.there["assignee"])
            found.append((id, item))
        done = bring(self._agent, found, dry_run=self._dry_run, reopen=True)
        self.report.wrong += done.wrong
        self.report.puts += done.puts
        for put in done.puts:
            merge = merges.get(put.id) or Merge(theirs_of(issues[put.id], self._tracker.cancels))
            if put.state == "claimed" and merge.here.get("state", OPEN) != OPEN:
                self.left.append(put.id)
                was = self._known.get(put.id) or [hashed(OPEN)]
                merge.base = [was[0], *merge.base[1:], AGAIN]
            if not merge.there:
                self._known.set(put.id, merge.base)
        if not self._dry_run:
            self._known.store()

    def _assigned(self, item: Item, account: str) -> Item:
        """The payload as it will be once the issue is assigned there.

        Otherwise the next run would take our own change for a change there.
        """
        payload, people = dict(item.get("payload") or {}), self._tracker.people
        payload.pop(people, None)
        if account:
            payload[people] = [account] if people == "assignees" else account
        return payload

    def _push(self, issue: Issue, task: Task, merge: Merge) -> None:
        """Change an issue there, and save the common values."""
        self.pushed[task.id] = sorted(merge.there)
        if self._dry_run:
            return
        ends = merge.there.get("state", OPEN) != OPEN
        comment = closing(task) if ends else ""
        try:
            self._tracker.push(issue, merge.there, comment, marker(task))
        except UnavailableError:
            raise
        except DibsError as error:
            del self.pushed[task.id]
            self.report.wrong.append((task.id, error))
            return
        self._known.set(task.id, merge.base)
        if not self._tracker.at_once:
            self._known.store()


def marker(task: Task) -> str:
    """The mark of a closing comment: one for each time a task was completed."""
    said = json.dumps([task.id, task.epoch, task.state]).encode()
    return f"<!-- dibs:{sha256(said).hexdigest()[:16]} -->"


def closing(task: Task) -> str:
    """The comment about a task that was completed or cancelled here, in the agent's words."""
    done = "Completed" if task.state == "completed" else "Cancelled"
    said = f"{done} by {called(task.agent)}." if task.agent else f"{done}."
    text = task.reason if task.result is None else words_of(task.result)
    if not text:
        return said
    text = text[:RESULT_SHOWN]
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{said}\n\n{fence}\n{text}\n{fence}"


def words_of(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)
