"""The journal as spans: one for each claim of a resource, each wait for one, each claim of a task.

A span ends with an event, and is made from the journal alone. Its ids are derived from the space,
the epoch of the grant (or the number of the ticket) and what was granted, so they are always the
same. A backend that receives a span twice can recognise it.

A claim of a task begins a trace. The resources that are claimed with it are its children. A wait
and the claim that it leads to share a trace. If a client passed its own trace context, the span is
linked to that.

What agents write (notes, reasons) is in a span only on request; the names of agents, resources and
tasks always are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.digest import sha256
from dibs.nouns.work.tasks import CLAIM_ENDS
from dibs.storage.tracing import checked

if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.records import Event

LEASE_ENDS = frozenset(
    "lease.released lease.expired lease.freed lease.revoked lease.transferred".split()
)
FAILURES = frozenset({"failed", "dead", "freed"})
"""The ends of a task claim that count as errors."""
CLAIM, WAIT, TASK = "dibs.claim", "dibs.wait", "dibs.task"


class Link(NamedTuple):
    """A span of another program."""

    trace: bytes
    span: bytes
    flags: int


class Span(NamedTuple):
    """Something that has begun and ended.

    seq: the event that ended it
    start, end: in milliseconds since 1970
    error: how it failed, "" if it did not
    """

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    seq: int
    start: int
    end: int
    attributes: dict[str, str | int]
    link: Link | None
    error: str


class Begun(NamedTuple):
    """A span that has not ended yet; seq: the event that began it."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    seq: int
    start: int
    attributes: dict[str, str | int]
    link: Link | None

    def finish(self, event: Event, outcome: str, **more: str | int) -> Span:
        attributes = {**self.attributes, "dibs.outcome": outcome, **more}
        error = outcome if self.name == TASK and outcome in FAILURES else ""
        if error:
            attributes["error.type"] = error
        # A clock may have been set back in between.
        end = max(event.at, self.start)
        return Span(
            self.name, self.trace, self.id, self.parent, event.seq, self.start, end,
            attributes, self.link, error,
        )  # fmt: skip


