"""dibs from asynchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api as mypy

import dibs
from dibs import aio, aio_nouns
from dibs.aio import AsyncAgent, AsyncDibs
from dibs.dibs import operations
from dibs.operation import NOUNS
from tools import async_stub


@pytest.fixture(params=["sqlite", "http"])
def space(request, space_name, tmp_path):
    url = request.getfixturevalue(f"{request.param}_url")
    with dibs.open(url, space=space_name, user_dir=tmp_path / "user") as opened:
        yield opened


def test_a_call_is_awaited(space):
    alice = space.join("alice")

    async def main() -> None:
        grant = await aio.call(alice.leases.claim, "a", note="async")
        assert grant.leases[0].note == "async"
        with pytest.raises(dibs.NotFoundError):
            await aio.call(alice.work.show, "nothing")

    asyncio.run(main())


def test_many_waits_run_side_by_side(space):
    alice = space.join("alice")

    async def main() -> None:
        waits = [aio.call(alice.messages.inbox, wait_s=20) for _ in range(30)]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await asyncio.sleep(0.2)
        space.join("bob").messages.announce("hello")
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert [message.body for task in done for message in task.result()] == ["hello"]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_block_leaves_no_ticket_and_no_lease(space, cancels):
    alice, bob = space.join("alice"), space.join("bob")
    alice.leases.claim("a")

    async def hold() -> None:
        async with aio.using(bob.lease("a", wait_s=60)):
            raise AssertionError("never granted")

    async def main() -> None:
        task = asyncio.ensure_future(hold())
        while not space.leases.waiting():
            await asyncio.sleep(0.01)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert space.leases.waiting() == ()
    alice.leases.release("a")
    assert space.leases.list() == ()


def test_a_block_holds_and_releases(space):
    alice = space.join("alice")

    async def main() -> None:
        async with aio.using(alice.lease("a")) as lease:
            assert lease.epoch == space.leases.list()[0].epoch
        assert space.leases.list() == ()

    asyncio.run(main())


# The asynchronous classes


def test_a_space_is_opened_joined_and_left(tmp_path):
    async def main() -> None:
        async with aio.open(tmp_path / "dibs.db", space="s") as space:
            assert space.space == "s"
            async with space.join("alice", status="async") as alice:
                assert isinstance(alice, AsyncAgent)
                assert alice.name == "alice"
                (there,) = await space.agents.list()
                assert there.sessions[0].status == "async"
                bob = await space.join("bob")
                again = await space.resume(bob.token)
                assert again.session == bob.session
                async with alice.subagent("tests") as part:
                    assert part.name == "alice/tests"
                await bob.close()
            assert await space.find("nobody") is None
            assert await space.agents.list() == ()

    asyncio.run(main())


def test_a_forgotten_await_is_explained(space):
    joining = AsyncDibs(space).join("alice")
    with pytest.raises(AttributeError, match=r"'leases' is available once this is open: await it"):
        joining.leases  # type: ignore[attr-defined]  # noqa: B018
    assert space.agents.list() == ()


def test_every_operation_is_a_coroutine_with_the_same_parameters():
    for entry in operations().values():
        noun = getattr(aio_nouns, f"Async{entry.noun.capitalize()}")
        method = vars(noun)[entry.verb]
        assert inspect.iscoroutinefunction(method)
        assert method.__doc__ == entry.method.__doc__
        assert inspect.signature(method) == inspect.signature(entry.method)


def test_a_session_offers_what_the_synchronous_one_does():
    for sync, asynchronous in ((dibs.Dibs, AsyncDibs), (dibs.Agent, AsyncAgent)):
        for name, value in vars(sync).items():
            if name.startswith("_") or not callable(value):
                continue
            theirs = inspect.signature(value).parameters
            mine = inspect.signature(getattr(asynchronous, name)).parameters
            assert list(mine) == list(theirs), name


def test_nouns_work(space):
    alice = AsyncAgent(space.join("alice"))

    async def main() -> None:
        assert {*NOUNS, "lease"} <= set(dir(alice))
        await alice.state.set("build", "status", "green")
        entry = await alice.state.get("build", "status")
        assert entry is not None and entry.value == "green"
        with pytest.raises(dibs.NotFoundError):
            await alice.work.show("nothing")
        with pytest.raises(AttributeError, match="no attribute 'leasse'"):
            alice.leasse  # type: ignore[attr-defined]  # noqa: B018

    asyncio.run(main())


def test_a_lease_is_held_checked_and_released(space):
    alice = AsyncAgent(space.join("alice"))

    async def main() -> None:
        async with alice.lease("a", note="async") as lease:
            await lease.check()
            assert lease.lost is None
            assert 0 < lease.left_s <= 60
            assert lease.epoch == lease.grant.epoch == space.leases.list()[0].epoch
        assert space.leases.list() == ()

    asyncio.run(main())


def test_a_lease_that_was_taken_away_is_noticed(space):
    alice = AsyncAgent(space.join("alice"))

    async def main() -> None:
        with pytest.raises(dibs.RefusedError):
            async with alice.lease("a") as lease:
                space.join("boss").leases.revoke("a", reason="now")
                await lease.check()

    asyncio.run(main())


def test_tasks_are_worked_on(space):
    alice = AsyncAgent(space.join("alice"))

    async def main() -> None:
        for id in ("one", "two", "three"):
            await alice.work.add(id, payload={"n": id})
        async with alice.next_task() as task:
            assert task.id == task.payload["n"] == "one"
            task.result = 1
        async with alice.task("three") as task:
            task.abandon("not now")
        async for task in alice.tasks():
            task.result = task.title
        assert {one.id: (one.state, one.result) for one in await alice.work.list()} == {
            "one": ("completed", 1),
            "two": ("completed", ""),
            "three": ("completed", ""),
        }

    asyncio.run(main())


@pytest.mark.parametrize("how", ["break", "raise", "aclose"])
def test_a_task_whose_loop_is_left_early_fails(space, how):
    alice = AsyncAgent(space.join("alice"))
    alice.sync.work.add("one", max_attempts=1)

    async def main() -> None:
        tasks = alice.tasks()
        with contextlib.suppress(ZeroDivisionError):
            async for _ in tasks:
                if how == "raise":
                    raise ZeroDivisionError
                break
        if how == "aclose":
            await tasks.aclose()

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name == "dibs-close":
            thread.join(10)
    assert space.work.show("one").state == "dead"


def test_the_loop_goes_on_while_a_lease_is_renewed_and_waited_for(space):
    """Whatever blocks the loop for long would let the ticks fall behind."""
    alice, bob = AsyncAgent(space.join("alice")), AsyncAgent(space.join("bob"))
    blocked: list[float] = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            blocked.append(time.monotonic() - began)

    async def main() -> None:
        ticks = asyncio.create_task(tick())
        async with alice.lease("a", ttl_s=1) as lease:
            first = lease.left_s
            with pytest.raises(TimeoutError):
                await bob.leases.claim("a", wait_s=1.2)
            assert lease.lost is None  # it was renewed: otherwise it had ended by now
            assert first <= 1
        ticks.cancel()

    asyncio.run(main())
    assert len(blocked) > 20


# Cancellation


def until(condition: Callable[[], object]) -> None:
    """Block the loop until something is so, which another thread does."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def cancel_at_the_grant(make: Callable[[], object], granted: Callable[[], object]) -> None:
    """Cancel a call after it was granted, before its task can hear of it."""

    async def main() -> None:
        task = asyncio.ensure_future(make())  # type: ignore[call-overload]
        await asyncio.sleep(0)
        until(granted)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("face", ["claim", "lease", "using"])
