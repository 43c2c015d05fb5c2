"""The objects of the library: how they show themselves, and functions that hold a lease."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest

import dibs
from dibs.aio import AsyncAgent


@pytest.fixture
def space(sqlite_url, tmp_path):
    with dibs.open(sqlite_url, space="s", user_dir=tmp_path / "user") as opened:
        yield opened


def test_a_space_an_agent_and_a_noun_say_which_they_are(space, sqlite_url):
    alice = space.join("alice")
    where = f"space='s' store='{sqlite_url}'"
    assert repr(space) == f"<Dibs {where}>"
    assert repr(alice) == f"<Agent 'alice' session={alice.session} {where}>"
    assert repr(alice.leases) == f"<Leases {where}>"
    face = AsyncAgent(alice)
    assert repr(face) == f"<AsyncAgent 'alice' session={alice.session} {where}>"
    assert repr(face.work) == f"<AsyncWork {where}>"


def test_a_lease_says_how_far_it_is(space):
    alice = space.join("alice")
    lease = alice.lease("a", "b", "c", "d", ttl_s=60)
    assert repr(lease) == "<HeldLease on a, b, c and 1 more, not claimed yet>"
    with lease:
        assert repr(lease) == f"<HeldLease on a, b, c and 1 more, epoch {lease.epoch}, 60 s left>"
    assert repr(lease) == f"<HeldLease on a, b, c and 1 more, epoch {lease.epoch}, released>"
    with pytest.raises(dibs.RefusedError), alice.lease("a", ttl_s=60) as lost:
        space.join("boss").leases.revoke("a")
        lost._renewal._refusal = dibs.StaleError("taken away")  # as its thread finds out
        assert repr(lost).endswith(", lost>")
    assert repr(AsyncAgent(alice).lease("x")) == "<AsyncHeldLease on x, not claimed yet>"


def test_a_task_says_how_far_it_is(space):
    alice = space.join("alice")
    alice.work.add("one", title="words of somebody")
    assert repr(alice.next_task()) == "<HeldTask, not claimed yet>"
    assert repr(alice.task("one")) == "<HeldTask one, not claimed yet>"
    with alice.next_task(ttl_s=60) as task:
        assert repr(task) == f"<HeldTask one, epoch {task.task.epoch}, 60 s left>"
    assert repr(task) == f"<HeldTask one, epoch {task.task.epoch}, ended>"


def test_what_is_asked_of_a_lease_before_its_block_is_refused_with_a_reason(space):
    lease = space.join("alice").lease("a")
    for ask in (lambda: lease.lost, lambda: lease.left_s, lease.check):
        with pytest.raises(dibs.StateError, match="nothing is held yet"):
            ask()


def test_an_object_shows_itself_when_its_store_is_closed(sqlite_url, tmp_path):
    space = dibs.open(sqlite_url, space="s", user_dir=tmp_path / "user")
    alice = space.join("alice")
    space.close()
    assert repr(space).startswith("<Dibs ") and repr(alice).startswith("<Agent ")


def test_a_remote_space_shows_its_daemon_without_asking_it(http_url, space_name, tmp_path):
    with dibs.open(http_url, user_dir=tmp_path / "user") as space:
        assert repr(space) == f"<Dibs daemon='{http_url}'>"
        assert space.space == space_name
        assert repr(space) == f"<Dibs space='{space_name}' daemon='{http_url}'>"


def test_nothing_shows_a_secret(proxy, http_url, space_name, tmp_path):
    url = proxy.url.replace("postgres@", "postgres:hunter2@")
    with dibs.open(url, space=space_name, user_dir=tmp_path / "user") as space:
        alice = space.join("alice")
        for one in (space, alice, alice.leases, alice.lease("a"), alice.next_task()):
            assert "hunter2" not in repr(one)
            assert alice.token not in repr(one)
    with dibs.open(http_url, user_dir=tmp_path / "user") as space:
        new = space.join("alice").agents.add_token("ci", scope="admin")
        with dibs.open(http_url, token=new.secret, user_dir=tmp_path / "user") as other:
            for shown in (other, other.agents, other.join("bob"), new):
                assert new.secret not in repr(shown)


# @agent.leased


def test_each_call_of_a_function_holds_the_lease(space):
    alice = space.join("alice")

    @alice.leased("a", "b", note="deploy", ttl_s=5)
    def deploy(number: int, *, times: int = 1) -> int:
        """Deploy it."""
        assert [lease.resource for lease in space.leases.list()] == ["a", "b"]
        assert {lease.note for lease in space.leases.list()} == {"deploy"}
        return number * times

    assert space.leases.list() == ()  # nothing is claimed by decorating
    for number in (1, 2):
        assert deploy(number, times=2) == number * 2
        assert space.leases.list() == ()
    assert (deploy.__name__, deploy.__doc__) == ("deploy", "Deploy it.")
    assert list(inspect.signature(deploy).parameters) == ["number", "times"]


def test_a_function_that_raises_releases(space):
    @space.join("alice").leased("a")
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert space.leases.list() == ()


def test_a_function_whose_lease_is_held_is_not_called(space):
    space.join("bob").leases.claim("a")
    called: list[int] = []

    @space.join("alice").leased("a")
    def deploy() -> None:
        called.append(1)

    with pytest.raises(dibs.HeldError):
        deploy()
    assert called == []


def test_a_method_and_a_recursive_call_work(space):
    alice = space.join("alice")

    class Deployment:
        @alice.leased("a")
        def run(self, depth: int) -> int:
            held = len(space.leases.list())
            return held + (self.run(depth - 1) if depth else 0)

    assert Deployment().run(2) == 3  # held in each call, and not released by the inner ones
    assert space.leases.list() == ()


@pytest.mark.parametrize("face", [lambda agent: agent, AsyncAgent], ids=["sync", "async"])
def test_an_async_function_waits_for_its_turn_without_blocking(space, face):
    alice, bob = space.join("alice"), face(space.join("bob"))

    @bob.leased("a", wait_s=30)
    async def deploy(number: int) -> int:
        assert [lease.agent for lease in space.leases.list()] == ["bob"]
        return number

    async def main() -> None:
        alice.leases.claim("a")
        task = asyncio.create_task(deploy(7))
        while not space.leases.waiting():
            await asyncio.sleep(0.01)  # the loop goes on
        alice.leases.release("a")
        assert await task == 7
        assert space.leases.list() == ()

    assert inspect.iscoroutinefunction(deploy)
    asyncio.run(main())


def test_an_async_function_that_is_cancelled_releases(space):
    entered = asyncio.Event()

    @space.join("alice").leased("a")
    async def deploy() -> None:
        entered.set()
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(deploy())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert space.leases.list() == ()


def test_what_is_async_underneath_is_awaited_within_the_lease(space):
    alice = space.join("alice")

    class Deploy:
        async def __call__(self) -> int:
            return len(space.leases.list())

    async def deploy(number: int) -> int:
        return len(space.leases.list()) * number

    assert asyncio.run(alice.leased("a")(Deploy())()) == 1
    assert asyncio.run(alice.leased("a")(functools.partial(deploy, 3))()) == 3


def test_a_generator_is_refused(space):
    alice = space.join("alice")

    def numbers():
        yield 1

    async def more():
        yield 1

    for function in (numbers, more):
        with pytest.raises(dibs.InvalidError, match="is a generator"):
            alice.leased("a")(function)
