"""Group commit: many writes in one transaction, each undone alone, none acknowledged early."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs
from dibs.storage.group import Group, GroupingDriver


class Grouped:
    """A space whose writes can be made in groups, and another view of the same store."""

    def __init__(self, url: str, folder: Path, space_name: str) -> None:
        options = {"space": space_name, "start": folder, "user_dir": folder / "user"}
        self.space = dibs.open(url, **options)  # type: ignore[arg-type]
        self.other = dibs.open(url, **options)  # type: ignore[arg-type]
        store = self.space.scope.store
        self.driver = GroupingDriver(store.driver)
        store.driver = self.driver
        self.alice, self.bob = self.space.join("alice"), self.space.join("bob")

    def group(self) -> Group:
        return Group(self.driver)

    def close(self) -> None:
        self.other.close()
        self.space.close()


@pytest.fixture
def grouped(url: str, tmp_path: Path, space_name: str):
    made = Grouped(url, tmp_path, space_name)
    yield made
    made.close()


def held(space: dibs.Dibs) -> list[str]:
    return [lease.resource for lease in space.leases.list()]


def test_nobody_sees_a_write_before_the_group_is_committed(grouped: Grouped) -> None:
    with grouped.group():
        grouped.alice.leases.claim("port:1")
        grouped.bob.leases.claim("port:2")
        assert held(grouped.other) == []
        assert held(grouped.space) == []
    assert held(grouped.other) == ["port:1", "port:2"]


def test_a_refused_write_leaves_its_neighbours_alone(grouped: Grouped) -> None:
    with grouped.group():
        grouped.alice.leases.claim("port:1")
        with pytest.raises(dibs.HeldError):
            grouped.bob.leases.claim("port:2", "port:1")
        grouped.bob.leases.claim("port:3")
    assert held(grouped.other) == ["port:1", "port:3"]
    assert grouped.other.agents.verify() == ()


def test_a_write_that_fails_half_way_leaves_its_neighbours_alone(grouped: Grouped) -> None:
    class Oops(Exception):
        pass

    with grouped.group():
        grouped.alice.leases.claim("port:1")
        with pytest.raises(Oops), grouped.space.scope.store.write(None) as tx:
            tx.event("space.touched", "half")
            raise Oops
        grouped.bob.leases.claim("port:2")
    assert held(grouped.other) == ["port:1", "port:2"]
    assert "space.touched" not in [event.kind for event in grouped.other.events.since()]


def test_each_write_has_its_own_seq_and_the_journal_has_no_gap(grouped: Grouped) -> None:
    epochs = []
    for _ in range(3):
        with grouped.group():
            for number in range(5):
                epochs.append(grouped.alice.leases.claim(f"port:{number}").epoch)
                with pytest.raises(dibs.HeldError):
                    grouped.bob.leases.claim(f"port:{number}")
                grouped.alice.leases.release(f"port:{number}")
    assert epochs == sorted(set(epochs))
    seqs = [event.seq for event in grouped.other.events.since(0)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert grouped.other.events.last() == seqs[-1]


def test_a_group_that_is_left_by_an_exception_undoes_all_of_it(grouped: Grouped) -> None:
    before = grouped.other.events.last()
    with pytest.raises(KeyboardInterrupt), grouped.group():
        grouped.alice.leases.claim("port:1")
        raise KeyboardInterrupt
    assert held(grouped.other) == []
    assert grouped.other.events.last() == before
    grouped.alice.leases.claim("port:1")


def test_an_empty_group_takes_no_turn(grouped: Grouped) -> None:
    before = grouped.other.events.last()
    with grouped.group():
        pass
    with grouped.group():
        grouped.alice.leases.list()
    assert grouped.other.events.last() == before


def test_other_threads_write_for_themselves(grouped: Grouped) -> None:
    from threading import Thread

    with grouped.group():
        assert grouped.space.leases.list() == ()
        thread = Thread(target=grouped.bob.leases.claim, args=("port:2",))
        thread.start()
        thread.join()
        assert held(grouped.other) == ["port:2"]
        grouped.alice.leases.claim("port:1")
    assert held(grouped.other) == ["port:1", "port:2"]


def test_what_is_released_in_a_group_goes_to_who_waits(grouped: Grouped) -> None:
    from threading import Thread

    grouped.alice.leases.claim("port:1")
    carol, won = grouped.other.join("carol"), []
    waiter = Thread(target=lambda: won.append(carol.leases.claim("port:1", wait_s=30)))
    waiter.start()
    while not grouped.other.leases.waiting():
        pass
    with grouped.group():
        grouped.bob.leases.claim("port:2")
        grouped.alice.leases.release("port:1")
    waiter.join()
    assert won[0].leases[0].agent == "carol"


def test_a_transaction_that_the_database_ended_breaks_the_whole_group(
    sqlite_url: str, tmp_path: Path, space_name: str
) -> None:
    made = Grouped(sqlite_url, tmp_path, space_name)
    with pytest.raises(dibs.StorageError), made.group() as group:
        made.alice.leases.claim("port:1")
        assert group.connection is not None
        with pytest.raises(ZeroDivisionError), made.space.scope.store.write(None):
            group.connection.rollback()  # as SQLite does by itself when the disk is full
            raise ZeroDivisionError
        with pytest.raises(dibs.StorageError):
            made.bob.leases.claim("port:2")
    assert held(made.other) == []
    made.bob.leases.claim("port:2")
    made.close()