def test_a_lease_that_is_granted_while_it_is_cancelled_is_released(space, face):
    alice = AsyncAgent(space.join("alice"))
    alice.sync.leases.claim("before")

    async def block(manager) -> None:
        async with manager:
            raise AssertionError("cancelled before")

    make = {
        "claim": lambda: alice.leases.claim("a", "b", "before"),
        "lease": lambda: block(alice.lease("a", "b", "before")),
        "using": lambda: block(aio.using(alice.sync.lease("a", "b", "before"))),
    }
    cancel_at_the_grant(make[face], lambda: len(space.leases.list()) == 3)
    assert [lease.resource for lease in space.leases.list()] == ["before"]


@pytest.mark.parametrize("face", ["claim", "next", "next_many", "next_task", "tasks", "each"])
def test_a_task_that_is_granted_while_it_is_cancelled_is_given_back(space, face):
    alice = AsyncAgent(space.join("alice"))
    alice.sync.work.add("one", max_attempts=1)

    async def block() -> None:
        async with alice.next_task():
            raise AssertionError("cancelled before")

    async def loop(tasks) -> None:
        async for _ in tasks:
            raise AssertionError("cancelled before")

    make = {
        "claim": lambda: alice.work.claim("one"),
        "next": alice.work.next,
        "next_many": lambda: alice.work.next_many(2),
        "next_task": block,
        "tasks": lambda: loop(alice.tasks()),
        "each": lambda: loop(aio.each(alice.sync.tasks())),
    }
    cancel_at_the_grant(make[face], lambda: space.work.show("one").state == "claimed")
    task = space.work.show("one")
    # Given back, not failed and not completed: nobody has worked on it.
    assert (task.state, task.session) == ("available", None)


