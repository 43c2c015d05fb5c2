"""Ctrl-C at every line: the turn is free at once, and nothing is half done (R8).

A tracer raises KeyboardInterrupt at the k-th line that runs inside dibs, for every k until
the call gets through. After each, another connection must get the turn within 100 ms, and
what the call was to do must be done as a whole or not at all.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

import dibs
from tests.clock import ManualClock

PACKAGE = str(Path(dibs.__file__).parent) + os.sep
TURN_MS = 100
# A wait has many lines: every fourth in the short form, each in the full one.
STEPS = [4, pytest.param(1, marks=pytest.mark.stress)]


class Interrupter:
    """Raise KeyboardInterrupt at the k-th line that runs in dibs code of this thread."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                name = frame.f_code.co_filename.removeprefix(PACKAGE)
                self.where = f"{name}:{frame.f_lineno} ({frame.f_code.co_name})"
                raise KeyboardInterrupt
        return self._line


def interrupted(call: Callable[[], object], at: int) -> str | None:
    """Make the call, interrupt it at that line; say where, or None if it ended before."""
    interrupter = Interrupter(at)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        call()
    except KeyboardInterrupt:
        assert interrupter.where
    finally:
        sys.settrace(before)
    return interrupter.where or None


class Bench:
    """A store with somebody to interrupt, and a bystander with a connection of their own."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        user_dir = str(tmp_path / "user")
        self.clock = ManualClock()
        self.space = dibs.open(url, space="here", clock=self.clock, user_dir=user_dir)
        self.other = dibs.open(url, space="here", clock=self.clock, user_dir=user_dir)
        self.victim = self.space.join("victim")
        self.bystander = self.other.join("bystander")
        # A connection of its own, so that a lock that is left behind cannot hide in a pool.
        self.probe = apsw.Connection(url)
        self.probe.set_busy_timeout(TURN_MS)
        self.seen = 0

    def check(self, where: str) -> None:
        try:
            self.probe.execute("BEGIN IMMEDIATE")
            self.probe.execute("ROLLBACK")
        except apsw.BusyError:
            pytest.fail(f"interrupted at {where}: the turn is still held after {TURN_MS} ms")
        events = self.other.events.since(self.seen)
        last = self.other.events.last()
        assert [event.seq for event in events] == list(range(self.seen + 1, last + 1)), where
        self.seen = last
        # Whoever was interrupted can go on: there is no transaction left in its connections.
        self.victim.agents.beat()

    def kinds_after(self, seq: int) -> list[str]:
        return [event.kind for event in self.other.events.since(seq)]

    def close(self) -> None:
        # What a write has left half done stays: one walk through the chain at the end finds it.
        assert self.other.agents.verify() == ()
        assert self.probe.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        self.probe.close()
        self.space.close()
        self.other.close()


@pytest.fixture
def bench(sqlite_url, tmp_path):
    bench = Bench(sqlite_url, tmp_path)
    yield bench
    bench.close()


def at_every_line(
    bench: Bench,
    call: Callable[[], object],
    settle: Callable[[list[str]], None],
    prepare: Callable[[], object] = lambda: None,
    step: int = 1,
) -> int:
    """Interrupt the call at each of its lines; `settle` is given the events it left."""
    at = -step
    while True:
        at += step  # 0 is never reached: once in peace, to load what is loaded on first use
        assert at < 3_000, "the call never got through"
        prepare()
        before = bench.other.events.last()
        where = interrupted(call, at)
        bench.check(where or "the end")
        settle(bench.kinds_after(before))
        if where is None and at:
            return at


def test_a_claim(bench):
    def settle(kinds: list[str]) -> None:
        held = [lease.resource for lease in bench.other.leases.list()]
        if kinds:
            assert kinds == ["lease.claimed", "lease.claimed"]
            assert held == ["port:1", "port:2"]
            bench.victim.leases.release(everything=True)
        else:
            assert held == []

    lines = at_every_line(bench, lambda: bench.victim.leases.claim("port:1", "port:2"), settle)
    assert lines > 50


def test_a_release(bench):
    def settle(kinds: list[str]) -> None:
        assert kinds in ([], ["lease.released"])
        assert bool(bench.other.leases.list()) == (kinds == [])

    lines = at_every_line(
        bench,
        lambda: bench.victim.leases.release("port:1"),
        settle,
        prepare=lambda: bench.victim.leases.claim("port:1"),
    )
    assert lines > 30


def test_a_completion_with_all_that_goes_with_it(bench):
    number = 0

    def prepare() -> None:
        nonlocal number
        number += 1
        bench.victim.work.add(f"after-{number}", after=[f"t{number}"])
        bench.victim.work.claim(f"t{number}", leases=["port:1"])

    def complete() -> None:
        bench.victim.work.complete(
            f"t{number}",
            result={"ok": True},
            announce="done",
            entry={"namespace": "results", "key": f"t{number}", "value": 1},
        )

    def settle(kinds: list[str]) -> None:
        show = bench.other.work.show
        entry = bench.other.state.get("results", f"t{number}")
        if kinds:
            assert set(kinds) == {
                "task.completed",
                "lease.released",
                "task.available",
                "entry.set",
                "message.announced",
            }
            assert len(kinds) == 5
            assert show(f"t{number}").state == "completed"
            assert show(f"after-{number}").state == "available"
            assert entry is not None
            assert bench.other.leases.list() == ()
        else:
            assert show(f"t{number}").state == "claimed"
            assert show(f"after-{number}").state == "blocked"
            assert entry is None
            assert len(bench.other.leases.list()) == 1
            bench.victim.work.complete(f"t{number}")

    assert at_every_line(bench, complete, settle, prepare) > 100


def test_a_message(bench):
    sent = 0

    def settle(kinds: list[str]) -> None:
        nonlocal sent
        assert kinds in ([], ["message.sent"])
        sent += len(kinds)
        found = bench.other.messages.search("banana", limit=1000)
        assert len(found) == len(bench.other.messages.history(limit=1000)) == sent

    lines = at_every_line(
        bench, lambda: bench.victim.messages.send("a ripe banana", to="bystander"), settle
    )
    assert lines > 40


def test_an_entry(bench):
    version = 0

    def settle(kinds: list[str]) -> None:
        nonlocal version
        assert kinds in ([], ["entry.set"])
        version += len(kinds)
        entry = bench.other.state.get("plan", "step")
        assert (entry.version if entry else 0) == version
        assert [past.version for past in bench.other.state.history("plan", "step", limit=1000)] == (
            list(range(version, 0, -1))
        )

    lines = at_every_line(
        bench, lambda: bench.victim.state.set("plan", "step", 1, expected_version=version), settle
    )
    assert lines > 40


def test_a_join(bench):
    known = {bench.victim.session, bench.bystander.session}

    def settle(kinds: list[str]) -> None:
        """A session that nobody knows of is dead, and the next who joins finds that out."""
        kinds = [kind for kind in kinds if kind != "session.died"]
        assert kinds in ([], ["session.joined"])
        for presence in bench.other.agents.list():
            for session in presence.sessions:
                if session.id not in known:
                    known.add(session.id)
                    assert kinds == ["session.joined"]

    assert at_every_line(bench, lambda: bench.space.join("dave"), settle) > 40


@pytest.mark.parametrize("step", STEPS)
def test_a_claim_that_waits(bench, step):
    """It is served in the end, gives up, or is withdrawn; no ticket stays in the queue."""
    bench.bystander.leases.claim("port:1", ttl_s=3600)
    carol = bench.other.join("carol")

    def wait() -> None:
        try:
            bench.victim.leases.claim("port:1", wait_s=0.4)
        except dibs.TimeoutError:
            return

    def settle(kinds: list[str]) -> None:
        assert kinds in ([], ["lease.queued", "lease.unqueued"], ["lease.queued"])
        assert [lease.agent for lease in bench.other.leases.list()] == ["bystander"]
        left = bench.probe.execute("SELECT COUNT(*) FROM ticket").fetchall()
        assert left == [(kinds == ["lease.queued"],)]
        # A ticket that could not be withdrawn is dead: it is in nobody's way.
        bench.bystander.leases.release("port:1")
        carol.leases.claim("port:1")
        carol.leases.release("port:1")
        bench.bystander.leases.claim("port:1", ttl_s=3600)
        assert bench.probe.execute("SELECT COUNT(*) FROM ticket").fetchall() == [(0,)]

    assert at_every_line(bench, wait, settle, step=step) > 150


@pytest.mark.parametrize("step", STEPS)
def test_a_claim_that_is_served_while_it_waits(bench, step):
    """The lease that arrives with the interrupt is given back, or is the caller's to release."""

    def prepare() -> None:
        bench.bystander.leases.claim("port:1", ttl_s=1)

    def settle(kinds: list[str]) -> None:
        held = [lease.agent for lease in bench.other.leases.list()]
        assert held in ([], ["victim"], ["bystander"])
        if held:
            (bench.victim if held == ["victim"] else bench.bystander).leases.release("port:1")

    # The holder's time runs out during the wait, which moves the clock.
    lines = at_every_line(
        bench, lambda: bench.victim.leases.claim("port:1", wait_s=30), settle, prepare, step
    )
    assert lines > 150


