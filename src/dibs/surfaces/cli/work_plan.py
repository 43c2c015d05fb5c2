"""`dibs work plan [--agents N] [--format text|json|mermaid]`: what can be done at the same time."""

from __future__ import annotations

from dibs.arguments import AGENTS_MAX, LIST_LIMIT, Choice, Whole
from dibs.nouns.work.refusals import ENDED
from dibs.operation import EVERYBODY
from dibs.records import called, plain, span
from dibs.surroundings.wording import note, paint, print_json, say
from dibs.trackers.mermaid import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dibs.records import Bundle, PlannedTask, Stuck, WorkPlan
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {
    "format": Choice("text", "json", "mermaid"),
    "agents": Whole(1, AGENTS_MAX),
    "limit": Whole(1, LIST_LIMIT),
}
NAMED, LINES = 6, 5
"""How many tasks a line of text names, and how many lines each finding has."""
BARS, WIDTH = 20, 40
READABLE = 60
"""How many tasks a graph shows, unless a limit says otherwise."""
STUCK = {
    "missing": "waits for {by}, which nobody has added",
    "ended": "waits for {by}, which will not be completed: reopen it, or cancel this task",
    "cycle": "waits for itself: {by}",
    "tags": "needs an agent that can do {by}; nobody here has said so",
    "person": "asks for a person: answer it with dibs work ack",
}
COLOURS = {
    "claimed": "fill:#cfe3ff,stroke:#1c5fb8,color:#111",
    "available": "fill:#d7f2d8,stroke:#2c7a34,color:#111",
    "blocked": "fill:#eee,stroke:#777,color:#111",
    "failed": "fill:#ffe7c2,stroke:#a65f00,color:#111",
    "stuck": "fill:#ffd3d0,stroke:#b3261e,color:#111,stroke-width:3px",
    "absent": "fill:#fff,stroke:#b3261e,color:#111,stroke-dasharray:4",
}


def main(call: Globals, *, agents: int | None = None, format: str = "text", limit: int = 0) -> int:
    """Show how many agents can be busy now and over time, and what limits them.

    Tasks can run at the same time if neither waits for the other and their declared leases do not
    overlap. The plan assumes that they take as long as recent tasks of their kind, or one step
    each.

    agents: how many agents there are, to show what would keep all of them busy
    format: the format of the answer
    limit: how many tasks to show in JSON [200] and in a graph [60]
    example: --agents 6
    """
    format = "json" if call.json else format
    with call.open() as space:
        asked = {"agents": agents} if agents is not None else {}
        found = call.look(space).work.plan(
            **asked, limit=limit or (READABLE if format == "mermaid" else 200)
        )
    if format == "json":
        print_json(plain(found))
    elif format == "mermaid":
        say("\n".join(mermaid(found.tasks)))
        if found.open_count > len(found.tasks):
            note(f"the first {len(found.tasks)} of {found.open_count} open tasks; see --limit")
    else:
        draw(found)
    return 0


def draw(plan: WorkPlan) -> None:
    """Print a plan for people."""
    if not plan.open_count:
        note("no task is open: all are done")
        return
    time = times(plan.unit)
    said = {state: f"{number} {state}" for state, number in sorted(plan.counts.items())}
    ended = ", ".join(said.pop(state) for state in ENDED if state in said)
    besides = f", besides {ended}" if ended else ""
    say(f"{several(plan.open_count, 'open task')} ({', '.join(said.values())}){besides}")
    say(
        f"{several(plan.busy_now, 'agent')} can be busy now, {plan.busy_most} at most; "
        f"{time(plan.length)} until all is done"
        + (f" with {several(plan.agents, 'agent')}" if plan.agents else "")
    )
    for at, until, busy in bars(plan):
        bar = "█" * min(busy, WIDTH) + ("…" if busy > WIDTH else "")
        say(f"  {f'{time(at)} – {time(until)}':<18} {bar} {busy}")
    if plan.agents is not None:
        keep_busy(plan, plan.agents)
    path = " → ".join(map(called, plan.critical[:NAMED]))
    more = f" and {len(plan.critical) - NAMED} more" if len(plan.critical) > NAMED else ""
    heading("Longest chain", f"{several(len(plan.critical), 'task')}, {time(plan.critical_length)}")
    say(f"  {path}{more}")
    listing("Changed by several, so one at a time", plan.exclusions)
    if plan.group_count > 1:
        largest = ", ".join(str(group.number) for group in plan.groups[:NAMED])
        heading("Independent groups", f"{plan.group_count}, the largest of {largest}")
    if plan.stuck:
        heading("Stuck", str(plan.stuck_count))
        for one in plan.stuck[:LINES]:
            say(f"  {called(one.task)} {told(one)}")
        if plan.stuck_count > LINES:
            say(f"  and {plan.stuck_count - LINES} more")
    if plan.cut:
        note("there are so many tasks that a part was left out")