def test_what_was_claimed_before_stays_claimed_when_a_second_claim_is_cancelled(space):
    alice = AsyncAgent(space.join("alice"))
    first = alice.sync.work.claim("one")
    last = space.events.last()
    cancel_at_the_grant(lambda: alice.work.claim("one"), lambda: space.events.last() > last)
    task = space.work.show("one")
    assert (task.state, task.epoch) == ("claimed", first.epoch)


def test_a_call_with_a_key_of_its_own_can_be_asked_again_after_a_cancellation(space):
    alice = AsyncAgent(space.join("alice"))
    cancel_at_the_grant(lambda: alice.leases.claim("a", idempotency_key="k"), space.leases.list)
    (held,) = space.leases.list()
    assert asyncio.run(call_again(alice)).leases[0].epoch == held.epoch


async def call_again(alice: AsyncAgent) -> dibs.Grant:
    return await alice.leases.claim("a", idempotency_key="k")


def test_a_session_that_is_joined_while_it_is_cancelled_is_ended(space):
    face = AsyncDibs(space)

    async def join() -> None:
        await face.join("alice")

    cancel_at_the_grant(join, space.agents.list)
    assert space.agents.list() == ()


@pytest.mark.parametrize("wait", ["lease", "claim", "next"])
def test_a_cancelled_wait_leaves_no_ticket(space, wait):
    alice, bob = space.join("alice"), AsyncAgent(space.join("bob"))
    alice.leases.claim("a")

    async def hold() -> None:
        async with bob.lease("a", wait_s=60):
            raise AssertionError("never granted")

    make = {
        "lease": hold,
        "claim": lambda: bob.leases.claim("a", wait_s=60),
        "next": lambda: bob.work.next(wait_s=60),
    }

    async def main() -> None:
        task = asyncio.ensure_future(make[wait]())
        while wait != "next" and not space.leases.waiting():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 10

    asyncio.run(main())
    assert space.leases.waiting() == ()
    alice.leases.release("a")
    assert space.leases.list() == ()


def test_a_body_that_is_cancelled_releases_and_gives_back(space):
    alice = AsyncAgent(space.join("alice"))
    alice.sync.work.add("one", max_attempts=1)

    async def body(entered: asyncio.Event) -> None:
        async with alice.lease("a"), alice.next_task():
            entered.set()
            await asyncio.sleep(60)

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(body(entered))
        await entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # while it is on its way out
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert space.leases.list() == ()
    assert space.work.show("one").state == "available"


