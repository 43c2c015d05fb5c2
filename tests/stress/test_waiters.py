"""R23: hundreds wait for one resource, are served in order, and nobody else feels it."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs.link import living
from tests.stress.procs import nursery, open_gate
from tests.stress.test_fairness import overtaken
from tests.stress.waiters import KEY

IDLE_S = 2.0
USUAL_S = 1.0


class Used:
    """The processor time of all who take part, since it was made."""

    def __init__(self, parts: dict[str, list[int]]) -> None:
        self._parts = parts
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        stats = [one for path in Path("/proc").glob("[0-9]*/stat") if (one := stat_of(path))]
        return {
            name: sum(used_s for pid, parent, used_s in stats if pid in pids or parent in pids)
            for name, pids in self._parts.items()
        }

    def since(self) -> dict[str, float]:
        return {name: used - self._before[name] for name, used in self._now().items()}


def stat_of(path: Path) -> tuple[int, int, float] | None:
    """A process, its parent, and the seconds it has used, its ended children's included."""
    try:
        pid, _, rest = path.read_text().partition(" ")
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended
    fields = rest.rpartition(")")[2].split()
    return int(pid), int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def server_at(url: str) -> int:
    """The process whose children serve the connections of a PostgreSQL."""
    with psycopg.connect(url) as db:
        (found,) = db.execute("SELECT pg_read_file('postmaster.pid')").fetchone() or ("",)
    return int(found.split()[0])


def queue_up(
    url: str,
    space: str,
    folder: Path,
    waiters: int,
    processes: int,
    idle_s: float,
    user: Path,
    server: str = "",
) -> dict[str, Any]:
    """Let so many queue, rest, and be served; return how long each took, and what others felt.

    server: the address of a PostgreSQL whose processor time is counted, too
    """
    where = {"url": url, "space": space, "user_dir": str(user)}
    names = ("usual", "usual_over", "start", "queued", "idle", "idle_over", "served", "end")
    gates = {name: folder / name for name in names}
    phases = [
        {"name": name, "begin": str(gates[begin]), "end": str(gates[end])}
        for name, begin, end in (
            ("usual", "usual", "usual_over"),
            ("queueing", "start", "queued"),
            ("waiting", "queued", "idle_over"),
            ("serving", "idle_over", "served"),
        )
    ]
    with (
        dibs.open(url, space=space, user_dir=where["user_dir"]) as opened,
        opened.join("holder", ttl_s=60) as holder,
        nursery(folder / "logs") as place,
    ):
        begun = opened.events.last()
        first = holder.leases.claim(KEY, ttl_s=600)
        crowd = [
            place.start(
                "waiters:wait",
                name=f"waiter-{number}",
                waiters=waiters // processes,
                wait_s=120,
                idle_s=idle_s,
                start=str(gates["start"]),
                queued=str(gates["queued"]),
                end=str(gates["end"]),
                **where,
            )
            for number in range(processes)
        ]
        other = place.start("waiters:claim_another", phases=phases, end=str(gates["end"]), **where)
        for worker in [*crowd, other]:
            worker.wait_for("ready", seconds=300)
        open_gate(gates["usual"])
        time.sleep(min(USUAL_S, idle_s))
        open_gate(gates["usual_over"])
        parts = {"clients": [worker.pid for worker in crowd]}
        if url.startswith("http"):
            parts["daemon"] = [word["pid"] for word in living(str(user)).values()]
        if server:
            parts["server"] = [server_at(server)]
        used, started = Used(parts), time.time()
        seen, queued = opened.events.last(), 0
        open_gate(gates["start"])
        while queued < waiters:
            events = opened.events.watch(seen, kind="lease.queued", subject=KEY, wait_s=60)
            assert events, f"only {queued} queued: {said(crowd)}"
            seen, queued = events[-1].seq, queued + len(events)
            time.sleep(0.02)
        to_queue = used.since()
        open_gate(gates["queued"])
        time.sleep(idle_s + 0.2)
        open_gate(gates["idle_over"])
        used, released = Used(parts), time.time()
        holder.leases.release(KEY, epoch=first.epoch)
        for worker in crowd:
            worker.wait_for("over", seconds=300)
        to_serve = used.since()
        open_gate(gates["served"])
        other.wait_for("serving")
        open_gate(gates["end"])
        for worker in [*crowd, other]:
            worker.wait()
        journal: list[dibs.Event] = []
        while more := opened.events.since(journal[-1].seq if journal else begun, subject=KEY):
            journal += more
    failed = said(crowd)
    assert not failed, failed[:5]
    assert overtaken(journal) == []
    asked = [event for event in journal if event.kind == "lease.queued"]
    done = [event for event in journal if event.kind == "lease.released"]
    assert len(asked) == waiters and len(done) == waiters + 1
    felt = {line["says"]: line["took"] for line in other.log() if "took" in line}
    cpu = [[line["cpu"] for line in worker.log() if line["says"] == "idle"] for worker in crowd]
    usual = [statistics.median(took) for took in zip(*felt["usual"], strict=True)]
    return {
        "queued_s": asked[-1].at / 1000 - started,
        "served_s": done[-1].at / 1000 - released,
        "idle_cpu": sum(after - before for before, after in cpu) / idle_s,
        "used": (to_queue, to_serve),
        "usual_ms": usual,
        "ratios": {
            name: [
                (statistics.median(took) / before, max(took) / before, len(took))
                for took, before in zip(zip(*pairs, strict=True), usual, strict=True)
            ]
            for name, pairs in felt.items()
        },
    }


