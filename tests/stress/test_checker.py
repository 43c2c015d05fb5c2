"""The linearizability checker itself: histories made by hand, some of which must not pass."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.stress.checker import NEVER, PAUSE_NS, Holding, Op, Register, check

ALICE, BOB = 1, 2


def get(call: int, ret: int, version: int, value: Any) -> Op:
    return Op("get", ALICE, call, ret, {}, {"ok": True, "version": version, "value": value})


def put(call: int, ret: int, expected: int, value: Any, version: int) -> Op:
    args = {"expected": expected, "value": value}
    return Op("set", BOB, call, ret, args, {"ok": True, "version": version})


def conflict(call: int, ret: int, expected: int, value: Any, version: int, there: Any) -> Op:
    answer = {"ok": False, "code": "conflict", "version": version, "value": there}
    return Op("set", BOB, call, ret, {"expected": expected, "value": value}, answer)


def claim(session: int, call: int, ret: int, epoch: int) -> Op:
    return Op("claim", session, call, ret, {}, {"ok": True, "epoch": epoch})


def held(session: int, call: int, ret: int) -> Op:
    return Op("claim", session, call, ret, {}, {"ok": False, "code": "held"})


def settle(name: str, session: int, call: int, ret: int, epoch: int, ok: bool = True) -> Op:
    answer = {"ok": ok, "code": "stale", "state": "failed"}
    return Op(name, session, call, ret, {"epoch": epoch}, answer)


def unanswered(op: Op) -> Op:
    return Op(op.name, op.session, op.call, NEVER, op.args, None)


REGISTER = {
    "one after the other": [put(0, 1, 0, "a", 1), get(2, 3, 1, "a")],
    "a read beside a write may see the old value": [put(0, 9, 0, "a", 1), get(2, 3, 0, None)],
    "a read beside a write may see the new value": [put(0, 9, 0, "a", 1), get(2, 3, 1, "a")],
    "two writes beside each other take some order": [
        put(0, 9, 1, "b", 2),
        put(0, 9, 0, "a", 1),
        get(10, 11, 2, "b"),
    ],
    "a refusal shows what is there": [put(0, 1, 0, "a", 1), conflict(2, 3, 0, "b", 1, "a")],
    "a call cut off may have been done": [unanswered(put(0, 0, 0, "a", 1)), get(5, 6, 1, "a")],
    "a call cut off may not have been done": [unanswered(put(0, 0, 0, "a", 1)), get(5, 6, 0, None)],
    "a call cut off may be done late": [
        unanswered(put(0, 0, 0, "a", 1)),
        get(5, 6, 0, None),
        get(7, 8, 1, "a"),
    ],
    "a deleted entry keeps its count": [
        put(0, 1, 0, "a", 1),
        Op("delete", BOB, 2, 3, {"expected": 1, "value": None}, {"ok": True, "version": 2}),
        put(4, 5, 0, "b", 3),
    ],
}
NOT_REGISTER = {
    "a write that was answered is not seen": [put(0, 1, 0, "a", 1), get(2, 3, 0, None)],
    "a value is seen before it was written": [get(0, 1, 1, "a"), put(2, 3, 0, "a", 1)],
    "two reads go back in time": [put(0, 9, 0, "a", 1), get(2, 3, 1, "a"), get(4, 5, 0, None)],
    "two writers both replace one version": [
        put(0, 1, 0, "a", 1),
        put(2, 9, 1, "b", 2),
        put(2, 9, 1, "c", 2),
    ],
    "a version starts again after a deletion": [
        put(0, 1, 0, "a", 1),
        Op("delete", BOB, 2, 3, {"expected": 1, "value": None}, {"ok": True, "version": 2}),
        put(4, 5, 0, "b", 1),
    ],
    "a call cut off is undone again": [
        unanswered(put(0, 0, 0, "a", 1)),
        get(5, 6, 1, "a"),
        get(7, 8, 0, None),
    ],
    "a refusal although the version fits": [conflict(0, 1, 0, "a", 0, None)],
}
HOLDING = {
    "released, then claimed by another": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(BOB, 4, 5, 7),
    ],
    "claimed again by its holder": [claim(ALICE, 0, 1, 5), claim(ALICE, 2, 3, 5)],
    "refused while another holds it": [claim(ALICE, 0, 1, 5), held(BOB, 2, 3)],
    "an old epoch is refused": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(ALICE, 4, 5, 7),
        settle("renew", ALICE, 6, 7, 5, ok=False),
        settle("renew", ALICE, 8, 9, 7),
    ],
    "a release beside a claim": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 9, 5),
        claim(BOB, 3, 8, 7),
    ],
    "a failed task opens again": [
        claim(ALICE, 0, 1, 5),
        settle("fail", ALICE, 2, 3, 5),
        claim(BOB, 4, 5, 7),
    ],
    "a claim cut off may have been granted": [unanswered(claim(3, 0, 0, 5)), held(BOB, 1, 2)],
}
NOT_HOLDING = {
    "two winners": [claim(ALICE, 0, 9, 5), claim(BOB, 0, 9, 7)],
    "the same epoch twice": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(BOB, 4, 5, 5),
    ],
    "an epoch goes back": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(BOB, 4, 5, 4),
    ],
    "an old epoch of the same session is accepted": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(ALICE, 4, 5, 7),
        settle("release", ALICE, 6, 7, 5),
    ],
    "the epoch of another session is accepted": [
        claim(ALICE, 0, 1, 5),
        settle("complete", BOB, 2, 3, 5),
    ],
    "it is completed twice": [
        claim(ALICE, 0, 1, 5),
        settle("complete", ALICE, 2, 3, 5),
        settle("complete", ALICE, 4, 5, 5),
    ],
    "a holder in its right is refused": [
        claim(ALICE, 0, 1, 5),
        settle("renew", ALICE, 2, 3, 5, ok=False),
    ],
    "refused although nobody holds it": [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        held(BOB, 4, 5),
    ],
    "taken over from a holder that lives": [claim(ALICE, 0, 1, 5), claim(BOB, 2, 3, 7)],
}


@pytest.mark.parametrize("ops", REGISTER.values(), ids=REGISTER.keys())
def test_an_entry_is_accepted_when(ops: list[Op]) -> None:
    assert check(ops, Register()).linearizable


@pytest.mark.parametrize("ops", NOT_REGISTER.values(), ids=NOT_REGISTER.keys())
def test_an_entry_is_rejected_when(ops: list[Op]) -> None:
    assert not check(ops, Register()).linearizable


@pytest.mark.parametrize("ops", HOLDING.values(), ids=HOLDING.keys())
def test_a_holding_is_accepted_when(ops: list[Op]) -> None:
    assert check(ops, Holding()).linearizable


@pytest.mark.parametrize("ops", NOT_HOLDING.values(), ids=NOT_HOLDING.keys())
def test_a_holding_is_rejected_when(ops: list[Op]) -> None:
    assert not check(ops, Holding()).linearizable


def test_a_takeover_needs_a_death_that_came_before_it() -> None:
    ops = [claim(ALICE, 0, 1, 5), claim(BOB, 20, 30, 7)]
    assert check(ops, Holding(gone={ALICE: 10})).linearizable
    assert check(ops, Holding(gone={ALICE: 25})).linearizable
    assert not check(ops, Holding(gone={ALICE: 31})).linearizable


def test_a_takeover_needs_a_time_that_ran_out_before_it() -> None:
    ops = [claim(ALICE, 0, 1, 5), claim(BOB, 20, 30, 7)]
    assert check(ops, Holding(over={5: 15})).linearizable
    assert not check(ops, Holding(over={5: 31})).linearizable


def test_the_dead_do_not_come_back() -> None:
    ops = [claim(ALICE, 0, 1, 5), claim(BOB, 20, 30, 7), settle("complete", ALICE, 40, 50, 5)]
    assert not check(ops, Holding(gone={ALICE: 10}, can_end=True)).linearizable


def test_the_verdict_names_the_call_that_does_not_fit() -> None:
    wrong = settle("release", ALICE, 6, 7, 5)
    ops = [
        claim(ALICE, 0, 1, 5),
        settle("release", ALICE, 2, 3, 5),
        claim(ALICE, 4, 5, 7),
        wrong,
        settle("release", ALICE, 8, 9, 7),
    ]
    assert check(ops, Holding()).stuck_at == wrong


@pytest.mark.parametrize("seed", range(20))
def test_a_history_made_from_an_order_is_accepted_and_a_changed_answer_is_not(seed: int) -> None:
    """Answers from one true order, spread over overlapping spans of time."""
    pick = random.Random(seed)
    version, value, ops = 0, None, []
    for moment in range(0, 3000, 10):
        call, ret = moment - pick.randrange(40), moment + pick.randrange(1, 40)
        if pick.random() < 0.5:
            ops.append(put(call, ret, version, moment, version + 1))
            version, value = version + 1, moment
        else:
            ops.append(get(call, ret, version, value))
    assert check(ops, Register()).linearizable
    reads = [index for index, op in enumerate(ops) if op.name == "get" and op.answer]
    index = pick.choice(reads)
    old = ops[index]
    ops[index] = get(old.call, old.ret, version + 1, "never written")
    assert not check(ops, Register()).linearizable


def test_versions_may_jump_where_servers_took_over_and_nowhere_else() -> None:
    jump = [put(0, 1, 0, "a", 1), put(2, 3, 1, "b", 900), get(4, 5, 900, "b")]
    assert check(jump, Register(jumps=True)).linearizable
    assert not check(jump, Register()).linearizable
    back = [put(0, 1, 0, "a", 900), put(2, 3, 900, "b", 5)]
    assert not check(back, Register(jumps=True)).linearizable


def test_a_write_whose_answer_was_lost_may_have_any_later_version_but_no_other_value() -> None:
    lost = [put(0, 1, 0, "a", 1), unanswered(put(2, 0, 1, "b", 2))]
    assert check([*lost, get(4, 5, 900, "b")], Register(jumps=True)).linearizable
    assert check([*lost, get(4, 5, 1, "a")], Register(jumps=True)).linearizable
    assert not check([*lost, get(4, 5, 900, "c")], Register(jumps=True)).linearizable


def test_the_epoch_of_a_claim_whose_answer_was_lost_is_heard_of_by_claiming_again() -> None:
    lost = [unanswered(claim(ALICE, 0, 0, 7)), claim(ALICE, 5, 6, 7)]
    assert check([*lost, settle("release", ALICE, 7, 8, 7)], Holding()).linearizable
    assert check([*lost, held(BOB, 7, 8)], Holding()).linearizable
    assert not check([*lost, claim(BOB, 7, 8, 9)], Holding()).linearizable


def test_a_task_that_failed_is_free_by_itself_after_its_pause_and_not_before() -> None:
    failed = [claim(ALICE, 0, 1, 3), settle("fail", ALICE, 2, 3, 3)]
    refused = {"ok": False, "code": "wrong_state"}

    def reopened(at: int) -> Op:
        return Op("reopen", BOB, at, at + 1, {}, refused)

    late = 3 + PAUSE_NS
    assert check([*failed, reopened(late)], Holding(can_end=True)).linearizable
    assert not check([*failed, reopened(5)], Holding(can_end=True)).linearizable
