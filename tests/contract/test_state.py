"""State: JSON values at `namespace/key`, each with a version."""

from __future__ import annotations

import threading

import pytest

import dibs
from tests.contract.waiting import Background, result

# Get and set


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, "é\n", [], {"a": [1, {"b": None}]}, 2**53, "x" * 100_000],
    ids=lambda value: str(value)[:12],
)
def test_any_json_comes_back_as_it_was_set(alice, bob, value, clock):
    entry = alice.state.set("n", "k", value)
    assert (entry.namespace, entry.key, entry.value) == ("n", "k", value)
    assert (entry.version, entry.deleted, entry.author) == (1, False, "alice")
    assert (entry.set_at, entry.expires_in_ms) == (clock.wall(), None)
    assert bob.state.get("n", "k") == entry


def test_get_gives_nothing_where_there_is_nothing(alice, space):
    assert alice.state.get("n", "k") is None
    assert space.state.get("n", "k") is None


def test_a_plain_set_creates_but_never_overwrites(alice, bob):
    first = alice.state.set("n", "k", "mine")
    before = bob.events.last()
    with pytest.raises(dibs.ConflictError) as refusal:
        bob.state.set("n", "k", "yours")
    assert refusal.value.current == first
    assert refusal.value.next is not None and "expected_version=1" in refusal.value.next
    assert bob.events.last() == before
    assert bob.state.get("n", "k") == first


def test_compare_and_set_wins_only_over_the_version_it_saw(alice, bob, clock):
    alice.state.set("budget", "left", 10_000)
    assert bob.state.set("budget", "left", 5_000, expected_version=1).version == 2
    clock.advance(7)
    before = alice.events.last()
    with pytest.raises(dibs.ConflictError) as refusal:
        alice.state.set("budget", "left", 3_000, expected_version=1)
    current = refusal.value.current
    assert current is not None
    assert (current.value, current.version, current.author) == (5_000, 2, "bob")
    assert current.set_at == clock.wall() - 7_000
    assert "version 2" in refusal.value.message and "expected version 1" in refusal.value.message
    assert alice.events.last() == before
    assert alice.state.set("budget", "left", 2_000, expected_version=2).version == 3


def test_expected_version_zero_means_it_must_not_exist(alice):
    assert alice.state.set("n", "k", 1, expected_version=0).version == 1
    with pytest.raises(dibs.ConflictError):
        alice.state.set("n", "k", 2, expected_version=0)
    alice.state.delete("n", "k")
    assert alice.state.set("n", "k", 3, expected_version=0).version == 3


def test_a_version_expected_where_there_is_nothing_is_a_conflict(alice):
    before = alice.events.last()
    with pytest.raises(dibs.ConflictError) as refusal:
        alice.state.set("n", "k", 1, expected_version=3)
    assert refusal.value.current is None
    assert alice.events.last() == before


def test_force_overwrites_whatever_is_there(alice, bob):
    assert alice.state.set("n", "k", 1, force=True).version == 1
    entry = bob.state.set("n", "k", 2, force=True)
    assert (entry.version, entry.author) == (2, "bob")


