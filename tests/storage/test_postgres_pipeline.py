"""The talk with PostgreSQL when it is cut off, refused or interrupted half way."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

import dibs
from dibs.storage import postgres, postgres_connect, postgres_pipeline, postgres_transaction
from dibs.storage.group import Group, GroupingDriver
from dibs.storage.queries import Query
from dibs.storage.store import SPACE, Store

IMPOSSIBLE = Query("impossible", "SELECT 1 / :zero AS impossible")
PRUNE = Query("prune", "DELETE FROM event WHERE space = :space RETURNING seq")


class Bench:
    """A space, another view of it, and a superuser's own connection."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self._options: dict[str, Any] = {
            "space": name,
            "start": folder,
            "user_dir": folder / "user",
        }
        self._url = url
        self._opened: list[dibs.Dibs] = []
        self.space, self.other = self.open(), self.open()
        self.store: Store = self.space.scope.store
        self.driver: Any = self.store.driver
        self.admin = psycopg.connect(url, autocommit=True)

    def open(self) -> dibs.Dibs:
        self._opened.append(dibs.open(self._url, **self._options))
        return self._opened[-1]

    def group(self) -> Group:
        if not isinstance(self.store.driver, GroupingDriver):
            self.store.driver = GroupingDriver(self.driver)
        return Group(self.store.driver)

    def cut_off(self) -> None:
        """The server hangs up on everybody in this database."""
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        self.admin.execute(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}".encode()
        )

    def touch(self, subject: str) -> None:
        with self.store.write(None) as tx:
            tx.event("space.touched", subject)

    def touched(self) -> list[str]:
        events = self.other.events.since()
        return [event.subject for event in events if event.kind == "space.touched"]

    def free_seats(self) -> int:
        """How many more connections could be taken now."""
        seats: int = self.driver._seats.qsize()
        return seats

    def close(self) -> None:
        self.admin.close()
        for space in self._opened:
            space.close()


@pytest.fixture
def bench(empty_postgres_url: str, tmp_path: Path, space_name: str) -> Iterator[Bench]:
    made = Bench(empty_postgres_url, tmp_path, space_name)
    yield made
    made.close()


def spoil(tx: Any) -> None:
    """Write what the server is going to refuse, but only when it gets to see it."""
    for _ in range(2):
        write(tx, "spoilt")


def write(tx: Any, subject: str) -> None:
    """Write an event at once; as a rule, events are written at the end."""
    row = {"kind": "space.touched", "agent": None, "session": None, "data": None, "at": 1}
    chain = {"changes": None, "hash": ""}
    tx.run(SPACE.journal, {**row, **chain, "seq": tx.seq, "subject": subject})


def test_a_connection_that_the_server_closed_is_not_used_again(bench: Bench) -> None:
    for subject in ("one", "two", "three"):
        bench.touch(subject)  # the bell's answer has not been read when the server hangs up
        bench.cut_off()
    assert bench.touched() == ["one", "two", "three"]


def test_a_connection_that_breaks_within_a_write_is_replaced(bench: Bench) -> None:
    with pytest.raises(dibs.DisconnectedError), bench.store.write(None) as tx:
        bench.cut_off()
        tx.event("space.touched", "lost")
    bench.touch("kept")
    assert bench.touched() == ["kept"]
    assert bench.free_seats() == postgres.CONNECTIONS


def test_a_refused_statement_leaves_no_name_that_the_server_does_not_know(bench: Bench) -> None:
    for number in range(2):
        bench.cut_off()  # a new connection, which has nothing prepared
        connection = bench.driver.take()
        for _ in range(2):
            with pytest.raises(dibs.StorageError):
                connection.begin_read(
                    lambda: [(IMPOSSIBLE, {"zero": 0}), (SPACE.find, {"name": "x"})]
                )
            connection.rollback()
        assert connection.begin_read(lambda: [(SPACE.find, {"name": "x"})])
        connection.rollback()
        bench.driver.give_back(connection)
        bench.touch(str(number))
    assert bench.touched() == ["0", "1"]


def test_a_commit_after_an_error_that_was_swallowed_is_not_taken_for_done(bench: Bench) -> None:
    with pytest.raises(dibs.StorageError), bench.store.write(None) as tx:
        tx.event("space.touched", "lost")
        with pytest.raises(dibs.StorageError):
            tx.rows(IMPOSSIBLE, zero=0)
    bench.touch("kept")
    assert bench.touched() == ["kept"]


