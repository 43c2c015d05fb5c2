"""A space that has reached its size limit: what adds to it is refused, what ends goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.errors import InvalidError, SpaceFullError
from tests.surfaces.shell import Shell, scrubbed

LIMIT = 1 << 20


@pytest.fixture
def space(sqlite_url: str, tmp_path: Path) -> Iterator[dibs.Dibs]:
    user = str(tmp_path / "user")
    with dibs.open(sqlite_url, space="s", user_dir=user, size_limit=LIMIT) as opened:
        yield opened


def fill(agent: dibs.Agent) -> SpaceFullError:
    """Add to the store until it refuses, which it does before long."""
    for number in range(100):
        try:
            agent.state.set("n", f"k{number}", "x" * 60_000)
        except SpaceFullError as error:
            return error
        agent.scope.store.driver.shorten_log()
        time.sleep(0.002)  # the file is looked at once in a millisecond
    raise AssertionError("the store grew without a limit")


def test_what_adds_is_refused_and_what_ends_goes_on(space: dibs.Dibs, sqlite_url: str) -> None:
    alice, bob = space.join("alice"), space.join("bob")
    alice.leases.claim("lock:a", "lock:b")
    alice.work.add("t")
    alice.work.claim("t")
    error = fill(alice)
    assert error.details["limit"] == LIMIT and "gc" in str(error.next)
    assert Path(sqlite_url).stat().st_size < 2 * LIMIT
    last = space.events.last()
    for call in (
        lambda: alice.leases.claim("lock:c"),
        lambda: bob.leases.claim("lock:a", wait_s=1),
        lambda: alice.messages.announce("hello"),
        lambda: alice.messages.send("hello", to="bob"),
        lambda: alice.state.set("n", "more", 1),
        lambda: alice.work.add("u"),
        lambda: alice.agents.add_token("ci"),
    ):
        with pytest.raises(SpaceFullError):
            call()
    assert space.events.last() == last
    alice.leases.renew("lock:a")
    alice.leases.release("lock:a")
    alice.work.complete("t", result={"done": True})
    alice.agents.beat(status="leaving")
    alice.close()
    carol = space.join("carol")
    carol.state.clear("n")
    time.sleep(0.01)
    carol.events.prune(keep_s=0)
    assert carol.leases.claim("lock:c").epoch
    carol.close()
    bob.close()


def test_a_release_in_a_full_space_hands_over_to_who_waits(
    space: dibs.Dibs, sqlite_url: str, tmp_path: Path
) -> None:
    from threading import Thread

    alice, got = space.join("alice"), []
    alice.leases.claim("lock:a")

    def wait() -> None:
        with (
            dibs.open(sqlite_url, space="s", user_dir=str(tmp_path / "user")) as own,
            own.join("bob") as bob,
        ):
            got.append(bob.leases.claim("lock:a", wait_s=30).epoch)

    waiter = Thread(target=wait)
    waiter.start()
    while not space.leases.waiting():
        time.sleep(0.01)
    fill(alice)
    alice.leases.release("lock:a")
    waiter.join(30)
    assert got
    alice.close()


def test_the_limit_is_a_setting(tmp_path: Path) -> None:
    shell = Shell(tmp_path, scrubbed(tmp_path / "home"))
    small = shell.with_(DIBS_SIZE_LIMIT=str(LIMIT))
    (tmp_path / ".dibs").mkdir(mode=0o700)
    for number in range(30):
        shell.ok("state", "set", "n", str(number), "x" * 60_000, "--as", "alice")
    answer = small("claim", "port:1", "--as", "alice")
    assert answer.code == 75 and "limit of 1 MiB" in answer.err
    shell.ok("claim", "port:1", "--as", "alice")
    small.ok("release", "port:1", "--as", "alice")
    assert shell.with_(DIBS_SIZE_LIMIT="lots")("status").code == 2


def test_a_limit_that_is_none_is_refused(sqlite_url: str) -> None:
    for limit in (0, -1, 1 << 50, "2G"):
        with pytest.raises(InvalidError):
            dibs.open(sqlite_url, space="s", size_limit=limit)  # type: ignore[arg-type]
