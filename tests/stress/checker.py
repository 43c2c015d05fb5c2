"""A small linearizability checker, after Wing and Gong, with the memory of Porcupine.

A history is linearizable if each call can be given one moment between its asking and its
answer such that, done one after the other in that order, a simple sequential model gives the
same answers. Here is one that is, and one that is not:

    A  set 1 ├──────────┤            A  set 1 ├───┤
    B       get 1 ├──┤               B               get 0 ├──┤

The search tries the calls that may come next, depth first, and remembers each pair of *calls
done* and *state of the model*, so that no such pair is looked at twice. A call without an
answer, because its process was killed, may be given any moment after its asking, or none.

A model also says what can happen without any call: the holder of a lease dies, or its time
runs out. Such a change may take place at any moment after the one from which it is possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

NEVER = 2**63
PAUSE_NS = 10 * 10**9
"""At least so long a task that has failed is not given out again."""
UNKNOWN = -1
"""The epoch of a claim whose answer was lost."""


@dataclass(frozen=True)
class Op:
    """One call on one key: who asked what when, and what was answered when."""

    name: str
    session: int
    call: int
    ret: int = NEVER
    args: dict[str, Any] = field(default_factory=dict, hash=False)
    answer: dict[str, Any] | None = None
    """None if no answer came; then `ret` is NEVER."""


class Model(Protocol):
    """What one key does when calls come one after the other; states are compared and hashed."""

    start: Any

    def after(self, state: Any, op: Op) -> Iterable[Any]:
        """The states in which this call, with this answer, can leave that state; none if none.

        A call without an answer can have had any answer.
        """

    def lapse(self, state: Any) -> Iterable[tuple[int, Any]]:
        """What can happen by itself in that state: from which moment on, and the new state."""


@dataclass(frozen=True)
class Verdict:
    linearizable: bool
    stuck_at: Op | None = None
    """The first call that could not be placed, of the attempt that came furthest."""
    looked_at: int = 0


def check(ops: list[Op], model: Model) -> Verdict:
    """Look for an order of the calls on one key that the model agrees with."""
    answered = sorted((op for op in ops if op.answer is not None), key=lambda op: op.call)
    open_ended = [op for op in ops if op.answer is None]
    # All answered calls before `first` are done, and those in `ahead`; of the others, `taken`.
    here = (0, frozenset[int](), frozenset[int](), model.start)
    seen, stack, furthest = {here}, [here], 0
    while stack:
        first, ahead, taken, state = stack.pop()
        furthest = max(furthest, first)
        if first == len(answered):
            return Verdict(True, looked_at=len(seen))
        # Whatever comes next comes before the earliest answer that is still to be explained.
        limit, candidates = NEVER, []
        for index in range(first, len(answered)):
            if answered[index].call > limit:
                break
            if index not in ahead:
                candidates.append(index)
                limit = min(limit, answered[index].ret)
        following = [
            (first, ahead, taken, later) for moment, later in model.lapse(state) if moment <= limit
        ]
        for number, op in enumerate(open_ended):
            if number not in taken and op.call <= limit:
                with_it = taken | {number}
                following += [(first, ahead, with_it, later) for later in model.after(state, op)]
        # The earliest answer is tried first (it is put on last): mostly that is the order.
        candidates.sort(key=lambda index: -answered[index].ret)
        for index in candidates:
            if answered[index].call > limit:
                continue
            done, upto = ahead | {index}, first
            while upto in done:
                upto += 1
            rest = frozenset(number for number in done if number >= upto)
            later_states = model.after(state, answered[index])
            following += [(upto, rest, taken, later) for later in later_states]
        for step in following:
            if step not in seen:
                seen.add(step)
                stack.append(step)
    return Verdict(False, stuck_at=answered[furthest], looked_at=len(seen))


@dataclass
class Register:
    """An entry: `(version, value)`, where a deleted one has a version and no value.

    jumps: whether a write may skip versions, as the first one after a failover does
    """

    jumps: bool = False
    start: tuple[int, Any] = (0, None)

    def after(self, state: tuple[int, Any], op: Op) -> Iterable[tuple[int, Any]]:
        version, value = state
        shown = version if value is not None else 0
        new, fits = op.args.get("value"), op.args.get("expected") == shown
        if op.answer is not None and op.answer.get("code") == "not_yours":
            return [state]  # a session that has ended can do nothing more
        if version == UNKNOWN and op.answer is not None:
            return self._heard_of(state, op)
        if op.answer is None:
            written = UNKNOWN if self.jumps else version + 1
            return [(written, new)] if fits and op.name != "get" else []
        says = op.answer
        if op.name == "get":
            return [state] if (says["version"], says["value"]) == (shown, value) else []
        if says["ok"]:
            follows = says["version"] == version + 1 or (self.jumps and says["version"] > version)
            return [(says["version"], new)] if fits and follows else []
        if op.name == "delete" and not says["version"]:
            return [state] if not shown else []
        differs = not fits and (says["version"], says["value"]) == (shown, value)
        return [state] if differs else []

    def _heard_of(self, state: tuple[int, Any], op: Op) -> Iterable[tuple[int, Any]]:
        """What follows when the version is unknown, since its answer was lost."""
        says, value = op.answer or {}, state[1]
        if op.name != "get" and says["ok"]:
            return [(says["version"], op.args.get("value"))]
        if op.name == "delete" and not says["version"]:
            return [state] if value is None else []
        same = says["value"] == value
        return [(says["version"] if value is not None else UNKNOWN, value)] if same else []

    def lapse(self, state: tuple[int, Any]) -> Iterable[tuple[int, tuple[int, Any]]]:
        return ()


@dataclass
class Holding:
    """A lease or a task: `(state, holder, epoch, highest epoch so far)`.

    A task that has failed is paused, and free by itself some time later; until then the moment from
    which it may be stands in place of a holder.

    gone: from when on each session may be found dead
    over: from when on the time of a grant, by its epoch, may have run out
    can_end: whether a lapse can also leave it dead: a task whose attempts are used up
    """

    gone: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    can_end: bool = False
    start: tuple[str, int, int, int] = ("free", 0, 0, 0)

    def lapse(self, state: Any) -> Iterable[tuple[int, Any]]:
        kind, holder, epoch, highest = state
        if kind == "paused":
            return [(holder, ("free", 0, 0, highest))]
        if kind != "held":
            return []
        moment = min(self.gone.get(holder, NEVER), self.over.get(epoch, NEVER))
        if moment == NEVER:
            return []
        ends = ["ended", "free"] if self.can_end else ["free"]
        return [(moment, (end, 0, 0, highest)) for end in ends]

    def after(self, state: Any, op: Op) -> Iterable[Any]:
        if op.answer is None:
            return self._unanswered(state, op)
        kind, holder, epoch, highest = state
        says = op.answer
        own = kind == "held" and holder == op.session
        if says.get("code") == "not_yours":
            return [state]  # a session that has ended can do nothing more
        match op.name:
            case "claim" if says["ok"]:
                if own and epoch == UNKNOWN:  # now it is heard of
                    known = says["epoch"] > highest
                    return [("held", holder, says["epoch"], says["epoch"])] if known else []
                if own:
                    return [state] if says["epoch"] == epoch else []
                if kind not in ("held", "ended") and says["epoch"] > highest:
                    return [("held", op.session, says["epoch"], says["epoch"])]
                return []
            case "claim" if says["code"] == "held":
                return [state] if kind == "held" and not own else []
            case "claim":
                return [state] if kind in ("ended", "paused") else []
            case "reopen" if says["ok"]:
                return [("free", 0, 0, highest)] if kind in ("ended", "paused") else []
            case "reopen":
                return [state] if kind in ("free", "held") else []
        fits = own and op.args["epoch"] == epoch
        if not says["ok"]:
            return [state] if not fits else []
        return [self._settled(state, op, says)] if fits else []

    def _settled(self, state: Any, op: Op, says: dict[str, Any]) -> Any:
        highest = state[3]
        match op.name:
            case "renew":
                return state
            case "release" | "abandon":
                return ("free", 0, 0, highest)
            case "complete":
                return ("ended", 0, 0, highest)
            case "fail":
                if says["state"] == "failed":
                    return ("paused", op.call + PAUSE_NS, 0, highest)
                return ("ended", 0, 0, highest)
        raise AssertionError(op.name)

    def _unanswered(self, state: Any, op: Op) -> list[Any]:
        kind, holder, epoch, highest = state
        if op.name == "claim":
            # Its epoch is unknown; nobody can name it until its session claims once more.
            return [("held", op.session, UNKNOWN, highest)] if kind in ("free", "paused") else []
        if op.name == "reopen":
            return [("free", 0, 0, highest)] if kind in ("ended", "paused") else []
        if kind != "held" or holder != op.session or op.args["epoch"] != epoch:
            return []
        outcomes = [{"state": "failed"}, {"state": "dead"}]
        return [self._settled(state, op, says) for says in outcomes]