def test_a_write_that_fails_after_it_was_kept_fails_the_whole_group(bench: Bench) -> None:
    with pytest.raises(dibs.StorageError), bench.group():
        bench.touch("before")
        with bench.store.write(None) as tx:
            spoil(tx)
        # The server hears of it with the next write, which must not be taken for the culprit.
        with pytest.raises(dibs.StorageError):
            bench.touch("after")
    assert bench.touched() == []
    bench.touch("later")
    assert bench.touched() == ["later"]


def test_a_write_of_a_group_that_the_server_refuses_is_undone_alone(bench: Bench) -> None:
    with bench.group():
        bench.touch("before")
        with pytest.raises(dibs.StorageError), bench.store.write(None) as tx:
            spoil(tx)
            tx.rows(SPACE.position)
        bench.touch("after")
    assert bench.touched() == ["before", "after"]


def test_a_write_of_a_group_that_cannot_be_sent_is_undone_alone(bench: Bench) -> None:
    ahead = [(SPACE.find, {"name": "fine"}), (SPACE.find, {"name": "a NUL: \0"})]
    with bench.group():
        bench.touch("before")
        with pytest.raises(dibs.StorageError), bench.store.write(None, lambda: ahead):
            pass
        bench.touch("after")
    assert bench.touched() == ["before", "after"]


def test_a_server_that_hangs_up_on_a_group_is_named_to_all_of_it(bench: Bench) -> None:
    with pytest.raises(dibs.DisconnectedError), bench.group():
        bench.touch("one")
        bench.cut_off()
        for _ in range(2):
            with pytest.raises(dibs.DibsError):
                bench.touch("two")
    bench.touch("three")
    assert bench.touched() == ["three"]


def test_a_rollback_behind_statements_that_fail_is_a_rollback(bench: Bench) -> None:
    connection = bench.driver.take()
    connection.begin_group()
    connection.run(IMPOSSIBLE, {"zero": 0})
    connection.save()  # nothing of this has been sent yet
    connection.rollback()
    bench.driver.give_back(connection)
    bench.touch("next")
    assert bench.touched() == ["next"]


def test_what_was_asked_ahead_is_forgotten_by_a_write(bench: Bench) -> None:
    bench.touch("first")
    ahead = [(SPACE.moved, {"after": 0, "limit": 9})] * 2

    def subjects(tx: Any) -> list[str]:
        return [row["subject"] for row in tx.rows(SPACE.moved, after=0, limit=9)]

    with bench.store.write(None, lambda: ahead) as tx:
        write(tx, "second")
        assert subjects(tx) == ["first", "second"]
        tx.ahead(lambda: ahead)
        assert len(tx.rows(PRUNE)) == 2
        assert subjects(tx) == []
        tx.discard()
    with bench.group():
        with bench.store.write(None) as tx:
            write(tx, "undone")
            tx.ahead(lambda: ahead)
            tx.discard()
        with bench.store.write(None) as tx:
            assert subjects(tx) == ["first"]
            assert subjects(tx) == ["first"]


