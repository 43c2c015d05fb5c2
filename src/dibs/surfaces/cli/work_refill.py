"""`dibs work refill --below N [--loop] -- COMMAND…`: run the user's planner when work runs out.

Only the holder of the lease `work:refill` runs it. If it adds nothing, the next run has to wait,
longer each time; the pause is an entry of the store, so it applies to everybody.
"""

from __future__ import annotations

import signal
import time

from dibs.arguments import ITEMS_LIMIT, LIST_LIMIT, Whole
from dibs.errors import ExistsError, InvalidError, NotFoundError, StaleError
from dibs.nouns.work.tasks import BACKOFF_MAX_MS, backoff_ms
from dibs.operation import EVERYBODY, extent
from dibs.records import called, span
from dibs.storage.clock import SILENCE
from dibs.surroundings.commands import INPUT_LIMIT
from dibs.surroundings.output import Output
from dibs.surroundings.running import END_S, QUEUE_S, SIGNALS, TTL_S, attend_group, execute
from dibs.surroundings.who import worker_name
from dibs.surroundings.wording import note
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from typing import Any

    from dibs.dibs import Agent, Dibs
    from dibs.keeping import HeldLease
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"below": Whole(1)}
TURN = "work:refill"
"""The lease of the worker that runs the planner."""
WHY = "runs the planner for new tasks"
NAMESPACE, KEY = "work", "refill"
"""The entry that says how often a planner added nothing, and how long to wait."""
REMEMBERED_S = 3_600
"""How long a pause is remembered after it has ended."""
LATER = 75
NAMED = 20


def main(call: Globals, *command: str, below: int, loop: bool = False, wait_s: float = 0) -> int:
    """Run a planner when too few tasks are available, and add the tasks that it prints.

    The planner prints one task on each line: the arguments of work.add as a JSON object. Tasks
    whose id already exists are skipped; a wrong line is reported, and the others are added. The
    number of available and of wanted tasks is in DIBS_REFILL_AVAILABLE and DIBS_REFILL_WANTED. If
    the planner fails, nothing is added. If it adds nothing new, the next run has to wait: 10 s at
    first, then twice as long each time, up to an hour.

    The exit code is 0 if there are enough tasks or some were added, 1 if a line was wrong or
    another agent's planner is running, 75 if it is too early for the next run, and that of the
    planner if it failed.

    command: what to run
    below: how many available tasks are enough
    loop: keep running, and run the planner whenever there are too few tasks
    wait_s: how long to wait for another agent's planner
    example: --as lead --below 10 --loop -- ./plan.sh
    """
    if not command:
        raise InvalidError("no command was given", next="dibs work refill --below N -- COMMAND…")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with call.open() as space:
        name = call.agent or worker_name(call.named(space, people=True))
        while True:
            with space.join(name) as agent:
                # While it waits, a signal ends this process.
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                if loop:
                    wait_for_need(space, below)
                elif (code := not_now(space, below)) is not None:
                    return code
                agent.leases.claim(TURN, wait_s=QUEUE_S if loop else wait_s, ttl_s=TTL_S, note=WHY)
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                with agent.lease(TURN, ttl_s=TTL_S, note=WHY) as lease:
                    # The planner before this one may have added enough.
                    if (left := missing(space, below)) <= 0 or pause_s(space) > 0:
                        code, told = 0, 0
                    else:
                        code, told = Planner(call, agent, lease, below, left).run(command, mask)
            if told or not loop:
                return code


def missing(space: Dibs, below: int) -> int:
    """How many tasks are wanted."""
    return below - space.agents.overview(limit=1).counts.get("available", 0)


def pause_s(space: Dibs) -> float:
    """How long until the planner may be tried again."""
    entry = space.state.get(NAMESPACE, KEY)
    if entry is None or entry.expires_in_ms is None:
        return 0.0
    # Anybody can write entries, but cannot stop the planner for longer than the longest pause.
    return min(BACKOFF_MAX_MS / 1000, max(0.0, entry.expires_in_ms / 1000 - REMEMBERED_S))


def not_now(space: Dibs, below: int) -> int | None:
    """The exit code if the planner does not have to run or must not run now."""
    if missing(space, below) <= 0:
        note("dibs: enough tasks are available")
        return 0
    if left := pause_s(space):
        note(
            f"dibs: the planner added nothing last time; the next run is possible in {span_s(left)}"
        )
        return LATER
    return None


