# Made from the registry of operations by `make docs`; do not edit it.

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, overload

from dibs.errors import DibsError
from dibs.nouns.agents.operations import Agents
from dibs.nouns.events.operations import Events
from dibs.nouns.leases.operations import Leases
from dibs.nouns.messages.operations import Messages
from dibs.nouns.state.operations import State
from dibs.nouns.work.operations import Work
from dibs.records import (
    Availability,
    Blocker,
    Contention,
    Delivery,
    Difference,
    Entry,
    EntryExport,
    Event,
    Grant,
    Lease,
    Message,
    Mismatch,
    Moment,
    NewToken,
    Outcome,
    Overview,
    Presence,
    Pruned,
    Put,
    Report,
    Seal,
    Sealed,
    Session,
    Task,
    Token,
    WorkPlan,
)

class AsyncNoun:
    def __repr__(self) -> str: ...

class AsyncLeases(AsyncNoun):
    sync: Leases

    def __init__(self, sync: Leases) -> None: ...
    async def claim(
        self,
        *resources: str,
        mode: str = "exclusive",
        ttl_s: float = 1800,
        note: str = "",
        here: bool = False,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> Grant:
        """Claim paths, globs or named resources: all of them or none."""

    async def renew(
        self,
        *resources: str,
        everything: bool = False,
        ttl_s: float | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Renew leases of this session, all or none; their epochs stay the same."""

    async def release(
        self,
        *resources: str,
        everything: bool = False,
        outcome: str | None = None,
        moved_to: str | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Release leases of this session, all or none; the next waiter gets them."""

    async def see(self, *resources: str) -> tuple[Lease, ...]:
        """Record the present content of files as the work of this session."""

    async def report(
        self,
        resource: str,
        *,
        was: str | None = None,
        by: Sequence[str] = (),
        doing: str = "",
        idempotency_key: str | None = None,
    ) -> Lease:
        """Report that others changed a leased file; tell its holder and them, once."""

    async def revoke(
        self, *resources: str, reason: str = "", idempotency_key: str | None = None
    ) -> tuple[Lease, ...]:
        """Take leases away from other agents, on a person's decision; the holders are told."""

    async def transfer(
        self,
        *resources: str,
        to: str,
        note: str = "",
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Lease, ...]:
        """Give leases of this session to another agent, all or none; the agent is told."""

    async def take(
        self,
        *resources: str,
        ttl_s: float = 1800,
        note: str = "",
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> Grant:
        """Claim immediately, on a person's decision: from any holder and ahead of all waiters."""

    async def status(self, *resources: str) -> tuple[Availability, ...]:
        """Show for each resource whether you can claim it, and if not, who holds it."""

    async def list(
        self, *, agent: str | None = None, session: int | None = None, limit: int = 1000
    ) -> tuple[Lease, ...]:
        """List the leases in force, by name."""

    async def waiting(self, *, limit: int = 1000) -> tuple[Blocker, ...]:
        """List who waits for what, in the order they came."""

    async def outcomes(self, *resources: str, limit: int = 100) -> tuple[Outcome, ...]:
        """Show what earlier holders did to these resources, as they said, the latest first."""

    async def wait(self, *resources: str, wait_s: float = 60) -> tuple[Availability, ...]:
        """Wait until all these resources are free, without claiming them."""

class AsyncWork(AsyncNoun):
    sync: Work

    def __init__(self, sync: Work) -> None: ...
    async def add(
        self,
        id: str,
        *,
        title: str = "",
        kind: str = "",
        priority: int = 0,
        tags: Sequence[str] = (),
        after: Sequence[str] = (),
        payload: Any = None,
        max_attempts: int = 3,
        delay_s: float = 0,
        leases: Sequence[str] = (),
        labels: Sequence[str] = (),
        parent: str | None = None,
        found_in: str | None = None,
        with_children: bool = False,
        idempotency_key: str | None = None,
    ) -> Task:
        """Add a task under an id of your choice."""

    @overload
    async def add_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> tuple[Task, ...]: ...
    @overload
    async def add_many(
        self, items: Sequence[dict[str, Any]], *, each: bool, idempotency_key: str | None = None
    ) -> tuple[Task | DibsError, ...]: ...
    async def claim(
        self,
        id: str,
        *,
        ttl_s: float = 3600,
        leases: Sequence[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
    ) -> Task:
        """Claim a task, together with the files it needs: all or nothing."""

    async def next(
        self,
        *,
        kind: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float = 3600,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> Task:
        """Claim the best available task that fits: highest priority, then oldest."""

    async def next_many(
        self,
        limit: int,
        *,
        kind: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float = 3600,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> tuple[Task, ...]:
        """Claim the best available tasks that fit, up to a limit."""

    async def renew(
        self,
        id: str,
        *,
        ttl_s: float | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Renew the claim on a task and on the files claimed with it; the epoch stays the same."""

    async def complete(
        self,
        id: str,
        *,
        result: Any = None,
        announce: str = "",
        entry: dict[str, Any] | None = None,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Complete a task: store its result, release its files and unblock its dependents."""

    @overload
    async def complete_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> tuple[Task, ...]: ...
    @overload
    async def complete_many(
        self, items: Sequence[dict[str, Any]], *, each: bool, idempotency_key: str | None = None
    ) -> tuple[Task | DibsError, ...]: ...
    async def fail(
        self,
        id: str,
        *,
        reason: str = "",
        retry: bool = True,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Report that an attempt failed; the task is retried after a pause, or is dead."""

    async def abandon(
        self,
        id: str,
        *,
        reason: str = "",
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Give a task back; it is available immediately, and no attempt is counted."""

    async def cancel(
        self, id: str, *, reason: str = "", idempotency_key: str | None = None
    ) -> Task:
        """Cancel a task; if it is claimed, only its claimer, its author, a person or an admin
        may."""

    async def revoke(
        self, id: str, *, reason: str = "", idempotency_key: str | None = None
    ) -> Task:
        """Take a task away from its claimer, on a person's decision; it is available
        immediately."""

    async def land(
        self,
        branch: str,
        *,
        commit: str,
        onto: str = "main",
        task: str | None = None,
        check: str = "",
        priority: int = 0,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Queue a branch to be landed, and hand in the task it is for; see dibs land."""

    async def ask(
        self,
        id: str,
        question: str,
        *,
        epoch: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Give a task back until a person answers a question; no attempt is counted."""

    async def ack(
        self, id: str, *, refuse: bool = False, note: str = "", idempotency_key: str | None = None
    ) -> Task:
        """Approve what a task asks, as a person; the task is available again."""

    async def reopen(self, id: str, *, idempotency_key: str | None = None) -> Task:
        """Make a task that has ended available again, with its attempts reset."""

    async def show(self, id: str) -> Task:
        """Show one task, with the leases held for it."""

    async def list(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        labels: Sequence[str] = (),
        text: str | None = None,
        parent: str | None = None,
        follows: str | None = None,
        precedes: str | None = None,
        everything: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> tuple[Task, ...]:
        """List tasks in the order they were added."""

    async def wait(
        self,
        *ids: str,
        any: bool = False,
        state: str | None = None,
        kind: str | None = None,
        title_has: str | None = None,
        wait_s: float = 60,
    ) -> tuple[Task, ...]:
        """Wait until tasks have ended or are in a state, including tasks not added yet."""

    async def edit(
        self,
        id: str,
        *,
        title: str | None = None,
        kind: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        after: Sequence[str] | None = None,
        leases: Sequence[str] | None = None,
        parent: str | None = None,
        found_in: str | None = None,
        payload: Any = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Change a task; only its author or a person may, while nobody else has claimed it."""

    async def remove(self, id: str, *, idempotency_key: str | None = None) -> Task:
        """Remove a task as if it had never been added; only its author or a person may."""

    async def plan(self, *, agents: int | None = None, limit: int = 200) -> WorkPlan:
        """Show how many agents can be busy now and over time, and what prevents more."""

    async def put(
        self,
        id: str,
        *,
        title: str | None = None,
        kind: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        after: Sequence[str] | None = None,
        payload: Any = None,
        leases: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        parent: str | None = None,
        found_in: str | None = None,
        with_children: bool = False,
        state: str | None = None,
        result: Any = None,
        reopen: bool = False,
        idempotency_key: str | None = None,
    ) -> Put:
        """Add a task, or update it, to match what an external source says about it."""

    @overload
    async def put_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: Literal[False] = False,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Put, ...]: ...
    @overload
    async def put_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: bool,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Put | DibsError, ...]: ...

class AsyncMessages(AsyncNoun):
    sync: Messages

    def __init__(self, sync: Messages) -> None: ...
    async def send(
        self,
        body: str,
        *,
        to: str | None = None,
        channel: str | None = None,
        reply_to: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Send a message to an agent, a channel, or everybody."""

    @overload
    async def send_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> tuple[Message, ...]: ...
    @overload
    async def send_many(
        self, items: Sequence[dict[str, Any]], *, each: bool, idempotency_key: str | None = None
    ) -> tuple[Message | DibsError, ...]: ...
    async def announce(self, body: str, *, idempotency_key: str | None = None) -> Message:
        """Tell everybody what you are doing or what you found."""

    async def inbox(
        self,
        *,
        channel: str | None = None,
        peek: bool = False,
        until: int | None = None,
        limit: int = 100,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> tuple[Message, ...]:
        """Show the unread messages, oldest first, and mark them as read."""

    async def ack(self, *ids: int, idempotency_key: str | None = None) -> tuple[int, ...]:
        """Acknowledge messages, so that their senders know you read them."""

    async def delivery(self, id: int) -> tuple[Delivery, ...]:
        """Show for each reader whether a message is queued, delivered or acknowledged."""

    async def history(
        self,
        *,
        agent: str | None = None,
        channel: str | None = None,
        thread: int | None = None,
        before: int = 4611686018427387904,
        limit: int = 100,
    ) -> tuple[Message, ...]:
        """Show past messages, the newest first."""

    async def search(self, text: str, *, limit: int = 100) -> tuple[Message, ...]:
        """Find messages that contain all these words, the newest first."""

class AsyncState(AsyncNoun):
    sync: State

    def __init__(self, sync: State) -> None: ...
    async def get(self, namespace: str, key: str) -> Entry | None:
        """Get an entry, or nothing if there is none."""

    async def set(
        self,
        namespace: str,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        force: bool = False,
        ttl_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Set an entry: create it, replace the version you saw, or overwrite it."""

    async def delete(
        self,
        namespace: str,
        key: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Delete an entry; its version keeps counting."""

    async def clear(self, namespace: str, *, idempotency_key: str | None = None) -> int:
        """Delete all entries of a namespace, and return how many there were."""

    async def list(
        self, namespace: str, *, after: str = "", limit: int = 1000
    ) -> tuple[Entry, ...]:
        """List the entries of a namespace by key."""

    async def namespaces(self) -> dict[str, int]:
        """List the namespaces that have entries, and how many each has."""

    async def history(
        self, namespace: str, key: str, *, before: int = 4611686018427387904, limit: int = 100
    ) -> tuple[Entry, ...]:
        """Show the versions of an entry, including deletions, the newest first."""

    async def export(self, namespace: str) -> EntryExport:
        """Export a namespace: its entries by key, and the history of each, newest first."""

    async def watch(
        self, namespace: str, key: str, *, after_version: int | None = None, wait_s: float = 60
    ) -> Entry | None:
        """Wait until an entry changes; return its new value, or nothing if it did not change."""

class AsyncAgents(AsyncNoun):
    sync: Agents

    def __init__(self, sync: Agents) -> None: ...
    async def beat(self, *, status: str | None = None) -> Session:
        """Report that this session is alive, and what it is doing."""

    async def leave(self) -> Session:
        """End this session, and free everything it holds."""

    async def rename(self, name: str) -> Session:
        """Rename this session, which must not hold anything."""

    async def doing(self) -> str:
        """Show what this session is doing: its status, or else a task that it has claimed."""

    async def list(self, *, everybody: bool = False) -> tuple[Presence, ...]:
        """List who is here, what they are doing, and how much they hold."""

    async def overview(self, *, agent: str | None = None, limit: int = 100) -> Overview:
        """Show the current state: who is here, what is held, and what needs attention."""

    async def verify(self) -> tuple[Mismatch, ...]:
        """Check that nobody changed the store without dibs, and list the rows that were changed."""

    async def add_token(
        self, name: str, *, scope: str = "agent", expires_s: float | None = None
    ) -> NewToken:
        """Add an access token for the daemon; its secret is shown only once."""

    async def tokens(self) -> tuple[Token, ...]:
        """List the access tokens without their secrets, including expired and revoked ones."""

    async def revoke_token(self, id: int) -> Token:
        """Revoke an access token, and end the sessions that joined with it."""

class AsyncEvents(AsyncNoun):
    sync: Events

    def __init__(self, sync: Events) -> None: ...
    async def since(
        self,
        seq: int | str | datetime | None = None,
        *,
        until: int | str | datetime | None = None,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Show the first events after a seq or since a time, in order."""

    async def latest(
        self,
        *,
        since: int | str | datetime | None = None,
        until: int | str | datetime | None = None,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """Show the last events, in order."""

    async def last(self) -> int:
        """Show the seq of the last write, where a reader of only new events starts."""

    async def watch(
        self,
        seq: int,
        *,
        kind: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        task: str | None = None,
        path: str | None = None,
        limit: int = 1000,
        wait_s: float = 60,
    ) -> tuple[Event, ...]:
        """Wait for events after a seq and return them in order; none if nothing happened."""

    async def seal(self) -> Seal:
        """Seal the journal: print its end as one line, to be kept elsewhere."""

    async def check_seal(self, seal: str) -> Sealed:
        """Compare the journal with a seal."""

    async def replay(
        self, *, at: int | str | datetime, text: str | None = None, limit: int = 1000
    ) -> Moment:
        """Show who was here, what was held and which tasks were open at an earlier moment."""

    async def diff(
        self, a: int | str | datetime, b: int | str | datetime, *, limit: int = 1000
    ) -> Difference:
        """Show what changed between two moments, and who changed it."""

    async def report(
        self,
        *,
        since: int | str | None = None,
        until: int | str | None = None,
        by: str = "agent",
        east_s: int = 0,
        limit: int = 100,
    ) -> Report:
        """Report what was done, held, waited for and recovered in a period."""

    async def contention(
        self, *, since: int | str | None = None, until: int | str | None = None, limit: int = 20
    ) -> Contention:
        """Show who waits for whom now, and what agents waited for in a period."""

    async def prune(self, *, keep_s: float | None = None) -> Pruned:
        """Remove records that have ended and are older than that; free what dead sessions hold."""
