"""Work that fits beside other work: tasks that declare their leases, and why none is given."""

from __future__ import annotations

import hashlib

import pytest

import dibs
from dibs.nouns.work.fitting import FIRST_PAGE, SKIPS
from tests.contract.waiting import Background, ContractClock, result
from tests.contract.world import direct


def held(agent: dibs.Agent) -> set[str]:
    return {lease.resource for lease in agent.leases.list(agent=agent.name)}


# Taking a task with its leases


def test_next_takes_the_task_and_its_leases_and_completing_releases_them(alice, bob):
    alice.work.add("t", leases=["src", "port:3000"], title="tidy")
    task = bob.work.next()
    assert {lease.resource for lease in task.leases} == held(bob) == {"src", "port:3000"}
    assert {(lease.task, lease.note) for lease in task.leases} == {("t", "tidy")}
    with pytest.raises(dibs.HeldError):
        alice.leases.claim("src/a.py")
    bob.work.complete("t")
    assert held(bob) == set()


@direct("a daemon sees the file only if it is on its own disk")
def test_the_content_of_a_declared_file_is_known_when_it_is_claimed(alice, checkout):
    (checkout / "a.py").write_text("1\n")
    alice.work.add("t", leases=["a.py"])
    (lease,) = alice.work.next().leases
    assert lease.content_hash == hashlib.sha256(b"1\n").hexdigest()
    (lease,) = alice.leases.list()
    assert lease.content_hash == hashlib.sha256(b"1\n").hexdigest()
    assert lease.checkout is not None


@pytest.mark.parametrize("end", ["fail", "abandon"])
def test_a_task_that_is_given_up_gives_up_its_leases(alice, end):
    alice.work.add("t", leases=["src"])
    alice.work.next()
    getattr(alice.work, end)("t")
    assert held(alice) == set()


def test_a_claim_that_lapses_frees_its_leases_for_the_next(alice, bob, clock):
    alice.work.add("t", leases=["src"])
    bob.work.next(ttl_s=60)
    clock.advance(61)
    task = alice.work.next()
    assert (task.id, {lease.agent for lease in task.leases}) == ("t", {"alice"})


def test_claiming_a_task_takes_what_it_declares_and_more(alice, bob):
    alice.work.add("t", leases=["src"])
    bob.work.claim("t", leases=["docs", "src"])
    assert held(bob) == {"src", "docs"}


def test_a_task_whose_leases_are_held_cannot_be_claimed(alice, bob):
    alice.work.add("t", leases=["src/a.py"])
    alice.leases.claim("src", note="tidy")
    before = bob.events.last()
    with pytest.raises(dibs.HeldError) as refusal:
        bob.work.claim("t")
    assert [blocker.resource for blocker in refusal.value.blockers] == ["src"]
    assert bob.events.last() == before
    assert bob.work.show("t").state == "available"


# Which one is given


def test_next_gives_the_best_task_whose_leases_are_free(alice, bob):
    alice.work.add("first", leases=["src/a.py"], priority=9)
    alice.work.add("second", leases=["src"], priority=8)
    alice.work.add("third", leases=["docs/*.md"], priority=7)
    alice.work.add("plain")
    assert alice.work.next().id == "first"
    assert bob.work.next().id == "third"
    assert bob.work.next().id == "plain"
    alice.work.complete("first")
    assert bob.work.next().id == "second"


def test_own_leases_are_no_obstacle(alice):
    alice.leases.claim("src")
    alice.work.add("t", leases=["src/a.py"])
    assert alice.work.next().id == "t"


def test_what_two_of_my_tasks_need_is_held_until_both_are_done(alice, bob):
    alice.work.add("one", leases=["src"])
    alice.work.add("two", leases=["src"])
    assert [task.id for task in alice.work.next_many(2)] == ["one", "two"]
    alice.work.complete("one")
    with pytest.raises(dibs.HeldError):
        bob.leases.claim("src")
    alice.work.complete("two")
    bob.leases.claim("src")
    assert bob.agents.verify() == ()


def test_many_at_once_get_what_single_calls_would(alice, bob):
    bob.leases.claim("b")
    for name in "abc":
        alice.work.add(name, leases=[name])
    alice.work.add("d")
    assert [task.id for task in alice.work.next_many(9)] == ["a", "c", "d"]


def test_a_lease_that_somebody_waits_for_is_not_given_with_a_task(
    alice, bob, carol, background: Background
):
    alice.leases.claim("src")
    waiting = background.queued(bob, "src", wait_s=60)
    alice.work.add("t", leases=["src/a.py"])
    alice.leases.release("src")
    assert result(waiting).leases[0].resource == "src"
    with pytest.raises(dibs.LaterError):
        carol.work.next()
    bob.leases.release("src")
    assert carol.work.next().id == "t"