def running(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@pytest.mark.parametrize("database", ["sqlite", "postgres", "http"])
def test_whenever_calls_are_cancelled_nothing_is_left(request, database, space_name, tmp_path):
    """Eight agents want the same three resources and tasks, and most are cancelled on the way."""
    url = request.getfixturevalue(f"{database}_url")
    chance = random.Random(20)

    async def once(agent: AsyncAgent) -> None:
        resource = chance.choice(["a", "b", "c"])
        match chance.randrange(5):
            case 0:
                grant = await agent.leases.claim(resource, wait_s=5)
                await agent.leases.release(epoch=grant.epoch)
            case 1 | 2:
                async with agent.lease(resource, wait_s=5) as lease:
                    await lease.check()
            case 3:
                async with agent.next_task(wait_s=5) as task:
                    task.abandon("not now")
            case 4:
                async for task in agent.tasks():
                    task.abandon("not now")
                    break

    async def some(agent: AsyncAgent) -> int:
        cancelled = 0
        for _ in range(25):
            task = asyncio.create_task(once(agent))
            await asyncio.wait([task], timeout=chance.uniform(0, 0.05))
            cancelled += task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, dibs.RefusedError)
        return cancelled

    async def main() -> None:
        async with aio.open(url, space=space_name, user_dir=tmp_path / "user") as space:
            agents = [await space.join(f"a{number}") for number in range(8)]
            for number in range(3):
                await agents[0].work.add(f"t{number}", max_attempts=1000)
            counts = await asyncio.gather(*map(some, agents))
            assert sum(counts) > 20
            # What is left of threads are those that keep sessions alive, where beats do.
            kept = 0 if database == "sqlite" else len(agents)
            until(lambda: running("dibs-close") == 0 and running("dibs-beating") == kept)
            assert await space.leases.waiting() == ()
            assert await space.leases.list() == ()
            assert {task.state for task in await space.work.list()} <= {"available", "failed"}

    asyncio.run(main())


# Types

USER = """
import asyncio
from dibs import AsyncAgent, Grant, Message, Task, aio
from dibs.aio import AsyncHeldLease, AsyncHeldTask
from dibs.errors import DibsError


async def main() -> None:
    async with aio.open("x.db", space="s") as space, space.join("alice", status="x") as alice:
        reveal_type(alice)
        reveal_type(await alice.leases.claim("a", wait_s=5))
        reveal_type(await alice.messages.send_many([{"body": "x"}]))
        reveal_type(await alice.messages.send_many([{"body": "x"}], each=True))
        async with alice.lease("a", ttl_s=5) as lease:
            reveal_type(lease)
        async for task in alice.tasks(until="never"):
            reveal_type(task)

        @alice.leased("a")
        async def deploy(number: int) -> str:
            return str(number)

        reveal_type(deploy)
        WRONG
"""
REVEALED = [
    "dibs.aio.AsyncAgent",
    "dibs.records.Grant",
    "tuple[dibs.records.Message, ...]",
    "tuple[dibs.records.Message | dibs.errors.DibsError, ...]",
    "dibs.aio.AsyncHeldLease",
    "dibs.aio.AsyncHeldTask",
    "def (number: int) -> typing.Coroutine[Any, Any, str]",
]


def typed(tmp_path: Path, wrong: str) -> list[str]:
    """What mypy says of a user's program."""
    file = tmp_path / "user.py"
    file.write_text(USER.replace("WRONG", wrong), encoding="utf-8")
    out, _, _ = mypy.run(["--strict", "--no-incremental", "--no-error-summary", str(file)])
    return out.splitlines()


def test_the_stub_is_what_the_registry_says_now():
    stub = async_stub.STUB.read_text(encoding="utf-8")
    assert stub == async_stub.render(), "aio_nouns.pyi is out of date: run make docs"


@pytest.mark.timeout(300)
def test_a_program_is_checked_strictly(tmp_path):
    wrong = "await alice.leases.claim(5); alice.leasse; await alice.join(); alice.lease('a').cheque"
    said = typed(tmp_path, wrong)
    notes = [
        line.partition("Revealed type is ")[2].strip('"') for line in said if ": note:" in line
    ]
    assert [note for note in notes if note] == REVEALED
    errors = [line for line in said if ": error:" in line]
    assert len(errors) == 4, said
    for part in ("claim", "leasse", "Too few arguments", "cheque"):
        assert any(part in error for error in errors), part
