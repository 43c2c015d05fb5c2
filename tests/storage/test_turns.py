"""The line of a process's threads: nobody is lost in it, whoever wakes whom at what moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from dibs.storage.folder import Bells, FileLiveness
from dibs.storage.turns import Turns
from tests.storage.test_interrupt import Interrupter


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take the interpreter from each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_an_interrupt_leaves_no_place_behind_however_long_it_is_remembered():
    """Such as the last exception of a notebook, which has all that was on the stack."""
    kept, at, through = [], 0, False
    while not through:
        at += 1
        turns, interrupter = Turns(), Interrupter(at)
        before = sys.gettrace()
        sys.settrace(interrupter)
        try:
            turns.take(5)
            through = True
        except KeyboardInterrupt as error:
            kept.append(error)
            standing = [*turns.line.places, *turns.crowd.places]
        finally:
            sys.settrace(before)
        if not through and "(take)" in interrupter.where:
            assert [one() for one in standing] == [], interrupter.where
    assert len(kept) > 20


def test_many_who_begin_to_listen_at_once_share_an_ear(restless, tmp_path):
    for number in range(20):
        folder = tmp_path / str(number)
        (folder / "alive").mkdir(parents=True)
        liveness = FileLiveness(str(folder / "alive"))
        bells = Bells(str(folder), liveness)
        begin, rooms = threading.Barrier(8), []

        def listening(bells: Bells = bells, begin: threading.Barrier = begin) -> None:
            begin.wait(10)
            listener = bells.listen(("lease",), None)
            rooms.append(listener._room)  # noqa: B023
            listener.close()

        threads = [threading.Thread(target=listening) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(10)
        bells.close()
        liveness.close()
        assert len(rooms) == 8
        assert len({id(room) for room in rooms}) == 1