def test_many_that_wait_for_one_lease_are_passed_and_come_back_in_order(alice, bob):
    number = FIRST_PAGE * 6
    alice.work.add_many(
        [{"id": f"t{n:03}", "leases": ["hot", f"own{n}"], "priority": 5} for n in range(number)]
    )
    alice.work.add("other", leases=["cold"])
    alice.leases.claim("hot")
    assert bob.work.next().id == "other"
    with pytest.raises(dibs.LaterError):
        bob.work.next()
    alice.leases.release("hot")
    taken: list[str] = []
    while len(taken) < number:
        task = bob.work.next()
        taken.append(task.id)
        bob.work.complete(task.id)
    assert taken == sorted(taken)


def test_a_task_that_was_set_aside_can_be_claimed_cancelled_and_reopened(alice, bob):
    for name in ("a", "b"):
        alice.work.add(name, leases=["src"])
    alice.leases.claim("src")
    with pytest.raises(dibs.LaterError):
        bob.work.next()
    bob.work.cancel("a")
    alice.leases.release("src")
    bob.work.reopen("a")
    assert bob.work.next().id == "a"
    bob.work.complete("a")
    assert alice.work.claim("b").state == "claimed"


def test_one_that_needs_much_has_its_turn_after_some_skips(alice, bob):
    # Two workers that never stop at the same moment: one of a and b is always held.
    alice.work.claim("a", leases=["a"])
    running = {bob: bob.work.claim("b", leases=["b"]).id, alice: "a"}
    alice.work.add("much", leases=["a", "b"], priority=1)
    for n in range(2 * SKIPS):
        alice.work.add(f"a{n}", leases=["a"])
        alice.work.add(f"b{n}", leases=["b"])
    given: list[str | None] = []
    while "much" not in given and len(given) < 10 * SKIPS:
        for agent, id in running.items():
            if id is not None:
                agent.work.complete(id)
            try:
                running[agent] = agent.work.next().id
            except dibs.LaterError as later:
                assert "much" in [one["id"] for one in later.details["waits"]]
                running[agent] = None
            given.append(running[agent])
    # The other worker is refused what it could have had, so that the first can finish.
    assert given.index("much") == SKIPS + 1
    assert given[SKIPS] is None
    assert [event.subject for event in alice.events.since(kind="task.turn")] == ["much"]


# Why none is given


def test_when_all_is_done_the_refusal_says_so(alice):
    with pytest.raises(dibs.AllDoneError, match="no tasks"):
        alice.work.next()
    alice.work.claim("t")
    alice.work.complete("t")
    with pytest.raises(dibs.AllDoneError) as refusal:
        alice.work.next()
    assert refusal.value.details["counts"] == {"completed": 1}
    assert refusal.value.exit_code == 3


def test_a_task_with_tags_is_not_silently_invisible(alice, bob):
    alice.work.add("t", tags=["gpu", "rust"])
    with pytest.raises(dibs.NothingFitsError, match="gpu") as refusal:
        bob.work.next(tags=["rust"])
    assert refusal.value.details["tags"] == ["gpu"]
    assert refusal.value.details["nobody_has"] == ["gpu"]
    with pytest.raises(dibs.NothingFitsError):
        alice.work.next(tags=["gpu"])
    with pytest.raises(dibs.NothingFitsError) as refusal:
        bob.work.next()
    assert refusal.value.details["tags"] == ["gpu", "rust"]
    assert refusal.value.details["nobody_has"] == []
    assert refusal.value.exit_code == 4


def test_a_label_keeps_nobody_from_a_task(alice):
    alice.work.add("t", labels=["gpu"])
    assert alice.work.next().labels == ("gpu",)


def test_only_the_kind_that_was_asked_for_counts(alice):
    alice.work.add("t", kind="bug")
    with pytest.raises(dibs.AllDoneError, match="kind prose"):
        alice.work.next(kind="prose")


def test_the_refusal_says_what_the_tasks_wait_for_and_when(alice, bob, clock):
    alice.leases.claim("src", ttl_s=600)
    alice.work.add("files", leases=["src/a.py"])
    alice.work.add("start", delay_s=300)
    alice.work.add("again")
    alice.work.claim("again")
    alice.work.fail("again")
    alice.work.claim("running", ttl_s=900)
    alice.work.add("behind", after=["running", "nowhere"])
    with pytest.raises(dibs.LaterError) as refusal:
        bob.work.next()
    told = {one["id"]: one for one in refusal.value.details["waits"]}
    assert told["files"]["waits_for"] == ["src"]
    assert (told["files"]["agent"], told["files"]["why"]) == ("alice", "lease")
    assert told["behind"]["waits_for"] == ["nowhere", "running"]
    assert {id: told[id]["why"] for id in ("start", "again", "running")} == {
        "start": "start",
        "again": "pause",
        "running": "claimed",
    }
    assert 9_000 <= refusal.value.details["due_in_ms"] <= 10_000
    assert "files waits for src (held by alice)" in refusal.value.message
    assert refusal.value.exit_code == 5


