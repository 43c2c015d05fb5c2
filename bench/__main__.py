"""`make bench`: every figure beside what it is compared with, from the same run.

make bench                                      measures everything, and prints Markdown
make bench ARGS=docs/benchmarks.md              updates that page as well
make bench ARGS='docs/benchmarks.md coord mcp'  measures and updates only these parts
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from bench import (
    batches,
    chain,
    claims,
    coord,
    daemon,
    locks,
    notify,
    river,
    scale,
    servers,
    spaces,
    start,
    thousand,
    trains,
    waking,
)
from bench.measure import ratio
from tests.postgres_server import new_database, running

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = "| what | bare | dibs | ratio (lowest to highest round) | goal |\n|---|--:|--:|--:|--:|"
NO_WRK = "Not measured: the load comes from `wrk`, which is not installed here.\n"
INTRODUCTION = (
    "# Benchmarks\n\nWhat dibs costs, compared with what it is built on. Both sides of a line were "
    "measured in the same run, alternating. The ratio is the result; absolute times are for "
    "orientation only. `make bench ARGS=docs/benchmarks.md` updates this page. Add the names of "
    "parts ({parts}) to update only those.\n\n"
    "Machine: {machine}.\n\n"
)


def main() -> None:
    given = sys.argv[1:]
    page = given.pop(0) if given and given[0].endswith(".md") else None
    unknown = set(given) - PARTS.keys()
    if unknown:
        sys.exit(f"there is no part {min(unknown)}; there are: {', '.join(PARTS)}")
    known = sections_of(page) if page and given else {}
    for name in given or PARTS:
        title, report = PARTS[name]
        print(f"## {title}\n", flush=True)
        lines = []
        with tempfile.TemporaryDirectory() as folder:
            for line in report(folder):
                print(line, flush=True)
                lines.append(line)
        known[title] = "\n".join(lines).strip("\n") + "\n"
    if page:
        text = INTRODUCTION.format(parts=", ".join(PARTS), machine=machine())
        titles = [title for title, _ in PARTS.values() if title in known]
        with open(page, "w", encoding="utf-8") as file:
            file.write(text + "\n".join(f"## {title}\n\n{known[title]}" for title in titles))


def sections_of(page: str) -> dict[str, str]:
    """What a page has below each of its headings."""
    with open(page, encoding="utf-8") as file:
        _, *parts = file.read().split("\n## ")
    found = (part.partition("\n\n") for part in parts)
    return {title: text.rstrip("\n") + "\n" for title, _, text in found}


@contextmanager
def database() -> Iterator[str]:
    """An empty database of a server that waits for the disk."""
    with running(fsync=True) as server, new_database(server) as url:
        yield url


def sqlite_lines(folder: str) -> Iterator[str]:
    yield (
        "Bare is `apsw` with one statement for the claim and one for the release, each in "
        "its own transaction. `fast` does not wait for the disk, so those lines show the cost of "
        "the work itself.\n"
    )
    yield HEAD
    for durability, goal in (("full", "1.5"), ("fast", "4")):
        yield from pair_lines(folder, durability, goal, None)
    yield ""
    yield from scale_lines(os.path.join(folder, "scale-{}.db"), folder, 100_000, 1_000_000)
    yield from waking_lines(os.path.join(folder, "waking.db"), folder)


def chain_lines(folder: str) -> Iterator[str]:
    tree = chain.before(folder)
    if tree is None:
        yield "Not measured: the history here does not go back to before the chain.\n"
        return
    yield (
        "The same claim and release in the last tree without the chain, in processor time, which "
        "other work on the machine disturbs less than seconds.\n"
    )
    yield HEAD.replace("bare", "before")
    for durability in ("full", "fast"):
        figures = chain.pairs(folder, tree, durability, rounds=9, spells=50)
        middle, low, high = ratio(figures, "chain", "before")
        was, taken = (statistics.median(figures[side]) * 1e6 for side in ("before", "chain"))
        yield (
            f"| claim + release of a name, {durability} | {was:.0f} µs | {taken:.0f} µs "
            f"| **{middle:.2f}** ({low:.2f} to {high:.2f}) | 1.05 |"
        )
    yield ""


def batch_lines(folder: str) -> Iterator[str]:
    yield batches.ABOUT
    yield from batches.report("SQLite", batches.direct("", folder, rounds=9))
    yield from batches.report("over HTTP", batches.served(folder, rounds=9))
    with database() as url:
        yield from batches.report("PostgreSQL", batches.direct(url, folder, rounds=9))


def daemon_lines(folder: str) -> Iterator[str]:
    if shutil.which("wrk") is None:
        yield NO_WRK
        return
    yield "The load comes from `wrk`, on the same two cores as the daemon.\n"
    yield from daemon.report(folder, rounds=7, seconds=3)


def coord_lines(folder: str) -> Iterator[str]:
    why = coord.built()
    if shutil.which("wrk") is None:
        yield NO_WRK
    elif why:
        yield f"Not measured: {why}.\n"
    else:
        yield from coord.report(folder, rounds=5, seconds=3)


def lock_lines(folder: str) -> Iterator[str]:
    if shutil.which("flock") is None:
        yield "Not measured: `flock` is not installed here.\n"
    else:
        yield from locks.report(folder, rounds=9, calls=5)


def landing_lines(folder: str) -> Iterator[str]:
    yield from trains.report(folder, rounds=5)


def postgres_lines(folder: str) -> Iterator[str]:
    yield "Bare is `psycopg` with the same statements, each in its own transaction.\n"
    yield HEAD
    with database() as url:
        for durability, goal in (("full", "1.5"), ("fast", "4")):
            yield from pair_lines(folder, durability, goal, url)
        for writers in (1, 8):
            yield space_line(url, folder, writers)
        yield ""
        yield "Hooks, compared with `python -c pass`:\n"
        yield HEAD
        yield from start_ratios(start.on_postgres(folder, url, rounds=9, calls=5), 6)
        yield ""
        # Before the next: its many rows keep the server busy with its own house-keeping.
        yield from waking_lines(url, folder)
        yield from scale_lines(url, folder, 20_000, 100_000)


def notify_lines(folder: str) -> Iterator[str]:
    with database() as url:
        yield bell_line(url, folder)


def river_lines(folder: str) -> Iterator[str]:
    with running(fsync=True) as server, new_database(server) as url, new_database(server) as others:
        yield from river.report(url, others, folder, rounds=3)


def thousand_lines(folder: str) -> Iterator[str]:
    with database() as url:
        yield from thousand.report(url, folder)


def bell_line(url: str, folder: str) -> str:
    sides = []
    for listened in (2, 64):
        _, rung, (middle, low, high) = notify.measure(ROOT, url, folder, listened, 3, 3)
        sides.append(f"{rung:.0f}, **{middle:.2f}** ({low:.2f} to {high:.2f}), in {listened}")
    return (
        "64 writers, each in its own space: writes a second, and the ratio to the writes without "
        f"`NOTIFY`, if somebody listens: {'; '.join(sides)} of the spaces (goal 0.9). "
        f"{notify.WHY}\n"
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
        f"A waiter in another process has the lease {statistics.median(taken) * 1e3:.2f} ms "
        f"after the call to release it (median; 99th percentile {ordered[-3] * 1e3:.1f} ms; "
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
    yield "Bare is `python -c pass` with the same interpreter. Both are whole processes.\n"
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
        "For the start, bare is `python -c pass`; for a call, it is the same claim through the "
        "library. The SDK's server has one tool, which does nothing.\n"
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
        f"\nMemory in use afterwards: {memory['dibs']:.0f} MiB (goal 30 MiB); "
        f"the SDK's server: {memory['sdk']:.0f} MiB.\n"
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


PARTS: dict[str, tuple[str, Callable[[str], Iterator[str]]]] = {
    "sqlite": ("SQLite", sqlite_lines),
    "chain": ("What the chain costs", chain_lines),
    "commands": ("Command line", start_lines),
    "locks": ("Beside flock", lock_lines),
    "mcp": ("MCP server", server_lines),
    "daemon": ("Daemon", daemon_lines),
    "coord": ("Beside coord", coord_lines),
    "postgres": ("PostgreSQL", postgres_lines),
    "batches": ("Many in one call", batch_lines),
    "river": ("Beside River", river_lines),
    "notify": ("What NOTIFY costs", notify_lines),
    "thousand": ("A thousand agents", thousand_lines),
    "landing": ("Merging branches", landing_lines),
}
"""What can be measured by itself: its heading, and what measures it."""


if __name__ == "__main__":
    main()
