"""R21: what answers is frozen. Every call ends, and the holder knows before another is granted."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import aio, keeping, link, wire
from dibs.dibs import operations
from dibs.surroundings.commands import Command
from tests.daemons import Daemons, end
from tests.outages import Proxy, every_call, frozen, given_to, kept_turn
from tests.stress.clockwork import database
from tests.surfaces.conftest import new_shell
from tests.surfaces.shell import finish, until

SLACK_S = 3.0
"""What a busy machine may add to a deadline."""
TTL_S = 1.5


class Outage:
    """A store that can be kept from answering, its client, and somebody who needs no daemon."""

    store: dibs.Dibs
    direct: dibs.Dibs
    stop: Callable[[], AbstractContextManager[None]]

    def close(self) -> None:
        self.direct.close()
        self.store.close()


@pytest.fixture(params=["frozen", "swallowed"])
def outage(
    request: pytest.FixtureRequest,
    new_daemon: Daemons,
    sqlite_url: str,
    space_name: str,
    tmp_path: Path,
) -> Iterator[Outage]:
    """A daemon that can be frozen, or whose proxy can swallow everything."""
    user = str(tmp_path / "user")
    word = new_daemon(sqlite_url, space_name, user)
    with ExitStack() as stack:
        stack.callback(end, word)
        stop: Callable[[], AbstractContextManager[None]]
        if request.param == "frozen":
            through, stop = word["url"], lambda: frozen(word["pid"])
        else:
            proxy = Proxy(word["url"])
            stack.callback(proxy.close)
            through, stop = proxy.url, lambda: swallowing(proxy)
        # By the way through a proxy, the daemon's own word of itself does not count.
        made = Outage()
        made.store = dibs.open(through, user_dir=user, token=word["token"])
        made.direct = dibs.open(sqlite_url, space=space_name, user_dir=user)
        made.stop = stop
        yield made
        made.close()


class swallowing:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def __enter__(self) -> None:
        self._proxy.swallows = True

    def __exit__(self, *_: object) -> None:
        self._proxy.swallows = False


def together(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[Any, float]]:
    """Make all calls at once, each in a thread: what came of each, and after how many seconds."""
    found: dict[str, tuple[Any, float]] = {}

    def make(name: str, call: Callable[[], Any]) -> None:
        began = time.monotonic()
        try:
            said = call()
        except BaseException as error:
            said = error
        found[name] = said, time.monotonic() - began

    threads = [
        threading.Thread(target=make, args=(name, call), daemon=True)
        for name, call in calls.items()
    ]
    for thread in threads:
        thread.start()
    end_at = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, end_at - time.monotonic()))
    return found


def check(found: dict[str, tuple[Any, float]], calls: dict[str, Any], within_s: float) -> float:
    """Each has ended, in time, with an error that says so; the slowest."""
    assert not calls.keys() - found.keys(), "these never ended"
    for name, (said, after_s) in found.items():
        assert isinstance(said, (dibs.DisconnectedError, dibs.StaleError)), (name, said)
        assert said.next, name
        assert after_s < within_s + SLACK_S, (name, after_s)
    return max(after_s for _, after_s in found.values())


def blocks(store: dibs.Dibs) -> dict[str, Callable[[], Any]]:
    """What has to be entered before the outage, and ends in it."""
    alice = store.join("alice")
    alice.work.add("t")
    leases = [alice.lease(f"port:{port}").__enter__() for port in range(3)]
    task = alice.next_task().__enter__()
    raised = ValueError, ValueError("the block's own"), None
    return {
        "lease.check": leases[0].check,
        "lease ends": lambda: leases[1].__exit__(None, None, None),
        "task ends": lambda: task.__exit__(None, None, None),
        "agent leaves": store.join("bob").close,
        "block of an agent": lambda: store.join("carol").__exit__(*raised),
        "join": lambda: store.join("dave"),
        "resume": lambda: store.resume(alice.token),
    }


def hurry(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A call has so many seconds instead of ten."""
    for module in (link, wire):
        monkeypatch.setattr(module, "CALL_S", seconds)


