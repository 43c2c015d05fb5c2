"""Leases and claims that are renewed in the background while you work.

A thread renews three times per time to live. If the store does not answer, the thread tries again.
If the store refuses, the lease is lost: the `with` block raises at its end, or earlier if it calls
`check()`.

`lost` depends neither on an answer nor on the thread. The holder keeps its own count of how long
the last grant is valid, starting before it asked. Its count therefore ends before the store's does,
whatever freezes: the store, the network, the thread or this process. It ends slightly earlier
still, which leaves time to stop. Where a session lives by beats, the lease also ends with the
session.
"""

from __future__ import annotations

import threading

from dibs.errors import (
    ClosedError,
    DibsError,
    ForkedError,
    RefusedError,
    StaleError,
    StateError,
    StoreGoneError,
    UnavailableError,
    UpgradedError,
)
from dibs.logger import INFO, WARNING, log
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
"""How much earlier than the store the holder gives up: a share of the time, and at most seconds."""
RETRY_S = 1.0
LEAST_S = 1.0
"""How long one attempt may wait for an answer, however short the time to live is."""
SHOWN = 3
"""How many names a `repr` shows."""
STOP_S = 0.2
"""How long to wait for a renewal in progress. One that hangs ends by itself."""
FINAL = (RefusedError, StoreGoneError, UpgradedError, ForkedError, ClosedError)
"""After one of these errors there is nothing left to renew."""


