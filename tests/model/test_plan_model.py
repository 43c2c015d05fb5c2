"""The plan against a small model: who would be busy when, and which resources overlap."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.names.paths import Resource, resources_overlap
from dibs.nouns.work.crossing import Crossing
from dibs.nouns.work.planning import Sharing, critical, cycles
from dibs.nouns.work.simulation import Node, Simulation


def resource(text: str) -> Resource:
    if text.endswith("/"):
        return Resource(text, "directory", f"/{text.rstrip('/')}" if text != "./" else "")
    if ":" in text:
        return Resource(text, "name", text)
    if "*" in text:
        base = text.partition("*")[0].rpartition("/")[0]
        return Resource(text, "glob", f"/{base}" if base else "")
    return Resource(text, "file", f"/{text}")


TEXTS = ["a", "b/x", "b/y", "b/", "b/c/z", "b/c/", "./", "port:1", "port:2", "b/*", "**/z", "*"]
RESOURCES = st.lists(st.sampled_from(TEXTS), max_size=3, unique=True)


@given(st.lists(st.sampled_from(TEXTS), max_size=8), st.lists(st.sampled_from(TEXTS), max_size=4))
def test_a_crossing_finds_what_comparing_each_with_each_finds(
    added: list[str], removed: list[str]
) -> None:
    crossing, there = Crossing(), list(added)
    for text in added:
        crossing.add(resource(text))
    for text in removed:
        if text in there:
            there.remove(text)
            crossing.remove(resource(text))
    for text in TEXTS:
        wanted = resource(text)
        found = {one.text for one in crossing.meeting(wanted)}
        assert (wanted in crossing) == (text in there)
        assert found == {
            one for one in there if one != text and resources_overlap(resource(one), wanted)
        }


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Node]:
    number = draw(st.integers(1, 9))
    nodes = {}
    for place in range(number):
        id = f"t{place}"
        needs = draw(
            st.lists(st.sampled_from([f"t{n}" for n in range(place)] or ["no"]), max_size=2)
        )
        needs = [need for need in needs if need != "no"]
        state = "blocked" if needs else draw(st.sampled_from(["available", "failed"]))
        nodes[id] = Node(
            id,
            state,
            needs=needs,
            priority=draw(st.integers(0, 2)),
            number=place,
            resources=map(resource, draw(RESOURCES)),
            later=draw(st.integers(0, 2)) if state == "failed" else 0,
            lasts=draw(st.integers(1, 3)),
        )
    return nodes


def plainly(nodes: dict[str, Node], agents: int | None) -> dict[str, int]:
    """When each task starts, found by looking at all of them at each moment."""
    starts: dict[str, int] = {}
    now = 0
    while len(starts) < len(nodes) and now < 100:
        running = [nodes[id] for id, at in starts.items() if now < at + nodes[id].lasts]
        done = {id for id, at in starts.items() if at + nodes[id].lasts <= now}
        for node in sorted(nodes.values(), key=lambda one: one.rank):
            fits = not any(
                resources_overlap(mine, theirs)
                for other in running
                for theirs in other.resources
                for mine in node.resources
            )
            free = agents is None or len(running) < agents
            ready = done.issuperset(node.needs) and node.later <= now
            if node.id not in starts and ready and fits and free:
                starts[node.id] = now
                running.append(node)
        now += 1
    return starts


@settings(max_examples=300)
@given(plans(), st.sampled_from([None, 1, 2, 3]))
def test_tasks_start_when_the_model_says(nodes: dict[str, Node], agents: int | None) -> None:
    found = Simulation(nodes, agents=agents)
    assert found.starts == plainly(nodes, agents)
    for at, busy in found.busy:
        running = [id for id, when in found.starts.items() if when <= at < when + nodes[id].lasts]
        assert len(running) == busy
    assert found.length == max(at + nodes[id].lasts for id, at in found.starts.items())


@given(plans())
def test_the_longest_chain_is_one_and_no_plan_is_shorter(nodes: dict[str, Node]) -> None:
    found = Simulation(nodes)
    path = critical(nodes, found.starts)
    for earlier, later in pairwise(path):
        assert earlier.id in later.needs
    longest: dict[str, int] = {}
    for id, node in nodes.items():
        longest[id] = node.lasts + max((longest[need] for need in node.needs), default=0)
    assert sum(node.lasts for node in path) == max(longest.values()) <= found.length


@given(plans())
def test_groups_are_those_that_depend_on_or_exclude_each_other(nodes: dict[str, Node]) -> None:
    groups = {id: {id} for id in nodes}
    for one in nodes.values():
        for other in nodes.values():
            pairs = [(a, b) for a in one.resources for b in other.resources]
            if other.id in one.needs or any(resources_overlap(a, b) for a, b in pairs):
                both = groups[one.id] | groups[other.id]
                for id in both:
                    groups[id] = both
    wanted = {frozenset(group) for group in groups.values()}
    assert {frozenset(one.tasks) for one in Sharing(nodes, {}).groups()} == wanted


def test_what_is_held_elsewhere_is_in_the_way_at_first() -> None:
    nodes = {"a": Node("a", resources=[resource("b/x")]), "b": Node("b", number=1)}
    found = Simulation(nodes, [resource("b/")])
    assert found.starts == {"b": 0, "a": 1}
    assert found.beside == {"a": "b/"}


def test_a_group_is_done_with_the_last_of_its_parts_and_needs_nobody() -> None:
    nodes = {
        "group": Node("group", "blocked", needs=["part"], lasts=0),
        "part": Node("part", number=1),
        "after": Node("after", "blocked", needs=["group"], number=2),
    }
    assert Simulation(nodes, agents=1).starts == {"part": 0, "group": 1, "after": 1}


def test_cycles_are_found_each_once_and_never_start() -> None:
    nodes = {
        "a": Node("a", "blocked", needs=["b"]),
        "b": Node("b", "blocked", needs=["a"]),
        "self": Node("self", "blocked", needs=["self"]),
        "behind": Node("behind", "blocked", needs=["a"]),
        "free": Node("free"),
    }
    assert sorted(map(sorted, cycles(nodes))) == [["a", "b"], ["self"]]
    assert Simulation(nodes).starts == {"free": 0}


def test_thousands_of_patterns_without_a_folder_end_in_a_cut_not_in_a_day() -> None:
    nodes = {
        str(place): Node(str(place), number=place, resources=[resource(f"**/a{place}")])
        for place in range(3_000)
    }
    assert Simulation(nodes).cut
