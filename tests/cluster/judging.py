"""What became of the writes: acknowledged, lost, won twice, and how long clients had to wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.load import LEDGER
from tests.stress.checker import Op
from tests.stress.history import Recording, collect
from tests.stress.procs import NS

Line = dict[str, Any]


@dataclass
class Struck:
    """A fault: what happened when, and when the cluster was whole again."""

    what: str
    began: int
    led: int
    """When there was a leader, the new one if it has changed."""
    ended: int
    failover: bool
    pause_s: float = 0.0
    bare_s: float = 0.0
    """For how long the cluster took no writes of a client without dibs."""


@dataclass
class Judgement:
    acknowledged: int
    lost: list[str]
    twice: list[str]
    """What two sessions held at once, as far as both knew."""
    epochs: list[str]
    """Those that were granted twice."""
    stuck: list[str]
    """The keys whose history of acknowledged writes no order explains."""
    outdated: list[str]
    """Those where only a refusal or a read came from a leader that was none any more."""
    ended: list[str]
    """The sessions that were refused, and when."""
    troubles: Counter[str]
    faults: list[Struck] = field(default_factory=list)


def judge(
    url: str, logs: list[Path], lines: list[list[Line]], faults: list[Struck], bare: list[int]
) -> Judgement:
    everything = [line for log in lines for line in log]
    written = [line for line in everything if line["says"] == "wrote"]
    with psycopg.connect(url) as server:
        asked = "SELECT key, value FROM dibs.entry WHERE namespace = %s"
        there: dict[str, str] = dict(server.execute(asked, [LEDGER]).fetchall())
    lost = [line["key"] for line in written if there.get(line["key"]) != str(line["value"])]
    recording = collect(logs, {})
    recording.jumps = True
    stuck, outdated = unexplained(recording, faults)
    served = [[line["at"] for line in log if line["says"] in ("answer", "wrote")] for log in lines]
    for fault in faults:
        fault.pause_s = max(longest_pause(moments, fault) for moments in served)
        fault.bare_s = longest_pause(bare, fault)
    answered = [line for line in everything if line["says"] == "answer" and line["ok"]]
    return Judgement(
        acknowledged=len(written) + len(answered),
        lost=lost,
        twice=list(held_twice(recording)),
        epochs=list(granted_twice(recording)),
        stuck=stuck,
        outdated=outdated,
        ended=[
            f"{line['message']}, {when(line['at'], line['at'], faults)}"
            for line in everything
            if line["says"] == "ended"
        ],
        troubles=Counter(line["code"] for line in everything if line["says"] == "trouble"),
        faults=faults,
    )


def unexplained(recording: Recording, faults: list[Struck]) -> tuple[list[str], list[str]]:
    """The keys that the checker rejects, and those it accepts once refusals are left out.

    A refusal and a read commit nothing, so a leader that was frozen can still give them in the
    moment before it learns that it leads no more.
    """
    verdicts = {key: one for key, one in recording.verdicts().items() if not one.linearizable}
    rejected = list(verdicts)
    writes = Recording(
        {key: [op for op in recording.ops[key] if not only_said(op)] for key in rejected},
        recording.gone, 0, Counter(), jumps=True,
    )  # fmt: skip
    stuck = [key for key, verdict in writes.verdicts().items() if not verdict.linearizable]
    return stuck, [
        told(key, verdicts[key].stuck_at, faults) for key in rejected if key not in stuck
    ]


def told(key: str, op: Op | None, faults: list[Struck]) -> str:
    """What was answered that no order explains, and in which fault."""
    assert op is not None and op.answer is not None
    took_s = (op.ret - op.call) / NS
    at = when(op.call, op.ret, faults)
    return f"{key}: {op.name} {op.args} {op.answer}, {took_s:.1f} s, {at}"


def when(begin: int, end: int, faults: list[Struck]) -> str:
    during = [one for one in faults if begin <= one.ended and one.began <= end]
    return f"{during[0].what} +{(end - during[0].began) / NS:.1f} s" if during else "in calm"


def only_said(op: Op) -> bool:
    return op.answer is not None and (op.name == "get" or not op.answer["ok"])


def held_twice(recording: Recording) -> Iterable[str]:
    """Where a session was granted what another had not let go yet."""
    for key, ops in recording.ops.items():
        if key.startswith("entry"):
            continue
        holder: Op | None = None
        granted = [op for op in ops if op.answer is not None and op.answer["ok"]]
        ends = {
            (op.session, op.args["epoch"]): op.call
            for op in ops
            if op.name not in ("claim", "renew", "reopen")
        }
        for op in sorted((op for op in granted if op.name == "claim"), key=lambda op: op.ret):
            assert op.answer is not None
            if holder is not None and holder.answer is not None and holder.session != op.session:
                # Even if its end was never answered, it may have let go from there on.
                over = ends.get((holder.session, holder.answer["epoch"]))
                gone = recording.gone.get(holder.session, op.ret)
                if over is None and gone >= op.ret:
                    yield f"{key}: {holder.session} and {op.session}"
            holder = op


def granted_twice(recording: Recording) -> Iterable[str]:
    """Epochs that two sessions were given, or one session for two keys."""
    known: dict[int, tuple[str, int]] = {}
    for key, ops in recording.ops.items():
        for op in ops:
            if op.name == "claim" and op.answer is not None and op.answer["ok"]:
                mine = (key, op.session)
                if known.setdefault(op.answer["epoch"], mine) != mine:
                    yield f"epoch {op.answer['epoch']}"


def longest_pause(served: list[int], fault: Struck) -> float:
    """The longest time in which a client got no answer, from the fault to the next calm."""
    inside = [moment for moment in served if fault.began <= moment <= fault.ended]
    known = [fault.began, *inside, fault.ended]
    return max(after - before for before, after in pairwise(known)) / NS