class Beating:
    """A thread that renews something until it is stopped or refused, and the time that is left."""

    def __init__(
        self, what: str, renew: Callable[[], float], ttl_s: float, now: Callable[[], float]
    ) -> None:
        """
        what: what is renewed, as it is called in errors and logs
        renew: renews it, and returns for how many seconds
        now: the clock that counts these seconds
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
        """Whether it was lost because time ran out, not because the store refused."""
        self._told = False
        """Whether the log says that it was lost."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dibs-beating", daemon=True)

    def start(self, asked: float, seconds: float) -> None:
        """Start renewing what was requested at time `asked` and granted for `seconds`."""
        self._count(asked, seconds)
        self._thread.start()

    def beat(self) -> None:
        """Renew it now."""
        asked, before = self._now(), self._asked
        self._count(asked, self._renew())
        late_s = asked - before - self._every_s
        if late_s > self._every_s:  # at least one renewal was missed
            log("keeping", WARNING, "renewed %s %.1f s late", self._what, late_s)

    def _count(self, asked: float, seconds: float) -> None:
        with self._lock:
            if asked > self._asked:  # answers may arrive out of order
                self._asked, self._ends = asked, asked + seconds
                self._early_s = min(EARLY_S, seconds * EARLY)

    @property
    def left_s(self) -> float:
        """How many seconds nobody else can have it; 0 once the store has refused it."""
        refused = self._refusal is not None and not self.late
        return 0.0 if refused else max(0.0, self._ends - self._now())

    @property
    def refusal(self) -> DibsError | None:
        """Why it was lost, or None."""
        if self._refusal is None:
            with self._lock:
                now = self._now()
                if self._is_late(now):
                    self.late = True
                    self._refusal = StaleError(
                        f"{self._what} was not renewed: the store has not answered for "
                        f"{now - self._asked:.0f} s, and others may take it now",
                        next="stop working on it; claim it again, and look at what changed "
                        "meanwhile",
                    )
            if self._refusal is not None:
                self._tell_lost(self._refusal)
        return self._refusal

    def _is_late(self, now: float) -> bool:
        return now >= self._ends - self._early_s

    def _tell_lost(self, why: DibsError) -> None:
        if not self._told:
            self._told = True
            log("keeping", WARNING, "lost %s: %s", self._what, why.message)

    def _run(self) -> None:
        # An attempt that hangs must leave time for another.
        SILENCE.set(max(LEAST_S, self._every_s))
        pause_s = self._every_s
        while not self._stopped.wait(pause_s) and self._refusal is None:
            try:
                self.beat()
                pause_s = self._every_s
            except FINAL as refusal:
                if not self._stopped.is_set():
                    self._refusal = refusal
                    self._tell_lost(refusal)
                return
            except UnavailableError as error:
                pause_s = min(RETRY_S, self._every_s)
                log("keeping", INFO, "could not renew %s (%s); trying again in %.1f s",
                    self._what, error.code, pause_s)  # fmt: skip
                if self._is_late(self._now()):
                    self._tell_lost(error)

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop renewing. What is not lost by now will not be reported as lost."""
        self._stopped.set()
        if self.refusal is None:
            self._ends = float("inf")
        if self._thread.ident is not None:
            self._thread.join(STOP_S)


def kept_alive(join: Callable[[], Agent], ttl_s: float) -> Agent:
    """Join as an agent whose session is kept alive by beats."""
    any_clock = holders_clock("")  # which clock decides is known only after the first answer
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

    _beating: Beating | None = None
    """Set while the block runs, and afterwards."""

    def __init__(self, scope: Scope, ttl_s: float, session: Beating | None) -> None:
        """
        session: what keeps the holder's session alive, where beats do
        """
        self._ttl_s = ttl_s
        self._session = session
        self._now = holders_clock(scope.boot)

    def _begin(self, what: str, asked: float, seconds: float, waited: bool) -> None:
        beating = Beating(what, self._renew, self._ttl_s, self._now)
        if waited and self._now() - asked > min(EARLY_S, seconds * EARLY):
            # It was granted at some time during the wait. Ask the store how much is left.
            asked = self._now()
            seconds = self._renew()
        beating.start(asked, seconds)
        self._beating = beating

    @property
    def _renewal(self) -> Beating:
        if self._beating is None:
            raise StateError("nothing is held yet", next="enter it with `with` first")
        return self._beating

    def _described(self, ended: str) -> str:
        """How far it is, for `repr`. It asks nobody.

        ended: what it is called after the block
        """
        if self._beating is None:
            return "not claimed yet"
        if self.lost is not None:
            return "lost"
        return ended if self._beating.stopped else f"{self.left_s:.0f} s left"

    def _renew(self) -> float:
        """Renew it, and return for how many seconds."""
        raise NotImplementedError

    @property
    def lost(self) -> DibsError | None:
        """Why it was lost, or None. The clock decides even if the store does not answer."""
        lost = self._renewal.refusal
        if lost is None and self._session is not None:
            lost = self._session.refusal
        return lost

    @property
    def left_s(self) -> float:
        """How many seconds nobody else can have it, even if the store stops answering."""
        left = self._renewal.left_s
        return left if self._session is None else min(left, self._session.left_s)

    @property
    def _late(self) -> bool:
        """Whether it was lost because time ran out, so that asking the store is pointless."""
        lost = self.lost
        return lost is not None and (
            self._renewal.late or (self._session is not None and self._session.late)
        )

    def check(self) -> None:
        """Renew it now, and raise if it was lost or may be lost."""
        if self.lost is not None:
            raise self.lost
        try:
            self._renewal.beat()
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

    def __repr__(self) -> str:
        names = ", ".join(map(called, self._resources[:SHOWN]))
        more = f" and {len(self._resources) - SHOWN} more" if len(self._resources) > SHOWN else ""
        epoch = "" if self._beating is None else f", epoch {self.epoch}"
        return f"<HeldLease on {names}{more}{epoch}, {self._described('released')}>"

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
        # By epoch, not by name: names depend on the current directory, which may change.
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
        """The fencing token. Pass it on to whatever this lease protects."""
        return self.grant.epoch

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._renewal.stop()
        try:
            if self._late and self.lost is not None:
                raise self.lost
            # What was held before the block, perhaps by an outer block, stays held.
            kept = self.grant.kept
            new = [lease for lease in self.grant.leases if lease.resource not in kept]
            self._each_epoch(self._leases.release, new)
        except DibsError:
            if kind is None:
                raise
            # The block raises an error of its own, which says more than the lost lease would.


def shortest(leases: list[Lease] | tuple[Lease, ...]) -> float:
    """How many seconds all of these leases are valid."""
    return min(lease.expires_in_ms for lease in leases) / 1000


class HeldTask(Held):
    """A task held for the length of a `with` block, and completed with `result` at its end.

    `task` is its record. `id`, `title` and `payload` are shortcuts to what most callers read.
    """

    def __init__(
        self, work: Work, ttl_s: float, options: dict[str, Any], session: Beating | None = None
    ) -> None:
        """
        options: those of `work.claim` if they include an id, else those of `work.next`
        """
        super().__init__(work.scope, ttl_s, session)
        self._work = work
        self._options = options
        self._settle: Callable[..., Task] | None = None
        self.result: Any = None

    def __repr__(self) -> str:
        if self._beating is not None:
            what = f" {called(self.task.id)}, epoch {self.task.epoch}"
        else:
            what = f" {called(self._options['id'])}" if "id" in self._options else ""
        return f"<HeldTask{what}, {self._described('ended')}>"

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
        """Mark the attempt as failed when the block ends.

        retry: False if no other attempt can succeed
        """
        self._settle = lambda id, **how: self._work.fail(id, reason=reason, retry=retry, **how)

    def abandon(self, reason: str) -> None:
        """Give the task back when the block ends."""
        self._settle = lambda id, **how: self._work.abandon(id, reason=reason, **how)

    def hand_in(self, branch: str, commit: str, onto: str, check: str = "") -> None:
        """Hand the task in with a landing of this branch when the block ends."""

        def land(id: str, epoch: int) -> Task:
            self._work.land(branch, commit=commit, onto=onto, check=check, task=id, epoch=epoch)
            return self._work.show(id)

        self._settle = land

    def _complete(self, id: str, **how: Any) -> Task:
        return self._work.complete(id, result=self.result, **how)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._renewal.stop()
        if kind is None:
            try:
                # Even if time ran out: only the store knows whether anybody took it.
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
            return  # it was lost in the meantime; the block raises its own error


def time_of(task: Task) -> float:
    """How many seconds a claim of a task is valid, with the leases that belong to it."""
    left = [(task.due_in_ms or 0) / 1000]
    return min([*left, shortest(task.leases)] if task.leases else left)
