"""Asked twice, done once: a mutation repeated with its idempotency key gives the first answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.dibs import operations
from dibs.operation import Operation
from tests.contract.waiting import result
from tests.contract.world import LONG_S

Step = Callable[[dibs.Agent], object]
Call = Callable[[dibs.Agent, str], Any]

HARMLESS = {
    "agents.beat": "a second sign of life says the same",
    "agents.leave": "a session ends once",
    "leases.see": "what is in a file is the same the second time",
    "agents.rename": "a session that has the name keeps it",
    "agents.add_token": "the answer kept for a key would keep the secret; a token that nobody "
    "was told of is revoked",
    "agents.revoke_token": "a token is revoked once",
    "events.prune": "what is gone is gone",
}
"""Mutations without a key, and why they need none."""


def nothing(alice: dibs.Agent) -> None:
    """Some calls need no preparation."""


def claimed(alice: dibs.Agent) -> None:
    alice.work.claim("t", leases=["f"])
    alice.work.claim("u")


def asking(alice: dibs.Agent) -> None:
    for id in ("t", "u"):
        alice.work.claim(id)
        alice.work.ask(id, "May I?")


def cancelled(alice: dibs.Agent) -> None:
    for id in ("t", "u"):
        alice.work.add(id)
        alice.work.cancel(id)


def held(alice: dibs.Agent) -> None:
    alice.leases.claim("a", "b")


def held_beside_another(alice: dibs.Agent) -> None:
    held(alice)
    alice.subagent("other")


def intruded(alice: dibs.Agent) -> None:
    """Files that somebody else holds, and that have changed since."""
    of_others(alice)
    for name in ("a", "b"):
        Path(name).write_text("changed")


def of_others(alice: dibs.Agent) -> None:
    """Leases and tasks of somebody else, who stays."""
    other = alice.subagent("other")
    other.leases.claim("a", "b")
    claimed(other)


def entries(alice: dibs.Agent) -> None:
    for namespace in ("n", "m"):
        alice.state.set(namespace, "k", 1)


def tasks(alice: dibs.Agent) -> None:
    for id in ("t", "u"):
        alice.work.add(id, kind=id)


def posted(alice: dibs.Agent) -> None:
    """Two messages from somebody else, in the inbox and in a channel."""
    with alice.subagent("other") as other:
        other.messages.send("1")
        other.messages.send("2", channel="build")


def unread(agent: dibs.Agent) -> int:
    return agent.messages.history()[-1].id


# For each mutation: what must be there before, the call, and another call of the same kind.
CASES: dict[str, tuple[Step, Call, Call]] = {
    "leases.claim": (
        nothing,
        lambda a, key: a.leases.claim("a", "b", note="n", idempotency_key=key),
        lambda a, key: a.leases.claim("c", idempotency_key=key),
    ),
    "leases.renew": (
        held,
        lambda a, key: a.leases.renew("a", ttl_s=60, idempotency_key=key),
        lambda a, key: a.leases.renew("b", idempotency_key=key),
    ),
    "leases.release": (
        held,
        lambda a, key: a.leases.release("a", idempotency_key=key),
        lambda a, key: a.leases.release("b", idempotency_key=key),
    ),
    "leases.report": (
        intruded,
        lambda a, key: a.leases.report("a", by=["bob"], idempotency_key=key),
        lambda a, key: a.leases.report("b", idempotency_key=key),
    ),
    "leases.revoke": (
        of_others,
        lambda a, key: a.leases.revoke("a", reason="r", idempotency_key=key),
        lambda a, key: a.leases.revoke("b", idempotency_key=key),
    ),
    "leases.transfer": (
        held_beside_another,
        lambda a, key: a.leases.transfer("a", to="alice/other", idempotency_key=key),
        lambda a, key: a.leases.transfer("b", to="alice/other", idempotency_key=key),
    ),
    "leases.take": (
        of_others,
        lambda a, key: a.leases.take("a", reason="r", idempotency_key=key),
        lambda a, key: a.leases.take("b", idempotency_key=key),
    ),
    "work.add": (
        nothing,
        lambda a, key: a.work.add("t", payload={"x": [1]}, idempotency_key=key),
        lambda a, key: a.work.add("u", idempotency_key=key),
    ),
    "work.add_many": (
        nothing,
        lambda a, key: a.work.add_many([{"id": "t"}, {"id": "u"}], idempotency_key=key),
        lambda a, key: a.work.add_many([{"id": "v"}], idempotency_key=key),
    ),
    "work.claim": (
        nothing,
        lambda a, key: a.work.claim("t", leases=["f"], idempotency_key=key),
        lambda a, key: a.work.claim("u", idempotency_key=key),
    ),
    "work.next": (
        tasks,
        lambda a, key: a.work.next(idempotency_key=key),
        lambda a, key: a.work.next(kind="u", idempotency_key=key),
    ),
    "work.next_many": (
        tasks,
        lambda a, key: a.work.next_many(1, idempotency_key=key),
        lambda a, key: a.work.next_many(2, idempotency_key=key),
    ),
    "work.renew": (
        claimed,
        lambda a, key: a.work.renew("t", ttl_s=60, idempotency_key=key),
        lambda a, key: a.work.renew("u", idempotency_key=key),
    ),
    "work.complete": (
        claimed,
        lambda a, key: a.work.complete("t", result=1, announce="done", idempotency_key=key),
        lambda a, key: a.work.complete("u", idempotency_key=key),
    ),
    "work.complete_many": (
        claimed,
        lambda a, key: a.work.complete_many([{"id": "t", "result": 1}], idempotency_key=key),
        lambda a, key: a.work.complete_many([{"id": "u"}], idempotency_key=key),
    ),
    "work.fail": (
        claimed,
        lambda a, key: a.work.fail("t", reason="r", idempotency_key=key),
        lambda a, key: a.work.fail("u", idempotency_key=key),
    ),
    "work.abandon": (
        claimed,
        lambda a, key: a.work.abandon("t", idempotency_key=key),
        lambda a, key: a.work.abandon("u", idempotency_key=key),
    ),
    "work.cancel": (
        claimed,
        lambda a, key: a.work.cancel("t", idempotency_key=key),
        lambda a, key: a.work.cancel("u", idempotency_key=key),
    ),
    "work.revoke": (
        of_others,
        lambda a, key: a.work.revoke("t", reason="r", idempotency_key=key),
        lambda a, key: a.work.revoke("u", idempotency_key=key),
    ),
    "work.land": (
        claimed,
        lambda a, key: a.work.land("b", commit="1" * 40, task="t", idempotency_key=key),
        lambda a, key: a.work.land("b", commit="1" * 40, task="u", idempotency_key=key),
    ),
    "work.ask": (
        claimed,
        lambda a, key: a.work.ask("t", "May I?", idempotency_key=key),
        lambda a, key: a.work.ask("u", "May I?", idempotency_key=key),
    ),
    "work.ack": (
        asking,
        lambda a, key: a.work.ack("t", note="n", idempotency_key=key),
        lambda a, key: a.work.ack("u", idempotency_key=key),
    ),
    "work.put": (
        tasks,
        lambda a, key: a.work.put("t", title="new", idempotency_key=key),
        lambda a, key: a.work.put("u", title="new", idempotency_key=key),
    ),
    "work.put_many": (
        tasks,
        lambda a, key: a.work.put_many([{"id": "t", "title": "new"}], idempotency_key=key),
        lambda a, key: a.work.put_many([{"id": "u", "title": "new"}], idempotency_key=key),
    ),
    "work.edit": (
        tasks,
        lambda a, key: a.work.edit("t", title="new", idempotency_key=key),
        lambda a, key: a.work.edit("u", title="new", idempotency_key=key),
    ),
    "work.remove": (
        tasks,
        lambda a, key: a.work.remove("t", idempotency_key=key),
        lambda a, key: a.work.remove("u", idempotency_key=key),
    ),
    "work.reopen": (
        cancelled,
        lambda a, key: a.work.reopen("t", idempotency_key=key),
        lambda a, key: a.work.reopen("u", idempotency_key=key),
    ),
    "messages.send": (
        nothing,
        lambda a, key: a.messages.send("hello", to="alice/other", idempotency_key=key),
        lambda a, key: a.messages.send("hello", to="carol", idempotency_key=key),
    ),
    "messages.send_many": (
        nothing,
        lambda a, key: a.messages.send_many([{"body": "1"}, {"body": "2"}], idempotency_key=key),
        lambda a, key: a.messages.send_many([{"body": "1"}], idempotency_key=key),
    ),
    "messages.announce": (
        nothing,
        lambda a, key: a.messages.announce("hello", idempotency_key=key),
        lambda a, key: a.messages.announce("there", idempotency_key=key),
    ),
    "messages.inbox": (
        posted,
        lambda a, key: a.messages.inbox(idempotency_key=key),
        lambda a, key: a.messages.inbox(channel="build", idempotency_key=key),
    ),
    "messages.ack": (
        posted,
        lambda a, key: a.messages.ack(unread(a), idempotency_key=key),
        lambda a, key: a.messages.ack(unread(a) + 1, idempotency_key=key),
    ),
    "state.set": (
        nothing,
        lambda a, key: a.state.set("n", "k", {"x": [1, "é"]}, idempotency_key=key),
        lambda a, key: a.state.set("n", "k", 2, force=True, idempotency_key=key),
    ),
    "state.delete": (
        entries,
        lambda a, key: a.state.delete("n", "k", idempotency_key=key),
        lambda a, key: a.state.delete("m", "k", idempotency_key=key),
    ),
    "state.clear": (
        entries,
        lambda a, key: a.state.clear("n", idempotency_key=key),
        lambda a, key: a.state.clear("m", idempotency_key=key),
    ),
}


def has_key(operation: Operation) -> bool:
    return "idempotency_key" in operation.arguments()


def test_every_mutation_has_a_case_here():
    with_key = {name for name, operation in operations().items() if has_key(operation)}
    mutations = {name for name, operation in operations().items() if operation.mutates}
    assert with_key == set(CASES)
    assert mutations == set(CASES) | set(HARMLESS)


@pytest.mark.parametrize("name", CASES)
def test_asked_twice_done_once(alice, name, clock):
    prepare, call, _ = CASES[name]
    prepare(alice)
    begin = alice.events.last()
    first = call(alice, "key")
    last = alice.events.last()
    assert last > begin
    clock.advance(3)
    again = call(alice, "key")
    assert again == first
    assert type(again) is type(first)
    assert alice.events.last() == last


@pytest.mark.parametrize("name", CASES)
def test_another_call_with_the_same_key_is_refused(alice, name):
    prepare, call, other = CASES[name]
    prepare(alice)
    call(alice, "key")
    last = alice.events.last()
    with pytest.raises(dibs.InvalidError, match="used for another call"):
        other(alice, "key")
    # Nor can the key of one operation serve another one.
    stranger = "state.set" if name != "state.set" else "work.add"
    with pytest.raises(dibs.InvalidError, match="used for another call"):
        CASES[stranger][1](alice, "key")
    assert alice.events.last() == last
    # With a key of its own the other call is done.
    other(alice, "key 2")
    assert alice.events.last() > last


@pytest.mark.parametrize("key", ["", " key", "x" * 201, "a\0b", "\ud800", 7])
def test_a_wrong_key_is_refused_and_changes_nothing(alice, key):
    before = alice.events.last()
    for _, call, _ in (CASES["leases.claim"], CASES["work.add"], CASES["messages.inbox"]):
        with pytest.raises(dibs.InvalidError):
            call(alice, key)
    assert alice.events.last() == before


def test_keys_of_different_agents_do_not_meet(alice, bob):
    mine = alice.work.add("t", idempotency_key="key")
    yours = bob.work.add("u", idempotency_key="key")
    assert (mine.id, yours.id) == ("t", "u")


def test_the_answer_is_the_same_in_another_session_of_the_agent(opener, alice, elsewhere):
    first = alice.messages.send("hello", idempotency_key="key")
    alice.close()
    again = opener.join(elsewhere, "alice")
    assert again.messages.send("hello", idempotency_key="key") == first
    assert len(again.messages.history()) == 1


def test_a_refusal_is_not_remembered(alice, bob):
    alice.leases.claim("a")
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("a", idempotency_key="key")
    alice.leases.release("a")
    assert bob.leases.claim("a", idempotency_key="key").leases[0].agent == "bob"


def test_the_first_answer_is_given_even_when_it_is_no_longer_true(alice, bob):
    grant = alice.leases.claim("a", idempotency_key="key")
    alice.leases.release("a")
    bob.leases.claim("a")
    assert alice.leases.claim("a", idempotency_key="key") == grant
    assert [lease.agent for lease in bob.leases.list()] == ["bob"]


def test_a_claim_that_had_to_wait_is_remembered_too(alice, bob, background):
    alice.leases.claim("a", ttl_s=LONG_S)
    waiter = background.queued(bob, "a", idempotency_key="key")
    alice.leases.release("a")
    grant = result(waiter)
    bob.leases.release("a")
    last = bob.events.last()
    assert bob.leases.claim("a", wait_s=86_400, idempotency_key="key") == grant
    assert bob.events.last() == last
    assert bob.leases.list() == ()


def test_a_task_that_had_to_be_waited_for_is_remembered_too(alice):
    alice.work.add("t", delay_s=5)
    task = alice.work.next(wait_s=60, idempotency_key="key")
    alice.work.complete("t")
    assert alice.work.next(wait_s=60, idempotency_key="key") == task
    assert alice.work.show("t").state == "completed"


def test_messages_that_had_to_be_waited_for_are_remembered_too(alice, bob, background):
    waiter = background(bob.messages.inbox, wait_s=3_600, idempotency_key="key")
    sent = alice.messages.send("1", to="bob")
    assert result(waiter) == (sent,)
    alice.messages.send("2", to="bob")
    assert bob.messages.inbox(wait_s=3_600, idempotency_key="key") == (sent,)


@pytest.mark.parametrize("verb", ["release", "renew"])
def test_that_there_was_nothing_to_do_is_remembered_too(alice, verb):
    call = getattr(alice.leases, verb)
    assert call(everything=True, idempotency_key="key") == ()
    grant = alice.leases.claim("a")
    assert call(everything=True, idempotency_key="key") == ()
    assert alice.leases.list() == grant.leases


def test_that_a_namespace_was_empty_is_remembered_too(alice):
    assert alice.state.clear("n", idempotency_key="key") == 0
    alice.state.set("n", "k", 1)
    assert alice.state.clear("n", idempotency_key="key") == 0
    assert alice.state.get("n", "k").value == 1


def test_a_key_belongs_to_the_name_under_which_it_was_used(opener, space, alice):
    first = alice.messages.send("1", idempotency_key="key")
    alice.agents.rename("zoe")
    second = alice.messages.send("2", idempotency_key="key")
    assert second.id > first.id
    again = opener.join(space, "alice").messages.send("1", idempotency_key="key")
    assert again == first


def test_a_remembered_answer_is_forgotten_by_pruning(alice, clock):
    alice.work.add("t", idempotency_key="key")
    clock.advance(1)
    assert alice.events.prune(keep_s=0).answers == 1
    with pytest.raises(dibs.ExistsError):
        alice.work.add("t", idempotency_key="key")