def wait_for_need(space: Dibs, below: int) -> None:
    """Wait until there are too few tasks and the planner may be tried."""
    while True:
        seq = space.events.last()
        if missing(space, below) <= 0:
            space.events.watch(seq, kind="task", limit=1, wait_s=QUEUE_S)
        elif left := pause_s(space):
            time.sleep(left)
        else:
            return


def span_s(seconds: float) -> str:
    return span(int(seconds * 1000) + 999)


class Planner:
    """One run of the planner, by the holder of its lease."""

    def __init__(
        self, call: Globals, agent: Agent, lease: HeldLease, below: int, wanted: int
    ) -> None:
        self._call = call
        self._agent = agent
        self._lease = lease
        self._told = {
            "DIBS_REFILL_BELOW": str(below),
            "DIBS_REFILL_AVAILABLE": str(below - wanted),
            "DIBS_REFILL_WANTED": str(wanted),
        }
        self._output = Output(None, INPUT_LIMIT)
        self._signal = 0

    def run(self, command: Sequence[str], mask: set[signal.Signals] | set[int]) -> tuple[int, int]:
        """Run it and add its tasks; return the exit code, and the signal that ended it, if any."""
        import subprocess

        code = execute(
            self._call, self._agent, command, mask, self._attend, GroupTether(), self._told,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._signal:
            SILENCE.set(END_S)
            return 128 + self._signal, self._signal
        if self._lease.lost is not None:
            raise StaleError(f"{self._lease.lost.message}; nothing was added")
        if self._output.cut:
            note(f"dibs: the planner printed more than {INPUT_LIMIT:,} bytes; nothing was added")
            code = 1
        if code:
            note(f"dibs: the planner failed (exit code {code}); nothing was added")
            self._back_off()
            return code, 0
        return self._add(), 0

    def _attend(self, child: subprocess.Popen[bytes]) -> int:
        self._output.follow(child)
        code, self._signal = attend_group(child, self._lease)
        self._output.finish()
        return code

    def _add(self) -> int:
        """Add what was printed; the exit code."""
        wrong: list[tuple[int, str]] = []
        added = skipped = 0
        for batch in batches(self._output.lines, wrong):
            answers = self._agent.work.add_many([item for _, item in batch], each=True)
            for (number, _), answer in zip(batch, answers, strict=True):
                if isinstance(answer, ExistsError):
                    skipped += 1
                elif isinstance(answer, Exception):
                    wrong.append((number, str(answer)))
                else:
                    added += 1
        for number, why in sorted(wrong)[:NAMED]:
            note(f"dibs: line {number}: {why}")
        if len(wrong) > NAMED:
            note(f"dibs: {len(wrong) - NAMED} more lines are wrong")
        note(f"dibs: {added} added, {skipped} already there, {len(wrong)} wrong")
        if added:
            self._forget()
        else:
            self._back_off()
        return 1 if wrong else 0

    def _back_off(self) -> None:
        entry = self._agent.state.get(NAMESPACE, KEY)
        value = entry.value if entry is not None else None
        times = value.get("brought_nothing", 0) if isinstance(value, dict) else 0
        times = min(times, 20) + 1 if isinstance(times, int) else 1
        pause = backoff_ms(times) / 1000
        self._agent.state.set(
            NAMESPACE, KEY, {"brought_nothing": times}, force=True, ttl_s=pause + REMEMBERED_S
        )
        note(f"dibs: the next run is possible in {span_s(pause)}")

    def _forget(self) -> None:
        try:
            self._agent.state.delete(NAMESPACE, KEY)
        except NotFoundError:
            pass  # there was no pause before


def batches(
    lines: Sequence[bytes], wrong: list[tuple[int, str]]
) -> Iterator[list[tuple[int, Any]]]:
    """The tasks on these lines with their line numbers, in batches that fit one call.

    wrong: where to put lines that are not tasks
    """
    import json

    batch: list[tuple[int, Any]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            wrong.append((number, "it is not JSON; write a task as an object on each line"))
            continue
        if not isinstance(item, dict):
            wrong.append((number, f"a task must be an object, not {called(type(item).__name__)}"))
            continue
        more = extent(item)
        if more > ITEMS_LIMIT:
            wrong.append(
                (number, f"the task has {more:,} characters; the limit is {ITEMS_LIMIT:,}")
            )
            continue
        if batch and (len(batch) == LIST_LIMIT or size + more > ITEMS_LIMIT):
            yield batch
            batch, size = [], 0
        batch.append((number, item))
        size += more
    if batch:
        yield batch
