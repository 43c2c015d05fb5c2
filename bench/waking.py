"""How soon a waiter in another process wakes, and what it costs while it waits."""

from __future__ import annotations

import subprocess
import sys
import time

import dibs

WAITER = """
import resource, sys, time
import dibs

url, folder, rounds, idle_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
space = dibs.open(url, space="waking", start=folder, user_dir=folder + "/user")
waiter = space.join("waiter")
for number in range(rounds):
    print("waiting", flush=True)
    waiter.leases.claim("port:3000", wait_s=60)
    print(time.monotonic_ns(), flush=True)
    waiter.leases.release("port:3000")
    sys.stdin.readline()
print("idle", flush=True)
before = time.process_time()
began = time.monotonic()
try:
    waiter.leases.claim("port:4000", wait_s=idle_s)
except dibs.TimeoutError:
    pass
print((time.process_time() - before) / (time.monotonic() - began), flush=True)
"""


def latencies(url: str, folder: str, rounds: int, idle_s: float) -> tuple[list[float], float]:
    """Seconds from the call to release until the waiter holds it; and an idle waiter's share."""
    space = dibs.open(url, space="waking", start=folder, user_dir=folder + "/user")
    holder = space.join("holder")
    holder.leases.claim("port:4000")
    holder.leases.claim("port:3000")
    arguments = [sys.executable, "-c", WAITER, url, folder, str(rounds), str(idle_s)]
    taken = []
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as waiter:
        assert waiter.stdin and waiter.stdout
        for _ in range(rounds):
            waiter.stdout.readline()
            while not any(blocker.waiting for blocker in _blockers(space)):
                time.sleep(0.001)
            time.sleep(0.003)  # let it fall asleep
            began = time.monotonic_ns()
            holder.leases.release("port:3000")
            taken.append((int(waiter.stdout.readline()) - began) / 1e9)
            holder.leases.claim("port:3000", wait_s=5)
            waiter.stdin.write("again\n")
            waiter.stdin.flush()
        waiter.stdout.readline()
        share = float(waiter.stdout.readline())
    space.close()
    return taken, share


def _blockers(space: dibs.Dibs) -> tuple[dibs.Blocker, ...]:
    return space.leases.status("port:3000")[0].blockers
