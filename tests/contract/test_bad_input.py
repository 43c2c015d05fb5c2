"""Bad input gets a typed error that says what is wrong, and changes nothing.

Every argument of every operation is reached through the registry: all arguments are right but
one, which is given everything that it must not be. A new operation needs a line in `RIGHT`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.arguments import (
    BODY_LIMIT,
    NAME_LIMIT,
    TTL_MAX_S,
    VALUE_LIMIT,
    WAIT_MAX_S,
    AgentName,
    Argument,
    Name,
    When,
)
from dibs.dibs import operations
from dibs.errors import DibsError, InvalidError, NotFoundError, RefusedError, StaleError
from dibs.operation import Items, Operation

OPERATIONS = operations()

# For each operation, arguments with which it would go through.
RIGHT: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "leases.claim": (("port:2",), {}),
    "leases.renew": (("port:1",), {}),
    "leases.release": (("port:1",), {"outcome": "moved", "moved_to": "port:2"}),
    "leases.see": (("port:1",), {}),
    "leases.report": (("changed.py",), {}),
    "leases.revoke": (("port:3",), {}),
    "leases.take": (("port:3",), {}),
    "leases.transfer": (("port:1",), {"to": "bob"}),
    "leases.status": (("port:1",), {}),
    "leases.list": ((), {}),
    "leases.wait": (("port:2",), {"wait_s": 0}),
    "leases.waiting": ((), {}),
    "leases.outcomes": (("port:1",), {}),
    "work.add": (("new",), {}),
    "work.claim": (("open",), {}),
    "work.next": ((), {}),
    "work.renew": (("mine",), {}),
    "work.complete": (("mine",), {}),
    "work.fail": (("mine",), {}),
    "work.abandon": (("mine",), {}),
    "work.cancel": (("open",), {}),
    "work.revoke": (("theirs",), {}),
    "work.reopen": (("over",), {}),
    "work.land": (("feature",), {"commit": "1" * 40, "task": "mine"}),
    "work.ask": (("mine", "May I?"), {}),
    "work.ack": (("asks",), {}),
    "work.add_many": (([{"id": "many"}],), {}),
    "work.put": (("put",), {}),
    "work.put_many": (([{"id": "put"}],), {}),
    "work.next_many": ((2,), {}),
    "work.complete_many": (([{"id": "mine"}],), {}),
    "messages.send_many": (([{"body": "hello"}],), {}),
    "work.show": (("mine",), {}),
    "work.list": ((), {}),
    "work.plan": ((), {}),
    "work.edit": (("open",), {"title": "another"}),
    "work.remove": (("open",), {}),
    "work.wait": (("over",), {"wait_s": 0}),
    "messages.send": (("hello",), {"to": None}),
    "messages.announce": (("hello",), {}),
    "messages.inbox": ((), {}),
    "messages.ack": (("MESSAGE",), {}),
    "messages.delivery": (("MESSAGE",), {}),
    "messages.history": ((), {}),
    "messages.search": (("hello",), {}),
    "state.get": (("plan", "step"), {}),
    "state.set": (("plan", "new", 1), {}),
    "state.delete": (("plan", "step"), {}),
    "state.clear": (("plan",), {}),
    "state.list": (("plan",), {}),
    "state.namespaces": ((), {}),
    "state.history": (("plan", "step"), {}),
    "state.export": (("plan",), {}),
    "state.watch": (("plan", "step"), {"wait_s": 0}),
    "agents.beat": ((), {}),
    "agents.leave": ((), {}),
    "agents.rename": (("alice",), {}),
    "agents.doing": ((), {}),
    "agents.list": ((), {}),
    "agents.overview": ((), {}),
    "agents.verify": ((), {}),
    "agents.add_token": (("ci",), {}),
    "agents.tokens": ((), {}),
    "agents.revoke_token": (("TOKEN",), {}),
    "events.since": ((0,), {}),
    "events.last": ((), {}),
    "events.latest": ((), {}),
    "events.report": ((), {}),
    "events.contention": ((), {}),
    "events.watch": ((0,), {"wait_s": 0}),
    "events.replay": ((), {"at": 0}),
    "events.diff": ((0, 0), {}),
    "events.seal": ((), {}),
    "events.check_seal": (("SEAL",), {}),
    "events.prune": ((), {}),
}


class Odd:
    """Something nobody expects, and that cannot be put into a set."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Odd()"


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

