"""Keeping what one holds while one works: renewal in the background.

The thread renews three times within the time to live. A store that does not answer is asked
again; a refusal means that the lease is lost, and the block that holds it is told at its end,
or earlier if it asks with `check()`.

`lost` does not depend on an answer, nor on the thread. The holder counts for itself how long the
store keeps to what it said last, from before it was asked, so that its count ends first, whatever
is frozen: the store, the way to it, the thread or this process. It ends a little sooner still, so
that there is time to stop. A lease through a session that lives by beats ends with these too.
"""

from __future__ import annotations

import threading

from dibs.errors import (
    ClosedError,
    DibsError,
    ForkedError,
    RefusedError,
    StaleError,
    StoreGoneError,
    UnavailableError,
    UpgradedError,
)
from dibs.records import called
from dibs.storage.clock import SILENCE, holders_clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from dibs.dibs import Agent
    from dibs.nouns.leases.operations import Leases
    from dibs.nouns.work.operations import Work
    from dibs.records import Grant, Lease, Task
    from dibs.space.scope import Scope

EARLY, EARLY_S = 0.1, 2.0
"""How much sooner than the store the holder lets go: a part of the time, and at most so long."""
RETRY_S = 1.0
LEAST_S = 1.0
"""How long one try may stay without an answer, however short the time to live is."""
STOP_S = 0.2
"""How long to wait for a renewal that is under way; one that hangs ends by itself."""
FINAL = (RefusedError, StoreGoneError, UpgradedError, ForkedError, ClosedError)
"""After these there is nothing to renew."""


class Beating:
    """A thread that renews something until it is stopped or refused, and the time that it has."""

    def __init__(
        self, what: str, renew: Callable[[], float], ttl_s: float, now: Callable[[], float]
    ) -> None:
        """
        what: what is renewed, as the holder is told if it is lost
        renew: renews it, and returns for how many seconds
        now: the clock to count them by
        """
        self._what = what
        self._renew = renew
        self._every_s = ttl_s / 3
        self._now = now
        self._lock = threading.Lock()
        self._asked, self._ends = float("-inf"), float("inf")
        self._early_s = 0.0
        self._refusal: DibsError | None = None
        self.late = False
        """Whether it was lost by the clock, and not by an answer of the store."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dibs-beating", daemon=True)

    def start(self, asked: float, seconds: float) -> None:
        """Begin with what was granted for so many seconds, and asked for at that time."""
        self._count(asked, seconds)
        self._thread.start()

    def beat(self) -> None:
        """Renew it now."""
        asked = self._now()
        self._count(asked, self._renew())

    def _count(self, asked: float, seconds: float) -> None:
        with self._lock:
            if asked > self._asked:  # the answer to an earlier question may come later
                self._asked, self._ends = asked, asked + seconds
                self._early_s = min(EARLY_S, seconds * EARLY)

    @property
    def left_s(self) -> float:
        """For how long it can surely be nobody else's; 0 once the store has refused it."""
        refused = self._refusal is not None and not self.late
        return 0.0 if refused else max(0.0, self._ends - self._now())

    @property
    def refusal(self) -> DibsError | None:
        """Why it was lost, if it was."""
        if self._refusal is None:
            with self._lock:
                now = self._now()
                if now >= self._ends - self._early_s:
                    self.late = True
                    self._refusal = StaleError(
                        f"{self._what} was not renewed: the store has not answered for "
                        f"{now - self._asked:.0f} s, and others may take it now",
                        next="stop working on it; claim it again, and look at what changed "
                        "meanwhile",
                    )
        return self._refusal

    def _run(self) -> None:
        # A try that hangs must leave time for another.
        SILENCE.set(max(LEAST_S, self._every_s))
        pause_s = self._every_s
        while not self._stopped.wait(pause_s) and self._refusal is None:
            try:
                self.beat()
                pause_s = self._every_s
            except FINAL as refusal:
                if not self._stopped.is_set():
                    self._refusal = refusal
                return
            except UnavailableError:
                pause_s = min(RETRY_S, self._every_s)

    def stop(self) -> None:
        """Renew no more: from here on, it is lost only if it was before."""
        self._stopped.set()
        if self.refusal is None:
            self._ends = float("inf")
        if self._thread.ident is not None:
            self._thread.join(STOP_S)


