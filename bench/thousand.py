"""A thousand agents in one space on PostgreSQL, through two daemons.

Each has a session and a connection of its own, and does three things over and over: it claims a
resource of its own, renews it, and reads its inbox. First as fast as they can, beside a few agents
that do the same, which shows how much the daemons do; then slowly: how long does a call take?
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psycopg

from bench.daemon import Server
from bench.start import DIBS

AGENTS = 1000
FEW = 16
ROUNDS = 3
AT_ONCE = 50
"""How many join at a time."""
SPACE = "thousand"
SESSION_TTL_S = 3600
CALLS = (
    ("/v1/leases/claim", '{{"resources":["port:{0}"]}}'),
    ("/v1/leases/renew", '{{"resources":["port:{0}"]}}'),
    ("/v1/messages/inbox", "{{}}"),
)


@contextmanager
def serving(url: str, home: str) -> Iterator[Server]:
    """A daemon of one user; several of them share the key of the space."""
    os.makedirs(home, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", "DIBS_URL": url}
    process = subprocess.Popen(
        [DIBS, "--space", SPACE, "serve", "--port", "0"],
        cwd=home, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().rpartition("http://")[2].strip().rstrip("/")
        daemons = os.path.join(home, ".local/share/dibs/daemons")
        found = [
            json.load(open(os.path.join(daemons, name), encoding="utf-8"))  # noqa: SIM115
            for name in os.listdir(daemons)
            if name.endswith(".json")
        ]
        word = next(word for word in found if word["url"].endswith(address))
        yield Server(address, word["token"], process.pid)
    finally:
        process.terminate()
        process.wait()


class Caller:
    """One agent: a connection that it keeps, and how long its calls took."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self.number = number
        self._session = ""
        self.taken: list[float] = []
        self.failed: Counter[str] = Counter()

    async def join(self) -> None:
        host, _, port = self._server.address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        status, body = await self._ask("/v1/agents/join", f'{{"ttl_s":{SESSION_TTL_S}}}')
        assert status == 200, body
        self._session = f"Dibs-Session: {json.loads(body)['token']}\r\n"

    async def _ask(self, path: str, body: str) -> tuple[int, bytes]:
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {self._server.address}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {self._server.token}\r\n"
            f"Dibs-Agent: agent-{self.number}\r\n{self._session}"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split("\r")[0])
        return int(head.split(" ", 2)[1]), await self._reader.readexactly(length)

    async def work(self, end: float, every_s: float) -> None:
        """Call until then; a pause is chosen so that a call begins so often on average."""
        if every_s:
            await asyncio.sleep(random.random() * every_s)
        self.taken = []
        while True:
            for path, body in CALLS:
                began = time.monotonic()
                if began >= end:
                    return
                status, answer = await self._ask(path, body.format(self.number))
                took = time.monotonic() - began
                self.taken.append(took)
                if status != 200:
                    self.failed[json.loads(answer)["error"]] += 1
                if every_s:
                    await asyncio.sleep(max(0.0, random.uniform(0.5, 1.5) * every_s - took))

    def close(self) -> None:
        self._writer.close()


class Figures(NamedTuple):
    most: float
    """Calls a second at most."""
    ratio: float
    """The same beside those of a few agents."""
    pace: float
    """Calls a second of the last part: half of what the few make."""
    taken: list[float]
    """How long each call took then."""
    failed: Counter[str]


async def run(servers: list[Server], seconds: float) -> Figures:
    callers = [Caller(servers[number % len(servers)], number) for number in range(AGENTS)]
    for begin in range(0, AGENTS, AT_ONCE):
        await asyncio.gather(*(caller.join() for caller in callers[begin : begin + AT_ONCE]))

    async def work(number: int, every_s: float) -> list[float]:
        end = time.monotonic() + seconds
        await asyncio.gather(*(caller.work(end, every_s) for caller in callers[:number]))
        return [took for caller in callers[:number] for took in caller.taken]

    few, many = [], []
    for _ in range(ROUNDS):
        few.append(len(await work(FEW, 0)) / seconds)
        many.append(len(await work(AGENTS, 0)) / seconds)
    most = statistics.median(many)
    ratio = statistics.median(one / other for one, other in zip(many, few, strict=True))
    taken = await work(AGENTS, 2 * AGENTS / statistics.median(few))
    for caller in callers:
        caller.close()
    failed = sum((caller.failed for caller in callers), Counter[str]())
    return Figures(most, ratio, len(taken) / seconds, sorted(taken), failed)


def report(url: str, folder: str, seconds: float = 5) -> Iterator[str]:
    home = os.path.join(folder, "home")
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(url, home)) for _ in range(2)]
        figures = asyncio.run(run(servers, seconds))
        with psycopg.connect(url) as server:
            asked = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
            (connections,) = server.execute(asked).fetchone() or (0,)
        memory = [server.resident_mib() for server in servers]
    middle = statistics.median(figures.taken)
    late = figures.taken[int(len(figures.taken) * 0.99)]
    failed = ", ".join(f"{number} {code}" for code, number in figures.failed.items()) or "none"
    yield (
        f"{AGENTS:,} agents with a session each, through two daemons, claim, renew and read their "
        f"inbox: {figures.most:.0f} calls a second at most, **{figures.ratio:.2f}** times what "
        f"{FEW} agents get. At {figures.pace:.0f} a second a call takes {middle * 1e3:.1f} ms "
        f"(median; 99th percentile {late * 1e3:.0f} ms); {failed} failed. The daemons have "
        f"{connections - 1} connections to the server in all, and use "
        f"{' and '.join(f'{one:.0f}' for one in memory)} MiB.\n"
    )
