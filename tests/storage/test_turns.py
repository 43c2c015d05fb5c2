"""The line of a process's threads: nobody is lost in it, whoever wakes whom at what moment."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from dibs.storage.folder import Bells, FileLiveness
from dibs.storage.turns import Line, Place, Turns, wake
from tests.storage.test_interrupt import Interrupter


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take the interpreter from each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_two_who_wake_the_same_one_do_not_meet():
    """Who leaves the line and who tells of an outage may do so in the same moment."""
    for at in range(1, 8):
        place, left = Place(Line()), at

        def meanwhile(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            left -= event == "line"
            if event == "line" and left == 0:
                other = threading.Thread(target=wake, args=(place._me,))  # noqa: B023
                other.start()
                other.join(10)
            return meanwhile

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: meanwhile if frame.f_code is wake.__code__ else None)
        try:
            wake(place._me)
        finally:
            sys.settrace(before)
        assert not place._gate.locked()


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
            listener: Any = bells.listen(("lease",), None)
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


def test_a_bell_that_the_kernel_does_not_watch_is_heard(tmp_path):
    """It allows a user only so many watches, and editors take them."""
    (tmp_path / "alive").mkdir()
    liveness = FileLiveness(str(tmp_path / "alive"))
    bells, others = Bells(str(tmp_path), liveness), Bells(str(tmp_path), liveness)
    read, write = os.pipe()
    os.set_blocking(read, False)
    bells._idle.append(read)  # nothing can be watched with this one
    listener = bells.listen(("lease",), None)
    try:
        for seq in (1, 2):
            others.ring({"lease": None}, seq)
            # It is also sent to look without a bell, now and then.
            assert any(listener.wait(0.1) for _ in range(100))
    finally:
        listener.close()
        bells.close()
        others.close()
        liveness.close()
        os.close(write)