def test_text_is_the_same_for_a_client_with_another_encoding(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    odd = bench.open()
    monkeypatch.delenv("PGCLIENTENCODING")
    odd.join("alice").state.set("names", "zoë", "漢")
    entry = bench.other.state.get("names", "zoë")
    assert entry is not None
    assert entry.value == "漢"


def test_a_strange_notice_on_the_channel_disturbs_nobody(bench: Bench) -> None:
    listener = bench.driver.listen(("space",), None)
    for payload in ("", " ", "?", f"{bench.driver.space}"):
        bench.admin.execute("SELECT pg_notify('dibs', %s)", [payload])
    assert not listener.wait(0.2)
    bench.touch("it")
    assert listener.wait(5)
    bench.cut_off()
    with pytest.raises(dibs.DisconnectedError):
        listener.wait(5)
    listener.close()


def test_a_large_value_passes_where_a_thousand_files_are_open(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        # One whose connection has a high number.
        bench.open().join("alice").state.set("n", "large", "x" * 1_000_000)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    entry = bench.other.state.get("n", "large")
    assert entry is not None
    assert entry.value == "x" * 1_000_000


def test_lists_of_any_length_are_asked_for(bench: Bench) -> None:
    numbers = Query("numbers", "SELECT id FROM space WHERE id IN (:ids...)")
    with bench.store.read() as tx:
        for length in (0, 1, 39, 40, 41, 1_000, 1, 0):
            ids = [bench.store.space] * length
            assert tx.rows(numbers, ids=ids) == [{"id": bench.store.space}] * (length > 0)


def test_more_threads_than_connections(bench: Bench) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(3):
                bench.touch(str(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2 * postgres.CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(bench.touched()) == 3 * len(threads)
    assert bench.free_seats() == postgres.CONNECTIONS


# A connection may be lost on the way, and is closed when nobody has it any more.
LOST = pytest.mark.filterwarnings("ignore:Exception ignored in.*BaseConnection.__del__")
FILES = {
    module.__file__
    for module in (postgres, postgres_connect, postgres_pipeline, postgres_transaction)
}


def at_line(number: int, act: Callable[[FrameType], None]) -> Callable[..., Any]:
    """A tracer that acts at the so-manieth line that runs in the PostgreSQL driver."""
    left = number

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                act(frame)
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        # What the end of an object calls cannot be interrupted.
        mine = frame.f_code.co_filename in FILES and frame.f_code.co_name != "leave"
        return line if mine else None

    return call


def interrupted(call: Callable[[], object], number: int) -> str:
    """Make the call, with Ctrl-C at that line; say where that was, or nothing."""
    where = ""

    def interrupt(frame: FrameType) -> None:
        nonlocal where
        where = f"{frame.f_code.co_name}:{frame.f_lineno}"
        raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(at_line(number, interrupt))
    try:
        call()
    except KeyboardInterrupt:
        assert where
    finally:
        sys.settrace(before)
    return where


def turn_is_free(bench: Bench) -> bool:
    bench.admin.execute("SET lock_timeout = 300")
    lock = (postgres_transaction.TURN_LOCK, bench.store.space)
    try:
        bench.admin.execute("SELECT pg_advisory_lock(%s, %s)", lock)
    except psycopg.errors.LockNotAvailable:
        return False
    bench.admin.execute("SELECT pg_advisory_unlock(%s, %s)", lock)
    return True


@LOST
def test_an_interrupt_at_any_line_leaves_the_turn_free_and_the_store_usable(bench: Bench) -> None:
    def refused() -> None:
        with pytest.raises(dibs.StorageError), bench.store.write(None) as tx:
            tx.rows(IMPOSSIBLE, zero=0)

    for call in (lambda: bench.touch("interrupted"), refused):
        number, where = 1, "the first line"
        while where:
            where = interrupted(call, number)
            if bench.free_seats() < postgres.CONNECTIONS:
                gc.collect()  # an exception may be part of a reference cycle
            assert turn_is_free(bench), where
            assert bench.free_seats() == postgres.CONNECTIONS, where
            bench.touch("next")
            assert bench.touched()[-1] == "next", where
            number += 5  # each fifth: the way has many lines
        assert number > 50


@LOST
def test_after_an_interrupt_within_a_group_no_answer_is_mixed_up(bench: Bench) -> None:
    number, where = 1, "the first line"
    while where:
        try:
            with bench.group():
                where = interrupted(lambda: bench.touch("interrupted"), number)
                bench.touch("neighbour")
            assert bench.touched()[-1] == "neighbour", where
        except dibs.DibsError:
            pass  # all of the group has failed
        with bench.store.read() as tx:
            events = tx.rows(SPACE.moved, after=0, limit=1_000)
            assert [row["seq"] for row in events] == list(range(1, len(events) + 1)), where
        number += 5
    assert bench.touched()[-2:] == ["interrupted", "neighbour"]
    gc.collect()


def test_two_threads_may_want_the_last_kept_connection(bench: Bench) -> None:
    taken = []

    def take() -> None:
        taken.append(bench.driver.take())

    def first(frame: FrameType) -> None:
        other = threading.Thread(target=take)
        other.start()
        other.join()

    before = sys.gettrace()
    for number in range(1, 12):
        bench.touch("so that one is kept")
        while len(bench.driver._kept) > 1:
            bench.driver._kept.pop().close()
        sys.settrace(at_line(number, first))
        try:
            take()
        finally:
            sys.settrace(before)
        while taken:
            bench.driver.give_back(taken.pop())