def keep_busy(plan: WorkPlan, agents: int) -> None:
    """Show what would keep this many agents busy."""
    idle = agents - plan.busy_now
    if idle <= 0:
        heading(f"{several(agents, 'agent')}", "all can be busy now")
        return
    heading(f"{several(agents, 'agent')}", f"{idle} would be idle now. To keep them busy:")
    for one in plan.openers[:LINES]:
        say(f"  finish {called(one.what)} first: {waiting(one.number, 'task')} for it")
    for one in plan.waiting_now[:LINES]:
        ready = waiting(one.number, "ready task")
        say(f"  split or narrow what changes {called(one.what)}: {ready} for it")
    for it in plan.stuck[:LINES]:
        say(f"  {called(it.task)} {told(it)}")
    say(f"  or add {several(idle, 'task')} that nothing else waits for or changes")


def heading(title: str, text: str) -> None:
    say(f"{paint('bold', title)}: {text}")


def listing(title: str, found: Sequence[Bundle]) -> None:
    if found:
        heading(title, str(len(found)))
    for one in found[:LINES]:
        named = ", ".join(map(called, one.tasks[:NAMED]))
        more = f" and {one.number - NAMED} more" if one.number > NAMED else ""
        say(f"  {called(one.what)}: {named}{more}")


def told(one: Stuck) -> str:
    return STUCK[one.why].format(by=", ".join(map(called, one.by[:NAMED])))


def several(number: int | None, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def waiting(number: int, what: str) -> str:
    return f"{several(number, what)} {'waits' if number == 1 else 'wait'}"


def times(unit: str) -> Callable[[int], str]:
    """A time in words."""
    return span if unit == "ms" else lambda at: several(at, "step")


def bars(plan: WorkPlan) -> Iterator[tuple[int, int, int]]:
    """How many agents are busy, and from when to when."""
    ends = [*(load.at for load in plan.busy[1:]), plan.length]
    for load, end in list(zip(plan.busy, ends, strict=True))[:BARS]:
        if end > load.at:
            yield load.at, end, load.busy


def mermaid(tasks: Sequence[PlannedTask]) -> Iterator[str]:
    """The tasks and what they wait for, as a graph that Mermaid draws."""
    yield "graph LR"
    names = {task.id: f"t{number}" for number, task in enumerate(tasks)}
    for task in tasks:
        title = f"<br>{shown(task.title)}" if task.title else ""
        kind = "stuck" if task.stuck else task.state
        yield f'  {names[task.id]}["{shown(task.id)}{title}"]:::{kind}'
    for task in tasks:
        for need in task.after:
            if need not in names:
                names[need] = f"t{len(names)}"
                yield f'  {names[need]}(["{shown(need)}"]):::absent'
            yield f"  {names[need]} --> {names[task.id]}"
    used = {"stuck" if task.stuck else task.state for task in tasks}
    used |= {"absent"} if len(names) > len(tasks) else set()
    for kind, colours in COLOURS.items():
        if kind in used:
            yield f"  classDef {kind} {colours}"