class Spans:
    """Makes spans from the events of one space, in order."""

    def __init__(self, identity: str, space: str, words: bool = False) -> None:
        """
        identity: distinguishes this space from all others, even those with the same name
        words: whether notes and reasons are included
        """
        self._identity = identity
        self._space = space
        self._words = words
        self._leases: dict[tuple[str, int | None], Begun] = {}
        self._waits: dict[tuple[int, str], Begun] = {}
        self._tasks: dict[str, Begun] = {}

    @property
    def oldest(self) -> int | None:
        """The seq of the first event that an open span needs."""
        begun = [*self._leases.values(), *self._waits.values(), *self._tasks.values()]
        return min((one.seq for one in begun), default=None)

    def take(self, event: Event) -> list[Span]:
        """The spans that an event ends."""
        kind, data = event.kind, event.data if isinstance(event.data, dict) else {}
        if not is_readable(event):
            return []
        if kind == "lease.queued":
            self._begin_wait(event, data)
        elif kind == "lease.unqueued":
            return self._end_wait(event, data, str(data.get("why", "")))
        elif kind == "lease.claimed":
            return self._claimed(event, data)
        elif kind in LEASE_ENDS:
            said = data.get("holder_session")
            holder = said if isinstance(said, int) else event.session
            begun = self._leases.pop((event.subject, holder), None)
            return self._finish(begun, event, kind.partition(".")[2], data)
        elif kind == "task.claimed":
            ended = self._finish(self._tasks.pop(event.subject, None), event, "replaced", {})
            self._begin_task(event, data)
            return ended
        elif kind in CLAIM_ENDS:
            begun = self._tasks.pop(event.subject, None)
            return self._finish(begun, event, kind.partition(".")[2], data)
        return []

    def _finish(
        self, begun: Begun | None, event: Event, outcome: str, data: dict[str, Any]
    ) -> list[Span]:
        if begun is None:
            return []
        reason = data.get("reason")
        more = {"dibs.reason": reason} if self._words and isinstance(reason, str) else {}
        return [begun.finish(event, outcome, **more)]

    def _begin_wait(self, event: Event, data: dict[str, Any]) -> None:
        ticket = number(data, "ticket", event.seq)
        self._waits[ticket, event.subject] = self._begun(
            WAIT, event, self._id(16, "ticket", ticket),
            {"dibs.resource": event.subject, "dibs.ticket": ticket, **mode(data)}, data,
            ("wait", ticket, event.subject),
        )  # fmt: skip

    def _end_wait(self, event: Event, data: dict[str, Any], outcome: str) -> list[Span]:
        return self._finish(
            self._waits.pop((number(data, "ticket", 0), event.subject), None), event, outcome, {}
        )

    def _claimed(self, event: Event, data: dict[str, Any]) -> list[Span]:
        place = (event.subject, event.session)
        ended = self._finish(self._leases.pop(place, None), event, "replaced", {})
        epoch, ticket, task = number(data, "epoch", event.seq), data.get("ticket"), data.get("task")
        about = {"dibs.resource": event.subject, "dibs.epoch": epoch, **mode(data)}
        about |= {"dibs.task": task} if isinstance(task, str) and task else {}
        trace, parent, link = self._id(16, "lease", epoch, event.subject, event.session), b"", None
        if isinstance(ticket, int):
            wait = self._waits.get((ticket, event.subject))
            trace, link = self._id(16, "ticket", ticket), wait and wait.link
            ended += self._end_wait(event, data, "granted")
        if isinstance(task, str) and (claim := self._tasks.get(task)) is not None:
            trace, parent = claim.trace, claim.id
        begun = self._begun(
            CLAIM, event, trace, about, data, ("lease", epoch, event.subject, event.session), parent
        )
        self._leases[place] = begun if begun.link or not link else begun._replace(link=link)
        return ended

    def _begin_task(self, event: Event, data: dict[str, Any]) -> None:
        epoch = number(data, "epoch", event.seq)
        about: dict[str, str | int] = {"dibs.task": event.subject, "dibs.epoch": epoch}
        if isinstance(attempt := data.get("attempts"), int):
            about["dibs.task.attempt"] = attempt
        self._tasks[event.subject] = self._begun(
            TASK, event, self._id(16, "task", epoch, event.subject), about, data,
            ("task", epoch, event.subject),
        )  # fmt: skip

    def _begun(
        self,
        name: str,
        event: Event,
        trace: bytes,
        about: dict[str, str | int],
        data: dict[str, Any],
        key: tuple[object, ...],
        parent: bytes = b"",
    ) -> Begun:
        about = {"dibs.space": self._space, **about}
        if event.agent is not None:
            about["gen_ai.agent.name"] = event.agent
        if event.session is not None:
            about["session.id"] = str(event.session)
        if self._words and isinstance(note := data.get("note"), str) and note:
            about["dibs.note"] = note
        span = self._id(8, "span", *key)
        link = link_of(data.get("trace"))
        return Begun(name, trace, span, parent, event.seq, event.at, about, link)

    def _id(self, size: int, *of: object) -> bytes:
        digest: bytes = sha256(repr((self._identity, *of)).encode()).digest()
        return digest[:size]


def identity_of(space: Dibs) -> str:
    """What distinguishes a space from all others: names may be equal, keys never are."""
    store = space.scope.store
    return f"{store.key_check} {store.name}"


def is_readable(event: Event) -> bool:
    """Whether dibs can have written an event; something else may have changed the store."""
    agent, session = event.agent, event.session
    return (
        isinstance(event.subject, str)
        and all(isinstance(one, int) for one in (event.seq, event.at))
        and (agent is None or isinstance(agent, str))
        and (session is None or isinstance(session, int))
    )


def number(data: dict[str, Any], name: str, default: int) -> int:
    found = data.get(name)
    return found if isinstance(found, int) else default


def mode(data: dict[str, Any]) -> dict[str, str | int]:
    found = data.get("mode")
    return {"dibs.lease.mode": found} if isinstance(found, str) else {}


def link_of(trace: object) -> Link | None:
    """The span that a trace context names, if it is one."""
    found = checked(trace)
    if not found:
        return None
    _, trace_id, span_id, flags = found.split("-")
    return Link(bytes.fromhex(trace_id), bytes.fromhex(span_id), int(flags, 16))
