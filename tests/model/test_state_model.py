"""Entries against a dictionary: versions, compare-and-set, tombstones, time to live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from dibs.errors import ConflictError, InvalidError, NotFoundError
from tests.model.machines import SIZES, SpaceMachine, run

AGENTS = st.sampled_from(["alice", "bob"])
PLACES = st.sampled_from([(space, key) for space in ("plan", "über") for key in ("a", "b", "é/c")])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.text("aé\n'\"%", max_size=4),
    st.lists(st.integers(0, 9), max_size=3), st.dictionaries(st.text("xy", max_size=2), st.none()),
)  # fmt: skip
TTLS = st.one_of(st.none(), st.sampled_from([0.001, 5.0, 60.0]))


@dataclass
class Version:
    number: int
    value: Any
    deleted: bool
    author: str
    deadline: int | None

    def there(self, now: int) -> bool:
        return not self.deleted and (self.deadline is None or self.deadline > now)


class StateMachine(SpaceMachine):
    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[tuple[str, str], list[Version]] = {}

    def current(self, place: tuple[str, str]) -> Version | None:
        """The version that a reader finds, if there is an entry."""
        past = self.versions.get(place)
        return past[-1] if past and past[-1].there(self.now) else None

    def newest(self, place: tuple[str, str]) -> int:
        past = self.versions.get(place)
        return past[-1].number if past else 0

    def note(self, place, value, author, ttl_s=None, *, deleted=False) -> Version:
        deadline = None if ttl_s is None else self.now + round(ttl_s * 1000)
        version = Version(self.newest(place) + 1, value, deleted, author, deadline)
        self.versions.setdefault(place, []).append(version)
        return version

    @rule(seconds=st.sampled_from([0.001, 1.0, 5.0, 60.0]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(name=AGENTS, place=PLACES, value=VALUES, ttl_s=TTLS)
    def create(self, name, place, value, ttl_s):
        agent = self.agent(name)
        current = self.current(place)
        if current is not None:
            with self.refused(ConflictError):
                agent.state.set(place[0], place[1], value, ttl_s=ttl_s)
            return
        entry = agent.state.set(place[0], place[1], value, ttl_s=ttl_s)
        assert entry.version == self.note(place, value, name, ttl_s).number

    @rule(name=AGENTS, place=PLACES, value=VALUES, ttl_s=TTLS, off=st.integers(-2, 2))
    def compare_and_set(self, name, place, value, ttl_s, off):
        agent = self.agent(name)
        current = self.current(place)
        version = current.number if current else 0
        # Off by something, the version of a tombstone, or the right one.
        expected = max(0, (self.newest(place) if off == 2 else version) + off)
        if expected != version:
            with self.refused(ConflictError) as _:
                try:
                    agent.state.set(
                        place[0], place[1], value, expected_version=expected, ttl_s=ttl_s
                    )
                except ConflictError as conflict:
                    self.check_conflict(conflict, current)
                    raise
            return
        entry = agent.state.set(place[0], place[1], value, expected_version=expected, ttl_s=ttl_s)
        assert entry.version == self.note(place, value, name, ttl_s).number

    def check_conflict(self, conflict: ConflictError, current: Version | None) -> None:
        entry = conflict.current
        if current is None:
            assert entry is None
            return
        assert entry is not None
        assert (entry.version, entry.value, entry.author) == (
            current.number,
            current.value,
            current.author,
        )

    @rule(name=AGENTS, place=PLACES, value=VALUES, ttl_s=TTLS)
    def force(self, name, place, value, ttl_s):
        entry = self.agent(name).state.set(place[0], place[1], value, force=True, ttl_s=ttl_s)
        assert entry.version == self.note(place, value, name, ttl_s).number

    @rule(name=AGENTS, place=PLACES)
    def force_what_is_expected(self, name, place):
        agent = self.agent(name)
        with self.refused(InvalidError):
            agent.state.set(place[0], place[1], 1, force=True, expected_version=1)

    @rule(name=AGENTS, place=PLACES, off=st.sampled_from([None, 0, 0, 1, -1]))
    def delete(self, name, place, off):
        agent = self.agent(name)
        current = self.current(place)
        if current is None:
            with self.refused(NotFoundError):
                agent.state.delete(*place)
            return
        expected = None if off is None else max(0, current.number + off)
        if expected not in (None, current.number):
            with self.refused(ConflictError):
                agent.state.delete(*place, expected_version=expected)
            return
        entry = agent.state.delete(*place, expected_version=expected)
        assert entry.deleted
        assert entry.version == self.note(place, None, name, deleted=True).number

    @rule(name=AGENTS, namespace=st.sampled_from(["plan", "über"]))
    def clear(self, name, namespace):
        agent = self.agent(name)
        places = [place for place in self.versions if place[0] == namespace and self.current(place)]
        last = self.space.events.last()
        assert agent.state.clear(namespace) == len(places)
        assert self.space.events.last() == last + len(places)
        for place in places:
            self.note(place, None, name, deleted=True)

    @rule(name=AGENTS)
    def leave(self, name):
        if name in self.agents:
            self.agents.pop(name).close()

    @invariant()
    def entries_are_those_of_the_model(self):
        there: dict[str, dict[str, int]] = {}
        for place in self.versions:
            current = self.current(place)
            entry = self.space.state.get(*place)
            if current is None:
                assert entry is None
                continue
            there.setdefault(place[0], {})[place[1]] = current.number
            assert entry is not None
            assert (entry.version, entry.value, entry.author, entry.deleted) == (
                current.number,
                current.value,
                current.author,
                False,
            )
            left = None if current.deadline is None else current.deadline - self.now
            assert entry.expires_in_ms == left
        assert self.space.state.namespaces() == {name: len(keys) for name, keys in there.items()}
        for namespace, keys in there.items():
            listed = self.space.state.list(namespace)
            # By bytes, which for UTF-8 is the order of code points.
            assert [(entry.key, entry.version) for entry in listed] == sorted(keys.items())

    @invariant()
    def histories_are_whole_newest_first_and_rise_by_one(self):
        for place, past in self.versions.items():
            history = self.space.state.history(*place, limit=1000)
            assert [(entry.version, entry.value) for entry in history] == [
                (version.number, version.value) for version in reversed(past)
            ]
            assert [entry.version for entry in history] == list(range(len(past), 0, -1))


@pytest.mark.parametrize("size", SIZES)
def test_entries_behave_like_the_model(url, tmp_path, size):
    run(StateMachine, url, str(tmp_path / "user"), size)