def hush(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A wait asks so soon whether the daemon is there."""
    for module in (link, wire):
        monkeypatch.setattr(module, "HUSH_S", seconds)


def every_call_ends(outage: Outage, call_s: float, wait_s: float) -> tuple[int, float]:
    alice = outage.store.join("alice", ttl_s=3600)
    calls = {**every_call(alice, wait_s), **blocks(outage.store)}

    async def awaited() -> dict[str, tuple[Any, float]]:
        async def one(call: Callable[[], Any]) -> tuple[Any, float]:
            began = time.monotonic()
            try:
                said: Any = await aio.call(call)
            except dibs.DibsError as error:
                said = error
            return said, time.monotonic() - began

        again = every_call(alice, wait_s)
        return dict(zip(again, await asyncio.gather(*map(one, again.values())), strict=True))

    with outage.stop():
        slowest = check(together(calls), calls, wait_s + call_s)
        found = asyncio.run(awaited())
        slowest = max(slowest, check(found, found, wait_s + call_s))
    return len(calls) + len(found), slowest


def test_every_call_ends_although_the_daemon_is_frozen(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
):
    hurry(monkeypatch, 1.0)
    every_call_ends(outage, 1.0, 0.5)
    monkeypatch.undo()
    assert outage.store.join("erin").leases.claim("port:9"), "it goes on as if nothing had been"


@pytest.mark.stress
def test_every_call_ends_within_its_wait_and_ten_seconds(
    outage: Outage, request: pytest.FixtureRequest
):
    number, slowest = every_call_ends(outage, 10.0, 2.0)
    way = request.node.callspec.params["outage"]
    print(
        f"\nR21 {way}: {number} calls with a wait of 2 s; the slowest ended after {slowest:.1f} s"
    )


def test_a_long_wait_ends_soon_after_the_daemon_has_gone_silent(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
):
    hurry(monkeypatch, 0.5)
    hush(monkeypatch, 0.3)
    outage.direct.join("bob").leases.claim("port:1")
    alice = outage.store.join("alice")
    calls = {
        "claim": lambda: alice.leases.claim("port:1", wait_s=3600),
        "watch": lambda: alice.events.watch(0, kind="entry", wait_s=3600),
        **{f"another {number}": lambda: alice.messages.inbox(wait_s=3600) for number in range(5)},
    }
    with ExitStack() as stack:
        # Not before they wait: then all of them have a connection that was good.
        waiting = threading.Timer(1.0, lambda: stack.enter_context(outage.stop()))
        waiting.start()
        found = together(calls)
        waiting.join()
    check(found, calls, 2.0)


def test_a_long_wait_stays_while_the_daemon_answers_others(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
):
    hush(monkeypatch, 0.1)
    bob = outage.direct.join("bob")
    bob.leases.claim("port:1")
    alice = outage.store.join("alice")
    threading.Timer(1.0, bob.leases.release, ["port:1"]).start()
    assert alice.leases.claim("port:1", wait_s=60)


def test_a_wait_that_is_cancelled_ends_although_the_daemon_is_frozen(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
):
    hurry(monkeypatch, 0.5)
    outage.direct.join("bob").leases.claim("port:1")
    alice = outage.store.join("alice")

    async def cancelled() -> float:
        waits = asyncio.create_task(aio.call(alice.leases.claim, "port:1", wait_s=3600))
        await asyncio.sleep(0.5)
        with outage.stop():
            began = time.monotonic()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            return time.monotonic() - began

    assert asyncio.run(cancelled()) < 0.5 + SLACK_S


# Who holds knows that it has lost before another is granted.


def lost_before_granted(
    store: dibs.Dibs,
    direct: dibs.Dibs,
    stop: Callable[[], AbstractContextManager[None]],
    rounds: int,
    session_ttl_s: float = 3600,
    lease_ttl_s: float = TTL_S,
) -> list[float]:
    """Hold so many leases through an outage: how many seconds before its loss each was known."""
    names = [f"port:{number}" for number in range(rounds)]
    alice = store.join("alice", ttl_s=session_ttl_s)
    bob = direct.join("bob", ttl_s=3600)
    leases = [alice.lease(name, ttl_s=lease_ttl_s).__enter__() for name in names]
    lost: dict[str, float] = {}
    granted: dict[str, float] = {}
    rivals_began = threading.Event()

    def rival() -> None:
        left = set(names)
        rivals_began.set()
        while left:
            for name in sorted(left):
                try:
                    granted[name] = bob.leases.claim(name).leases[0].granted_at / 1000
                    left.discard(name)
                except (dibs.HeldError, dibs.BusyError):
                    continue
            time.sleep(0.01)

    thread = threading.Thread(target=rival, daemon=True)
    with stop():
        thread.start()
        rivals_began.wait()
        end_at = time.monotonic() + 30
        while len(lost) < rounds and time.monotonic() < end_at:
            for name, lease in zip(names, leases, strict=True):
                if name not in lost and lease.lost is not None:
                    lost[name] = time.time()
                    with pytest.raises(dibs.StaleError):
                        lease.check()
            time.sleep(0.001)
        assert len(lost) == rounds
        for lease in leases:
            began = time.monotonic()
            with pytest.raises(dibs.StaleError):
                lease.__exit__(None, None, None)
            assert time.monotonic() - began < 1, "nobody has to be asked"
        thread.join(30)
    assert not thread.is_alive(), "the other was never granted"
    alice.close()
    bob.close()
    return [granted[name] - lost[name] for name in names]


def told(way: str, early_s: list[float]) -> None:
    first = sum(one > 0 for one in early_s)
    print(
        f"\nR21 {way}: known to be lost before another was granted in {first} of {len(early_s)} "
        f"rounds, by {min(early_s) * 1000:.0f} ms at least"
    )
    assert first == len(early_s)


def test_the_holder_knows_before_another_is_granted_by_a_frozen_daemon(outage: Outage):
    assert min(lost_before_granted(outage.store, outage.direct, outage.stop, 5)) > 0


def test_a_lease_ends_with_the_session_that_nobody_hears_of(outage: Outage):
    early_s = lost_before_granted(
        outage.store, outage.direct, outage.stop, 3, session_ttl_s=TTL_S, lease_ttl_s=600
    )
    assert min(early_s) > 0


def test_the_holder_knows_although_its_keeper_does_nothing(
    url: str, space_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keeping.Beating, "_run", lambda self: None)
    user = str(tmp_path / "user")
    with (
        dibs.open(url, space=space_name, user_dir=user) as store,
        dibs.open(url, space=space_name, user_dir=user) as direct,
    ):
        assert min(lost_before_granted(store, direct, nullcontext, 3)) > 0


def test_the_holder_knows_while_another_process_keeps_the_turn(
    url: str, space_name: str, tmp_path: Path
):
    assert min(through_a_kept_turn(url, space_name, tmp_path, 3)) > 0


def through_a_kept_turn(url: str, space_name: str, tmp_path: Path, rounds: int) -> list[float]:
    user = str(tmp_path / "user")
    with (
        dibs.open(url, space=space_name, user_dir=user) as store,
        dibs.open(url, space=space_name, user_dir=user) as direct,
    ):
        number = store.scope.store.space

        def stop() -> AbstractContextManager[None]:
            return kept_turn(url, number, TTL_S + 0.5)

        return lost_before_granted(store, direct, stop, rounds)


@pytest.mark.stress
def test_a_hundred_holders_know_before_another_is_granted(
    outage: Outage, request: pytest.FixtureRequest
):
    way = f"daemon {request.node.callspec.params['outage']}"
    early_s: list[float] = []
    for _ in range(10):
        early_s += lost_before_granted(outage.store, outage.direct, outage.stop, 10)
    told(way, early_s)
    early_s = []
    for _ in range(10):
        early_s += lost_before_granted(
            outage.store, outage.direct, outage.stop, 10, session_ttl_s=TTL_S, lease_ttl_s=600
        )
    told(f"{way}, session", early_s)


@pytest.mark.stress
def test_a_hundred_holders_know_while_another_process_keeps_the_turn(
    url: str, space_name: str, tmp_path: Path
):
    early_s: list[float] = []
    for number in range(20):
        early_s += through_a_kept_turn(url, f"{space_name}-{number}", tmp_path, 5)
    told(f"{database(url)}, the turn kept", early_s)


@pytest.mark.stress
def test_threads_in_line_end_in_time_while_another_process_keeps_the_turn(
    url: str, space_name: str, tmp_path: Path
):
    """To stand in line, to wait for the turn and to leave the queue are parts of one time."""
    user = str(tmp_path / "user")
    with dibs.open(url, space=space_name, user_dir=user) as store:
        holder = store.join("holder")
        holder.leases.claim("port:1", "port:2")
        agents = [store.join(f"agent-{number}") for number in range(60)]
        queued: dict[str, Callable[[], Any]] = {
            f"queued {agent.name}": partial(agent.leases.claim, "port:1", wait_s=4)
            for agent in agents[:20]
        }
        calls: dict[str, Callable[[], Any]] = {
            f"claims {agent.name}": partial(agent.leases.claim, "port:2", wait_s=1)
            for agent in agents[20:40]
        }
        for agent in agents[40:]:
            calls[f"writes {agent.name}"] = partial(agent.state.set, "n", agent.name, 1)
        found: dict[str, tuple[Any, float]] = {}
        waiting = threading.Thread(target=lambda: found.update(together(queued)))
        waiting.start()
        until(lambda: len(store.leases.waiting()) == 20, "the queue")
        with kept_turn(url, store.scope.store.space, 60):
            found |= together(calls)
            waiting.join()
    print()
    for kind, wait_s in (("queued", 4), ("claims", 1), ("writes", 0)):
        of_kind = [value for name, value in found.items() if name.startswith(kind)]
        codes = {code: 0 for code in ("busy", "timeout")}
        for said, _ in of_kind:
            codes[said.code] += 1
        slowest = max(after_s for _, after_s in of_kind) - wait_s
        print(f"{database(url)}, {kind}: {codes}, the slowest {slowest:.1f} s after its wait")
        assert len(of_kind) == 20 and slowest < 10.0


def test_what_is_renewed_in_time_is_not_lost(outage: Outage):
    alice = outage.store.join("alice", ttl_s=1.5)
    with alice.lease("port:1", ttl_s=1.0) as lease:
        end_at = time.monotonic() + 2.5
        while time.monotonic() < end_at:
            assert lease.lost is None
            time.sleep(0.01)
        lease.check()
    time.sleep(1.2)
    assert lease.lost is None, "it was given back"


def test_a_lease_that_was_waited_for_is_counted_from_its_grant(outage: Outage):
    bob = outage.direct.join("bob")
    bob.leases.claim("port:1")
    alice = outage.store.join("alice")
    threading.Timer(1.5, bob.leases.release, ["port:1"]).start()
    with alice.lease("port:1", ttl_s=1.0, wait_s=60) as lease:
        assert lease.lost is None and lease.left_s > 0.5
        lease.check()


def test_a_block_that_raises_says_what_it_raised(outage: Outage, monkeypatch: pytest.MonkeyPatch):
    hurry(monkeypatch, 0.5)
    stopped = outage.stop()
    with (
        pytest.raises(ValueError, match="its own"),
        outage.store.join("alice") as alice,
        alice.lease("port:1"),
    ):
        stopped.__enter__()
        raise ValueError("its own")
    stopped.__exit__(None, None, None)


# The command line, and what speaks to it.


def test_a_run_ends_its_command_before_another_can_have_the_lease(
    new_daemon: Daemons, sqlite_url: str, space_name: str, tmp_path: Path
):
    shell = new_shell(tmp_path)
    word = new_daemon(sqlite_url, space_name, shell.user_dir)
    there, beat = shell.with_(DIBS_URL=word["url"]), tmp_path / "beat"
    # It does not listen to those who ask it to end.
    script = f"trap '' TERM; while :; do date +%s.%N > {beat}.new; mv {beat}.new {beat}; done"
    words = ["--as", "carol", "--claim", "port:5", "--ttl", "2s", "--on-loss", "kill"]
    process = there.start("run", *words, "--", "bash", "-c", script)
    until(beat.exists, "the command at work")
    with dibs.open(sqlite_url, space=space_name, user_dir=shell.user_dir) as direct:
        # Right after a renewal, there is no time to spare.
        assert direct.events.watch(direct.events.last(), kind="lease.renewed", wait_s=30)
    with frozen(word["pid"]):
        froze = time.time()
        answer = finish(process, 30)
    end(word)
    assert answer.code == 1 and "ending the command" in answer.err, answer
    assert float(beat.read_text()) < froze + 2.0


def command_lines() -> dict[str, list[str]]:
    """Every operation as it is typed, with the least that it needs, and commands by hand."""
    lines = {
        "status": ["status"],
        "log": ["log"],
        "log --follow": ["log", "--follow"],
        "run": ["run", "--as", "carol", "--claim", "port:5", "--", "true"],
        "doctor": ["doctor"],
    }
    for name, operation in operations().items():
        if not operation.by:
            continue
        placed, named = given_to(operation, 0.0)
        options = {one.argument.name: one for one in Command.of(operation).options}
        words = [*operation.cli.split(), *map(str, placed)]
        for argument, value in named.items():
            option = options[argument]
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{option.name}"] if option.switch else [f"--{option.name}", said(one)]
        lines[name] = words
    return lines


def said(value: object) -> str:
    return json.dumps(value) if isinstance(value, (dict, bool)) else str(value)


@pytest.mark.stress
def test_every_command_ends_within_ten_seconds(
    new_daemon: Daemons, sqlite_url: str, space_name: str, tmp_path: Path
):
    shell = new_shell(tmp_path)
    word = new_daemon(sqlite_url, space_name, shell.user_dir)
    there = shell.with_(DIBS_URL=word["url"])
    lines, slowest = command_lines(), 0.0
    # The start of a process depends on the machine, and on how many are started at once.
    began = time.monotonic()
    there.person("alice").ok("status")
    start_s = time.monotonic() - began
    with frozen(word["pid"]):
        names = list(lines)
        for batch in (names[at : at + 8] for at in range(0, len(names), 8)):
            began = time.monotonic()
            running = {name: there.person("alice").start("--json", *lines[name]) for name in batch}
            for name, process in running.items():
                answer = finish(process, 60)
                after_s = time.monotonic() - began
                assert answer.code in (75, 2) or name == "doctor", (name, lines[name], answer)
                assert answer.code != 2 or answer.json["error"] == "invalid", (name, answer)
                assert after_s < 10 + 8 * start_s + SLACK_S, (name, after_s)
                if answer.code == 75:
                    assert answer.json["error"] == "disconnected", (name, answer)
                slowest = max(slowest, after_s)
                if after_s > 12:
                    print("SLOW", name, round(after_s, 1), answer)
    end(word)
    print(f"\nR21 command line: {len(lines)} commands, the slowest ended after {slowest:.1f} s")