LOOP = """
    import sys
    import dibs

    url, user_dir = sys.argv[1:]
    space = dibs.open(url, space="here", user_dir=user_dir)
    victim = space.join("victim")
    number = 0
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            print("started", flush=True)
            while True:
                number += 1
                victim.leases.claim("port:1", "port:2")
                victim.messages.announce("round and round")
                victim.state.set("count", "er", number, force=True)
                victim.leases.release("port:1", "port:2")
                try:
                    victim.leases.claim("port:3", wait_s=0.002)
                except dibs.TimeoutError:
                    pass
        except KeyboardInterrupt:
            victim.leases.release(everything=True)
            print("interrupted", flush=True)
    victim.close()
    space.close()
    print("over", flush=True)
"""


def interrupt_at_random(url: str, tmp_path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    user_dir = str(tmp_path / "user")
    with dibs.open(url, space="here", user_dir=user_dir) as space, space.join("holder") as holder:
        holder.leases.claim("port:3", ttl_s=3600)
        carol = space.join("carol")
        victim = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(LOOP), url, user_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert victim.stdin and victim.stdout and victim.stderr
        probe = apsw.Connection(url)
        probe.set_busy_timeout(TURN_MS)
        try:
            assert victim.stdout.readline() == "ready\n"
            for number in range(times):
                victim.stdin.write("go\n")
                victim.stdin.flush()
                assert victim.stdout.readline() == "started\n"
                time.sleep(chance.uniform(0, 0.02))
                assert answer_to_interrupt(victim) == "interrupted\n"
                # The victim now waits for its next line: whatever it holds, it has left behind.
                probe.execute("BEGIN IMMEDIATE")
                probe.execute("ROLLBACK")
                # A ticket whose withdrawal was interrupted is in nobody's way.
                holder.leases.release("port:3")
                carol.leases.claim("port:3")
                tickets = probe.execute("SELECT COUNT(*) FROM ticket").fetchall()
                assert tickets == [(0,)], f"after {number} interrupts, seed {seed}"
                carol.leases.release("port:3")
                holder.leases.claim("port:3", ttl_s=3600)
            victim.stdin.close()
            assert victim.stdout.readline() == "over\n"
            assert victim.wait(30) == 0
            assert probe.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            victim.kill()
            victim.wait()
            sys.stderr.write(victim.stderr.read())
            victim.stdout.close()
            victim.stderr.close()
            probe.close()
        assert space.agents.verify() == ()
        assert_contiguous(space)
        # On a busy machine it may never have come so far as to write.
        written = len(space.state.export("count").history)
        newest = [entry.version for entry in space.state.history("count", "er", limit=1)]
        assert newest == ([written] if written else [])
        assert [lease.agent for lease in space.leases.list()] == ["holder"]


def answer_to_interrupt(victim: subprocess.Popen[str]) -> str:
    """Interrupt it, and once more if that fell into a callback of the interpreter's own."""
    assert victim.stdout
    for _ in range(5):
        victim.send_signal(signal.SIGINT)
        if select.select([victim.stdout], [], [], 5)[0]:
            return victim.stdout.readline()
    return "never"


def assert_contiguous(space: dibs.Dibs) -> None:
    seen = 0
    while events := space.events.since(seen):
        assert [event.seq for event in events] == list(range(seen + 1, seen + 1 + len(events)))
        seen = events[-1].seq
    assert seen == space.events.last()


def test_a_real_interrupt_at_any_time_leaves_the_turn_free(sqlite_url, tmp_path):
    interrupt_at_random(sqlite_url, tmp_path, times=40, seed=8)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_real_interrupts(seed, sqlite_url, tmp_path):
    interrupt_at_random(sqlite_url, tmp_path, times=1_000, seed=seed)
