"""A train of merges beside sequential `git merge`, and beside Sigbound (Go).

Sigbound is built when `DIBS_BENCH_SIGBOUND` names a checkout of it, into a folder that git does not
see. It makes one commit of all branches; dibs makes a merge commit for each.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator

from bench.river import CACHE
from dibs.landing.train import MERGED, Train

BRANCHES, FILES, FOLDERS, CHANGED = 128, 2_000, 40, 3
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bench"), ("EMAIL", "bench@example.org"))
}


def checkout() -> str:
    return os.environ.get("DIBS_BENCH_SIGBOUND", "")


def built() -> str:
    """Nothing if Sigbound is there, or why it is not."""
    if not checkout():
        return "DIBS_BENCH_SIGBOUND names no checkout of it"
    go = shutil.which("go")
    if go is None:
        return "go is not installed here"
    command = [go, "build", "-o", f"{CACHE}/sig", "./cmd/sig"]
    made = subprocess.run(command, check=False, cwd=checkout(), capture_output=True, text=True)
    return f"it could not be built: {made.stderr.splitlines()[:1]}" if made.returncode else ""


def git(folder: str, *words: str, input: bytes = b"") -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | IDENTITY, input=input, check=True,
        capture_output=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


def repository(folder: str) -> list[str]:
    """A repository whose branches change different files; their names."""
    os.makedirs(folder)
    git(folder, "init", "-q", "-b", "main")
    who = "committer bench <bench@example.org> 1000000000 +0000\ndata 1\nx\n"

    def file(number: int, text: str) -> str:
        return f"M 100644 inline d{number % FOLDERS}/f{number}\ndata {len(text)}\n{text}\n"

    parts = [f"commit refs/heads/main\n{who}", *(file(n, f"{n}\n") for n in range(FILES))]
    names = [f"b{number}" for number in range(BRANCHES)]
    for number, name in enumerate(names):
        parts.append(f"commit refs/heads/{name}\n{who}from refs/heads/main\n")
        parts += (file(number * CHANGED + n, f"{name} {n}\n") for n in range(CHANGED))
    git(folder, "fast-import", "--quiet", input="".join(parts).encode())
    return names


def by_dibs(folder: str, names: list[str]) -> str:
    commits = [git(folder, "rev-parse", name) for name in names]
    base = git(folder, "rev-parse", "main")
    began = time.perf_counter()
    with Train(folder, base, commits) as train:
        steps = [train.merge(commit, "merge") for commit in commits]
        end = train.write()
    taken = time.perf_counter() - began
    assert all(step.how == MERGED for step in steps)
    TAKEN["dibs"].append(taken)
    return git(folder, "rev-parse", f"{end}^{{tree}}")


def by_git(folder: str, names: list[str]) -> str:
    git(folder, "checkout", "-q", "-B", "merged", "main")
    began = time.perf_counter()
    for name in names:
        git(folder, "merge", "-q", "--no-ff", "--no-edit", name)
    TAKEN["git merge"].append(time.perf_counter() - began)
    return git(folder, "rev-parse", "HEAD^{tree}")


def by_sigbound(folder: str, names: list[str]) -> str:
    import json

    words = ["integrate", "-repo", folder, "-base", "main", "-branches", ",".join(names)]
    began = time.perf_counter()
    done = subprocess.run(
        [f"{CACHE}/sig", *words, "-no-land"], check=True, capture_output=True,
        env=os.environ | IDENTITY,
    )  # fmt: skip
    TAKEN["Sigbound"].append(time.perf_counter() - began)
    end = json.loads(done.stdout)["finalSHA"]
    return git(folder, "rev-parse", f"{end}^{{tree}}")


TAKEN: dict[str, list[float]] = {"git merge": [], "Sigbound": [], "dibs": []}


def report(folder: str, rounds: int) -> Iterator[str]:
    why = built()
    sides = {"git merge": (by_git, 10), "Sigbound": (by_sigbound, 1)}
    if why:
        del sides["Sigbound"]
        yield f"Not measured beside Sigbound: {why}.\n"
    for number in range(rounds):
        place = os.path.join(folder, f"r{number}")
        names = repository(place)
        trees = {by_dibs(place, names), *(side(place, names) for side, _ in sides.values())}
        assert len(trees) == 1, "not all have made the same tree"
    yield (
        f"{BRANCHES} branches that change {CHANGED} of {FILES} files each, with the same tree at "
        "the end. dibs and git make a merge commit for each branch, Sigbound one for all.\n"
    )
    yield "| beside | seconds | dibs, seconds | times faster (lowest to highest round) | goal |"
    yield "|---|--:|--:|--:|--:|"
    for name, (_, goal) in sides.items():
        pairs = zip(TAKEN[name], TAKEN["dibs"], strict=True)
        ratios = sorted(theirs / ours for theirs, ours in pairs)
        yield (
            f"| {name} | {statistics.median(TAKEN[name]):.2f} "
            f"| {statistics.median(TAKEN['dibs']):.2f} | **{statistics.median(ratios):.1f}** "
            f"({ratios[0]:.1f} to {ratios[-1]:.1f}) | {goal} |"
        )
    yield ""
