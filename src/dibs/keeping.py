"""Keeping what one holds while one works: renewal in the background.

The thread renews three times within the time to live. A store that does not answer is asked
again; a refusal means that the lease is lost, and the block that holds it is told at its end,
or earlier if it asks with `check()`.
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
)
from dibs.records import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from dibs.nouns.leases.operations import Leases
    from dibs.nouns.work.operations import Work
    from dibs.records import Grant, Lease, Task


class Beating:
    """A thread that calls something again and again until it is stopped or refused."""

    def __init__(self, call: Callable[[], object], every_s: float) -> None:
        self._call = call
        self._every_s = every_s
        self._stopped = threading.Event()
        self.refusal: DibsError | None = None
        self._thread = threading.Thread(target=self._run, name="dibs-beating", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._call()
            except (RefusedError, StoreGoneError, ForkedError, ClosedError) as refusal:
                self.refusal = refusal
                return
            except UnavailableError:
                continue  # the next beat comes before the time is over

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


class Held:
    """Something that is renewed while a `with` block runs."""

    _beating: Beating

    def _renew(self) -> None:
        raise NotImplementedError

    @property
    def lost(self) -> DibsError | None:
        """Why it was lost, if it was."""
        return self._beating.refusal

    def check(self) -> None:
        """Raise if it has been lost to somebody else."""
        if self.lost is not None:
            raise self.lost
        self._renew()


class HeldLease(Held):
    """Resources held for the length of a `with` block."""

    def __init__(
        self, leases: Leases, resources: tuple[str, ...], ttl_s: float, options: dict[str, Any]
    ) -> None:
        self._leases = leases
        self._resources = resources
        self._ttl_s = ttl_s
        self._options = options

    def __enter__(self) -> Self:
        self.grant: Grant = self._leases.claim(*self._resources, ttl_s=self._ttl_s, **self._options)
        self._beating = Beating(self._renew, self._ttl_s / 3)
        return self

    def _renew(self) -> None:
        self._each_epoch(self._leases.renew, list(self.grant.leases))

    def _each_epoch(self, call: Callable[..., tuple[Lease, ...]], leases: list[Lease]) -> None:
        # By epoch, not by name: a name is read from the current directory, which may change.
        for epoch in {lease.epoch for lease in leases}:
            found = {lease.resource for lease in call(epoch=epoch)}
            for lease in leases:
                if lease.epoch == epoch and lease.resource not in found:
                    raise StaleError(
                        f"your lease on {called(lease.resource)} was taken away",
                        next="claim it again, and look at what changed meanwhile",
                    )

    @property
    def epoch(self) -> int:
        """The fencing token to pass on to whatever this lease protects."""
        return self.grant.epoch

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._beating.stop()
        try:
            # What was held before the block, by an outer one perhaps, outlives it.
            kept = self.grant.kept
            new = [lease for lease in self.grant.leases if lease.resource not in kept]
            self._each_epoch(self._leases.release, new)
        except DibsError:
            if kind is None:
                raise
            # The block's own error is on its way, and says more than the lost lease would.


class HeldTask(Held):
    """A task held for the length of a `with` block. `result` is what it is completed with."""

    def __init__(self, work: Work, ttl_s: float, options: dict[str, Any]) -> None:
        self._work = work
        self._ttl_s = ttl_s
        self._options = options
        self.result: Any = None

    def __enter__(self) -> Self:
        self.task: Task = self._work.next(ttl_s=self._ttl_s, **self._options)
        self._beating = Beating(self._renew, self._ttl_s / 3)
        return self

    def _renew(self) -> None:
        self._work.renew(self.task.id, epoch=self.task.epoch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._beating.stop()
        task = self.task
        if kind is None:
            self._work.complete(task.id, result=self.result, epoch=task.epoch)
            return
        try:
            if issubclass(kind, Exception):
                told = f"{kind.__name__}: {error}"[:500]
                reason = "".join(sign if sign.isprintable() else " " for sign in told)
                self._work.fail(task.id, reason=reason, epoch=task.epoch)
            else:
                self._work.abandon(task.id, reason=kind.__name__, epoch=task.epoch)
        except DibsError:
            return  # lost meanwhile; the block's own error is on its way
