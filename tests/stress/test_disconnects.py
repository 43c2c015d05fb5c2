"""R15 on PostgreSQL: connections that break, also between COMMIT and its answer.

A caller that gives an idempotency key may ask again whenever the connection broke: it is told
what it was told the first time, or would have been.
"""

from __future__ import annotations

import os
import random
import select
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

import dibs
from tests.stress.clockwork import children
from tests.stress.crew import read_notes, work_while_cut_off

SEED = 15
COMMITTED = b"C\0\0\0\x0bCOMMIT\0"
"""The server's answer to COMMIT: the message CommandComplete."""


@contextmanager
def terminator(url: str, every_s: float) -> Iterator[list[int]]:
    """Terminate one backend of the database after the other; count them."""
    stop, killed, chance = threading.Event(), [0], random.Random(SEED)

    def run() -> None:
        with psycopg.connect(url, autocommit=True) as db:
            while not stop.wait(every_s):
                pids = db.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() ORDER BY pid"
                ).fetchall()
                if pids:
                    db.execute("SELECT pg_terminate_backend(%s)", chance.choice(pids))
                    killed[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


class CuttingProxy:
    """Stands before the server, and cuts some connections instead of passing on "committed"."""

    def __init__(self, server_socket: str, folder: Path, every: int) -> None:
        self._server_socket = server_socket
        self._every = every
        self._commits = 0
        self.cuts = 0
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener], [], [], 0.05)
            if self._stopped:
                return
            if ready:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server_socket)
        with client, server:
            while not self._stopped:
                ready, _, _ = select.select([client, server], [], [], 0.05)
                for source in ready:
                    try:
                        data = source.recv(65536)
                    except ConnectionResetError:
                        return
                    if not data:
                        return
                    if source is server and COMMITTED in data and self._its_turn():
                        return
                    try:
                        (server if source is client else client).sendall(data)
                    except BrokenPipeError:
                        return

    def _its_turn(self) -> bool:
        with self._lock:
            self._commits += 1
            cut = self._commits % self._every == 0
            self.cuts += cut
            return cut

    def close(self) -> None:
        self._stopped = True
        self._accepting.join()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()


@contextmanager
def cutting_proxy(url: str, every: int) -> Iterator[tuple[str, CuttingProxy]]:
    """The address of a proxy before that server, and the proxy."""
    server_folder = parse_qs(urlsplit(url).query)["host"][0]
    # Not in the test's own folder, because the name of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="dibs") as folder:
        proxy = CuttingProxy(os.path.join(server_folder, ".s.PGSQL.5432"), Path(folder), every)
        try:
            yield url.replace(server_folder, folder), proxy
        finally:
            proxy.close()


class Shift:
    """Some workers, one after the other or all at once, on the same tasks."""

    def __init__(self, url: str, space: str, folder: Path, workers: int, tasks: int) -> None:
        self.url, self.space, self.folder = url, space, folder
        self.workers, self.tasks = workers, tasks
        self.broken = 0
        # The schema and the key are there before the trouble begins.
        dibs.open(url, space=space, user_dir=str(folder / "user")).close()

    def run(self, through: str) -> None:
        user = str(self.folder / "user")
        with children() as crew:
            some = [
                crew.start(
                    work_while_cut_off,
                    through,
                    self.space,
                    user,
                    f"worker{n}",
                    self.tasks,
                    str(self.folder / f"worker{n}.notes"),
                )
                for n in range(self.workers)
            ]
            for child in some:
                assert child.hear() == "here"
            for child in some:
                child.tell("go")
            self.broken = sum(child.hear(within_s=600) for child in some)

    def check(self) -> tuple[int, int]:
        """How many tasks were done twice, and how many were lost."""
        won: Counter[str] = Counter()
        for number in range(self.workers):
            for line in read_notes(str(self.folder / f"worker{number}.notes")):
                won[line[0]] += line[1] == "won"
        with dibs.open(self.url, space=self.space, user_dir=str(self.folder / "user")) as store:
            tasks = [store.work.show(f"task{number}") for number in range(self.tasks)]
            told = Counter(
                event.subject
                for page in pages(store)
                for event in page
                if event.kind == "task.completed"
            )
            announced = sum(
                event.kind == "message.announced" for page in pages(store) for event in page
            )
        assert all(task.state == "completed" for task in tasks)
        double = sum(times > 1 for times in won.values()) + sum(n > 1 for n in told.values())
        lost = sum(won[task.id] == 0 for task in tasks)
        assert announced == self.tasks, "each completion announces itself once"
        return double, lost


def pages(store: dibs.Dibs) -> Iterator[tuple[dibs.Event, ...]]:
    cursor = 0
    while page := store.events.since(cursor):
        yield page
        cursor = page[-1].seq


def terminate(url: str, space: str, folder: Path, workers: int, tasks: int) -> None:
    shift = Shift(url, space, folder, workers, tasks)
    with terminator(url, 0.05) as killed:
        shift.run(url)
    double, lost = shift.check()
    print(
        f"\nR15 postgres: {killed[0]} backends terminated, {shift.broken} calls broken off and "
        f"asked again, {tasks} tasks, {workers} processes: {double} double, {lost} lost"
    )
    assert (double, lost) == (0, 0)
    assert killed[0] > 2


def cut(url: str, space: str, folder: Path, workers: int, tasks: int) -> None:
    shift = Shift(url, space, folder, workers, tasks)
    with cutting_proxy(url, every=5) as (through, proxy):
        shift.run(through)
    double, lost = shift.check()
    print(
        f"\nR15 postgres: {proxy.cuts} connections cut between COMMIT and its answer, "
        f"{shift.broken} calls asked again, {tasks} tasks: {double} double, {lost} lost"
    )
    assert (double, lost) == (0, 0)
    assert proxy.cuts > 2 and shift.broken > 2


def test_workers_whose_backends_are_terminated_do_each_task_once(
    empty_postgres_url: str, space_name: str, tmp_path: Path
):
    terminate(empty_postgres_url, space_name, tmp_path, workers=2, tasks=60)


def test_a_commit_whose_answer_was_cut_off_is_not_done_twice(
    empty_postgres_url: str, space_name: str, tmp_path: Path
):
    cut(empty_postgres_url, space_name, tmp_path, workers=2, tasks=20)


@pytest.mark.stress
def test_four_workers_do_a_thousand_tasks_once_while_backends_are_terminated(
    empty_postgres_url: str, space_name: str, tmp_path: Path
):
    terminate(empty_postgres_url, space_name, tmp_path, workers=4, tasks=1000)


@pytest.mark.stress
def test_hundreds_of_commits_whose_answers_were_cut_off_are_not_done_twice(
    empty_postgres_url: str, space_name: str, tmp_path: Path
):
    cut(empty_postgres_url, space_name, tmp_path, workers=4, tasks=300)
