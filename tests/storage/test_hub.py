"""One ear for all who wait in a process: who is woken by what, and that nobody is forgotten."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import dibs
from dibs.nouns.topics import NOUNS, keys, touched
from dibs.storage import waiting
from dibs.storage.group import GroupingDriver, Hub
from dibs.storage.waiting import HubListener


def wakes(topic: str, kind: str, subject: str, data: str = "") -> bool:
    return not set(keys(topic)).isdisjoint(touched(kind, subject, data))


@pytest.mark.parametrize(
    ("topic", "kind", "subject"),
    [
        ("message:bob", "message.sent", "bob"),
        ("message:bob", "message.sent", ""),
        ("message:ops", "message.sent", "ops"),
        ("entry:budget/q3", "entry.set", "budget/q3"),
        ("task", "task.added", "fix-login"),
        ("session", "session.left", "alice"),
        ("lease:src/a.py", "lease.released", "src/a.py"),
        ("lease:src/a.py", "lease.released", "src"),
        ("lease:src", "lease.released", "src/a.py"),
        ("lease:src/**/*.sql", "lease.released", "src/db/x.sql"),
        ("lease:src/db/x.sql", "lease.expired", "src/**/*.sql"),
        ("lease:a.py", "lease.freed", "*.py"),
        ("lease:.", "lease.released", "src/a.py"),
        ("lease:src/a.py", "lease.released", "."),
        ("lease:port:3000", "lease.released", "port:3000"),
    ],
)
def test_an_event_wakes_whom_it_concerns(topic: str, kind: str, subject: str) -> None:
    assert wakes(topic, kind, subject)


@pytest.mark.parametrize(
    ("topic", "kind", "subject"),
    [
        ("message:bob", "message.sent", "alice"),
        ("message:bob", "lease.released", "bob"),
        ("entry:budget/q3", "entry.set", "budget/q4"),
        ("lease:src/a.py", "lease.released", "src/b.py"),
        ("lease:src/a.py", "lease.released", "src/a.pyc"),
        ("lease:src/a.py", "lease.released", "docs"),
        ("lease:port:3000", "lease.released", "port:3001"),
        ("task", "message.sent", "task"),
    ],
)
def test_an_event_leaves_others_asleep(topic: str, kind: str, subject: str) -> None:
    assert not wakes(topic, kind, subject)


def test_a_ticket_is_woken_by_the_event_that_names_it() -> None:
    assert wakes("17", "lease.claimed", "a.py", '{"epoch":20,"ticket":17}')
    assert not wakes("17", "lease.claimed", "a.py", '{"epoch":20,"ticket":18}')
    assert not wakes("17", "lease.claimed", "a.py", '{"epoch":17}')
    # Its own is no news to it.
    assert not wakes("17", "lease.queued", "a.py", '{"ticket":17}')


def telling_tables() -> set[Path]:
    """The modules that tell what is in the tables, and so have to know them by name."""
    names = ("images", "base", "ledger", "retention", "sqlite_memory")
    return {Path(waiting.__file__).with_name(f"{name}.py") for name in names}


def test_storage_names_no_noun() -> None:
    words = r"leases?|tickets?|claimers?|tasks?|messages?|inbox(es)?|entry|entries"
    noun = re.compile(rf"\b({words})\b", re.IGNORECASE)
    sources = sorted(set(Path(waiting.__file__).parent.glob("*.py")) - telling_tables())
    assert Path(waiting.__file__) in sources
    found = [f"{source.name}: {match[0]}" for source in sources
             for match in noun.finditer(source.read_text())]  # fmt: skip
    assert found == []


@pytest.fixture
def listener() -> Iterator[HubListener]:
    made = Hub(NOUNS, keys, touched, lambda seq: None).listen(("task",), None)
    yield made
    made.close()


def test_one_look_follows_any_number_of_rings(listener: HubListener) -> None:
    assert not listener.wait(0)
    for _ in range(3):
        listener.ring()
    assert listener.wait(0)
    assert not listener.wait(0)


def test_rings_that_nobody_hears_neither_block_nor_fail(listener: HubListener) -> None:
    for _ in range(100_000):
        listener.ring()
    assert listener.wait(0)
    assert not listener.wait(0)
    listener.ring()
    assert listener.wait(0)


def test_a_thousand_who_wait_need_no_descriptor() -> None:
    silent = Hub(NOUNS, keys, touched, lambda seq: None)
    before = set(os.listdir("/dev/fd"))
    made = [silent.listen(("task",), None) for _ in range(1_000)]
    assert len(os.listdir("/dev/fd")) == len(before)
    for listener in made:
        listener.close()


@pytest.fixture
def hubbed(url: str, tmp_path: Path, space_name: str):
    """A space whose waits share one ear, and another view of the same store."""
    seen: list[int] = []
    options = {"space": space_name, "start": tmp_path, "user_dir": tmp_path / "user"}
    space, other = (dibs.open(url, **options) for _ in range(2))  # type: ignore[arg-type]
    store = space.scope.store
    driver = GroupingDriver(store.driver)
    shared = Hub(NOUNS, keys, touched, seen.append)
    driver.listen = shared.listen
    shared.start(store, store.driver)
    store.driver = driver
    yield space, other, seen
    shared.stop()
    other.close()
    space.close()


def test_many_wait_at_once_and_each_gets_its_own(hubbed) -> None:
    space, other, _ = hubbed
    names = [f"agent{number}" for number in range(40)]
    agents = {name: space.join(name, shell=True) for name in names}
    got: dict[str, str] = {}

    def wait(name: str) -> None:
        got[name] = agents[name].messages.inbox(wait_s=30)[0].body

    threads = [Thread(target=wait, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    sender = other.join("sender")
    for name in names:
        sender.messages.send(f"for {name}", to=name)
    for thread in threads:
        thread.join()
    assert got == {name: f"for {name}" for name in names}


def test_a_queue_is_served_through_the_hub(hubbed) -> None:
    space, other, _ = hubbed
    holder = other.join("holder")
    holder.leases.claim("port:1")
    order: list[str] = []

    def queue(name: str) -> None:
        agent = space.join(name, shell=True)
        agent.leases.claim("port:1", wait_s=30)
        order.append(name)
        agent.leases.release("port:1")

    threads = []
    for number in range(5):
        threads.append(Thread(target=queue, args=(f"agent{number}",)))
        threads[-1].start()
        while len(other.leases.waiting()) <= number:
            time.sleep(0.005)
    holder.leases.release("port:1")
    for thread in threads:
        thread.join()
    assert order == [f"agent{number}" for number in range(5)]


def test_a_grant_comes_with_the_bell_until_it_is_old(
    listener: HubListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listener.given is None
    listener.ring("a grant")
    listener.ring()
    assert listener.given == "a grant"
    monkeypatch.setattr("dibs.storage.waiting.FRESH_S", 0.0)
    assert listener.given is None


def test_the_longer_a_line_is_the_rarer_each_looks_without_a_hint() -> None:
    silent = Hub(NOUNS, keys, touched, lambda seq: None)
    line = [silent.listen((f"{number}:lock:wanted",), None) for number in range(1_000)]
    alone = silent.listen(("task",), None)
    assert (line[0].patience_s, alone.patience_s) == (100.0, 10.0)


def test_it_says_where_the_journal_has_come_to(hubbed) -> None:
    _, other, seen = hubbed
    other.join("alice").messages.announce("hello")
    last = other.events.last()
    end = time.monotonic() + 10
    while (not seen or seen[-1] < last) and time.monotonic() < end:
        time.sleep(0.005)
    assert seen[-1] == last
    assert seen == sorted(seen)
