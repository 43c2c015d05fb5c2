"""What the child processes of the stress tests do.

Each function is the whole life of one process. What it has done it notes in a file of its own,
one line per step, so that a process that takes the place of a killed one can go on from there.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import dibs
from dibs.dibs import connect
from dibs.space.signing import Keyring
from tests import old_schemas
from tests.stress.clockwork import ask, say

T = TypeVar("T")


class Notes:
    """A file of JSON lines that outlives its writer; half a line at the end does not count."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        whole, _, half = self._content().rpartition(b"\n")
        if half:
            os.ftruncate(self._file, len(whole) + (1 if whole else 0))
        self.lines: list[Any] = [json.loads(line) for line in whole.splitlines()]

    def _content(self) -> bytes:
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def add(self, line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
        self.lines.append(line)


def read_notes(path: str) -> list[Any]:
    with open(path, "rb") as source:
        return [json.loads(line) for line in source if line.endswith(b"\n")]


def target(writer: int, number: int, readers: int) -> dict[str, Any]:
    """Who gets a writer's message of that number: one reader, a channel, or everybody."""
    kind = (writer + number) % 4
    if kind == 0:
        return {"to": f"reader{number % readers}"}
    return {"channel": "news"} if kind == 1 else {}


def write_messages(
    url: str, space: str, user: str, notes: str, writer: int, count: int, readers: int
) -> None:
    """Send so many messages; go on after the last one that was acknowledged."""
    log = Notes(notes)
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join(f"writer{writer}")
        for number in range(len(log.lines), count):
            sent = agent.messages.send(
                f"{writer}:{number}",
                idempotency_key=f"{writer}:{number}",
                **target(writer, number, readers),
            )
            log.add(sent.id)


def read_messages(
    url: str, space: str, user: str, notes: str, reader: int, seed: int, stop: str
) -> None:
    """Read the inbox and a channel by small pages, with pauses, until told to stop.

    What is asked is noted before the call and what came after it. A successor asks the last
    question again under its key, so an answer that died with the reader is not lost.
    """
    log = Notes(notes)
    chance = random.Random(f"{seed}/{reader}/{len(log.lines)}")
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join(f"reader{reader}")

        def answer(key: str, limit: int, channel: str | None) -> int:
            found = agent.messages.inbox(
                channel=channel, limit=limit, wait_s=chance.choice([0, 0.02]), idempotency_key=key
            )
            log.add(["got", channel, [[message.id, message.body] for message in found]])
            return len(found)

        if log.lines and log.lines[-1][0] == "ask":
            answer(*log.lines[-1][1:])
        while True:
            over = os.path.exists(stop)
            got = 0
            for channel in (None, "news"):
                question: list[Any] = [f"{len(log.lines)}", chance.randint(1, 7), channel]
                log.add(["ask", *question])
                got += answer(*question)
            if over and not got:
                return
            if chance.random() < 0.05:
                time.sleep(chance.random() * 0.1)


def read_events(url: str, space: str, user: str, notes: str, seed: int, stop: str) -> None:
    """Follow the journal by small pages; the cursor is the last seq in the notes."""
    log = Notes(notes)
    chance = random.Random(f"{seed}/{len(log.lines)}")
    with dibs.open(url, space=space, user_dir=user) as store:
        cursor = log.lines[-1][-1] if log.lines else 0
        while True:
            over = os.path.exists(stop)
            limit = chance.randint(1, 40)
            found = (
                store.events.since(cursor, limit=limit)
                if chance.random() < 0.5
                else store.events.watch(cursor, limit=limit, wait_s=0.05)
            )
            if found:
                cursor = found[-1].seq
                log.add([event.seq for event in found])
            elif over:
                return
            if chance.random() < 0.02:
                time.sleep(chance.random() * 0.1)


class NotedClock:
    """The store's own clock, which also notes how each sleep ended."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.sleeps = 0
        self.rung = True

    def now(self) -> int:
        return self._clock.now()

    def wall(self) -> int:
        return self._clock.wall()

    def sleep(self, listener: Any, seconds: float) -> None:
        self.sleeps += 1
        self.rung = listener.wait(seconds)


def wait_rounds(url: str, space: str, user: str, name: str) -> None:
    """Wait once per round, and tell when the wait ended and what ended the last sleep."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join(f"waiter{name}", ttl_s=3600)
        clock = agent.scope.store.clock = NotedClock(agent.scope.store.clock)
        say("here")
        while True:
            kind, number = ask()
            clock.sleeps, clock.rung = 0, True
            if kind == "claim":
                agent.leases.claim(f"port:{name}", wait_s=30)
            elif kind == "inbox":
                (message,) = agent.messages.inbox(wait_s=30)
                assert message.body == f"{number}"
            elif kind == "next":
                task = agent.work.next(kind=name, wait_s=30)
                assert task.id == f"{name}/{number}"
            else:
                entry = agent.state.watch("race", name, after_version=number, wait_s=30)
                assert entry is not None and entry.version == number + 1
            woke = time.monotonic_ns()
            if kind == "claim":
                agent.leases.release(f"port:{name}")
            elif kind == "next":
                agent.work.complete(f"{name}/{number}")
            say([woke, clock.sleeps, clock.rung])


def notify_rounds(url: str, space: str, user: str, name: str) -> None:
    """Do once per round what the waiter waits for, and tell when it was done."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join(f"notifier{name}", ttl_s=3600)
        say("here")
        while True:
            kind, number, delay_s = ask()
            if kind == "claim":
                agent.leases.claim(f"port:{name}")
            say("ready")
            ask()
            # Busy, because a sleep is too coarse to land between two steps of the waiter.
            end = time.monotonic() + delay_s
            while time.monotonic() < end:
                if end - time.monotonic() > 0.002:
                    time.sleep(0.001)
            if kind == "claim":
                agent.leases.release(f"port:{name}")
            elif kind == "inbox":
                agent.messages.send(f"{number}", to=f"waiter{name}")
            elif kind == "next":
                agent.work.add(f"{name}/{number}", kind=name)
            else:
                agent.state.set("race", name, number, force=True)
            say(time.monotonic_ns())


def make_old(url: str, space: str, user: str, schema: int) -> None:
    """Leave a store behind as a release with that schema would have."""
    driver, _ = connect(url, space, "full", None, None, user)
    try:
        old_schemas.make_old(driver, space, Keyring(driver.key(), space).check(), schema)
    finally:
        driver.close()


def open_each(space: str, user: str, name: str) -> None:
    """Open one store after the other at the moment the test names; tell what came of it."""
    while True:
        url, start = ask()
        while time.monotonic_ns() < start:
            pass
        try:
            with dibs.open(url, space=space, user_dir=user) as store:
                agent = store.join(name)
                try:
                    answer = ["won", agent.leases.claim("port:3000").epoch]
                except dibs.HeldError:
                    answer = ["held", None]
                say(answer)
                ask()  # until all have tried, so that a lease does not end with its session
        except dibs.DibsError as error:
            say(["failed", f"{error!r} {error.__cause__!r}"])
            ask()


def hold_and_stay(url: str, space: str, user: str) -> None:
    """Claim whatever the test names, keep it, and stay alive."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join("holder", ttl_s=3600)
        say("here")
        while True:
            resource, ttl_s = ask()
            before = time.monotonic_ns()
            lease = agent.leases.claim(resource, ttl_s=ttl_s).leases[0]
            say([before, time.monotonic_ns(), lease.epoch, lease.granted_at])


def take_over(url: str, space: str, user: str) -> None:
    """Claim what another one holds as soon as that is possible; tell when, and the wall time."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join("contender", ttl_s=3600)
        say("here")
        while True:
            resource, waits = ask()
            if waits:
                lease = agent.leases.claim(resource, wait_s=20).leases[0]
            else:
                lease = keep_asking(agent, resource)
            say([time.monotonic_ns(), lease.epoch, lease.granted_at])


def keep_asking(agent: dibs.Agent, resource: str) -> dibs.Lease:
    while True:
        try:
            return agent.leases.claim(resource).leases[0]
        except dibs.HeldError:
            time.sleep(0.005)


def try_to_open(url: str, space: str, user: str) -> None:
    try:
        with dibs.open(url, space=space, user_dir=user) as store:
            say(["opened", store.events.last()])
    except dibs.DibsError as error:
        say([error.code, str(error)])


def before_the_reboot(url: str, space: str, user: str, delay_s: float) -> None:
    """Hold things in every way there is, then be switched off with the machine."""
    store = dibs.open(url, space=space, user_dir=user)
    process, shell = store.join("process"), store.join("shell", shell=True)
    epochs = [
        process.leases.claim("port:1").epoch,
        shell.leases.claim("port:2").epoch,
        shell.work.claim("started").epoch,
    ]
    # Taken before the call: the delay begins inside it, and a slow disk makes it return later.
    asked_at = time.time()
    shell.work.add("later", delay_s=delay_s)
    say([epochs, store.events.last(), asked_at])
    ask()


def after_the_reboot(url: str, space: str, user: str) -> None:
    """Take what the old holders had, and wait for the task whose time has not come."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join("after")
        began = time.monotonic()
        epochs = [
            agent.leases.claim("port:1").epoch,
            agent.leases.claim("port:2").epoch,
            agent.work.claim("started").epoch,
        ]
        say([epochs, store.events.last()])
        early = True
        try:
            agent.work.claim("later")
        except dibs.StateError:
            early = False
        task = agent.work.next(wait_s=30)
        say([early, task.id, time.time(), time.monotonic() - began])


def hold_until_told(url: str, space: str, user: str, ttl_s: float) -> None:
    """Hold a lease and a task; end without closing anything, in the way the test says."""
    store = dibs.open(url, space=space, user_dir=user)
    agent = store.join("holder", ttl_s=ttl_s)
    agent.leases.claim("port:1")
    agent.work.claim("job")
    say("held")
    if ask() == "exit at once":
        os._exit(0)


def queue_up(url: str, space: str, user: str, name: str, what: str, ttl_s: float) -> None:
    """Wait for the lease or the task, and tell when it came."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join(name, ttl_s=ttl_s)
        say("here")
        if what == "lease":
            agent.leases.claim("port:1", wait_s=60)
        else:
            agent.work.next(wait_s=60)
        say(time.monotonic())
        ask()


def keep_the_turn(url: str, space: str, user: str) -> None:
    """Stand in the middle of a write until the test says so; then try to finish it."""
    with dibs.open(url, space=space, user_dir=user) as store:
        agent = store.join("slow", ttl_s=3600)
        say("here")
        try:
            with agent.scope.write() as tx:
                tx.event("lease.claimed", "half a write")
                say("inside")
                ask()
            say("committed")
        except dibs.DibsError as error:
            say(error.code)
        ask()


def retried(call: Callable[[], T], counts: dict[str, int]) -> T:
    """Ask again, with the same idempotency key, as long as the connection breaks."""
    while True:
        try:
            return call()
        except dibs.DisconnectedError:
            counts["broken"] += 1


def join_somehow(store: dibs.Dibs, name: str) -> dibs.Agent:
    while True:
        try:
            return store.join(name, ttl_s=3600)
        except dibs.DisconnectedError:
            continue


def open_somehow(url: str, space: str, user: str) -> dibs.Dibs:
    while True:
        try:
            return dibs.open(url, space=space, user_dir=user)
        except dibs.DisconnectedError:
            continue


def work_while_cut_off(url: str, space: str, user: str, name: str, tasks: int, notes: str) -> None:
    """Claim and complete the tasks, and count each one, over connections that break.

    Of each task it notes what it was told: won, at which epoch, or lost to another one.
    """
    # The pool warns of each connection it drops; here that is the very purpose.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    log, counts = Notes(notes), {"broken": 0}
    store = open_somehow(url, space, user)
    agent = join_somehow(store, name)
    say("here")
    ask()
    for number in range(tasks):
        id = f"task{number}"
        claim = functools.partial(agent.work.claim, id, idempotency_key=f"claim {id}")
        try:
            task = retried(claim, counts)
        except (dibs.HeldError, dibs.StateError):
            log.add([id, "lost"])
            continue
        complete = functools.partial(
            agent.work.complete,
            id,
            result=name,
            announce=f"{id} done by {name}",
            epoch=task.epoch,
            idempotency_key=f"complete {id}",
        )
        done = retried(complete, counts)
        again = retried(claim, counts)
        assert again == task, "the first answer, word for word"
        assert done.state == "completed"
        log.add([id, "won", task.epoch])
    say(counts["broken"])
    ask()
