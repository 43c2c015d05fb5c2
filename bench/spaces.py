"""Many writers at once on PostgreSQL, each in a space of its own, beside as many bare ones."""

from __future__ import annotations

import subprocess
import sys

WORKER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bench.claims import bare_postgres, with_dibs

side, url, folder, number, seconds = sys.argv[2:7]
if side == "bare":
    pair = bare_postgres(url, "full", f"lease_{number}")
else:
    pair = with_dibs(url, folder, "full", "port:3000", f"space-{number}")
for _ in range(20):
    pair()
print("ready", flush=True)
sys.stdin.readline()
done, end = 0, time.monotonic() + float(seconds)
while time.monotonic() < end:
    pair()
    done += 1
print(done, flush=True)
"""


def pairs_per_second(
    root: str, side: str, url: str, folder: str, writers: int, seconds: float
) -> float:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, root, side, url, folder, str(number), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    total = 0
    for worker in workers:
        assert worker.stdout
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout
        total += int(worker.stdout.readline())
        worker.communicate()
    return total / seconds
