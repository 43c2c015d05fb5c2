"""A signal handler that uses the store in the middle of a call of the same thread."""

from __future__ import annotations

import signal
import time

import dibs


def test_a_call_that_a_signal_handler_breaks_into_is_done_whole_or_not_at_all(sqlite_url, tmp_path):
    space = dibs.open(sqlite_url, space="s", user_dir=str(tmp_path), durability="fast")
    alice = space.join("alice")
    names = [f"n:{number}" for number in range(4)]
    told = []
    assert alice.leases.list() == ()  # imported: a handler must not break into that

    def handler(*_: object) -> None:
        told.append(alice.leases.release(everything=True))

    before = signal.signal(signal.SIGALRM, handler)
    broken = 0
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            try:
                alice.leases.claim(*names)
            except dibs.BusyError:
                broken += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            held = {lease.resource for lease in alice.leases.list()}
            assert held in (set(), set(names))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told
    assert space.agents.verify() == ()
    space.close()