def kept_alive(join: Callable[[], Agent], ttl_s: float) -> Agent:
    """An agent that joins, with a session that is kept alive by beats."""
    any_clock = holders_clock("")  # whose clock it is, is known once somebody has answered
    began = any_clock()
    agent = join()
    now = holders_clock(agent.scope.boot)
    asked = now() - (any_clock() - began)

    def beat() -> float:
        agent.agents.beat()
        return ttl_s

    agent.beating = Beating("what your session holds", beat, ttl_s, now)
    agent.beating.start(asked, ttl_s)
    agent.scope.at_close(agent.beating.stop)
    return agent


class Held:
    """Something that is renewed while a `with` block runs."""

    def __init__(self, scope: Scope, ttl_s: float, session: Beating | None) -> None:
        """
        session: what keeps the session of the holder alive, where beats do
        """
        self._ttl_s = ttl_s
        self._session = session
        self._now = holders_clock(scope.boot)
        self._beating: Beating

    def _begin(self, what: str, asked: float, seconds: float, waited: bool) -> None:
        self._beating = Beating(what, self._renew, self._ttl_s, self._now)
        if waited and self._now() - asked > min(EARLY_S, seconds * EARLY):
            # It came at some time within the wait; how much of it is left, the store can say.
            asked = self._now()
            seconds = self._renew()
        self._beating.start(asked, seconds)

    def _renew(self) -> float:
        """Renew it, and return for how many seconds."""
        raise NotImplementedError

    @property
    def lost(self) -> DibsError | None:
        """Why it was lost, if it was; known by the clock also where the store does not answer."""
        lost = self._beating.refusal
        if lost is None and self._session is not None:
            lost = self._session.refusal
        return lost

    @property
    def left_s(self) -> float:
        """For how many seconds it can surely be nobody else's, if the store answers no more."""
        left = self._beating.left_s
        return left if self._session is None else min(left, self._session.left_s)

    @property
    def _late(self) -> bool:
        """Whether it was lost by the clock; then nobody needs to be asked."""
        lost = self.lost
        return lost is not None and (
            self._beating.late or (self._session is not None and self._session.late)
        )

    def check(self) -> None:
        """Raise if it has been lost to somebody else, or may be by now."""
        if self.lost is not None:
            raise self.lost
        try:
            self._beating.beat()
        except UnavailableError as error:
            if self.lost is not None:
                raise self.lost from error
            raise


class HeldLease(Held):
    """Resources held for the length of a `with` block."""

    def __init__(
        self,
        leases: Leases,
        resources: tuple[str, ...],
        ttl_s: float,
        options: dict[str, Any],
        session: Beating | None = None,
    ) -> None:
        super().__init__(leases.scope, ttl_s, session)
        self._leases = leases
        self._resources = resources
        self._options = options

    def __enter__(self) -> Self:
        asked = self._now()
        self.grant: Grant = self._leases.claim(*self._resources, ttl_s=self._ttl_s, **self._options)
        leases = self.grant.leases
        what = f"your lease on {called(leases[0].resource)}"
        if len(leases) > 1:
            what += f" and {len(leases) - 1} more"
        self._begin(what, asked, shortest(leases), bool(self._options.get("wait_s")))
        return self

    def _renew(self) -> float:
        return shortest(self._each_epoch(self._leases.renew, list(self.grant.leases)))

    def _each_epoch(
        self, call: Callable[..., tuple[Lease, ...]], leases: list[Lease]
    ) -> list[Lease]:
        # By epoch, not by name: a name is read from the current directory, which may change.
        told: list[Lease] = []
        for epoch in {lease.epoch for lease in leases}:
            answer = {lease.resource: lease for lease in call(epoch=epoch)}
            for lease in leases:
                if lease.epoch != epoch:
                    continue
                if lease.resource not in answer:
                    raise StaleError(
                        f"your lease on {called(lease.resource)} was taken away",
                        next="claim it again, and look at what changed meanwhile",
                    )
                told.append(answer[lease.resource])
        return told

    @property
    def epoch(self) -> int:
        """The fencing token to pass on to whatever this lease protects."""
        return self.grant.epoch

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._beating.stop()
        try:
            if self._late and self.lost is not None:
                raise self.lost
            # What was held before the block, by an outer one perhaps, outlives it.
            kept = self.grant.kept
            new = [lease for lease in self.grant.leases if lease.resource not in kept]
            self._each_epoch(self._leases.release, new)
        except DibsError:
            if kind is None:
                raise
            # The block's own error is on its way, and says more than the lost lease would.