def said(crowd: list[Any]) -> list[str]:
    return [line["error"] for one in crowd for line in one.log() if line["says"] == "failed"]


def told(way: str, waiters: int, found: dict[str, Any]) -> str:
    felt = ", ".join(
        f"{name} {plain[0]:.1f} and {waits[0]:.1f} x (worst {plain[1]:.0f} and {waits[1]:.0f} x, "
        f"{plain[2]})"
        for name, (plain, waits) in found["ratios"].items()
        if name != "usual"
    )
    used = " and ".join(
        ", ".join(f"{name} {seconds:.1f}" for name, seconds in part.items())
        for part in found["used"]
    )
    return (
        f"R23 {way}: {waiters} waiters queued in {found['queued_s']:.2f} s, served in "
        f"{found['served_s']:.2f} s in strict order, with seconds of a processor: "
        f"{used}; idle CPU {found['idle_cpu']:.1%}; "
        f"an unrelated claim, without and with a wait ({found['usual_ms'][0]:.1f} and "
        f"{found['usual_ms'][1]:.1f} ms), {felt}"
    )


WAYS = ["sqlite", "postgres", "http", "http_postgres"]


@pytest.mark.parametrize("way", ["sqlite", "postgres"])
def test_forty_waiters_of_two_processes_are_served_in_order(
    request: pytest.FixtureRequest, way: str, space_name: str, tmp_path: Path
) -> None:
    url = request.getfixturevalue(f"{way}_url")
    queue_up(url, space_name, tmp_path, 40, 2, 0.2, tmp_path / "user")


@pytest.mark.stress
@pytest.mark.parametrize("processes", [1, 5])
@pytest.mark.parametrize("way", WAYS)
def test_hundreds_of_waiters_are_served_in_order(
    request: pytest.FixtureRequest, way: str, processes: int, space_name: str, tmp_path: Path
) -> None:
    """All of it in one run, so that what is slow about the machine is slow in both."""
    url = request.getfixturevalue(f"{way}_url")
    server = request.getfixturevalue("postgres_url") if "postgres" in way else ""
    took = []
    for waiters in (500, 1000):
        folder = tmp_path / str(waiters)
        folder.mkdir()
        user = tmp_path / "user"
        found = queue_up(url, space_name, folder, waiters, processes, IDLE_S, user, server)
        threads = "1 process" if processes == 1 else f"{processes} processes"
        print("\n" + told(f"{way}, {threads}", waiters, found))
        took.append(found["queued_s"] + found["served_s"])
    print(f"R23 {way}: 1,000 waiters took {took[1] / took[0]:.2f} x as long as 500")
