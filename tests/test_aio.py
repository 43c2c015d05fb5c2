"""dibs from asynchronous code."""

from __future__ import annotations

import asyncio

import pytest

import dibs
from dibs import aio


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