def test_tasks_that_wait_for_nobodys_work_are_nothing_to_wait_for(alice):
    alice.work.add("t", after=["nowhere"])
    with pytest.raises(dibs.NothingFitsError, match="nowhere"):
        alice.work.next()


def test_who_waits_is_woken_when_a_lease_is_released(alice, bob, background: Background):
    alice.leases.claim("src")
    alice.work.add("t", leases=["src/a.py"])
    waiting = background(bob.work.next, wait_s=60)
    alice.leases.release("src")
    assert result(waiting).id == "t"


# Lapsed claims


def test_a_claim_past_its_time_reads_available_everywhere(alice, bob, clock: ContractClock):
    alice.work.add("t", max_attempts=2)
    bob.work.claim("t", ttl_s=60)
    clock.advance(61)
    task = alice.work.show("t")
    assert (task.state, task.session, task.due_in_ms) == ("available", None, None)
    assert task.reason == "its claimer bob let the claim expire"
    assert [one.id for one in alice.work.list(state="available")] == ["t"]
    assert alice.work.list(state="claimed") == ()
    assert [one.state for one in alice.agents.overview().tasks] == ["available"]
    bob.work.claim("t", ttl_s=60)
    clock.advance(61)
    assert alice.work.show("t").state == "dead"


# Groups


def test_a_group_shows_its_progress_and_completes_with_its_last_part(alice, bob):
    alice.work.add("group", with_children=True, parent="all")
    alice.work.add("all", with_children=True)
    alice.work.add_many([{"id": name, "parent": "group"} for name in "abc"])
    alice.work.add("behind", after=["group"])
    bob.work.claim("a")
    bob.work.complete("a")
    with pytest.raises(dibs.StateError, match="group is a group: it completes when the last"):
        bob.work.claim("group")
    group = bob.work.show("group")
    assert (group.state, group.children, group.children_done) == ("blocked", 3, 1)
    assert [task.children_done for task in bob.work.list(text="group")] == [1]
    alice.work.cancel("b")
    bob.work.claim("c")
    before = bob.events.last()
    bob.work.complete("c")
    assert [event.subject for event in bob.events.since(before, kind="task.completed")] == [
        "c",
        "group",
        "all",
    ]
    assert bob.work.show("group").state == bob.work.show("all").state == "completed"
    assert bob.work.show("behind").state == "available"


def test_a_group_completes_with_parts_that_are_completed_together(alice):
    alice.work.add("group", with_children=True)
    alice.work.add_many([{"id": name, "parent": "group"} for name in "abc"])
    tasks = alice.work.next_many(3)
    alice.work.complete_many([{"id": task.id} for task in tasks])
    assert alice.work.show("group").state == "completed"


# Changing and removing


def test_a_task_is_edited_by_its_author_and_what_is_not_given_stays(alice, bob):
    alice.work.add("t", title="old", tags=["gpu"], payload={"n": 1}, labels=["x"])
    task = alice.work.edit("t", title="new", tags=[], priority=3, leases=["src"], parent="p")
    assert (task.title, task.tags, task.priority) == ("new", (), 3)
    assert (task.declared, task.labels, task.payload) == (("src",), ("x",), {"n": 1})
    assert task.parent == "p"
    assert bob.work.next().id == "t"
    assert held(bob) == {"src"}


def test_what_a_task_waits_for_can_be_changed(alice):
    alice.work.add("t", after=["a"])
    assert alice.work.edit("t", after=[]).state == "available"
    assert alice.work.edit("t", after=["b"]).state == "blocked"
    alice.work.add("b")
    with pytest.raises(dibs.InvalidError, match="wait for each other"):
        alice.work.edit("b", after=["t"])
    alice.work.claim("b")
    alice.work.complete("b")
    assert alice.work.show("t").state == "available"


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_only_its_author_changes_a_task_and_not_while_another_has_it(alice, bob, carol, change):
    alice.work.add("t")
    with pytest.raises(dibs.NotYoursError, match="added by alice"):
        getattr(bob.work, change)("t")
    bob.work.claim("t")
    with pytest.raises(dibs.HeldError, match="claimed by bob"):
        getattr(alice.work, change)("t")
    assert alice.work.show("t").state == "claimed"