def shortest(leases: list[Lease] | tuple[Lease, ...]) -> float:
    """For how many seconds all of these are in force."""
    return min(lease.expires_in_ms for lease in leases) / 1000


class HeldTask(Held):
    """A task held for the length of a `with` block. `result` is what it is completed with.

    `task` is its record; what most look at is at hand: `id`, `title` and `payload`.
    """

    def __init__(
        self, work: Work, ttl_s: float, options: dict[str, Any], session: Beating | None = None
    ) -> None:
        """
        options: those of `work.claim` if there is an id among them, else those of `work.next`
        """
        super().__init__(work.scope, ttl_s, session)
        self._work = work
        self._options = options
        self._settle: Callable[..., Task] | None = None
        self.result: Any = None

    def __enter__(self) -> Self:
        asked = self._now()
        claim = self._work.claim if "id" in self._options else self._work.next
        self.task: Task = claim(ttl_s=self._ttl_s, **self._options)
        waited = bool(self._options.get("wait_s"))
        self._begin(f"your claim of {called(self.task.id)}", asked, time_of(self.task), waited)
        return self

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def title(self) -> str:
        return self.task.title

    @property
    def payload(self) -> Any:
        return self.task.payload

    def _renew(self) -> float:
        return time_of(self._work.renew(self.task.id, epoch=self.task.epoch))

    def fail(self, reason: str, retry: bool = True) -> None:
        """Have the attempt end as failed at the end of the block.

        retry: false if no other attempt can succeed
        """
        self._settle = lambda id, **how: self._work.fail(id, reason=reason, retry=retry, **how)

    def abandon(self, reason: str) -> None:
        """Have the task given back at the end of the block."""
        self._settle = lambda id, **how: self._work.abandon(id, reason=reason, **how)

    def hand_in(self, branch: str, commit: str, onto: str, check: str = "") -> None:
        """Have the task handed in with a landing of this branch at the end of the block."""

        def land(id: str, epoch: int) -> Task:
            self._work.land(branch, commit=commit, onto=onto, check=check, task=id, epoch=epoch)
            return self._work.show(id)

        self._settle = land

    def _complete(self, id: str, **how: Any) -> Task:
        return self._work.complete(id, result=self.result, **how)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._beating.stop()
        if kind is None:
            try:
                # Also if it was lost by the clock: only the store knows whether anybody took it.
                settle = self._settle or self._complete
                self.task = settle(self.task.id, epoch=self.task.epoch)
            except UnavailableError as away:
                if self._late and self.lost is not None:
                    raise self.lost from away
                raise
            return
        task = self.task
        try:
            if issubclass(kind, Exception):
                told = f"{kind.__name__}: {error}"[:500]
                reason = "".join(sign if sign.isprintable() else " " for sign in told)
                self._work.fail(task.id, reason=reason, epoch=task.epoch)
            else:
                self._work.abandon(task.id, reason=kind.__name__, epoch=task.epoch)
        except DibsError:
            return  # lost meanwhile; the block's own error is on its way


def time_of(task: Task) -> float:
    """For how many seconds a claim of a task, and of the files with it, is in force."""
    left = [(task.due_in_ms or 0) / 1000]
    return min([*left, shortest(task.leases)] if task.leases else left)
