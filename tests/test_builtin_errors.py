"""Which errors are also Python's own, and what follows from that."""

from __future__ import annotations

import asyncio
import builtins
import pickle
import time

import pytest

import dibs
from dibs import aio
from dibs.errors import error_of, known


@pytest.fixture(params=["sqlite", "http"])
def space(request, space_name, tmp_path):
    url = request.getfixturevalue(f"{request.param}_url")
    with dibs.open(url, space=space_name, user_dir=tmp_path / "user") as opened:
        yield opened


def test_a_wait_that_times_out_raises_the_builtin_error(space):
    alice, bob = space.join("alice"), space.join("bob")
    alice.leases.claim("a")
    began = time.monotonic()
    with pytest.raises(builtins.TimeoutError) as raised:
        bob.leases.claim("a", wait_s=0.1)
    # Through a daemon it is an answer, not an outage: it is not asked again.
    assert time.monotonic() - began < 5
    assert isinstance(raised.value, dibs.TimeoutError)
    assert raised.value.code == "timeout"
    assert str(raised.value) == raised.value.message


def test_one_clause_catches_both_timeouts(space):
    alice, bob = space.join("alice"), space.join("bob")
    alice.leases.claim("a")

    async def wait(limit_s: float, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await aio.call(bob.leases.claim, "a", wait_s=wait_s)
        except TimeoutError as error:
            return isinstance(error, dibs.TimeoutError)
        raise AssertionError("it was granted")

    assert asyncio.run(wait(60, 0.05)) is True
    assert asyncio.run(wait(0.05, 60)) is False
    assert space.leases.waiting() == ()


def test_a_timeout_keeps_its_sentence_and_its_details():
    error = dibs.TimeoutError("not in time", next="wait longer", wait_s=3)
    assert (str(error), error.next, error.details) == ("not in time", "wait longer", {"wait_s": 3})
    assert error.errno is None
    again = error_of(error.to_json())
    assert type(again) is dibs.TimeoutError
    assert again.to_json() == error.to_json()
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.message, copied.next, copied.details) == (
        error.message,
        error.next,
        {"wait_s": 3},
    )


def test_no_other_error_is_taken_for_one_of_the_operating_system():
    """A server that uses dibs takes ConnectionError for a caller of its own that went away."""
    kinds = known(dibs.DibsError).values()
    assert [kind.__name__ for kind in kinds if issubclass(kind, OSError)] == ["TimeoutError"]
