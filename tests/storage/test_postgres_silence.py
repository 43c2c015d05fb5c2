"""A PostgreSQL server that does not answer: each call ends, and says so.

The limits are shortened here, except where the real ones are what is shown: those tests run
side by side, since each takes as long as a server may be silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.dibs import operations
from dibs.operation import Operation
from dibs.storage import postgres_connect, postgres_ears, postgres_pipeline
from dibs.storage.waiting import PATIENCE_S
from tests.contract.waiting import eventually
from tests.silence import CLIENT, COMMIT, SERVER, SilentProxy
from tests.surfaces.test_policy import least

BOUND_S = 10.0
"""What is promised: a call ends within its wait and this."""
SHORT_S = 0.6


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server up after a moment."""
    for module in (postgres_pipeline, postgres_ears):
        monkeypatch.setattr(module, "ANSWER_S", SHORT_S)
    for name in ("CONNECT_S", "SOON_S"):
        monkeypatch.setattr(f"dibs.storage.postgres.{name}", SHORT_S)
    monkeypatch.setattr("dibs.storage.postgres.REST_S", SHORT_S / 2)


class Place:
    """Who opens the space through a proxy."""

    def __init__(self, url: str, folder: Path, space: str) -> None:
        self.url, self.folder, self.space = url, folder, space

    def open(self, url: str | None = None) -> dibs.Dibs:
        return dibs.open(
            url or self.url, space=self.space, start=self.folder, user_dir=self.folder / "user"
        )


@pytest.fixture
def place(proxy: SilentProxy, tmp_path: Path, space_name: str) -> Place:
    return Place(proxy.url, tmp_path, space_name)


def refused(call: Callable[[], object], within_s: float = BOUND_S) -> dibs.DibsError:
    """Call, and return the error that it ends with, in time."""
    begun = time.monotonic()
    with pytest.raises(dibs.DibsError) as ended:
        call()
    assert time.monotonic() - begun < within_s
    return ended.value


def call_of(agent: dibs.Agent, entry: Operation) -> Callable[[], object]:
    noun, _, verb = entry.name.partition(".")
    given = least(entry)
    if "seal" in given:  # one of another space is refused without asking
        given["seal"] = given["seal"].rpartition(" ")[0] + f" {agent.space}"
    many = given.pop(entry.many.name) if entry.many else []
    return lambda: getattr(getattr(agent, noun), verb)(*many, **given)


@pytest.mark.usefixtures("short")
def test_every_operation_ends_where_the_server_is_silent(proxy: SilentProxy, place: Place) -> None:
    with place.open() as space:
        alice = space.join("alice")
        proxy.silent = True
        for entry in operations().values():
            error = refused(call_of(alice, entry))
            assert isinstance(error, dibs.DisconnectedError), entry.name
            assert error.details["cause"] == "silent"
            assert error.next
        proxy.speak()
        eventually(lambda: answers(space))
        alice.close()


def answers(space: dibs.Dibs) -> bool:
    try:
        space.events.last()
    except dibs.DisconnectedError:
        return False
    return True


@pytest.mark.usefixtures("short")
def test_a_server_that_never_spoke_is_given_up(proxy: SilentProxy, place: Place) -> None:
    proxy.silent = True
    error = refused(place.open)
    assert (error.code, error.details["cause"]) == ("disconnected", "silent")
    assert str(proxy.port) in error.message


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("moment", [b"SELECT", b"set_config", b"CREATE TABLE", COMMIT])
def test_a_server_that_falls_silent_while_a_space_is_opened_is_given_up(
    moment: bytes, proxy: SilentProxy, place: Place
) -> None:
    proxy.silence_at(CLIENT, moment)
    assert refused(place.open).code == "disconnected"
    proxy.speak()
    eventually(lambda: opens(place))


