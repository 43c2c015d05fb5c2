"""`make cluster`: failovers of a real PostgreSQL cluster under load, and what was lost in them.

Clients write without a pause: some directly, some through two daemons. Meanwhile the leader is
killed, frozen, cut off and switched over, and so are the standbys. In synchronous mode nothing that
was acknowledged may be lost, nobody may win what another has, and every client goes on by itself.

In asynchronous mode the last writes may be lost. What must hold even then is fencing: no epoch is
granted twice.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster import faults
from tests.cluster.bare import Bare
from tests.cluster.cluster import cluster
from tests.cluster.crew import Crew
from tests.cluster.faults import Fault
from tests.cluster.judging import Judgement, Struck, judge
from tests.stress.procs import NS

CALM_S = 2.0
ROUNDS = 3
SHORT: list[Fault] = [faults.node_killed, faults.cut_off]
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


def report(title: str, found: Judgement) -> None:
    print(f"\n{title}")
    for fault in found.faults:
        took = f"new leader after {(fault.led - fault.began) / NS:4.1f} s" if fault.failover else ""
        print(
            f"  {fault.what:<34} {took:<25} no writes for {fault.bare_s:4.1f} s"
            f"   longest pause {fault.pause_s:4.1f} s"
        )
    failovers = [fault for fault in found.faults if fault.failover]
    pause = max(fault.pause_s for fault in found.faults)
    print(
        f"{len(failovers)} failovers: {found.acknowledged:,} acknowledged writes, "
        f"{len(found.lost)} lost, {len(found.twice)} double winners, longest pause {pause:.1f} s"
    )
    print(
        f"histories that no order explains: {len(found.stuck)}; refusals and reads by a former "
        f"leader: {len(found.outdated)}; sessions ended: {found.ended_sessions}; "
        f"calls asked again: {dict(found.troubles)}"
    )
    for wrong in [*found.lost[:5], *found.twice[:5], *found.stuck[:5], *found.outdated[:5]]:
        print(f"    {wrong}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster")
    parser.add_argument("--short", action="store_true", help="two failovers, as in CI")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    parser.add_argument("--only", nargs="+", help="these faults, by their names")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    if asked.only:
        plan = [getattr(faults, name) for name in asked.only]
    elif asked.short:
        plan = SHORT
    else:
        plan = [*faults.OF_THE_LEADER, *faults.OF_A_STANDBY] * ROUNDS
        random.Random(asked.seed).shuffle(plan)
    found = play(plan, asked.seed, synchronous=True)
    report("Synchronous mode: nothing acknowledged may be lost.", found)
    sound = not (found.lost or found.twice or found.stuck or found.ended_sessions)
    if not asked.short and not asked.only:
        behind = play(BEHIND, asked.seed, synchronous=False)
        report("Asynchronous mode: what was acknowledged may be lost, fencing holds.", behind)
        sound &= not [one for one in behind.twice if one.startswith("epoch")]
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
