"""R2: what many processes do to a few keys at once, recorded and checked.

The keys are leases, tasks and entries. The workers claim, renew, release, complete, fail, abandon,
reopen, set and delete; some of their calls are a zombie's: with an epoch that has ended, with
the epoch of another holder, or in the session of a process that was killed. Processes are
killed on the way. Each call is logged before it is made and after it was answered, with the
time of the machine's monotonic clock, which is what the checker orders them by.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dibs
from dibs.errors import BusyError, DibsError, RefusedError
from dibs.nouns.leases import operations as leases
from dibs.nouns.leases.own import own_leases
from dibs.nouns.work import claims
from dibs.space.scope import Scope
from dibs.storage.store import Write
from tests.stress.checker import NEVER, Holding, Op, Register, Verdict, check
from tests.stress.procs import (
    NS,
    Log,
    Worker,
    nursery,
    open_gate,
    orphaned,
    read_log,
    run,
    wait_at_gate,
)

Row = dict[str, Any]
KEYS_OF_A_KIND = 8
KEYS = [f"{kind}:{n}" for kind in ("lock", "task", "entry") for n in range(KEYS_OF_A_KIND)]
LEASE_ENDS = ("renew", "release")
TASK_ENDS = ("renew", "complete", "fail", "abandon")


class Player:
    """One worker: what it holds, what it once held, and what it has seen of others."""

    times: tuple[int, ...] = (1, 600)
    """For how many seconds it claims."""

    def __init__(self, config: dict[str, Any], log: Log) -> None:
        self.log = log
        self.pick = random.Random(config["seed"])
        self.name = config["name"]
        self.space = self._open(config)
        self.number = 0
        self.held: dict[str, int] = {}
        self.over: dict[str, list[tuple[dibs.Agent, int]]] = {key: [] for key in KEYS}
        self.versions: dict[str, int] = {}
        self._dig_up(config["ancestor"])
        self._join()

    def _open(self, config: dict[str, Any]) -> dibs.Dibs:
        where = {"space": config["space"], "user_dir": config["user_dir"]}
        return dibs.open(config["url"], durability="fast", **where)

    def _join(self) -> None:
        self.held = {}
        self.me = self.space.join(self.name)
        self.log.write(says="joined", session=self.me.session, token=self.me.token)

    def _dig_up(self, ancestor: str | None) -> None:
        """Learn the session and the epochs of a killed process, to act as its zombie."""
        body = None
        for line in read_log(Path(ancestor)) if ancestor else []:
            if line["says"] == "joined":
                body = self.space.resume(line["token"])
            elif body is not None and line["says"] == "answer" and line.get("epoch"):
                self.over[line["key"]].append((body, line["epoch"]))

    def call(self, agent: dibs.Agent, op: str, key: str, **args: Any) -> dict[str, Any] | None:
        self.number += 1
        number, session = self.number, agent.session
        at = time.monotonic_ns()
        self.log.write(says="call", n=number, op=op, key=key, session=session, at=at, args=args)
        try:
            answer = {"ok": True, **perform(agent, op, key, args)}
        except RefusedError as refusal:
            answer = {"ok": False, "code": refusal.code, **current(refusal)}
            self._remember_other(key, refusal)
        except BusyError:
            return None  # it was not done; the call without an answer says nothing either way
        at = time.monotonic_ns()
        self.log.write(says="answer", n=number, key=key, at=at, **answer)
        if answer.get("code") == "not_yours" and agent is self.me:
            self._join()
        return answer

    def _remember_other(self, key: str, refusal: RefusedError) -> None:
        found = [blocker.epoch for blocker in refusal.details.get("blockers", ())]
        task = refusal.details.get("task")
        found += [task.epoch] if task is not None and task.epoch else []
        self.over[key] += [(self.me, epoch) for epoch in found]
        self.over[key] = self.over[key][-20:]

    def play(self) -> None:
        key = self.pick.choice(KEYS)
        if self.held and self.pick.random() < 0.5:
            key = self.pick.choice(sorted(self.held))  # so that grants change hands often
        if key.startswith("entry"):
            self.play_entry(key)
        elif self.over[key] and self.pick.random() < (0.4 if key in self.held else 0.15):
            # The tempting moment is when the session holds it again, at a newer epoch.
            self.play_zombie(key)
        else:
            self.play_holding(key)

    def play_zombie(self, key: str) -> None:
        body, epoch = self.pick.choice(self.over[key])
        ends = LEASE_ENDS if key.startswith("lock") else TASK_ENDS
        self.call(body, self.pick.choice(ends), key, epoch=epoch)

    def play_holding(self, key: str) -> None:
        task = key.startswith("task")
        if key not in self.held or self.pick.random() < 0.1:
            if task and self.pick.random() < 0.3:
                self.call(self.me, "reopen", key)
                return
            # Mostly a claim ends by its holder's word; a second is short enough to run out.
            ttl_s = self.pick.choice(self.times)
            answer = self.call(self.me, "claim", key, ttl_s=ttl_s)
            if answer is not None and answer["ok"]:
                self.held[key] = answer["epoch"]
            return
        epoch = self.held[key]
        op = self.pick.choice(TASK_ENDS if task else LEASE_ENDS)
        answer = self.call(self.me, op, key, epoch=epoch)
        if op != "renew" or answer is None or not answer["ok"]:
            self.held.pop(key, None)
            self.over[key].append((self.me, epoch))

    def play_entry(self, key: str) -> None:
        seen, chance = self.versions.get(key, 0), self.pick.random()
        if chance < 0.3:
            answer = self.call(self.me, "get", key)
        elif chance < 0.9 or not seen:
            # Now and then from a version that is long over.
            expected = seen if chance < 0.8 else self.pick.randrange(seen + 1)
            value = self.pick.getrandbits(40)
            answer = self.call(self.me, "set", key, expected=expected, value=value)
        else:
            answer = self.call(self.me, "delete", key, expected=seen)
        if answer is not None and "version" in answer:
            deleted = answer["ok"] and answer.get("value") is None
            self.versions[key] = 0 if deleted else answer["version"]


def perform(
    agent: dibs.Agent, op: str, key: str, args: dict[str, Any], **keyed: Any
) -> dict[str, Any]:
    """Make one call.

    keyed: the idempotency key, where it has one
    """
    if key.startswith("entry"):
        if op == "get":
            entry = agent.state.get("stress", key)
        elif op == "set":
            expected = args["expected"]
            entry = agent.state.set(
                "stress", key, args["value"], expected_version=expected, **keyed
            )
        else:
            entry = agent.state.delete("stress", key, expected_version=args["expected"], **keyed)
        found = (0, None) if entry is None else (entry.version, entry.value)
        return {"version": found[0], "value": found[1]}
    if key.startswith("lock"):
        if op == "claim":
            return {"epoch": agent.leases.claim(key, **args, **keyed).epoch}
        getattr(agent.leases, op)(key, **args, **keyed)
        return {}
    task = getattr(agent.work, op)(key, **args, **keyed)
    return {"epoch": task.epoch, "state": task.state}


def current(refusal: DibsError) -> dict[str, Any]:
    """What a refused write of an entry says is there now."""
    if refusal.code == "not_found":
        return {"version": 0, "value": None}
    if refusal.code == "conflict":
        entry = refusal.details["current"]
        found = (0, None) if entry is None else (entry.version, entry.value)
        return {"version": found[0], "value": found[1]}
    return {}


def play(config: dict[str, Any], log: Log) -> None:
    """Play until enough calls have been made by all players together."""
    if config["unfenced"]:
        take_the_fence_away()
    starter = os.getppid()
    tally = os.open(config["tally"], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    player = Player(config, log)
    log.write(says="ready")
    while os.fstat(tally).st_size < config["calls"] and not orphaned(starter):
        player.play()
        os.write(tally, b".")
    # To end is to die, and the others may still be at their last call.
    log.write(says="over")
    wait_at_gate(config["end"])


def take_the_fence_away() -> None:
    """The store variant that the checker must reject: any epoch of the right session will do."""
    own_task = claims.own

    def any_task(
        tx: Write, scope: Scope, id: str, epoch: int | None, known: dict[str, Row] | None = None
    ) -> Row:
        return own_task(tx, scope, id, None, known)

    def any_leases(
        tx: Write, scope: Scope, resources: tuple[str, ...], everything: bool, epoch: int | None
    ) -> list[Row]:
        return own_leases(tx, scope, resources, everything, None)

    claims.own = any_task
    leases.own_leases = any_leases  # type: ignore


def make(config: dict[str, Any], log: Log) -> None:
    dibs.open(config["url"], space=config["space"], user_dir=config["user_dir"]).close()


@dataclass
class Recording:
    """A recorded history: the calls on each key, and what is known of the sessions."""

    ops: dict[str, list[Op]]
    gone: dict[int, int]
    kills: int
    refused: Counter[str]
    jumps: bool = False
    """Whether versions may jump, since servers took over from each other."""

    @property
    def calls(self) -> int:
        return sum(len(ops) for ops in self.ops.values())

    def verdicts(self) -> dict[str, Verdict]:
        return {key: check(ops, self._model(key, ops)) for key, ops in self.ops.items()}

    def _model(self, key: str, ops: list[Op]) -> Register | Holding:
        if key.startswith("entry"):
            return Register(jumps=self.jumps)
        over: dict[int, int] = {}
        for op in ops:
            if op.name == "claim" and op.answer is not None and op.answer["ok"]:
                epoch, end = op.answer["epoch"], op.call + int(op.args["ttl_s"] * NS)
                over[epoch] = min(over.get(epoch, NEVER), end)
        return Holding(gone=self.gone, over=over, can_end=key.startswith("task"))


def record(
    url: str,
    space: str,
    folder: Path,
    *,
    calls: int,
    kills: int,
    seed: int,
    processes: int,
    unfenced: bool = False,
) -> Recording:
    """Let players play, kill some of them at even distances, and collect what they did."""
    pick = random.Random(seed)
    where = {"url": url, "space": space, "user_dir": str(folder / "user")}
    tally, end = folder / "tally", folder / "end"
    run(folder / "made", "history:make", **where)
    killed_at: dict[Path, int] = {}
    with nursery(folder / "logs") as place:

        def start(slot: int, ancestor: Worker | None) -> Worker:
            return place.start(
                "history:play",
                seed=pick.getrandbits(32),
                name=f"player-{slot}",
                tally=str(tally),
                end=str(end),
                calls=calls,
                unfenced=unfenced,
                ancestor=None if ancestor is None else str(ancestor.path),
                **where,
            )

        workers = [start(slot, None) for slot in range(processes)]
        for worker in workers:
            worker.wait_for("ready")
        for kill in range(kills):
            while tally.stat().st_size < calls * (kill + 1) // (kills + 1):
                time.sleep(0.001)
            slot = pick.randrange(processes)
            killed = workers[slot]
            killed_at[killed.path] = time.monotonic_ns()
            killed.kill()
            workers[slot] = start(slot, killed)
        for worker in workers:
            worker.wait_for("over", seconds=1800)
        open_gate(end)
        for worker in workers:
            worker.wait()
    return collect(sorted((folder / "logs").glob("*.jsonl")), killed_at)


def collect(paths: list[Path], killed_at: dict[Path, int]) -> Recording:
    ops: dict[str, list[Op]] = {key: [] for key in KEYS}
    gone: dict[int, int] = {}
    seen: dict[int, int] = {}
    refused: Counter[str] = Counter()
    for path in paths:
        open_calls: dict[int, dict[str, Any]] = {}
        for line in read_log(path):
            if line["says"] == "joined":
                gone[line["session"]] = killed_at.get(path, NEVER)
            elif line["says"] == "call":
                open_calls[line["n"]] = line
            elif line["says"] == "answer":
                asked = open_calls.pop(line["n"])
                ops[line["key"]].append(op_of(asked, line))
                if line["ok"] or line["code"] != "not_yours":
                    session = asked["session"]
                    seen[session] = max(seen.get(session, 0), asked["at"])
                if not line["ok"]:
                    refused[line["code"]] += 1
        for asked in open_calls.values():
            ops[asked["key"]].append(op_of(asked, None))
    lost = {
        op.session
        for calls in ops.values()
        for op in calls
        if op.answer is not None and op.answer.get("code") == "not_yours"
    }
    for session in lost:
        # It ended after the last call that proves it alive, or when its process was killed.
        gone[session] = min(gone[session], seen.get(session, 0))
    return Recording(ops, gone, len(killed_at), refused)


def op_of(asked: dict[str, Any], answer: dict[str, Any] | None) -> Op:
    return Op(
        name=asked["op"],
        session=asked["session"],
        call=asked["at"],
        ret=NEVER if answer is None else answer["at"],
        args=asked["args"],
        answer=answer,
    )