def opens(place: Place) -> bool:
    try:
        place.open().close()
    except dibs.UnavailableError:
        return False  # the transaction that was cut off is still held by the server
    return True


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("who", "said"), [(CLIENT, b"to be sent once"), (SERVER, COMMIT)])
def test_a_commit_that_is_not_answered_is_done_once(
    who: str, said: bytes, proxy: SilentProxy, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the server soon gives back the turn of a commit that it was never told of.
    monkeypatch.setattr("dibs.storage.postgres_transaction.IDLE_MS", 1_000)
    with place.open() as space:
        alice = space.join("alice")
        proxy.silence_at(who, said)
        begun = time.monotonic()
        error = refused(lambda: alice.messages.send("to be sent once", idempotency_key="k"))
        assert (error.code, error.details["cause"]) == ("disconnected", "silent")
        proxy.speak()
        first = again(lambda: alice.messages.send("to be sent once", idempotency_key="k"))
        assert alice.messages.send("to be sent once", idempotency_key="k") == first
        assert [message.body for message in alice.messages.history()] == ["to be sent once"]
        assert time.monotonic() - begun < 20
        alice.close()


def again(call: Callable[[], Any]) -> Any:
    end = time.monotonic() + 30
    while True:
        try:
            return call()
        except dibs.UnavailableError:
            assert time.monotonic() < end


@pytest.mark.usefixtures("short")
def test_a_wait_ends_where_the_server_falls_silent(
    proxy: SilentProxy, place: Place, empty_postgres_url: str
) -> None:
    with place.open(empty_postgres_url) as elsewhere, place.open() as space:
        bob, alice = elsewhere.join("bob"), space.join("alice")
        bob.leases.claim("port:1")
        waiting: list[dibs.DibsError] = []
        thread = threading.Thread(
            target=lambda: waiting.append(refused(lambda: alice.leases.claim("port:1", wait_s=60)))
        )
        thread.start()
        eventually(elsewhere.leases.waiting)
        proxy.silent = True
        thread.join(BOUND_S)
        assert [error.code for error in waiting] == ["disconnected"]
        proxy.speak()
        eventually(lambda: answers(space))
        alice.close()
        bob.close()


@pytest.mark.usefixtures("short")
def test_threads_in_line_are_told_what_the_first_has_found_out(
    proxy: SilentProxy, place: Place
) -> None:
    with place.open() as space:
        agents = [space.join(f"agent{number}") for number in range(10)]
        codes: list[str] = []

        def write(agent: dibs.Agent) -> None:
            codes.append(refused(lambda: agent.state.set("n", agent.name, 1), 3 * SHORT_S).code)

        threads = [threading.Thread(target=write, args=(agent,)) for agent in agents]
        proxy.silent = True
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == ["disconnected"] * len(agents)
        proxy.speak()
        eventually(lambda: answers(space))
        for agent in agents:
            agent.close()


@pytest.mark.usefixtures("short")
def test_an_ear_that_hears_nothing_is_replaced(
    proxy: SilentProxy, place: Place, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.storage.postgres_ears.EAR_S", 0.1)
    with place.open() as space, place.open(empty_postgres_url) as elsewhere:
        ear = space.scope.store.driver.listen(("message",), None)
        for _ in range(3):
            assert not ear.wait(0.2)  # asked whether it lives, and it does
        before = proxy.connections
        proxy.silent = True
        time.sleep(PATIENCE_S + 0.05)
        proxy.silent = False  # the answer to what it was asked is lost
        eventually(lambda: ear.wait(0.3))
        assert proxy.connections == before + 1
        bob = elsewhere.join("bob")
        bob.messages.send("hello")
        assert ear.wait(5)
        ear.close()
        bob.close()


@pytest.mark.usefixtures("short")
def test_a_migration_may_take_its_time(place: Place, empty_postgres_url: str) -> None:
    with place.open() as space:
        driver: Any = space.scope.store.driver
        connection = driver.take()
        connection.begin_setup()
        slow = postgres_slow(4 * SHORT_S)
        assert connection.rows(slow, {}) == [{"slept": ""}]
        connection.rollback()
        driver.give_back(connection)
        with pytest.raises(dibs.DisconnectedError), space.scope.store.read() as tx:
            tx.rows(slow)


def postgres_slow(seconds: float) -> Any:
    from dibs.storage.queries import Query

    return Query("slow", f"SELECT CAST(pg_sleep({seconds}) AS TEXT) AS slept")


@pytest.mark.usefixtures("short")
def test_a_queue_of_calls_does_not_time_out_one_by_one(proxy: SilentProxy, place: Place) -> None:
    with place.open() as space:
        proxy.silent = True
        begun = time.monotonic()
        for _ in range(50):
            refused(space.events.last)
        assert time.monotonic() - begun < BOUND_S
        proxy.speak()
        eventually(lambda: answers(space))


def test_the_address_may_say_how_long_to_try(proxy: SilentProxy, place: Place) -> None:
    proxy.silent = True
    begun = time.monotonic()
    refused(lambda: place.open(f"{proxy.url}?connect_timeout=1"))
    assert time.monotonic() - begun < postgres_connect.CONNECT_S


@pytest.mark.stress
@pytest.mark.parametrize("who", [CLIENT, SERVER])
def test_every_operation_ends_within_the_promise_with_the_real_limits(
    who: str, proxy: SilentProxy, place: Place
) -> None:
    """All of them at once, each on a connection that was good until now."""
    entries = list(operations().values())
    spaces = [place.open() for _ in entries]
    agents = [space.join(f"agent{number}") for number, space in enumerate(spaces)]
    took: dict[str, float] = {}
    codes: dict[str, str] = {}

    def run(agent: dibs.Agent, entry: Operation) -> None:
        begun = time.monotonic()
        codes[entry.name] = refused(call_of(agent, entry), 60).code
        took[entry.name] = time.monotonic() - begun

    if who == CLIENT:
        proxy.silent = True
    else:
        proxy.silence_at(SERVER, b"SELECT")  # the first answer to anybody is the last
    threads = [
        threading.Thread(target=run, args=both) for both in zip(agents, entries, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    longest = max(took.values())
    print(f"\nR21 postgres: {len(took)} operations, the {who} is cut off: longest {longest:.1f} s")
    assert set(codes.values()) == {"disconnected"}, codes
    assert longest < BOUND_S
    for space in spaces:
        space.close()


def test_with_the_real_limits_all_ends_within_the_promise(proxy: SilentProxy, place: Place) -> None:
    """Many at once, since each takes as long as a server may be silent."""
    errors: list[str] = []
    spaces = [place.open() for _ in range(4)]
    agents = [space.join(f"agent{number}") for number, space in enumerate(spaces)]
    calls: list[Callable[[], object]] = [
        lambda: agents[0].leases.claim("port:1"),
        lambda: agents[1].leases.claim("port:1", wait_s=1),
        agents[2].messages.inbox,
        agents[3].close,
        place.open,
        spaces[0].events.last,
        lambda: held(agents[1]),
    ]
    proxy.silent = True

    def run(call: Callable[[], object]) -> None:
        errors.append(refused(call, BOUND_S + 1).code)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["disconnected"] * len(calls)
    for space in spaces:
        space.close()


def held(agent: dibs.Agent) -> None:
    with agent.lease("port:2"):
        pass