NOT_TEXT = [5, 1.5, True, b"bytes", ["a"], {"a": 1}, Odd(), object()]
BAD_TEXT = ["\ud800", "a\udfffb", "a\0b", "\0", "\x1b[31mred", "\x7f", "x" * 2_000_000]
BAD_NAMES = [  # invisible, turned round, tagged, unassigned, blank, and of a private kind
    "a\u200bb", "a\u202eb", "a\u2066b", "a\U000e0041b", "a\u0378b", "a\u3164b", "a\ufe0fb",
    "a\ue000b", "a\xa0b", "\ufeffa", " a", "a ",
]  # fmt: skip
NOT_SECONDS = ["5", b"5", True, False, [], {}, Odd(), 5j, Decimal(5), Fraction(5)]
BAD_SECONDS = [-1, -0.001, 1e300, math.inf, -math.inf, math.nan, 2**63, 10**400, 10**5000]
NOT_NUMBERS = ["1", b"1", True, False, 1.0, 1.5, math.nan, [], {}, Odd(), Decimal(1)]
BAD_NUMBERS = [2**63, -(2**63) - 1, 2**64, 10**30, -(10**30), 10**5000, -(10**5000)]
BAD_MOMENTS = [-1, 1.5, True, b"1h", "", "soon", "2026-13-01", [], {}, Odd(), Decimal(1), object()]
BAD_LISTS = [
    "text", 5, True, {"a": 1}, {"a"}, Odd(), [5], [None], [[]], [Odd()], [""], ["  "],
    ["\ud800"], ["a\0b"], ["x" * 5_000], ["x"] * 100_000,
]  # fmt: skip
BAD_JSON = [
    math.nan, math.inf, [-math.inf], {"a": math.nan}, object(), Odd(), {"a": Odd()}, {1, 2},
    b"bytes", {("a", "b"): 1}, {1: 1, "a": 2}, 5j, Decimal(1), "\ud800", {"\ud800": 1}, DEEP,
    "x" * VALUE_LIMIT, list(range(300_000)),
]  # fmt: skip
BAD_ENTRIES = [
    5, "text", [], True, Odd(), {}, {"namespace": "n"}, {"namespace": "n", "key": "k"},
    {"namespace": "n", "key": "k", "value": 1, "ttl": 5}, {5: 1}, {"namespace": "n", 5: 1},
    {"namespace": "\ud800", "key": "k", "value": 1}, {"namespace": "n", "key": 5, "value": 1},
    {"namespace": "n", "key": "k", "value": math.nan},
    {"namespace": "n", "key": "k", "value": 1, "expected_version": "1"},
    {"namespace": "n", "key": "k", "value": 1, "expected_version": 2**64},
    {"namespace": "n", "key": "k", "value": 1, "expected_version": 1, "force": True},
]  # fmt: skip


BAD_ITEMS = ["text", 5, {"id": "x"}, Odd(), [5], [None], [[]], [{}], [{5: 1}], [{"colour": 1}]]


def bad_items(operation: Operation) -> list[Any]:
    """Lists of one item that is wrong in one way."""
    right = {"id": "mine"} if operation.noun == "work" else {"body": "hello"}
    return [
        *BAD_ITEMS,
        [right] * 1_001,
        *([right | {one.name: bad}] for one in operation.arguments().values()
          for bad in bad_values(one) if one.name != "epoch"),
    ]  # fmt: skip


def bad_values(argument: Argument) -> list[Any]:
    """Everything that this argument must not be."""
    if isinstance(argument.kind, Items):
        return bad_items(argument.kind.operation)
    if isinstance(argument.kind, When):
        return [*BAD_MOMENTS, *BAD_NUMBERS, *BAD_TEXT, *([] if argument.optional else [None])]
    kind, _, none = argument.type.partition(" | ")
    found: list[Any] = {
        "str": [*NOT_TEXT, *BAD_TEXT],
        "float": [*NOT_SECONDS, *BAD_SECONDS],
        "int": [*NOT_NUMBERS, *BAD_NUMBERS],
        "Sequence[str]": BAD_LISTS,
        "Any": BAD_JSON,
        "dict[str, Any]": BAD_ENTRIES,
        "bool": [],
    }[kind]
    if isinstance(argument.kind, (Name, AgentName)):
        found = [*found, *([[bad] for bad in BAD_NAMES] if argument.list else BAD_NAMES)]
    if argument.name == "leases":
        found = [bad for bad in found if bad != ["  "]]  # a file may have such a name
    if not none and kind not in ("Any", "bool"):
        return [*found, None]
    return list(found)


