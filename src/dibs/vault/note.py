"""The text of each note, from the ledger alone: the same ledger gives the same text.

Nothing in a note changes by itself: times are those of the journal, in UTC, and remaining time is
not shown.
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.records import span, to_text
from dibs.vault.markup import Link, Page, aliases, clock, date, fenced, inline, iso, quoted_lines
from dibs.vault.names import AGENTS, DAYS, FILES, TASKS, Ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from dibs.records import Event, Lease, Message, Task
    from dibs.vault.material import Material

    Fields = list[tuple[str, Any]]

LINKS = 500
"""How many links a list has before it is cut."""
MESSAGES = 50
OPEN = 200
LINKED = {
    "task": TASKS,
    "landing": TASKS,
    "instead_of": TASKS,
    "holder": AGENTS,
    "sender": AGENTS,
    "to": AGENTS,
}
"""The fields of an event that name something, and the folder of its note."""
LEFT_OUT = frozenset(
    ("epoch", "session", "holder_session", "to_session", "ttl_ms", "left_ms", "ticket", "kind",
     "content_hash", "now", "token", "version", "result_length", "attempts", "priority")
)  # fmt: skip
"""The fields of an event that are only for programs."""
ATTEMPT_ENDS = {
    "task.completed": "completed",
    "task.failed": "failed",
    "task.dead": "failed for good",
    "task.abandoned": "abandoned",
    "task.freed": "lost",
    "task.revoked": "taken away",
    "task.cancelled": "cancelled",
    "task.handed_in": "handed in",
    "task.asked": "asked a person",
}


class Note(NamedTuple):
    """The text of a note, and what it links to."""

    text: str
    links: tuple[Ref, ...]


def note(ledger: Material, ref: Ref) -> Note:
    """The note about one thing."""
    page = Page(ref)
    fields = WRITERS[ref.folder](ledger, ref.name, page)
    return Note(page.text(fields), tuple(page.links))


def task_note(ledger: Material, id: str, page: Page) -> Fields:
    task = ledger.tasks.get(id)
    page.add(f"# {inline((task and task.title) or id)}", "")
    if task is None:
        page.add("The store has no such task: it was removed, or nobody has added it yet.")
        fields: Fields = [("dibs", "task"), ("name", id), ("aliases", aliases(id))]
        fields += [("tags", ["dibs/task"])]
    else:
        fields = task_fields(ledger, task, page)
    relations = {
        "Needed by": ledger.needed_by.get(id, ()),
        "Parts": ledger.parts.get(id, ()),
        "Found during it": ledger.found.get(id, ()),
    }
    page.section(
        "Related tasks",
        [f"- {what}: {listed(page, TASKS, names)}" for what, names in relations.items() if names],
    )
    held = {lease.resource: lease for lease in ledger.held.get(Ref(TASKS, id), ())}
    files = dict.fromkeys([*(task.declared if task else ()), *ledger.task_files.get(id, ())])
    lines = [
        f"- {page.link(Ref(FILES, name))}{held_by(page, held[name]) if name in held else ''}"
        for name in [*files, *(name for name in held if name not in files)][:LINKS]
    ]
    page.section("Files", lines)
    if task is not None:
        page.section("Payload", value_lines(task.payload))
        page.section("Result", value_lines(task.result))
    page.section("Attempts", attempts(ledger, Ref(TASKS, id), page))
    history(ledger, Ref(TASKS, id), page)
    return fields


def task_fields(ledger: Material, task: Task, page: Page) -> Fields:
    """The front matter of a task, and the lines that say the same in words."""

    def tasks(names: Iterable[str | None]) -> list[Link]:
        return [page.link(Ref(TASKS, name)) for name in names if name is not None]

    author = page.link(Ref(AGENTS, task.author)) if task.author else None
    agent = page.link(Ref(AGENTS, task.agent)) if task.agent else None
    acked = page.link(Ref(AGENTS, task.acked)) if task.acked else None
    page.add(f"**{task.state.capitalize()}**{f', last claimed by {agent}' if agent else ''}.", "")
    by = f" by {author}" if author else ""
    page.add(f"- Added {clock(task.added_at)} on {page.day(task.added_at)}{by}")
    page.add(f"- Changed {clock(task.changed_at)} on {page.day(task.changed_at)}")
    if task.title:
        page.add(f"- Id: {inline(task.id)}")
    told: dict[str, str] = {
        "After": listed(page, TASKS, task.after),
        "Part of": listed(page, TASKS, filter(None, [task.parent])),
        "Found in": listed(page, TASKS, filter(None, [task.found_in])),
        "Landing": listed(page, TASKS, filter(None, [task.landing])),
        "Kind": inline(task.kind),
        "Priority": str(task.priority or ""),
        "Needs": inline(", ".join(task.tags)),
        "Labels": inline(", ".join(task.labels)),
        "Attempts": f"{task.attempts} of {task.max_attempts}" if task.attempts else "",
        "Parts done": f"{task.children_done} of {task.children}" if task.children else "",
    }
    page.add(*(f"- {name}: {text}" for name, text in told.items() if text))
    if task.reason:
        page.section("Reason", quoted_lines(task.reason))
    if task.asked:
        said = f"Acknowledged by {acked}." if acked else "Nobody has acknowledged it."
        page.section("Question", [*quoted_lines(task.asked), "", said])
    fields: Fields = [("dibs", "task"), ("name", task.id), ("aliases", aliases(task.id))]
    fields += [("tags", ["dibs/task", f"dibs/{task.state}"]), ("state", task.state)]
    fields += [("title", task.title), ("kind", task.kind), ("priority", task.priority or None)]
    fields += [("needs", list(task.tags)), ("labels", list(task.labels))]
    fields += [("author", author), ("agent", agent), ("acknowledged_by", acked)]
    fields += [("after", tasks(task.after)), ("parent", first(tasks([task.parent])))]
    fields += [("found_in", first(tasks([task.found_in])))]
    fields += [("landing", first(tasks([task.landing])))]
    fields += [("attempts", task.attempts or None), ("added", iso(task.added_at))]
    return [*fields, ("changed", iso(task.changed_at))]


def agent_note(ledger: Material, name: str, page: Page) -> Fields:
    page.add(f"# {inline(name)}", "")
    since = ledger.agents.get(name)
    if since is None:
        page.add("The store does not know this agent now.")
    else:
        page.add(f"First seen {clock(since)} on {page.day(since)}.")
    held = ledger.held.get(Ref(AGENTS, name), [])
    page.section("Holds", [
        f"- {page.link(Ref(FILES, lease.resource))}{for_what(page, lease)}"
        for lease in held[:LINKS]
    ])  # fmt: skip
    waits = [one for one in ledger.waiting if one.agent == name]
    page.section("Waits for", [
        f"- {page.link(Ref(FILES, one.resource))}, since {clock(one.since_at)} on "
        f"{page.day(one.since_at)}" for one in waits[:LINKS]
    ])  # fmt: skip
    tasks = ledger.agent_tasks.get(name, {})
    mine = {id: ledger.tasks.get(id) for id in tasks}
    page.section("Tasks", newest(
        tasks, lambda id: f"- {page.link(Ref(TASKS, id))}{state_for(mine[id], name)}"
    ))  # fmt: skip
    files = ledger.agent_files.get(name, {})
    page.section("Files", newest(files, lambda one: f"- {page.link(Ref(FILES, one))}"))
    found = ledger.said.get(Ref(AGENTS, name), [])
    page.section("Messages", message_lines(ledger, found, page, dated=True))
    history(ledger, Ref(AGENTS, name), page)
    fields: Fields = [("dibs", "agent"), ("name", name), ("aliases", aliases(name))]
    fields += [("tags", ["dibs/agent"]), ("first_seen", None if since is None else iso(since))]
    fields += [("tasks", len(tasks) or None), ("files", len(files) or None)]
    return [*fields, ("holds", len(held) or None)]


def file_note(ledger: Material, name: str, page: Page) -> Fields:
    page.add(f"# {inline(name)}", "")
    held = ledger.held.get(Ref(FILES, name), [])
    page.add("Nobody holds it." if not held else "Held now:")
    if held:
        page.add("", *(
            f"- {page.link(Ref(AGENTS, one.agent))}{for_what(page, one)}" for one in held
        ))  # fmt: skip
    waits = [one for one in ledger.waiting if one.resource == name]
    page.section("Waiting", [
        f"- {page.link(Ref(AGENTS, one.agent))}, since {clock(one.since_at)} on "
        f"{page.day(one.since_at)}{said_in(': ', one.note)}" for one in waits[:LINKS]
    ])  # fmt: skip
    tasks = dict.fromkeys([*ledger.declared_by.get(name, ()), *ledger.file_tasks.get(name, ())])
    page.section("Tasks", newest(tasks, lambda id: f"- {page.link(Ref(TASKS, id))}"))
    history(ledger, Ref(FILES, name), page)
    holders = [page.link(Ref(AGENTS, one.agent)) for one in held]
    fields: Fields = [("dibs", "file"), ("name", name), ("aliases", aliases(name))]
    return [*fields, ("tags", ["dibs/file"]), ("held_by", holders)]


def day_note(ledger: Material, day: str, page: Page) -> Fields:
    page.add(f"# {day}", "", "Times are in UTC.")
    ref = Ref(DAYS, day)
    known = ledger.history.get(ref, ())
    earlier = max((one for one in ledger.days if one < day), default=None)
    if earlier is not None:
        page.add("", f"Before it: {page.link(Ref(DAYS, earlier))}.")
    for title, kind in (("Completed", "task.completed"), ("Failed", "task.dead")):
        done = dict.fromkeys(event.subject for event in known if event.kind == kind)
        lines = [f"- {page.link(Ref(TASKS, id))}" for id in done]
        page.section(title, lines)
    sent = ledger.said.get(ref, [])
    page.section("Messages", message_lines(ledger, sent, page, dated=False))
    lines = [event_line(ledger, event, page) for event in known]
    page.section("What happened", [*left_out(ledger, ref, len(lines)), *lines])
    fields: Fields = [("dibs", "day"), ("name", day), ("tags", ["dibs/day"])]
    return [*fields, ("date", day), ("events", ledger.number.get(ref) or None)]


def index_note(ledger: Material, _: str, page: Page) -> Fields:
    page.add(f"# The ledger of {inline(ledger.project)}", "")
    page.add("Written by `dibs vault`. Notes that you edit are kept as you leave them.")
    counts: dict[str, int] = {}
    for task in ledger.tasks.values():
        counts[task.state] = counts.get(task.state, 0) + 1
    page.section("Tasks", [f"- {state}: {number:,}" for state, number in sorted(counts.items())])
    for state in ("claimed", "blocked", "available", "failed", "dead"):
        mine = [task for task in ledger.tasks.values() if task.state == state]
        lines = [f"- {page.link(Ref(TASKS, task.id))}{said_in(': ', task.title)}"
                 for task in mine[:OPEN]]  # fmt: skip
        if len(mine) > OPEN:
            lines.append(f"- and {len(mine) - OPEN:,} more")
        page.section(state.capitalize(), lines)
    page.section("Agents", newest(ledger.agents, lambda one: f"- {page.link(Ref(AGENTS, one))}"))
    held = dict.fromkeys(lease.resource for lease in ledger.leases)
    page.section("Held now", newest(held, lambda one: f"- {page.link(Ref(FILES, one))}"))
    page.section("Days", newest(sorted(ledger.days), lambda one: f"- {page.link(Ref(DAYS, one))}"))
    return [("dibs", "index"), ("name", ledger.space), ("tags", ["dibs/index"])]


WRITERS: dict[str, Callable[[Material, str, Page], Fields]] = {
    TASKS: task_note,
    AGENTS: agent_note,
    FILES: file_note,
    DAYS: day_note,
    "": index_note,
}


def first(links: list[Link]) -> Link | None:
    return links[0] if links else None


def listed(page: Page, folder: str, names: Iterable[str]) -> str:
    found = list(names)
    links = ", ".join(page.link(Ref(folder, name)) for name in found[:LINKS])
    return f"{links} and {len(found) - LINKS:,} more" if len(found) > LINKS else links


def newest(names: Iterable[str], line: Callable[[str], str]) -> list[str]:
    """A line for each name, the newest first."""
    found = list(names)[::-1]
    more = [f"- and {len(found) - LINKS:,} more"] if len(found) > LINKS else []
    return [*map(line, found[:LINKS]), *more]


def value_lines(value: Any) -> list[str]:
    if value is None:
        return []
    return quoted_lines(value) if isinstance(value, str) and value else fenced(value)


def said_in(before: str, words: str) -> str:
    return f"{before}{inline(words)}" if words else ""


def held_by(page: Page, lease: Lease) -> str:
    return f", held by {page.link(Ref(AGENTS, lease.agent))}"


def for_what(page: Page, lease: Lease) -> str:
    task = f" for {page.link(Ref(TASKS, lease.task))}" if lease.task else ""
    since = f", since {clock(lease.granted_at)} on {page.day(lease.granted_at)}"
    return f"{task}{since}, claimed for {span(lease.ttl_ms)}{said_in(': ', lease.note)}"


def state_for(task: Task | None, agent: str) -> str:
    if task is None:
        return ""
    return f", {task.state}" if task.agent == agent else f", {task.state} since"


def attempts(ledger: Material, ref: Ref, page: Page) -> list[str]:
    """Who claimed a task, and how that ended."""
    lines: list[str] = []
    opened = False
    for event in ledger.history.get(ref, ()):
        if event.kind == "task.claimed":
            who = page.link(Ref(AGENTS, event.agent or ""))
            lines.append(f"1. {who}, {clock(event.at)} on {page.day(event.at)}")
            opened = True
        elif opened and event.subject == ref.name and event.kind in ATTEMPT_ENDS:
            data = event.data if isinstance(event.data, dict) else {}
            why = data.get("reason") or data.get("why") or ""
            after = f"{ATTEMPT_ENDS[event.kind]} {clock(event.at)} on {page.day(event.at)}"
            lines[-1] += f": {after}{said_in(', ', str(why))}"
            opened = False
    return lines


def history(ledger: Material, ref: Ref, page: Page) -> None:
    """What happened, grouped by day."""
    lines: list[str] = []
    day = ""
    for event in ledger.history.get(ref, ()):
        if date(event.at) != day:
            day = date(event.at)
            lines += [*([""] if lines else []), f"### {page.day(event.at)}", ""]
        lines.append(event_line(ledger, event, page))
    page.section("History", [*left_out(ledger, ref, len(ledger.history.get(ref, ()))), *lines])


def left_out(ledger: Material, ref: Ref, shown: int) -> list[str]:
    """A note that the events which follow are not complete."""
    said = []
    if shown and ledger.begins:
        said.append(f"The journal begins after seq {ledger.begins}; what came before was pruned.")
    if (number := ledger.number.get(ref, 0)) > shown:
        said.append(f"The last {shown:,} of {number:,} events.")
    return [*said, ""] if said else []


def event_line(ledger: Material, event: Event, page: Page) -> str:
    """Who did what, with the details."""
    noun, _, verb = event.kind.partition(".")
    who = page.link(Ref(AGENTS, event.agent)) if event.agent else "dibs"
    data = event.data if isinstance(event.data, dict) else {}
    said = [
        text
        for name, value in data.items()
        if value and name not in LEFT_OUT and (text := detail(noun, name, value, page))
    ]
    details = f": {'; '.join(said)}" if said else ""
    subject = event_subject(ledger, event, noun, page)
    what = f"{noun} {verb.replace('_', ' ')}"
    return f"- {clock(event.at)} {who} {what}{f' {subject}' if subject else ''}{details}"


def detail(noun: str, name: str, value: Any, page: Page) -> str:
    """One detail of an event."""
    if name in LINKED and isinstance(value, str):
        return f"{name} {page.link(Ref(LINKED[name], value))}"
    if name in ("by", "behind") and isinstance(value, list):
        # The agent that one waits behind is shown with its session.
        names = [str(one[0]) if isinstance(one, list) and one else str(one) for one in value]
        return f"{name} {listed(page, AGENTS, dict.fromkeys(names))}"
    if name.endswith("_ms") and isinstance(value, int):
        return f"{inline(name.removesuffix('_ms'))} {span(value)}"
    if value == "exclusive" or (noun == "lease" and name == "was"):
        return ""  # the usual case, and the digest of a content
    return f"{inline(name)} {inline(value if isinstance(value, str) else to_text(value))}"


def event_subject(ledger: Material, event: Event, noun: str, page: Page) -> str:
    if noun == "message" and (message := ledger.messages.get(event.seq)) is not None:
        return f"to {receiver(message, page)}"
    folder = {"task": TASKS, "lease": FILES, "session": AGENTS}.get(noun)
    if folder is None:
        return inline(event.subject) if event.subject else ""
    same = folder == AGENTS and event.subject == event.agent
    return "" if same or not event.subject else page.link(Ref(folder, event.subject))


def message_lines(ledger: Material, found: list[Message], page: Page, *, dated: bool) -> list[str]:
    """Messages, the oldest first, each with who acknowledged it."""
    lines: list[str] = []
    if len(found) > MESSAGES:
        lines += [f"The last {MESSAGES} of {len(found):,}.", ""]
    for one in found[-MESSAGES:]:
        to = receiver(one, page)
        when = f"{clock(one.sent_at)}{f' on {page.day(one.sent_at)}' if dated else ''}"
        lines += [f"{when} {page.link(Ref(AGENTS, one.sender))} to {to}:", ""]
        lines += [*quoted_lines(one.body), ""]
        for event in ledger.acknowledged.get(one.id, ()):
            by = page.link(Ref(AGENTS, event.agent or ""))
            at = f"{clock(event.at)} on {page.day(event.at)}"
            lines += [f"Acknowledged by {by}, {at}.", ""]
    return lines[:-1] if lines else []


def receiver(one: Message, page: Page) -> str:
    if one.to:
        return page.link(Ref(AGENTS, one.to))
    return f"channel {inline(one.channel)}" if one.channel else "everybody"
