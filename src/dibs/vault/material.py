"""What a vault is made of: the current state from the operations, and the past from the journal.

An event concerns the day on which it happened, the agent that caused it, the task or resource it is
about, and everything else it names. The notes about these must be written again, with those of a
task's neighbours if it was added, changed or removed.
"""

from __future__ import annotations

from collections import deque

from dibs.vault.markup import date
from dibs.vault.names import AGENTS, DAYS, FILES, INDEX, TASKS, Ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.records import Blocker, Event, Lease, Message, Task

QUIET = frozenset(("lease.renewed", "lease.seen", "task.renewed", "task.turn", "message.delivered"))
"""Events that only say that something continues."""
KEPT, KEPT_OF_DAY = 200, 2_000
"""How many events a note lists; earlier ones are in the notes of their days."""
MESSAGES_KEPT = 20_000
NAMED = ("holder", "to", "sender")
"""The fields of an event's data that name an agent; `by` names several."""
RELATED = frozenset(("task.added", "task.edited", "task.removed"))
"""Events that change which tasks a task is related to."""
ENDED = frozenset(("task.completed", "task.cancelled", "task.reopened", "task.dead"))


class Material:
    """Everything that the notes say.

    project: what people call the space
    seq: the last write that is included for certain
    added: the last event that is included, which may be later
    begins: the seq up to which the journal was pruned
    first_day: the day of the first event that is kept
    news: what happened after the requested seq
    """

    def __init__(self) -> None:
        self.seq = 0
        self.begins = 0
        self.added = 0
        self.first_day = ""
        self.news: list[Event] = []
        self.space = self.project = ""
        self.tasks: dict[str, Task] = {}
        self.agents: dict[str, int] = {}
        self.leases: tuple[Lease, ...] = ()
        self.held: dict[Ref, list[Lease]] = {}
        self.waiting: tuple[Blocker, ...] = ()
        self.messages: dict[int, Message] = {}
        self.said: dict[Ref, list[Message]] = {}
        self.days: set[str] = set()
        self.acknowledged: dict[int, list[Event]] = {}
        self.history: dict[Ref, deque[Event]] = {}
        self.number: dict[Ref, int] = {}
        self.task_files: dict[str, dict[str, None]] = {}
        self.file_tasks: dict[str, dict[str, None]] = {}
        self.agent_files: dict[str, dict[str, None]] = {}
        self.agent_tasks: dict[str, dict[str, None]] = {}
        self.claimers: dict[str, dict[str, None]] = {}
        self.needed_by: dict[str, list[str]] = {}
        self.parts: dict[str, list[str]] = {}
        self.found: dict[str, list[str]] = {}
        self.declared_by: dict[str, list[str]] = {}

    def add(self, event: Event) -> None:
        """Add the next event of the journal, unless it was added before."""
        if event.seq <= self.added:
            return
        self.added, self.first_day = event.seq, self.first_day or date(event.at)
        data = event.data if isinstance(event.data, dict) else {}
        if event.kind == "message.acknowledged" and event.subject.isdecimal():
            self.acknowledged.setdefault(int(event.subject), []).append(event)
        agent, subject = event.agent or "", event.subject
        if event.kind == "lease.claimed":
            self.agent_files.setdefault(agent, {})[subject] = None
            if isinstance(task := data.get("task"), str):
                self.task_files.setdefault(task, {})[subject] = None
                self.file_tasks.setdefault(subject, {})[task] = None
        if event.kind == "task.claimed":
            self.agent_tasks.setdefault(agent, {})[subject] = None
            self.claimers.setdefault(subject, {})[agent] = None
        for ref in self.concerned(event):
            kept = self.history.get(ref)
            if kept is None:
                if ref.folder == DAYS:
                    self.days.add(ref.name)
                limit = KEPT_OF_DAY if ref.folder == DAYS else KEPT
                kept = self.history[ref] = deque(maxlen=limit)
                self.number[ref] = 0
            if event.kind not in QUIET:
                kept.append(event)
                self.number[ref] += 1

    def concerned(self, event: Event) -> Iterator[Ref]:
        """Everything that an event is about, each once."""
        found = {Ref(DAYS, date(event.at)): None}
        noun = event.kind.partition(".")[0]
        data = event.data if isinstance(event.data, dict) else {}
        agents = [event.agent, *(data.get(name) for name in NAMED)]
        if isinstance(by := data.get("by"), list):
            agents += by
        if noun == "session":
            agents += [event.subject, data.get("was")]
        if noun == "message" and (message := self.messages.get(event.seq)) is not None:
            agents.append(message.to)
        for name in agents:
            if isinstance(name, str) and name:
                found[Ref(AGENTS, name)] = None
        if noun == "task":
            found[Ref(TASKS, event.subject)] = None
        if noun == "lease":
            found[Ref(FILES, event.subject)] = None
        for name in ("task", "landing"):
            if isinstance(task := data.get(name), str) and task:
                found[Ref(TASKS, task)] = None
        yield from found

    def touched(self, event: Event) -> Iterator[Ref]:
        """The notes that an event changes, judged by the current state: see `RELATED`."""
        yield INDEX
        yield from self.concerned(event)
        if event.kind == "message.acknowledged" and event.subject.isdecimal():
            yield from self._of_message(self.messages.get(int(event.subject)))
        if event.kind.startswith("lease."):
            tasks = self.file_tasks.get(event.subject, ())
            yield from (Ref(TASKS, task) for task in tasks)
        if not event.kind.startswith("task."):
            return
        yield from (Ref(AGENTS, name) for name in self.claimers.get(event.subject, ()))
        task = self.tasks.get(event.subject)
        if task is None:
            return
        if event.kind in ENDED and task.parent is not None:
            yield Ref(TASKS, task.parent)
        if event.kind in RELATED:
            yield from related(task)
            yield Ref(AGENTS, task.author)

    @staticmethod
    def _of_message(message: Message | None) -> Iterator[Ref]:
        """The notes that contain a message, which all say who acknowledged it."""
        if message is not None:
            yield Ref(DAYS, date(message.sent_at))
            yield Ref(AGENTS, message.sender)
            if message.to is not None:
                yield Ref(AGENTS, message.to)

    def relate(self) -> None:
        """Find how tasks and files are related, from the current tasks."""
        self.needed_by, self.parts, self.found, self.declared_by = {}, {}, {}, {}
        for task in self.tasks.values():
            for need in task.after:
                self.needed_by.setdefault(need, []).append(task.id)
            if task.parent is not None:
                self.parts.setdefault(task.parent, []).append(task.id)
            if task.found_in is not None:
                self.found.setdefault(task.found_in, []).append(task.id)
            for resource in task.declared:
                self.declared_by.setdefault(resource, []).append(task.id)

    def hold(self, leases: tuple[Lease, ...]) -> None:
        """Add what is held now, by whom, and for which task."""
        self.leases, self.held = leases, {}
        for lease in leases:
            for ref in (
                Ref(AGENTS, lease.agent),
                Ref(FILES, lease.resource),
                Ref(TASKS, lease.task or ""),
            ):
                self.held.setdefault(ref, []).append(lease)

    def refs(self) -> dict[Ref, None]:
        """Everything that has its own content."""
        found = {INDEX: None, **{Ref(TASKS, id): None for id in self.tasks}}
        found |= {Ref(AGENTS, name): None for name in self.agents}
        found |= {Ref(FILES, lease.resource): None for lease in self.leases}
        found |= {ref: None for ref in self.said if ref.folder == DAYS}
        return found | dict.fromkeys(self.history)

    def know(self, messages: Iterable[Message]) -> None:
        """Add messages by sender, receiver and day; if there are too many, only the newest."""
        self.messages |= {message.id: message for message in messages}
        for id in sorted(self.messages)[: max(0, len(self.messages) - MESSAGES_KEPT)]:
            del self.messages[id]
        self.said = {}
        for id in sorted(self.messages):
            one = self.messages[id]
            refs = {
                Ref(DAYS, date(one.sent_at)),
                Ref(AGENTS, one.sender),
                Ref(AGENTS, one.to or ""),
            }
            for ref in refs:
                self.said.setdefault(ref, []).append(one)


def related(task: Task) -> Iterator[Ref]:
    """The other notes that mention a task because of its fields."""
    names = (*task.after, task.parent, task.found_in, task.landing)
    yield from (Ref(TASKS, name) for name in names if name is not None)
    yield from (Ref(FILES, resource) for resource in task.declared)
