"""Many at once: one transaction, all or nothing or each by itself, as so many single calls."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

import dibs
from dibs.storage.postgres_pipeline import Pipeline
from tests.contract.waiting import result
from tests.contract.world import direct, with_tests


def tasks(*ids: str, **options: object) -> list[dict[str, object]]:
    return [{"id": id, **options} for id in ids]


def ids(found: object) -> list[str]:
    return [one.id for one in found]  # type: ignore[attr-defined]


def kinds(agent: dibs.Agent, after: int) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in agent.events.since(after)]


# Adding.


def test_many_tasks_are_added_in_order_each_with_its_own_event(alice):
    before = alice.events.last()
    added = alice.work.add_many(tasks("a", "b", "c", priority=2, tags=["x"], payload={"n": [1]}))
    assert ids(added) == ["a", "b", "c"]
    assert [task.seq for task in added] == [before + 1, before + 2, before + 3]
    assert kinds(alice, before) == [("task.added", id) for id in "abc"]
    assert alice.work.list() == added
    assert alice.work.show("b") == added[1]


def test_an_item_is_what_the_single_call_would_have_made(alice, bob):
    options = {
        "title": "t", "kind": "k", "priority": 3, "tags": ["y", "x"], "after": ["one"],
        "payload": {"é": 1}, "max_attempts": 7, "delay_s": 60,
    }  # fmt: skip
    one = alice.work.add("single", **options)
    (many,) = alice.work.add_many([{"id": "many", **options}])
    left = {"id": "", "seq": 0, "added_at": 0, "changed_at": 0, "due_in_ms": 0}
    assert one.to_json() | left == many.to_json() | left


def test_one_that_cannot_be_added_leaves_none(alice):
    alice.work.add("b")
    before = alice.events.last()
    with pytest.raises(dibs.ExistsError, match=r"item 2 of 3.*the task b already exists") as caught:
        alice.work.add_many(tasks("a", "b", "c"))
    assert caught.value.details["item"] == 1
    assert caught.value.details["task"].id == "b"
    assert alice.events.last() == before
    assert ids(alice.work.list()) == ["b"]


def test_each_by_itself_says_of_each_what_came_of_it(alice):
    alice.work.add("b")
    before = alice.events.last()
    items = [
        *tasks("a", "b", "a"),
        {"id": ""},
        {"name": "x"},
        7,
        {"id": "c", "colour": 1},
        {"id": "d"},
    ]
    found = alice.work.add_many(items, each=True)
    assert [type(one).__name__ for one in found] == [
        "Task", "ExistsError", "ExistsError", "InvalidError", "InvalidError", "InvalidError",
        "InvalidError", "Task",
    ]  # fmt: skip
    assert found[1].details["task"].id == "b"
    assert found[1].next
    assert kinds(alice, before) == [("task.added", "a"), ("task.added", "d")]


def test_without_each_a_wrong_item_is_refused_before_anything_is_done(alice):
    before = alice.events.last()
    for wrong in ({"id": ""}, {}, {"id": "x", "colour": 1}, {"id": "x", "priority": "high"}, "x"):
        with pytest.raises(dibs.InvalidError, match="item 2 of 2"):
            alice.work.add_many([{"id": "a"}, wrong])
    assert alice.events.last() == before


def test_nothing_at_all_is_nothing_done(alice):
    before = alice.events.last()
    assert alice.work.add_many([]) == ()
    assert alice.work.complete_many([], each=True) == ()
    assert alice.messages.send_many([]) == ()
    assert alice.events.last() == before


def test_too_many_or_too_large_is_refused_with_the_limit(alice):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError, match=r"1,001 items.*the limit is 1,000") as caught:
        alice.work.add_many(tasks(*map(str, range(1001))))
    assert caught.value.details["limit"] == 1000
    large = tasks(*map(str, range(5)), payload="x" * 1_000_000)
    with pytest.raises(dibs.InvalidError, match=r"characters.*the limit is") as caught:
        alice.work.add_many(large, each=True)
    assert caught.value.next
    assert alice.events.last() == before
    for wrong in (None, "x", {"id": "a"}, 7):
        with pytest.raises(dibs.InvalidError):
            alice.work.add_many(wrong)
    assert len(alice.work.add_many(tasks(*map(str, range(1000))))) == 1000


def test_a_plan_may_be_added_in_any_order(alice):
    added = alice.work.add_many(
        [
            {"id": "c", "after": ["b"]},
            {"id": "b", "after": ["a"]},
            {"id": "a"},
            {"id": "d", "after": ["a", "missing"]},
        ]
    )
    assert [task.state for task in added] == ["blocked", "blocked", "available", "blocked"]
    for id in "abc":
        task = alice.work.next()
        assert task.id == id
        alice.work.complete(id)


def test_tasks_may_need_more_than_a_statement_takes(alice):
    alice.work.add("n0")
    alice.work.complete(alice.work.claim("n0").id)
    needs = [f"n{number}" for number in range(1000)]
    items = [{"id": f"t{n}", "after": [f"{n}-{need}" for need in needs]} for n in range(34)]
    added = alice.work.add_many([*items, {"id": "open", "after": ["n0"]}])
    assert [task.state for task in added] == ["blocked"] * 34 + ["available"]
    assert len(alice.work.show("t33").after) == 1000


def test_a_cycle_within_the_items_and_with_the_store_is_refused(alice):
    alice.work.add("old", after=["new"])
    items = [
        {"id": "a", "after": ["b"]},
        {"id": "b", "after": ["c"]},
        {"id": "c", "after": ["a"]},
        {"id": "self", "after": ["self"]},
        {"id": "new", "after": ["between"]},
        {"id": "between", "after": ["old"]},
    ]
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError, match="wait for each other") as caught:
        alice.work.add_many(items)
    assert caught.value.details["item"] == 2
    assert set(caught.value.details["cycle"]) == {"a", "b", "c"}
    assert alice.events.last() == before
    found = alice.work.add_many(items, each=True)
    assert [isinstance(one, dibs.InvalidError) for one in found] == [
        False, False, True, True, False, True,
    ]  # fmt: skip


def test_tasks_of_new_lanes_are_found_by_next(alice):
    alice.work.add_many(
        [{"id": "a", "kind": "k"}, {"id": "b", "kind": "k"}, {"id": "c", "tags": ["x"]}]
    )
    assert alice.work.next(kind="k").id == "a"
    assert alice.work.next(tags=["x"]).id == "b"
    assert alice.work.next(tags=["x"]).id == "c"


# Taking.


def test_next_of_many_gives_what_single_calls_would(alice, bob):
    plan = [
        {"id": f"{name}{number}", "priority": (number * 7) % 3, "kind": kind, "tags": tags}
        for name, kind, tags in (("a", "", []), ("b", "k", []), ("c", "k", ["x"]), ("d", "", ["y"]))
        for number in range(6)
    ]
    alice.work.add_many(plan)
    before = alice.events.last()
    found = alice.work.next_many(10, tags=["x"])
    assert [event.seq for event in alice.events.since(before)] == [t.epoch for t in found]
    assert len({task.epoch for task in found}) == 10
    assert {task.agent for task in found} == {"alice"}
    for task in found:
        alice.work.abandon(task.id, epoch=task.epoch)
    assert [bob.work.next(tags=["x"]).id for _ in range(10)] == ids(found)


def test_next_of_many_gives_what_there_is(alice):
    alice.work.add_many(tasks("a", "b"))
    assert ids(alice.work.next_many(5)) == ["a", "b"]
    with pytest.raises(dibs.EmptyError):
        alice.work.next_many(5)
    for wrong in (0, 1001, "x", True):
        with pytest.raises(dibs.InvalidError):
            alice.work.next_many(wrong)


def test_next_of_many_takes_what_is_due_and_what_the_dead_had(opener, alice, clock):
    alice.work.add("late", delay_s=5)
    alice.work.add("mine")
    opener.killed_holder(task="theirs")
    clock.advance(60)
    assert sorted(ids(alice.work.next_many(9))) == ["late", "mine", "theirs"]


def test_a_waiting_next_of_many_answers_as_soon_as_one_is_there(alice, bob, background):
    waiter = background(bob.work.next_many, 9, wait_s=3_600)
    alice.work.add("a")
    assert ids(result(waiter)) == ["a"]


def test_no_task_is_given_twice(opener, space, alice, bob, background):
    alice.work.add_many(tasks(*map(str, range(60))))
    agents = [alice, bob, opener.join(space, "dora")]
    waiters = [background(agent.work.next_many, 7) for agent in agents for _ in range(3)]
    found = [id for waiter in waiters for id in ids(result(waiter))]
    assert len(found) == len(set(found)) == 60


# Completing.


def test_many_tasks_are_completed_and_what_waited_for_them_opens(alice):
    alice.work.add_many([*tasks("a", "b"), {"id": "c", "after": ["a", "b"]}])
    taken = alice.work.next_many(5)
    before = alice.events.last()
    done = alice.work.complete_many(
        [{"id": task.id, "epoch": task.epoch, "result": {"n": task.id}} for task in taken]
    )
    assert [task.state for task in done] == ["completed", "completed"]
    assert kinds(alice, before) == [
        ("task.completed", "a"), ("task.completed", "b"), ("task.available", "c"),
    ]  # fmt: skip
    assert [alice.work.show(id) for id in "ab"] == list(done)
    assert alice.work.next().id == "c"


def test_more_than_a_statement_stores_at_once(alice, bob):
    alice.work.add_many([{"id": f"{n:02}", "payload": {"n": n}} for n in range(45)])
    bob.work.claim("07")
    before = alice.events.last()
    taken = alice.work.next_many(45, ttl_s=100)
    assert ids(taken) == [f"{n:02}" for n in range(45) if n != 7]
    assert [task.epoch for task in taken] == [before + n for n in range(1, 45)]
    assert [alice.work.show(task.id) for task in taken[::10]] == list(taken[::10])
    items = [{"id": task.id, "epoch": task.epoch, "result": [task.id]} for task in taken]
    del items[3]["result"]
    items[5]["epoch"] = 1
    items.insert(30, {"id": "07"})
    items.append(items[0])
    made = alice.work.complete_many(items, each=True)
    wrong = [place for place, one in enumerate(made) if isinstance(one, dibs.StaleError)]
    assert wrong == [5, 30, 45]
    done = [one for one in made if isinstance(one, dibs.Task)]
    assert [alice.work.show(task.id) for task in done] == done
    assert done[3].result is None
    assert done[4].result == ["04"]
    assert ids(alice.work.list(state="claimed")) == ["05", "07"]
    assert [task.agent for task in alice.work.list(state="completed")] == ["alice"] * 43
    alice.work.complete("05")


def test_a_completed_item_is_what_the_single_call_would_have_made(alice):
    for id in ("one", "many"):
        alice.work.claim(id, leases=[f"file-{id}"])
    one = alice.work.complete("one", result=[1], announce="x", entry=entry("k"))
    (many,) = alice.work.complete_many(
        [{"id": "many", "result": [1], "announce": "x", "entry": entry("l")}]
    )
    left = {"id": "", "seq": 0, "epoch": 0, "added_at": 0, "changed_at": 0}
    assert one.to_json() | left == many.to_json() | left
    assert alice.leases.list() == ()


def entry(key: str, **more: object) -> dict[str, object]:
    return {"namespace": "n", "key": key, "value": 1, **more}


def test_a_completion_that_is_refused_leaves_its_neighbours(alice, bob):
    alice.work.add_many(tasks("a", "b", "c", "d"))
    bob.work.claim("d")
    taken = alice.work.next_many(3)
    before = alice.events.last()
    items = [
        {"id": "a", "entry": entry("k", expected_version=7), "announce": "never"},
        {"id": "b", "epoch": taken[1].epoch + 1},
        {"id": "c", "entry": entry("k")},
        {"id": "d"},
        {"id": "missing"},
        {"id": "c"},
    ]
    with pytest.raises(dibs.ConflictError) as caught:
        alice.work.complete_many(items)
    assert caught.value.details["item"] == 0
    assert alice.events.last() == before
    found = alice.work.complete_many(items, each=True)
    assert [type(one).__name__ for one in found] == [
        "ConflictError", "StaleError", "Task", "StaleError", "NotFoundError", "StaleError",
    ]  # fmt: skip
    assert found[0].current is None
    assert kinds(alice, before) == [("task.completed", "c"), ("entry.set", "n/k")]
    assert [event.seq for event in alice.events.since(before)] == [before + 1, before + 2]
    assert [alice.work.show(id).state for id in "abcd"] == [
        "claimed", "claimed", "completed", "claimed",
    ]  # fmt: skip


def test_files_claimed_with_the_tasks_go_to_who_waits(alice, bob, background):
    alice.work.claim("a", leases=["f"])
    alice.work.claim("b")
    waiter = background.queued(bob, "f")
    alice.work.complete_many(tasks("b", "a"))
    assert result(waiter).leases[0].agent == "bob"


# Sending.


def test_many_messages_are_sent_in_order(alice, bob):
    first = bob.messages.send("what is it?", to="alice")
    before = alice.events.last()
    sent = alice.messages.send_many(
        [
            {"body": "one", "to": "bob"},
            {"body": "two", "reply_to": first.id},
            {"body": "three", "channel": "build"},
        ]
    )
    assert [message.id for message in sent] == [before + 1, before + 2, before + 3]
    assert (sent[1].to, sent[1].thread) == ("bob", first.id)
    assert [message.body for message in bob.messages.inbox()] == ["one", "two"]
    assert alice.messages.search("two")[0].id == sent[1].id


def test_a_message_that_cannot_be_sent_leaves_its_neighbours(alice):
    items = [
        {"body": "a"},
        {"body": "b", "reply_to": 999},
        {"body": "c", "to": "x", "channel": "y"},
    ]
    with pytest.raises(dibs.NotFoundError):
        alice.messages.send_many(items)
    found = alice.messages.send_many(items, each=True)
    assert [type(one).__name__ for one in found] == ["Message", "NotFoundError", "InvalidError"]
    assert [message.body for message in alice.messages.history()] == ["a"]


# Asked twice.


def test_each_item_is_done_once_per_key_of_its_own(alice, clock):
    items = [{"id": id, "idempotency_key": f"key {id}"} for id in "ab"]
    first = alice.work.add_many(items)
    last = alice.events.last()
    clock.advance(3)
    assert alice.work.add_many(items) == first
    assert alice.work.add_many(items, each=True) == first
    assert alice.events.last() == last
    assert alice.work.add("a", idempotency_key="key a") == first[0]
    more = alice.work.add_many([*items, {"id": "c"}])
    assert more[:2] == first
    assert more[2].id == "c"


def test_a_key_serves_a_batch_and_a_single_call_alike(alice):
    first = alice.messages.send("hello", idempotency_key="key")
    assert alice.messages.send_many([{"body": "hello", "idempotency_key": "key"}]) == (first,)
    with pytest.raises(dibs.InvalidError, match="used for another call"):
        alice.messages.send_many([{"body": "other", "idempotency_key": "key"}])
    twice = [{"body": "twin", "idempotency_key": "twin"}] * 2
    one, two = alice.messages.send_many(twice)
    assert one == two
    assert len(alice.messages.history()) == 2


def test_what_each_came_to_is_remembered_with_the_call(alice):
    alice.work.add("b")
    first = alice.work.add_many(tasks("a", "b"), each=True, idempotency_key="key")
    last = alice.events.last()
    again = alice.work.add_many(tasks("a", "b"), each=True, idempotency_key="key")
    assert again[0] == first[0]
    assert isinstance(again[1], dibs.ExistsError)
    assert (again[1].message, again[1].next) == (first[1].message, first[1].next)
    assert again[1].details["task"] == first[1].details["task"]
    assert alice.events.last() == last


# Killed half way.


def test_a_process_that_is_killed_leaves_whole_batches(opener, alice):
    arguments = [opener.url, opener.name, opener.user_dir]
    process = subprocess.Popen(
        [sys.executable, "-c", ADD_FOR_EVER, *arguments], env=with_tests(), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.kill()
    told = 3 + process.communicate()[0].count(b"\n")
    numbers = Counter(int(task.id.partition("-")[0]) for task in all_tasks(alice))
    assert set(numbers.values()) == {40}
    assert told <= len(numbers) <= told + 1  # the last may be done although nobody was told
    assert sorted(numbers) == list(range(len(numbers)))


def all_tasks(agent: dibs.Agent) -> list[dibs.Task]:
    found: list[dibs.Task] = []
    while page := agent.work.list(after=found[-1].seq if found else 0, limit=1000):
        found += page
    return found


ADD_FOR_EVER = """
import itertools, sys, dibs
from tests.clock import ManualClock
url, name, user_dir = sys.argv[1:]
clock = None if url.startswith("http") else ManualClock()
agent = dibs.open(url, space=name, user_dir=user_dir, clock=clock).join("adder")
for batch in itertools.count():
    agent.work.add_many([{"id": f"{batch}-{n}"} for n in range(40)])
    print(batch, flush=True)