@pytest.fixture
def ids(alice, bob, checkout) -> dict[str, Any]:
    """A world in which each of the right calls goes through, and what they name."""
    alice.leases.claim("port:1")
    for id in ("open", "mine", "over"):
        alice.work.add(id)
    alice.work.claim("mine")
    alice.work.cancel("over")
    alice.state.set("plan", "step", 1)
    bob.leases.claim("port:3", "changed.py")
    (checkout / "changed.py").write_text("")
    bob.work.claim("theirs")
    bob.work.claim("asks")
    bob.work.ask("asks", "May I?")
    message = bob.messages.send("hello alice", to="alice").id
    seal = bob.events.seal().text
    return {"MESSAGE": message, "TOKEN": bob.agents.add_token("ci").id, "SEAL": seal}


def numbered(right: tuple[Any, ...], ids: dict[str, Any]) -> list[Any]:
    return [ids.get(value, value) if isinstance(value, str) else value for value in right]


def with_bad(
    name: str, argument: Argument, bad: Any, ids: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The right arguments of an operation, but for this one."""
    right, options = RIGHT[name]
    args = numbered(right, ids)
    place = list(OPERATIONS[name].arguments()).index(argument.name)
    if place < len(args):
        args[place] = bad
        return tuple(args), options
    return tuple(args), options | {argument.name: bad}


def cases(name: str, ids: dict[str, int]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    arguments = OPERATIONS[name].arguments()
    keyed = "idempotency_key" in arguments
    number = 0
    for argument in arguments.values():
        for bad in bad_values(argument):
            args, options = with_bad(name, argument, bad, ids)
            shown = f"{name}: {argument.name}={repr(bad)[:60] if is_short(bad) else type(bad)}"
            yield shown, args, options
            if keyed and argument.name != "idempotency_key":
                number += 1
                yield f"{shown} with a key", args, options | {"idempotency_key": f"key {number}"}


def holds_deep(bad: Any) -> bool:
    items = bad if isinstance(bad, list) and bad is not DEEP else []
    return bad is DEEP or any(DEEP is inner for item in items if isinstance(item, dict)
                              for inner in item.values())  # fmt: skip


def is_huge(bad: Any) -> bool:
    if isinstance(bad, list) and len(bad) == 1 and isinstance(bad[0], dict):
        return any(is_huge(inner) for inner in bad[0].values())
    return isinstance(bad, int) and abs(bad) > 10**1000


def is_short(bad: Any) -> bool:
    """Whether it can be shown: a huge number and a deep list cannot."""
    return not holds_deep(bad) and not is_huge(bad)


def call(agent: dibs.Agent, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    noun, verb = name.split(".")
    return getattr(getattr(agent, noun), verb)(*args, **options)


def test_every_operation_has_a_right_call():
    assert OPERATIONS.keys() == RIGHT.keys()


# What changes nothing is tried in one world together: most of the time goes into making worlds.
WRITING = sorted(name for name in RIGHT if OPERATIONS[name].mutates)
READING = sorted(RIGHT.keys() - WRITING)
FLAGGED = sorted(
    name
    for name in RIGHT
    if any(argument.type == "bool" for argument in OPERATIONS[name].arguments().values())
)
NOUNS = sorted({name.partition(".")[0] for name in RIGHT})


@pytest.mark.parametrize(
    "names", [[name] for name in WRITING] + [READING], ids=lambda names: names[0]
)
def test_a_right_call_goes_through(names, alice, ids):
    """Otherwise the bad argument beside it would prove nothing."""
    for name in names:
        args, options = RIGHT[name]
        call(alice, name, tuple(numbered(args, ids)), options)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_bad_argument_is_refused_and_changes_nothing(noun, alice, ids):
    names = [name for name in RIGHT if name.startswith(f"{noun}.")]
    last = alice.events.last()
    for shown, args, options in itertools.chain(*(cases(name, ids) for name in names)):
        name = shown.partition(":")[0]
        # An epoch is only compared, so any other one is stale; all else is a mistake.
        stale = " epoch=" in shown
        try:
            call(alice, name, args, options)
        except InvalidError as error:
            check_message(error, shown)
        except StaleError as error:
            assert stale, f"{shown}: {error!r}"
        except Exception as error:
            pytest.fail(f"{shown}: {type(error).__name__}: {error}")
        else:
            pytest.fail(f"{shown} went through")
        assert alice.events.last() == last, shown
    assert alice.agents.verify() == ()


def check_message(error: DibsError, shown: str) -> None:
    """It says something, in one line of a sensible length, and every surface can print it."""
    assert error.message.strip(), shown
    assert len(error.message) < 500, shown
    assert "\n" not in error.message, shown
    assert str(error.to_json()).encode("utf-8"), shown


@pytest.mark.parametrize("name", FLAGGED)
def test_an_odd_flag_raises_nothing_unforeseen(name, alice, ids):
    for argument in OPERATIONS[name].arguments().values():
        if argument.type != "bool":
            continue
        odd: Any
        for odd in ("no", 0, None, [], Odd(), math.nan):
            args, options = with_bad(name, argument, odd, ids)
            try:
                call(alice, name, args, options)
            except RefusedError:
                continue
            except InvalidError as error:
                check_message(error, f"{name}: {argument.name}={odd!r}")


# Resources.

ESCAPING = [
    "..", "../x", "a/../../x", "/etc/passwd", "path:../x", "path:/etc/passwd", "../*.py",
    "a/../../*", ".dibs", ".dibs/dibs.db", "path:.dibs",
]  # fmt: skip
BROKEN = [
    "", "path:", "a\0b", "path:a\0b", "port:\0", "*\0", "a\nb", "\x1b", "\ud800", "path:\ud800",
    "port:\ud800", "*.\ud800", "x" * 5_000, "path:" + "x" * 5_000, "port:" + "9" * 5_000,
    "*" * 5_000, "a/" * 5_000, "x" * 256, "a*/../b",
]  # fmt: skip


@pytest.mark.parametrize(
    "verb", ["claim", "renew", "release", "revoke", "status", "wait", "outcomes"]
)
def test_a_path_that_is_broken_or_escapes_is_refused(verb, alice):
    last = alice.events.last()
    for text in (*ESCAPING, *BROKEN):
        for resources in ((text,), ("src/a.py", text)):
            with pytest.raises(InvalidError) as refused:
                getattr(alice.leases, verb)(*resources)
            check_message(refused.value, repr(text[:40]))
            assert alice.events.last() == last
    assert alice.leases.list() == ()


def test_files_of_a_task_are_checked_as_any_other(alice):
    last = alice.events.last()
    for text in (*ESCAPING, *BROKEN):
        with pytest.raises(InvalidError):
            alice.work.claim("t1", leases=["src/a.py", text])
        assert alice.events.last() == last
    assert alice.work.list() == ()


def test_nothing_and_too_much_are_refused(alice):
    last = alice.events.last()
    for verb in ("claim", "renew", "release", "revoke"):
        with pytest.raises(InvalidError):
            getattr(alice.leases, verb)()
    with pytest.raises(InvalidError, match="limit is 200"):
        alice.leases.claim(*(f"port:{number}" for number in range(201)))
    with pytest.raises(InvalidError):
        alice.leases.renew("port:1", everything=True)
    assert alice.events.last() == last


# Names and limits.

LONG = "n" * 5_000


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: agent.work.add(LONG),
        lambda agent: agent.work.claim(LONG),
        lambda agent: agent.work.add("t", kind=LONG),
        lambda agent: agent.work.add("t", tags=[LONG]),
        lambda agent: agent.work.add("t", after=[LONG]),
        lambda agent: agent.work.add("t", title=LONG),
        lambda agent: agent.state.set(LONG, "k", 1),
        lambda agent: agent.state.set("n", LONG, 1),
        lambda agent: agent.messages.send("hello", to=LONG),
        lambda agent: agent.messages.send("hello", channel=LONG),
        lambda agent: agent.leases.claim("port:1", note=LONG),
        lambda agent: agent.agents.beat(status=LONG),
        lambda agent: agent.work.add("t", idempotency_key=LONG),
        lambda agent: agent.join(LONG),
        lambda agent: agent.join("carol", status=LONG),
        lambda agent: agent.join("carol", client=LONG),
        lambda agent: agent.agents.rename(LONG),
        lambda agent: agent.subagent(LONG),
    ],
)
def test_a_name_of_five_thousand_characters_is_refused_with_its_limit(wrong, alice):
    last = alice.events.last()
    with pytest.raises(InvalidError, match=r"the limit is \d") as refused:
        wrong(alice)
    assert refused.value.details["limit"] in (NAME_LIMIT, 2_000)
    assert alice.events.last() == last


@pytest.mark.parametrize("name", ["", "  ", " a", "a ", "a b", "a,b", "/a", "a/", "a//b", "a\nb"])
def test_what_is_no_name_for_an_agent_is_refused(name, alice):
    last = alice.events.last()
    for wrong in (
        lambda: alice.join(name),
        lambda: alice.agents.rename(name),
        lambda: alice.messages.send("hello", to=name),
    ):
        with pytest.raises(InvalidError):
            wrong()
    assert alice.events.last() == last


def test_a_join_checks_all_it_is_given(space):
    last = space.events.last()
    for name in (*NOT_TEXT, *BAD_TEXT, *BAD_NAMES, None):
        with pytest.raises(InvalidError):
            space.join(name)
    for status in (*NOT_TEXT, *BAD_TEXT, None):
        with pytest.raises(InvalidError):
            space.join("alice", status=status)
    for ttl_s in (*NOT_SECONDS, *BAD_SECONDS, 0, None):
        with pytest.raises(InvalidError):
            space.join("alice", ttl_s=ttl_s)
    assert space.events.last() == last


def test_a_token_that_is_none_is_refused(space, alice):
    last = alice.events.last()
    session, _, signature = alice.token.partition(".")
    for token in (
        "", ".", session, f"{session}.", f".{signature}", f"{session}.{signature}x",
        f"\u00b2.{signature}", f"\u0663.{signature}", f"-1.{signature}", f"{2**64}.{signature}",
        f"{'9' * 5_000}.x", "\ud800", f"{session}.\ud800", *NOT_TEXT, None,
    ):  # fmt: skip
        with pytest.raises((RefusedError, InvalidError)):
            space.resume(token)
    assert alice.events.last() == last
    assert space.resume(alice.token).session == alice.session


def test_a_value_over_the_limit_is_refused_and_the_limit_is_said(alice):
    fits, over = "x" * (VALUE_LIMIT - 2), "x" * (VALUE_LIMIT - 1)
    assert alice.state.set("plan", "big", fits).version == 1
    last = alice.events.last()
    for wrong in (
        lambda: alice.state.set("plan", "bigger", over),
        lambda: alice.work.add("big", payload=over),
        lambda: alice.state.set("plan", "bigger", "é" * (VALUE_LIMIT // 2)),
    ):
        with pytest.raises(InvalidError, match=f"{VALUE_LIMIT:,}") as refused:
            wrong()
        assert refused.value.details["limit"] == VALUE_LIMIT
    assert alice.events.last() == last
    with pytest.raises(InvalidError, match=f"{BODY_LIMIT:,}"):
        alice.messages.announce("x" * (BODY_LIMIT + 1))
    assert alice.events.last() == last


def test_a_value_that_is_taken_can_be_read_from_anywhere(alice):
    """Whoever reads it may be deep in a program, where little of the stack is left."""
    for depth in (10, 60, 100, 200, 400, 800, 900, 950, 990):
        value: Any = 1
        for _ in range(depth):
            value = [value]
        try:
            alice.state.set("deep", str(depth), value)
        except InvalidError:
            continue

    def read_at(level: int) -> int:
        return read_at(level - 1) if level else len(alice.state.list("deep"))

    assert read_at(600) >= 2


def test_the_bounds_of_times_are_said(alice):
    for wrong, bound in (
        (lambda: alice.leases.claim("port:1", ttl_s=TTL_MAX_S + 1), f"{TTL_MAX_S:g}"),
        (lambda: alice.leases.claim("port:1", ttl_s=0.5), "1"),
        (lambda: alice.leases.claim("port:1", wait_s=WAIT_MAX_S + 1), f"{WAIT_MAX_S:g}"),
    ):
        with pytest.raises(InvalidError, match=f"between .*{bound}"):
            wrong()


# Things that are not there.


def test_unknown_ids_are_not_found(alice, bob):
    last = alice.events.last()
    for wrong in (
        lambda: alice.work.show("nothing"),
        lambda: alice.work.complete("nothing"),
        lambda: alice.work.renew("nothing"),
        lambda: alice.work.fail("nothing"),
        lambda: alice.work.abandon("nothing"),
        lambda: alice.work.cancel("nothing"),
        lambda: alice.work.reopen("nothing"),
        lambda: alice.work.revoke("nothing"),
        lambda: alice.agents.revoke_token(999),
        lambda: alice.messages.ack(999),
        lambda: alice.messages.delivery(999),
        lambda: alice.messages.send("hello", reply_to=999),
        lambda: alice.state.delete("plan", "nothing"),
        lambda: alice.leases.renew("port:1"),
        lambda: alice.leases.release("port:1"),
        lambda: alice.leases.revoke("port:1"),
    ):
        with pytest.raises(NotFoundError) as refused:
            wrong()
        check_message(refused.value, "not found")
        assert alice.events.last() == last


# Opening.


@pytest.mark.parametrize("space", [*NOT_TEXT, *BAD_TEXT, *BAD_NAMES, " "])
def test_a_bad_name_for_a_space_is_refused(space, url, tmp_path):
    with pytest.raises(InvalidError):
        dibs.open(url, space=space, user_dir=str(tmp_path / "user"))


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "slow"},
        {"durability": None},
        {"durability": []},
        {"start": "a\0b"},
        {"start": "\ud800"},
        {"start": 5},
        {"key": b"short"},
        {"key": "text"},
        {"key": 5},
        {"user_dir": "a\0b"},
        {"user_dir": 5},
    ],
    ids=str,
)
def test_a_bad_option_is_refused_at_the_door(options, url, space_name, tmp_path):
    arguments = {"space": space_name, "user_dir": str(tmp_path / "user")} | options
    with pytest.raises(DibsError):
        dibs.open(url, **arguments)


@pytest.mark.parametrize("address", [5, b"x.db", ["x.db"], Odd(), "", "a\0b", "\ud800"])
def test_a_bad_address_is_refused(address, tmp_path):
    with pytest.raises(InvalidError):
        dibs.open(address, space="here", user_dir=str(tmp_path / "user"))


def test_an_address_may_be_a_path_object(tmp_path):
    folder = Path(tmp_path) / "store"
    with dibs.open(folder / "dibs.db", space="here", user_dir=tmp_path / "user") as space:
        assert space.events.last() == 0
    assert (folder / "dibs.db").exists()


# What the markers say.

# What a write may bring about besides: the end of what a session or a task had, and its hand-over.
CONSEQUENCES = {"lease.freed", "lease.claimed", "task.freed", "task.available"}


@pytest.mark.parametrize("name", WRITING)
def test_an_operation_writes_the_events_that_its_marker_names(name, alice, ids):
    args, options = RIGHT[name]
    caller = alice
    if name == "agents.beat":
        options = {"status": "working"}
    elif name == "agents.rename":
        caller, args = alice.join("carol"), ("zoe",)  # somebody who holds nothing
    elif name == "agents.leave":
        caller = alice.join("carol")
    before = alice.events.last()
    call(caller, name, tuple(numbered(args, ids)), options)
    written = {event.kind for event in alice.events.since(before)}
    declared = set(OPERATIONS[name].events)
    assert written & declared, f"{name} wrote {written}"
    assert written <= declared | CONSEQUENCES, f"{name} wrote {written - declared}"


@pytest.mark.parametrize("names", [READING], ids=["reading"])
def test_an_operation_without_events_writes_none(names, alice, ids):
    before = alice.events.last()
    for name in names:
        args, options = RIGHT[name]
        call(alice, name, tuple(numbered(args, ids)), options)
    assert alice.events.last() == before


def test_a_name_has_one_spelling(alice, bob):
    """The same name typed on two systems, composed and decomposed, is the same thing."""
    alice.work.add("caf\u00e9")
    assert bob.work.claim("cafe\u0301").id == "caf\u00e9"
    bob.state.set("men\u0303u", "a", 1)
    assert alice.state.get("me\u00f1u", "a").value == 1
