"""`make bench`: every figure beside what it is compared with, from the same run.

Prints Markdown, so that `make bench ARGS=docs/benchmarks.md` renews that page.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator

import apsw

from bench import (
    batches,
    claims,
    coord,
    daemon,
    notify,
    river,
    scale,
    servers,
    spaces,
    start,
    thousand,
    waking,
)
from bench.measure import ratio
from tests.postgres_server import new_database, running

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = "| what | bare | dibs | ratio (lowest to highest round) | goal |\n|---|--:|--:|--:|--:|"


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else None
    lines = []
    for line in report():
        print(line, flush=True)
        lines.append(line)
    if target:
        with open(target, "w", encoding="utf-8") as page:
            page.write("\n".join(lines) + "\n")


def report() -> Iterator[str]:
    yield "# Benchmarks\n"
    yield (
        "What dibs costs, beside what it stands on. Both sides of a line come from the same run, "
        "in turns; the ratio is the figure, and seconds are given for orientation only. "
        "`make bench ARGS=docs/benchmarks.md` renews this page.\n"
    )
    yield f"Machine: {machine()}.\n"
    with tempfile.TemporaryDirectory() as folder:
        yield "## SQLite\n"
        yield (
            "Bare is `apsw` with one statement for the claim and one for the release, each in "
            "its own transaction. `fast` does not wait for the disk, so that line shows what the "
            "work itself costs.\n"
        )
        yield HEAD
        for durability, goal in (("full", "1.5"), ("fast", "4")):
            yield from pair_lines(folder, durability, goal, None)
        yield ""
        yield from scale_lines(os.path.join(folder, "scale-{}.db"), folder, 100_000, 1_000_000)
        yield from waking_lines(os.path.join(folder, "waking.db"), folder)
        yield from batches.report("one process", batches.direct("", folder, rounds=9))
    with tempfile.TemporaryDirectory() as folder:
        yield "## Command line\n"
        yield from start_lines(folder)
    with tempfile.TemporaryDirectory() as folder:
        yield "## MCP server\n"
        yield from server_lines(folder)
    with tempfile.TemporaryDirectory() as folder:
        yield "## Daemon\n"
        if shutil.which("wrk") is None:
            yield "Not measured: the load comes from `wrk`, which is not installed here.\n"
        else:
            yield "The load comes from `wrk`, on the same two cores as the daemon.\n"
            yield from daemon.report(folder, rounds=7, seconds=3)
            why = coord.built()
            if why:
                yield f"Not measured beside coord: {why}.\n"
            else:
                yield from coord.report(folder, rounds=5, seconds=3)
        yield from batches.report("over HTTP", batches.served(folder, rounds=9))
    with tempfile.TemporaryDirectory() as folder, running(fsync=True) as server:
        yield "## PostgreSQL\n"
        yield "Bare is `psycopg` with the same statements, each in its own transaction.\n"
        yield HEAD
        with new_database(server) as url:
            for durability, goal in (("full", "1.5"), ("fast", "4")):
                yield from pair_lines(folder, durability, goal, url)
            for writers in (1, 8):
                yield space_line(url, folder, writers)
            yield ""
            yield "Hooks, beside `python -c pass`:\n"
            yield HEAD
            yield from start_ratios(start.on_postgres(folder, url, rounds=9, calls=5), 6)
            yield ""
            yield bell_line(url, folder)
            # Before the next: its many rows keep the server busy with its own house-keeping.
            yield from waking_lines(url, folder)
            yield from scale_lines(url, folder, 20_000, 100_000)
        with new_database(server) as url, new_database(server) as others:
            yield from batches.report("one process", batches.direct(url, folder, rounds=9))
            yield from river.report(url, others, folder, rounds=5)
        with new_database(server) as url:
            yield "### A thousand agents\n"
            yield from thousand.report(url, folder)


def bell_line(url: str, folder: str) -> str:
    sides = []
    for listened in (2, 64):
        _, rung, (middle, low, high) = notify.measure(ROOT, url, folder, listened, 5, 3)
        sides.append(f"{rung:.0f}, **{middle:.2f}** ({low:.2f} to {high:.2f}), in {listened}")
    return (
        "Writes a second by 64 writers, each in a space of its own, and the share of those without "
        f"`NOTIFY`, where somebody listens {'; '.join(sides)} of the spaces (goal 0.9).\n"
    )


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as source:
        models = [line.split(":")[1].strip() for line in source if line.startswith("model name")]
    return (
        f"{len(models)} cores ({models[0] if models else platform.machine()}), "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"SQLite {apsw.sqlite_lib_version()}"
    )


def pair_lines(folder: str, durability: str, goal: str, url: str | None) -> Iterator[str]:
    figures = claims.pairs(folder, durability, url, rounds=15, calls=200)
    bare = statistics.median(figures["bare"]) * 1e6
    for side, what in (("name", "a name"), ("file", "a file, hashed")):
        middle, low, high = ratio(figures, side, "bare")
        taken = statistics.median(figures[side]) * 1e6
        yield (
            f"| claim + release of {what}, {durability} | {bare:.0f} µs | {taken:.0f} µs "
            f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | {goal} |"
        )


def scale_lines(url: str, folder: str, leases: int, tasks: int) -> Iterator[str]:
    yield "| what | among 1,000 | among many | ratio (lowest to highest round) | goal |"
    yield "|---|--:|--:|--:|--:|"
    for what, many, figures in (
        (f"claim + release among {leases:,} leases", leases, scale.claims),
        (f"next + abandon among {tasks:,} tasks", tasks, scale.nexts),
    ):
        measured = figures(url, folder, 1000, many, rounds=9, calls=100)
        middle, low, high = ratio(measured, "many", "few")
        few, much = (statistics.median(measured[side]) * 1e6 for side in ("few", "many"))
        yield (
            f"| {what} | {few:.0f} µs | {much:.0f} µs "
            f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | 2 |"
        )
    yield ""


def waking_lines(url: str, folder: str) -> Iterator[str]:
    taken, share = waking.latencies(url, folder, rounds=200, idle_s=20)
    ordered = sorted(taken)
    yield (
        f"A waiter in another process holds the lease {statistics.median(taken) * 1e3:.2f} ms "
        f"after the call to release (median; 99th percentile {ordered[-3] * 1e3:.1f} ms; "
        "goal 2 ms). "
        f"While it waits it uses {share * 100:.2f} % of a core (goal 0.5 %).\n"
    )


def start_ratios(figures: dict[str, list[float]], hook_goal: float) -> Iterator[str]:
    bare = statistics.median(figures[start.BARE]) * 1e3
    for name, seconds in figures.items():
        if name == start.BARE:
            continue
        middle, low, high = ratio(figures, name, start.BARE)
        taken = statistics.median(seconds) * 1e3
        shown, goal = (f"`{name}`", 2.6) if name in start.COMMANDS else (name, hook_goal)
        yield (
            f"| {shown} | {bare:.1f} ms | {taken:.1f} ms "
            f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | {goal} |"
        )


def start_lines(folder: str) -> Iterator[str]:
    yield "Bare is `python -c pass` with the same interpreter. Both are processes, start to end.\n"
    yield HEAD
    yield from start_ratios(start.commands(folder, rounds=15, calls=10), 3.2)
    yield from start_ratios(start.crowded(folder, rounds=9, calls=5), 3.2)
    crowds = start.crowds(folder, rounds=5)
    middle, low, high = ratio(crowds, "dibs", "bare")
    bare, taken = (statistics.median(crowds[side]) for side in ("bare", "dibs"))
    yield (
        f"| {start.SHELLS * start.CLAIMS} claims by {start.SHELLS} shells "
        f"| {bare:.1f} s | {taken:.1f} s "
        f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | 2.7 |"
    )
    yield ""


def server_lines(folder: str) -> Iterator[str]:
    yield (
        "Until the first answer, bare is `python -c pass`; for a call, it is the same claim made "
        "through the library. The SDK's server has one tool that does nothing.\n"
    )
    yield (
        "| what | bare | dibs | ratio (lowest to highest round) | goal | SDK | its ratio |\n"
        "|---|--:|--:|--:|--:|--:|--:|"
    )
    measured = servers.Servers(folder)
    starts = measured.starts(rounds=9, calls=5)
    yield server_line("start to first answer", starts, "bare", 1e3, "ms", "5")
    calls, memory = measured.calls(rounds=15, calls=200)
    yield server_line("`claim`, there and back", calls, "library", 1e6, "µs", "3")
    yield (
        f"\nMemory in use after that: {memory['dibs']:.0f} MiB (goal 30 MiB), "
        f"of the SDK's server {memory['sdk']:.0f} MiB.\n"
    )


def server_line(
    what: str, figures: dict[str, list[float]], base: str, scale: float, unit: str, goal: str
) -> str:
    middle, low, high = ratio(figures, "dibs", base)
    bare, taken, sdk = (statistics.median(figures[side]) * scale for side in (base, "dibs", "sdk"))
    return (
        f"| {what} | {bare:.0f} {unit} | {taken:.0f} {unit} "
        f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | {goal} "
        f"| {sdk:.0f} {unit} | {ratio(figures, 'sdk', base)[0]:.1f} |"
    )


def space_line(url: str, folder: str, writers: int) -> str:
    sides: dict[str, list[float]] = {"bare": [], "dibs": []}
    for _ in range(3):
        for side, figures in sides.items():
            figures.append(spaces.pairs_per_second(ROOT, side, url, folder, writers, 3))
    middle, low, high = ratio(sides, "bare", "dibs")
    bare, with_dibs = (statistics.median(figures) for figures in sides.values())
    plural = "spaces, a writer each" if writers > 1 else "space, one writer"
    return (
        f"| pairs a second, {writers} {plural}, full | {bare:.0f} | {with_dibs:.0f} "
        f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | 1.5 |"
    )


if __name__ == "__main__":
    main()
