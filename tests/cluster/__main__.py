"""`make cluster`: failovers of a real PostgreSQL cluster under load, and what was lost in them.

Clients write without a pause: some directly, some through two daemons. Meanwhile the leader is
killed, frozen, cut off and switched over, and so are the standbys. In synchronous mode nothing that
was acknowledged may be lost, nobody may win what another has, and every client goes on by itself.

In asynchronous mode the last writes may be lost. What must hold even then is fencing: no epoch is
granted twice.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import faults
from tests.cluster.bare import Bare
from tests.cluster.cluster import cluster
from tests.cluster.crew import SPACE, Crew
from tests.cluster.faults import Fault
from tests.cluster.judging import Judgement, Struck, judge
from tests.stress.procs import NS
from tests.surfaces.shell import DIBS

CALM_S = 2.0
ROUNDS = 3
SHOWN = 5
SHORT: list[Fault] = [faults.server_killed, faults.cut_off]
BEHIND: list[Fault] = [faults.killed_before_its_standbys_heard] * 2


def play(plan: list[Fault], seed: int, synchronous: bool) -> Judgement:
    """Let all this happen to a cluster, and say what became of what its clients wrote."""
    folder = Path(tempfile.mkdtemp(prefix="dibs-crew-"))
    began = time.monotonic()
    try:
        with cluster(synchronous) as servers:
            servers.await_whole()
            print(f"a cluster of three is up after {time.monotonic() - began:.0f} s", flush=True)
            bare = Bare(servers.url)
            crew = Crew(servers.url, folder, seed)
            try:
                check_doctor(servers.url, folder, synchronous)
                struck = []
                for fault in plan:
                    time.sleep(CALM_S)
                    leader = servers.await_whole()
                    at = time.monotonic_ns()
                    now = fault(servers, leader)
                    led = time.monotonic_ns()
                    servers.await_whole()
                    time.sleep(CALM_S)
                    what = fault.__name__.replace("_", " ")
                    struck.append(Struck(what, at, led, time.monotonic_ns(), now is not leader))
                    print(f"  {what}", flush=True)
                lines = crew.finish()
                return judge(servers.url, crew.logs, lines, struck, bare.stop())
            finally:
                bare.stop()
                crew.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(found: Judgement) -> bool:
    """Print what became of the writes in synchronous mode; say whether it is as promised."""
    print("\nSynchronous mode: nothing acknowledged may be lost.")
    tell_faults(found)
    pause = max(fault.pause_s for fault in found.faults)
    doubles = [*found.twice, *found.epochs]
    print(
        f"{failovers(found)}: {found.acknowledged:,} acknowledged writes, {len(found.lost)} lost, "
        f"{len(doubles)} double winners, longest pause {pause:.1f} s"
    )
    print(
        f"histories that no order explains: {len(found.stuck)}; refusals and reads by a former "
        f"leader: {len(found.outdated)}; sessions ended: {len(found.ended)}; "
        f"calls asked again: {dict(found.troubles)}"
    )
    wrong = (found.lost, doubles, found.stuck, found.ended)
    for lines in (*wrong, found.outdated):
        for line in lines[:SHOWN]:
            print(f"    {line}")
    sys.stdout.flush()
    return not any(wrong)


def report_behind(found: Judgement) -> bool:
    """The same in asynchronous mode, where less is promised."""
    print("\nAsynchronous mode: acknowledged writes may be lost; then all sessions end.")
    tell_faults(found)
    print(
        f"{failovers(found)}: {found.acknowledged:,} acknowledged writes, {len(found.lost)} lost, "
        f"{len(found.epochs)} epochs granted twice; {len(found.ended)} sessions ended, "
        f"and what {len(found.twice)} of them held was given to others"
    )
    sys.stdout.flush()
    return not found.epochs and bool(found.ended)


def tell_faults(found: Judgement) -> None:
    for fault in found.faults:
        took = f"new leader after {(fault.led - fault.began) / NS:4.1f} s" if fault.failover else ""
        print(
            f"  {fault.what:<34} {took:<25} no writes for {fault.bare_s:4.1f} s"
            f"   longest pause {fault.pause_s:4.1f} s"
        )


def failovers(found: Judgement) -> str:
    return f"{sum(fault.failover for fault in found.faults)} failovers"


def check_doctor(url: str, folder: Path, synchronous: bool) -> None:
    """`dibs doctor` says whether something acknowledged can be lost."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "DIBS_URL": url}
    environment["XDG_DATA_HOME"] = str(folder / "daemon1" / "data")
    done = subprocess.run(
        [DIBS, "--space", SPACE, "doctor"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert ("do not wait for the server's standbys" in done.stdout) is not synchronous, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster")
    parser.add_argument("--short", action="store_true", help="two failovers, as in CI")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    parser.add_argument("--only", nargs="+", help="these faults, by their names")
    parser.add_argument("--asynchronous", action="store_true", help="only that mode")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    if asked.only:
        plan = [getattr(faults, name) for name in asked.only]
    elif asked.short:
        plan = SHORT
    else:
        plan = [*faults.OF_THE_LEADER, *faults.OF_A_STANDBY] * ROUNDS
        random.Random(asked.seed).shuffle(plan)
    if asked.asynchronous:
        return 0 if report_behind(play(BEHIND, asked.seed, synchronous=False)) else 1
    found = play(plan, asked.seed, synchronous=True)
    sound = report(found)
    if not asked.short and not asked.only:
        sound &= report_behind(play(BEHIND, asked.seed, synchronous=False))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
