"""What can happen to a leader, and to a standby. Each leaves a cluster that becomes whole again.

A fault takes the cluster and its leader, and returns the node that leads after it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.cluster import Cluster, Node, signal_all

Fault = Callable[[Cluster, Node], Node]
AWAY_S = 3.0
"""How long a standby is away."""
BEHIND_S = 2.0


def server_killed(cluster: Cluster, leader: Node) -> Node:
    leader.kill(patroni=False)
    return cluster.await_leader(leader)


def node_killed(cluster: Cluster, leader: Node) -> Node:
    leader.kill(patroni=True)
    try:
        return cluster.await_leader(leader)
    finally:
        leader.start()


def frozen(cluster: Cluster, leader: Node) -> Node:
    """All its processes stand still; when they go on, another has taken over."""
    leader.freeze()
    try:
        return cluster.await_leader(leader)
    finally:
        leader.thaw()


def cut_off(cluster: Cluster, leader: Node) -> Node:
    """Nobody reaches it and it reaches nobody; then all that was on its way arrives."""
    cluster.wires.cut(leader.name)
    try:
        return cluster.await_leader(leader)
    finally:
        cluster.wires.heal(leader.name)


def switched_over(cluster: Cluster, leader: Node) -> Node:
    cluster.switch_over(leader)
    return cluster.await_leader(leader)


def standby_killed(cluster: Cluster, leader: Node) -> Node:
    standby = cluster.standby()
    standby.kill(patroni=True)
    time.sleep(AWAY_S)
    standby.start()
    return leader


def standby_frozen(cluster: Cluster, leader: Node) -> Node:
    standby = cluster.standby()
    standby.freeze()
    time.sleep(AWAY_S)
    standby.thaw()
    return leader


def standby_cut_off(cluster: Cluster, leader: Node) -> Node:
    standby = cluster.standby()
    cluster.wires.cut(standby.name)
    time.sleep(AWAY_S)
    cluster.wires.heal(standby.name)
    return leader


def killed_before_its_standbys_heard(cluster: Cluster, leader: Node) -> Node:
    """What it acknowledges in the moments before its end reaches no standby."""
    others = [node for node in cluster.nodes.values() if node is not leader]
    receivers = [pid for node in others for pid in node.server() if is_receiver(pid)]
    signal_all(receivers, signal.SIGSTOP)
    time.sleep(BEHIND_S)
    leader.kill(patroni=True)
    signal_all(receivers, signal.SIGKILL)  # with what they had received and not written yet
    try:
        return cluster.await_leader(leader)
    finally:
        leader.start()


def is_receiver(pid: int) -> bool:
    """Whether a process is the one by which a standby hears of its leader's writes."""
    return b"walreceiver" in Path(f"/proc/{pid}/cmdline").read_bytes()


OF_THE_LEADER: list[Fault] = [server_killed, node_killed, frozen, cut_off, switched_over]
OF_A_STANDBY: list[Fault] = [standby_killed, standby_frozen, standby_cut_off]