def test_many_writers_with_the_version_they_saw_lose_no_update(opener, alice, bob):
    alice.state.set("n", "count", 0)

    def add_five(agent: dibs.Agent) -> None:
        done = 0
        while done < 5:
            entry = agent.state.get("n", "count")
            assert entry is not None
            try:
                agent.state.set("n", "count", entry.value + 1, expected_version=entry.version)
            except dibs.ConflictError:
                continue
            done += 1

    threads = [threading.Thread(target=add_five, args=(agent,)) for agent in (alice, bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entry = alice.state.get("n", "count")
    assert (entry.value, entry.version) == (10, 11)


@pytest.mark.parametrize(
    "call",
    [
        {"namespace": ""},
        {"namespace": "x" * 201},
        {"namespace": "a\0b"},
        {"key": ""},
        {"key": " k"},
        {"key": "x" * 5_000},
        {"key": "\ud800"},
        {"value": "x" * 1_048_576},
        {"value": float("inf")},
        {"value": {1, 2}},
        {"value": object()},
        {"value": "\ud800"},
        {"expected_version": -1},
        {"expected_version": "1"},
        {"expected_version": 0, "force": True},
        {"ttl_s": 0},
        {"ttl_s": -1},
        {"ttl_s": 10**12},
    ],
    ids=lambda call: ",".join(f"{k}={str(v)[:12]!r}" for k, v in call.items()),
)
@pytest.mark.parametrize("key", [None, "once"])
def test_a_wrong_set_is_refused_and_changes_nothing(alice, call, key):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.state.set(**{"namespace": "n", "key": "k", "value": 1, **call}, idempotency_key=key)
    assert alice.events.last() == before
    assert alice.state.namespaces() == {}


def test_a_value_of_exactly_the_limit_is_taken_and_the_refusal_says_the_limit(alice):
    assert alice.state.set("n", "k", "x" * (1_048_576 - 2)).version == 1
    with pytest.raises(dibs.InvalidError) as refusal:
        alice.state.set("n", "k", "x" * (1_048_576 - 1), force=True)
    assert refusal.value.details["limit"] == 1_048_576
    assert "1,048,576" in refusal.value.message


def test_without_a_session_nothing_can_be_changed(space):
    for call in (
        lambda: space.state.set("n", "k", 1),
        lambda: space.state.delete("n", "k"),
        lambda: space.state.clear("n"),
    ):
        with pytest.raises(dibs.NotYoursError):
            call()


# Delete, clear, history


def test_delete_leaves_a_tombstone(alice, bob):
    alice.state.set("n", "k", 1)
    gone = bob.state.delete("n", "k")
    assert (gone.version, gone.deleted, gone.value, gone.author) == (2, True, None, "bob")
    assert alice.state.get("n", "k") is None
    assert alice.state.list("n") == ()
    assert alice.events.since(kind="entry.deleted")[0].subject == "n/k"


def test_delete_is_refused_at_another_version_or_where_nothing_is(alice):
    alice.state.set("n", "k", 1)
    before = alice.events.last()
    with pytest.raises(dibs.ConflictError) as refusal:
        alice.state.delete("n", "k", expected_version=2)
    assert refusal.value.current is not None and refusal.value.current.version == 1
    with pytest.raises(dibs.NotFoundError):
        alice.state.delete("n", "other")
    with pytest.raises(dibs.InvalidError):
        alice.state.delete("", "k")
    with pytest.raises(dibs.InvalidError):
        alice.state.delete("n", "k", expected_version="1")
    assert alice.events.last() == before
    alice.state.delete("n", "k", expected_version=1)
    with pytest.raises(dibs.NotFoundError):
        alice.state.delete("n", "k")


def test_clear_deletes_a_namespace_and_no_other(alice):
    for key in ("a", "b", "c"):
        alice.state.set("n", key, key)
    alice.state.delete("n", "c")
    alice.state.set("n2", "a", 1)
    assert alice.state.clear("n") == 2
    assert alice.state.namespaces() == {"n2": 1}
    assert [entry.deleted for entry in alice.state.history("n", "a")] == [True, False]
    before = alice.events.last()
    assert alice.state.clear("n") == 0
    assert alice.events.last() == before
    with pytest.raises(dibs.InvalidError):
        alice.state.clear("")


def test_history_is_newest_first_with_tombstones(alice, bob):
    alice.state.set("n", "k", "one")
    bob.state.set("n", "k", "two", expected_version=1)
    alice.state.delete("n", "k")
    bob.state.set("n", "k", "four")
    told = [(e.version, e.value, e.deleted, e.author) for e in alice.state.history("n", "k")]
    assert told == [
        (4, "four", False, "bob"),
        (3, None, True, "alice"),
        (2, "two", False, "bob"),
        (1, "one", False, "alice"),
    ]
    assert [entry.version for entry in alice.state.history("n", "k", limit=2)] == [4, 3]
    assert [entry.version for entry in alice.state.history("n", "k", before=3)] == [2, 1]
    assert alice.state.history("n", "other") == ()
    for call in ({"limit": 0}, {"limit": 1_001}, {"before": 2**70}):
        with pytest.raises(dibs.InvalidError):
            alice.state.history("n", "k", **call)


def test_versions_never_repeat_over_delete_clear_prune_and_lapse(alice, clock):
    versions = [alice.state.set("n", "k", 1).version]
    versions.append(alice.state.delete("n", "k").version)
    versions.append(alice.state.set("n", "k", 2).version)
    alice.state.clear("n")
    clock.advance(1)
    alice.events.prune(keep_s=0)
    versions.append(alice.state.set("n", "k", 3, ttl_s=10).version)
    clock.advance(10)
    alice.events.prune(keep_s=0)
    versions.append(alice.state.set("n", "k", 4).version)
    assert versions == [1, 2, 3, 5, 6]


# Time to live


def test_an_entry_with_a_time_to_live_is_gone_when_that_is_over(alice, clock):
    entry = alice.state.set("n", "k", 1, ttl_s=60)
    assert entry.expires_in_ms == 60_000
    clock.advance(59)
    assert alice.state.get("n", "k").expires_in_ms == 1_000
    clock.advance(1)
    assert alice.state.get("n", "k") is None
    assert alice.state.list("n") == ()
    assert alice.state.namespaces() == {}
    assert alice.state.export("n").entries == ()
    assert alice.state.clear("n") == 0
    with pytest.raises(dibs.NotFoundError):
        alice.state.delete("n", "k")
    with pytest.raises(dibs.ConflictError) as refusal:
        alice.state.set("n", "k", 2, expected_version=1)
    assert refusal.value.current is None
    assert alice.state.set("n", "k", 2, expected_version=0).version == 2
    assert alice.state.get("n", "k").expires_in_ms is None


# List, namespaces, export


def test_list_is_by_key_and_paged(alice):
    for key in ("b", "a", "B", "é", "a/x"):
        alice.state.set("n", key, key)
    # The order of code points, the same on both databases.
    keys = [entry.key for entry in alice.state.list("n")]
    assert keys == ["B", "a", "a/x", "b", "é"]
    assert [entry.key for entry in alice.state.list("n", limit=2)] == keys[:2]
    assert [entry.key for entry in alice.state.list("n", after="a")] == keys[2:]
    assert alice.state.list("other") == ()
    for call in ({"limit": 0}, {"limit": 1_001}, {"after": "a\0"}):
        with pytest.raises(dibs.InvalidError):
            alice.state.list("n", **call)


def test_namespaces_are_listed_with_their_sizes(alice):
    alice.state.set("n", "a", 1)
    alice.state.set("n", "b", 1)
    alice.state.set("m", "a", 1)
    alice.state.set("gone", "a", 1)
    alice.state.delete("gone", "a")
    assert alice.state.namespaces() == {"m": 1, "n": 2}


def test_export_has_the_entries_and_the_whole_history(alice):
    alice.state.set("n", "b", 1)
    alice.state.set("n", "a", 1)
    alice.state.set("n", "a", 2, expected_version=1)
    alice.state.delete("n", "b")
    alice.state.set("m", "x", 1)
    export = alice.state.export("n")
    assert export.namespace == "n"
    assert [(entry.key, entry.value) for entry in export.entries] == [("a", 2)]
    told = [(entry.key, entry.version, entry.deleted) for entry in export.history]
    assert told == [("a", 2, False), ("a", 1, False), ("b", 2, True), ("b", 1, False)]
    assert dibs.EntryExport.from_json(export.to_json()) == export
    with pytest.raises(dibs.InvalidError):
        alice.state.export("")


# Watch


def test_watch_gives_the_next_change(alice, bob, background: Background):
    alice.state.set("n", "k", 1)
    waiter = background(bob.state.watch, "n", "k", after_version=1, wait_s=3_600)
    alice.state.set("n", "other", 1)
    entry = alice.state.set("n", "k", 2, expected_version=1)
    assert result(waiter) == entry


def test_watch_sees_a_change_that_came_before_it_began(alice, bob):
    alice.state.set("n", "k", 1)
    entry = alice.state.set("n", "k", 2, expected_version=1)
    assert bob.state.watch("n", "k", after_version=1) == entry
    assert bob.state.watch("n", "k", after_version=0) == entry


def test_watch_gives_a_creation_and_a_deletion(alice, bob, background: Background):
    waiter = background(bob.state.watch, "n", "k", after_version=0, wait_s=3_600)
    entry = alice.state.set("n", "k", 1)
    assert result(waiter) == entry
    waiter = background(bob.state.watch, "n", "k", after_version=1, wait_s=3_600)
    gone = alice.state.delete("n", "k")
    assert result(waiter) == gone
    assert gone.deleted


def test_watch_tells_of_an_entry_that_lapses(alice, bob):
    alice.state.set("n", "k", 1, ttl_s=30)
    entry = bob.state.watch("n", "k", wait_s=60)
    assert (entry.version, entry.deleted, entry.expires_in_ms) == (1, True, 0)


def test_watch_gives_up_after_its_time(alice, bob):
    assert bob.state.watch("n", "k", wait_s=5) is None
    alice.state.set("n", "k", 1, ttl_s=10)
    bob.state.watch("n", "k", wait_s=60)
    # What has lapsed already does not lapse again.
    assert bob.state.watch("n", "k", wait_s=5) is None
    with pytest.raises(dibs.InvalidError):
        bob.state.watch("n", "k", wait_s=-1)
    with pytest.raises(dibs.InvalidError):
        bob.state.watch("n", "")
    with pytest.raises(dibs.InvalidError):
        bob.state.watch("n", "k", after_version="1")
