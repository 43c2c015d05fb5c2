"""The daemon under load: sixteen clients that keep their connections, beside sixteen processes
that write the file themselves; and a thousand long polls that wait meanwhile.

The load comes from `wrk`, so that it is the server that is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import dibs
from bench.start import DIBS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WRITERS = 16
WAITERS = 1000


def directly(folder: str, seconds: float) -> float:
    """Durable claims a second of sixteen processes on one file."""
    url = os.path.join(folder, "direct.db")
    dibs.open(url, space="bench", start=folder, user_dir=f"{folder}/user").close()
    command = [sys.executable, "-m", "bench.daemon", url, folder, str(seconds)]
    workers = [
        subprocess.Popen([*command, str(n)], cwd=ROOT, stdin=-1, stdout=-1) for n in range(WRITERS)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()  # it has joined
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
    made = 0
    for worker in workers:
        assert worker.stdout is not None
        made += int(worker.stdout.readline())
        worker.wait()
    return made / seconds


def write_directly(url: str, folder: str, seconds: float, number: int) -> None:
    space = dibs.open(url, space="bench", start=folder, user_dir=f"{folder}/user")
    agent = space.join(f"load{number}")
    print("ready", flush=True)
    sys.stdin.read()
    made, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        agent.leases.claim(f"port:{number}-{made % 800}")
        made += 1
    print(made, flush=True)
    os._exit(0)


class Server:
    def __init__(self, address: str, token: str, pid: int) -> None:
        self.address = address
        self.token = token
        self.pid = pid

    def load(self, seconds: float) -> tuple[float, float, int]:
        """Claims a second by wrk, the 99th percentile in seconds, and how many failed."""
        done = subprocess.run(
            ["wrk", "-t1", f"-c{WRITERS}", f"-d{seconds:g}s", "-s", f"{HERE}/claims.lua",
             f"http://{self.address}/"],
            env={**os.environ, "DIBS_TOKEN": self.token},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        line = next(line for line in done.stdout.splitlines() if line.startswith("figures"))
        calls, micros, p99, errors = map(int, line.split()[1:])
        return calls / (micros / 1e6), p99 / 1e6, errors

    def processor_s(self) -> float:
        """How much processor time the daemon has used so far."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as source:
            fields = source.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        with open(f"/proc/{self.pid}/status", encoding="ascii") as source:
            line = next(line for line in source if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


def load(
    address: str, side: str, step: str, seconds: float, ids: str = "", token: str = ""
) -> float:
    """Calls a second by wrk, to dibs or to another; none may fail."""
    done = subprocess.run(
        ["wrk", "-t1", f"-c{WRITERS}", f"-d{seconds:g}s", "-s", f"{HERE}/load.lua",
         f"http://{address}/"],
        env={**os.environ, "SIDE": side, "STEP": step, "IDS": ids, "TOKEN": token},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    line = next(line for line in done.stdout.splitlines() if line.startswith("figures"))
    calls, micros, _, errors = map(int, line.split()[1:])
    if errors:
        raise RuntimeError(f"{errors} calls of {side} failed")
    return calls / (micros / 1e6)


@contextmanager
def serving(folder: str, store: str | None = None) -> Iterator[Server]:
    """A daemon of its own store, in a folder that is a repository; or of another store."""
    os.makedirs(os.path.join(folder, ".git"), exist_ok=True)
    home = os.path.join(folder, "home")
    environment = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8"}
    os.makedirs(home, exist_ok=True)
    if store is not None:
        environment["DIBS_URL"] = store
    process = subprocess.Popen(
        [DIBS, "serve", "--port", "0"], cwd=folder, env=environment, stdout=-1, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().rpartition("http://")[2].strip().rstrip("/")
        daemons = os.path.join(home, ".local/share/dibs/daemons")
        word = next(name for name in os.listdir(daemons) if name.endswith(".json"))
        with open(os.path.join(daemons, word), encoding="utf-8") as source:
            token = json.load(source)["token"]
        yield Server(address, token, process.pid)
    finally:
        process.terminate()
        process.wait()


async def ask(server: Server, path: str, agent: str, body: object, kept: list) -> bytes:
    """One POST on a connection that is kept."""
    if not kept:
        host, _, port = server.address.rpartition(":")
        kept += await asyncio.open_connection(host, int(port))
    reader, writer = kept
    data = json.dumps(body)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: {server.address}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.token}\r\nDibs-Agent: {agent}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n{data}".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert " 200 " in head, head
    return await reader.readexactly(int(head.partition("content-length: ")[2].split("\r")[0]))


async def crowd(server: Server, waiters: int, seconds: float) -> tuple[list[float], tuple]:
    """Many wait for messages while wrk writes; how soon after the sending does one hear?"""
    heard: dict[str, asyncio.Future[float]] = {}
    stopped = False

    async def wait(name: str) -> None:
        kept: list = []
        while not stopped:
            await ask(server, "/v1/messages/inbox", name, {"wait_s": 600}, kept)
            if name in heard:
                heard.pop(name).set_result(time.perf_counter())

    names = [f"waiter{number}" for number in range(waiters)]
    tasks = []
    for start in range(0, waiters, 50):
        tasks += [asyncio.create_task(wait(name)) for name in names[start : start + 50]]
        await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    load = asyncio.create_task(asyncio.to_thread(server.load, seconds))
    taken: list[float] = []
    kept: list = []
    end = time.monotonic() + seconds - 0.5
    while time.monotonic() < end:
        name = random.choice(names)
        heard[name] = asyncio.get_running_loop().create_future()
        future, began = heard[name], time.perf_counter()
        await ask(server, "/v1/messages/send", "sender", {"body": "wake up", "to": name}, kept)
        taken.append(await asyncio.wait_for(future, 30) - began)
        await asyncio.sleep(0.02)
    figures = await load
    stopped = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return taken, figures


def report(folder: str, rounds: int, seconds: float) -> Iterator[str]:
    direct, served, slowest, failed = [], [], [], 0
    with serving(os.path.join(folder, "served")) as server:
        for number in range(rounds):
            place = os.path.join(folder, f"direct{number}")
            os.makedirs(place)
            direct.append(directly(place, seconds))
            rate, p99, errors = server.load(seconds)
            served.append(rate)
            slowest.append(p99)
            failed += errors
        taken, (rate, p99, errors) = asyncio.run(crowd(server, WAITERS, 2 * seconds))
        memory = server.resident_mib()
    ratios = sorted(s / d for s, d in zip(served, direct, strict=True))
    yield "| what | 16 processes | daemon, 16 clients | ratio (lowest to highest round) | goal |"
    yield "|---|--:|--:|--:|--:|"
    yield (
        f"| durable claims a second | {statistics.median(direct):.0f} "
        f"| {statistics.median(served):.0f} | **{statistics.median(ratios):.2f}** "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | 2 |"
    )
    yield (
        f"\nThe 99th percentile is {statistics.median(slowest) * 1e3:.0f} ms (goal 50 ms); "
        f"{failed} calls failed. While {WAITERS:,} long polls wait, the same load gets "
        f"{rate:.0f} a second (99th percentile {p99 * 1e3:.0f} ms, {errors} failed), and a "
        f"message reaches its waiting receiver {statistics.median(taken) * 1e3:.1f} ms after "
        f"the call to send it (median of {len(taken)}; goal 10 ms). The daemon then uses "
        f"{memory:.0f} MiB (goal 150 MiB).\n"
    )


if __name__ == "__main__":
    write_directly(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
