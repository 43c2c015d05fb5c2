"""Fills a ledger through the public operations, so it works with any database and a daemon.

The end of the journal is read first, and then everything else: what is written meanwhile may
already be in the ledger, and is seen again when reading continues from that seq. Nothing is missed.
"""

from __future__ import annotations

from dibs.errors import NotFoundError, PrunedError
from dibs.surroundings.wording import project
from dibs.vault.material import MESSAGES_KEPT, RELATED, Material

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.dibs import Dibs
    from dibs.records import Event, Lease, Message

PAGE = 1_000
FEW = 100
"""Up to this many tasks are read one by one."""


def read(space: Dibs, after: int | None = None) -> Material:
    """The whole ledger, with the news after a seq."""
    ledger = Material()
    ledger.seq, ledger.space = space.events.last(), space.scope.space
    ledger.project = project(space)
    read_tasks(space, ledger)
    read_present(space, ledger)
    ledger.know(messages(space, 0))
    for event in events(space, ledger):
        ledger.add(event)
        if after is not None and event.seq > after:
            ledger.news.append(event)
    return ledger


def read_tasks(space: Dibs, ledger: Material) -> None:
    after = 0
    ledger.tasks = {}
    while page := space.work.list(after=after, limit=PAGE):
        ledger.tasks |= {task.id: task for task in page}
        after = page[-1].seq
    ledger.relate()


def read_present(space: Dibs, ledger: Material) -> None:
    """The known agents, what is held, and who waits for what."""
    agents = space.agents.list(everybody=True)
    ledger.agents = {presence.agent: presence.first_seen_at for presence in agents}
    leases: tuple[Lease, ...] = space.leases.list(limit=PAGE)
    if len(leases) == PAGE:  # more than one answer holds
        leases = tuple(
            lease for name in ledger.agents for lease in space.leases.list(agent=name, limit=PAGE)
        )
    ledger.hold(leases)
    ledger.waiting = space.leases.waiting(limit=PAGE)


def messages(space: Dibs, after: int) -> Iterator[Message]:
    """The messages after one that are kept, the newest first."""
    before, number = 2**62, 0
    while page := space.messages.history(before=before, limit=PAGE):
        for message in page:
            if message.id <= after:
                return
            yield message
        before, number = page[-1].id, number + len(page)
        if number >= MESSAGES_KEPT:
            return


def events(space: Dibs, ledger: Material) -> Iterator[Event]:
    """The whole kept journal; `begins` says where it starts."""
    seq = 0
    while True:
        try:
            page = space.events.since(seq, limit=PAGE)
        except PrunedError as error:
            seq = ledger.begins = error.details["pruned_seq"]
            continue
        if not page:
            return
        yield from page
        seq = page[-1].seq


def follow(space: Dibs, ledger: Material, page: Iterable[Event]) -> None:
    """Add what happened since; the current state is read afterwards, so it is no older."""
    found = tuple(page)
    seq = found[-1].seq
    kinds = {event.kind.partition(".")[0] for event in found}
    if "message" in kinds:
        ledger.know(messages(space, max(ledger.messages, default=0)))
    for event in found:
        ledger.add(event)
    if "task" in kinds:
        ids = {event.subject for event in found if event.kind.startswith("task.")}
        parents = {ledger.tasks[id].parent for id in ids if id in ledger.tasks}
        ids |= {parent for parent in parents if parent is not None}
        if len(ids) > FEW:
            read_tasks(space, ledger)
        else:
            for id in ids:
                read_task(space, ledger, id)
            if any(event.kind in RELATED for event in found):
                ledger.relate()
    read_present(space, ledger)
    ledger.seq = seq


def read_task(space: Dibs, ledger: Material, id: str) -> None:
    try:
        ledger.tasks[id] = space.work.show(id)
    except NotFoundError:
        ledger.tasks.pop(id, None)