def test_a_removed_task_is_gone_unless_others_wait_for_it(alice):
    alice.work.add("t", leases=["src"], after=["a"])
    alice.work.add("u", after=["t"])
    with pytest.raises(dibs.StateError, match="u would wait"):
        alice.work.remove("t")
    alice.work.remove("u")
    assert alice.work.remove("t").id == "t"
    assert alice.work.list() == ()
    alice.work.add("t")
    assert alice.work.next().id == "t"


# Listing and waiting


def test_tasks_are_listed_by_what_they_have(alice):
    alice.work.add("a1", title="Fix the login", tags=["py", "db"], labels=["bug"], parent="p")
    alice.work.add("a2", title="Draw it", tags=["py"], labels=["bug", "ui"])
    ids = lambda **asked: [task.id for task in alice.work.list(**asked)]  # noqa: E731
    assert ids(tags=["py"]) == ["a1", "a2"]
    assert ids(tags=["py", "db"]) == ids(text="LOGIN") == ids(parent="p") == ["a1"]
    assert ids(labels=["ui"]) == ids(text="a2") == ["a2"]
    assert ids(labels=["bug"], limit=1) == ["a1"]
    assert ids(labels=["none"]) == []


def test_all_tasks_are_listed_however_many(alice):
    alice.work.add_many([{"id": f"t{n}", "labels": ["x" if n % 2 else "y"]} for n in range(300)])
    assert len(alice.work.list()) == 100
    assert len(alice.work.list(everything=True)) == 300
    assert len(alice.work.list(everything=True, labels=["x"])) == 150


def test_a_wait_ends_when_all_or_any_of_the_tasks_have_ended(alice, bob, background: Background):
    alice.work.add_many([{"id": name} for name in "ab"])
    for name in "ab":
        bob.work.claim(name)
    both = background(alice.work.wait, "a", "b", wait_s=60)
    bob.work.complete("b", result=2)
    assert [task.result for task in alice.work.wait("a", "b", any=True)] == [2]
    assert not both.done()
    bob.work.complete("a", result=1)
    assert [task.result for task in result(both)] == [1, 2]


def test_a_wait_is_for_a_state_or_for_a_task_nobody_has_added_yet(
    alice, bob, background: Background
):
    claimed = background(alice.work.wait, "t", state="claimed", wait_s=60)
    titled = background(alice.work.wait, kind="review", title_has="login", wait_s=60)
    bob.work.add("t")
    bob.work.claim("t")
    assert [task.agent for task in result(claimed)] == ["bob"]
    bob.work.add("r1", kind="review", title="Review the logout")
    bob.work.add("r2", kind="review", title="Review the Login")
    assert [task.id for task in result(titled)] == ["r2"]


def test_a_wait_for_nothing_is_refused_and_one_in_vain_times_out(alice):
    with pytest.raises(dibs.InvalidError):
        alice.work.wait()
    with pytest.raises(dibs.InvalidError):
        alice.work.wait("t", kind="k")
    with pytest.raises(dibs.TimeoutError, match="t did not become"):
        alice.work.wait("t", wait_s=0)


# Names on GitHub


@pytest.mark.parametrize(
    "name",
    [
        "GitHub:Owner/Repo#12",
        "Owner/repo#12",
        "https://github.com/owner/Repo/issues/12",
        "https://www.github.com/owner/repo/pull/12/files#diff-1",
        "http://GitHub.com/owner/repo/issues/12?x=1",
    ],
)
def test_an_issue_on_github_is_one_task_however_it_is_named(alice, bob, name):
    alice.work.claim("github:owner/repo#12")
    with pytest.raises(dibs.HeldError):
        bob.work.claim(name)


@pytest.mark.parametrize("name", ["a#1", "gitlab:a/b#1", "a/b/c#1", "a/b#x", "https://x.org/a/b#1"])
def test_other_names_stay_as_they_are(alice, name):
    assert alice.work.add(name).id == name


# One task after the other


def test_all_tasks_are_worked_on_one_after_the_other(alice):
    alice.work.add_many([{"id": name, "leases": [name]} for name in "ab"])
    for task in alice.tasks():
        task.result = task.id
        assert (task.title, task.payload) == (task.task.title, task.task.payload)
    assert [task.result for task in alice.work.list(state="completed")] == ["a", "b"]
    assert held(alice) == set()


def test_a_body_that_raises_fails_its_task(alice):
    alice.work.add("a")
    with pytest.raises(ZeroDivisionError):
        for _ in alice.tasks():
            raise ZeroDivisionError
    assert alice.work.show("a").state == "failed"
    alice.work.add("b")
    for _ in alice.tasks():
        break
    assert alice.work.show("b").state == "failed"
