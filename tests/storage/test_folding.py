"""How the journal is folded: in steps that end, and with few moments in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.nouns.events import folding
from tests.clock import ManualClock


@pytest.fixture
def space(url: str, space_name: str, tmp_path: Path) -> Iterator[dibs.Dibs]:
    user_dir, start = str(tmp_path / "user"), str(tmp_path)
    with dibs.open(
        url, space=space_name, clock=ManualClock(), user_dir=user_dir, start=start
    ) as opened:
        yield opened


@pytest.fixture
def listed(space: dibs.Dibs) -> dict[int, list[str]]:
    """Which tasks there were, after each write."""
    alice = space.join("alice")
    found = {}
    for number in range(40):
        alice.work.add(f"t{number}")
        if number % 3 == 0:
            alice.work.remove(f"t{number // 2}") if number else None
        found[space.events.last()] = [task.id for task in alice.work.list()]
    return found


def test_a_daemon_asks_to_be_called_again_and_goes_on(space, listed, monkeypatch):
    monkeypatch.setattr(folding, "STEP", 5)
    monkeypatch.setattr(folding, "PAGE", 5)
    monkeypatch.setattr(folding, "SERVED_S", -1.0)
    space.scope.store.page_bytes = 1 << 20
    last, calls = max(listed), 0
    while True:
        calls += 1
        try:
            moment = space.events.replay(at=last)
            break
        except dibs.BusyError as refusal:
            assert refusal.next == "ask again: the next call continues from there"
    assert [task.id for task in moment.tasks] == listed[last]
    assert calls == -(-last // 5)


def test_few_moments_are_kept_and_each_is_right(space, listed, monkeypatch):
    monkeypatch.setattr(folding, "STEP", 4)
    monkeypatch.setattr(folding, "PAGE", 4)
    monkeypatch.setattr(folding, "KEPT", 5)
    monkeypatch.setattr(folding, "KEPT_ROWS", 60)
    for seq in sorted(listed, key=lambda seq: seq * 7919 % 101):
        assert [task.id for task in space.events.replay(at=seq).tasks] == listed[seq]
        kept = space.scope.store.folding._kept
        assert len(kept) <= 5
        assert len(kept) <= 2 or sum(one.size for one in kept) <= 60


def test_what_is_pruned_in_the_middle_is_noticed(space, listed, monkeypatch):
    """Pruning moves the beginning of the journal while it is read: no part may be left out."""
    monkeypatch.setattr(folding, "PAGE", 3)
    alice, last = space.join("alice", ttl_s=86_400), max(listed)
    go_on, pages = folding.Folding._go_on, []

    def pruned_meanwhile(self, found, seq):
        pages.append(found.seq)
        if len(pages) == 4:
            space.scope.store.clock.advance(60)
            alice.state.set("n", "k", 1)
            alice.events.prune(keep_s=30)
        return go_on(self, found, seq)

    monkeypatch.setattr(folding.Folding, "_go_on", pruned_meanwhile)
    with pytest.raises(dibs.PrunedError):
        space.events.replay(at=last)
    now = space.events.last()
    assert [task.id for task in space.events.replay(at=now).tasks] == listed[last]