"""


# The store's limit.


@direct("the limit is that of the opening")
def test_a_store_that_is_full_does_none_of_it(opener, alice):
    if opener.on_postgres:
        return  # the server has its own limits
    alice.work.add_many(tasks(*map(str, range(200)), payload="x" * 8_000))
    small = dibs.open(opener.url, space=opener.name, user_dir=opener.user_dir, clock=opener.clock,
                      size_limit=1 << 20)  # fmt: skip
    with small, small.join("zoe") as zoe, pytest.raises(dibs.SpaceFullError):
        zoe.work.add_many(tasks("x", "y"), each=True)
    assert len(alice.work.list(limit=1000)) == 200


# How often a caller goes to a server.


def test_a_batch_goes_to_the_server_as_often_as_one_call(
    postgres_url, space_name, tmp_path, monkeypatch
):
    trips = [0]
    exchange = Pipeline.exchange

    def counted(self, after=None):
        trips[0] += 1
        return exchange(self, after)

    def of(call, *args):
        trips[0] = 0
        return call(*args), trips[0]

    with dibs.open(postgres_url, space=space_name, user_dir=tmp_path / "user") as space:
        agent = space.join("alice")
        monkeypatch.setattr(Pipeline, "exchange", counted)
        # By the second round the lanes that fit are known. After more events than these a space
        # would look whether it has to prune itself.
        for round in ("first", "again"):
            many = tasks(*(f"{round} {n}" for n in range(20)), tags=["x"])
            added = of(agent.work.add_many, many)[1]
            taken, took = of(lambda: agent.work.next_many(20, tags=["x"]))
            done = of(agent.work.complete_many, [{"id": task.id} for task in taken])[1]
            sent = of(agent.messages.send_many, [{"body": "hello"}] * 20)[1]
        single = of(agent.work.add, "one")[1]
        assert (single, added, done, sent) == (2, 2, 2, 2)
        assert took <= 4  # the heads, then their rows; once a second also who has claimed
