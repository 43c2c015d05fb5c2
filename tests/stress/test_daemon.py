"""The daemon under load: killed again and again, fought over, and with clients that freeze.

Whatever was acknowledged over HTTP is stored, nothing is granted twice, and clients that ask again
with the same key go on by themselves.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dibs.surfaces.http.watching import BREATH_S
from tests.postgres_server import new_database
from tests.stress.procs import Worker, nursery, open_gate, read_log, run
from tests.stress.test_disconnects import terminator
from tests.stress.test_kills import MUTATIONS, calls_of, double_winners, lost_writes
from tests.surfaces.daemon import Daemon, Stream, serving
from tests.surfaces.shell import PATIENCE_S, Shell, scrubbed, until

CLIENTS = 8


@contextmanager
def served(url: str, space: str, folder: Path) -> Iterator[Daemon]:
    """A daemon of this store, whose user keeps all in a folder."""
    repository, home = folder / "repository", folder / "home"
    home.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    shell = Shell(repository, scrubbed(home))
    with serving(shell.with_(DIBS_URL=url, DIBS_SPACE=space)) as daemon:
        yield daemon


def where(daemon: Daemon) -> dict[str, Any]:
    host, port = daemon.address
    return {"host": host, "port": port, "token": daemon.token}


def test_a_daemon_that_is_killed_loses_nothing(url: str, space_name: str, tmp_path: Path) -> None:
    kill_the_daemon(url, space_name, tmp_path, kills=3, seed=1)


@pytest.mark.stress
def test_a_daemon_that_is_killed_fifty_times_loses_nothing(
    url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + kill_the_daemon(url, space_name, tmp_path, kills=50, seed=2))


def kill_the_daemon(url: str, space: str, folder: Path, *, kills: int, seed: int) -> str:
    pick, logs, over = random.Random(seed), folder / "logs", folder / "over"
    with served(url, space, folder) as daemon, nursery(logs) as place:
        there = where(daemon)
        workers = [
            place.start(
                "daemon_clients:toil",
                seed=pick.getrandbits(32),
                name=f"worker-{number}",
                over=str(over),
                **there,
            )
            for number in range(CLIENTS)
        ]
        for worker in workers:
            worker.wait_for("joined")
        for _ in range(kills):
            progress = done_by(workers)
            until(lambda progress=progress: done_by(workers) > progress + 40, "progress")  # type: ignore[misc]
            time.sleep(pick.random() * 0.05)  # anywhere within what it does
            daemon.kill()
            daemon.start()
            assert where(daemon) == there
        progress = done_by(workers)
        until(lambda: done_by(workers) > progress + 40, "progress after the last kill")
        over.touch()
        for worker in workers:
            worker.wait()
        user_dir = str(Path(daemon.shell.environment["XDG_DATA_HOME"]) / "dibs")
        assert daemon.stop().code == 0
    sqlite = not url.startswith("postgresql")
    found = run(
        folder / "found", "kills:contents", sqlite=sqlite, url=url, space=space, user_dir=user_dir
    )
    lines = [read_log(path) for path in sorted(logs.glob("*.jsonl"))]
    calls = [call for log in lines for call in calls_of(log)]
    integrity = [line["answer"] for line in found if line["says"] == "integrity"]
    assert integrity in (["ok"], []), integrity
    assert [line["number"] for line in found if line["says"] == "mismatches"] == [0]
    done = [call for call in calls if call["done"] is not None]
    assert {call["op"] for call in done} == set(MUTATIONS)
    lost = lost_writes(done, found)
    assert not lost, lost[:10]
    double = double_winners(calls, found)
    assert not double, double[:10]
    asked = sum(line["tries"] for log in lines for line in log if line["says"] == "over")
    assert asked > len(calls), "nobody had to ask again"
    return (
        f"daemon on {'sqlite' if sqlite else 'postgres'}: {kills} kills, {len(done):,} "
        f"acknowledged writes, {len(double)} double winners, {len(lost)} lost"
    )


def test_a_server_that_drops_the_daemon_loses_nothing(
    postgres_server: str, space_name: str, tmp_path: Path
) -> None:
    """R15 over HTTP: backends are terminated under load, and clients only have to ask again."""
    logs, over = tmp_path / "logs", tmp_path / "over"
    with new_database(postgres_server) as url:
        with served(url, space_name, tmp_path) as daemon, nursery(logs) as place:
            stream = Stream(daemon, "?since=0")
            workers = [
                place.start(
                    "daemon_clients:toil",
                    seed=number,
                    name=f"worker-{number}",
                    over=str(over),
                    **where(daemon),
                )
                for number in range(4)
            ]
            for worker in workers:
                worker.wait_for("joined")
            with terminator(url, 0.1) as killed:
                until(lambda: killed[0] > 20 and done_by(workers) > 200, "progress")
            over.touch()
            for worker in workers:
                worker.wait()
            # The journal is told to its end, and what comes now is told as it comes.
            last = daemon.client("alice")("messages.announce", body="over")["id"]
            seqs = [stream.next()[0]]
            while seqs[-1] < last:
                seqs.append(stream.next()[0])
            assert seqs == list(range(1, last + 1))
            begun = time.monotonic()
            for number in range(5):
                told = daemon.client("alice")("messages.announce", body=f"{number}")["id"]
                assert stream.next()[0] == told
            assert time.monotonic() - begun < BREATH_S, "only its breath woke it"
            stream.close()
            user_dir = str(Path(daemon.shell.environment["XDG_DATA_HOME"]) / "dibs")
            assert daemon.stop().code == 0
        there = {"url": url, "space": space_name, "user_dir": user_dir}
        found = run(tmp_path / "found", "kills:contents", sqlite=False, **there)
    calls = [call for path in sorted(logs.glob("*.jsonl")) for call in calls_of(read_log(path))]
    done = [call for call in calls if call["done"] is not None]
    assert lost_writes(done, found) == []
    assert double_winners(calls, found) == []


def done_by(workers: list[Worker]) -> int:
    return sum(line["says"] == "done" for worker in workers for line in worker.log())


def test_every_task_has_one_winner(url: str, space_name: str, tmp_path: Path) -> None:
    fight(url, space_name, tmp_path, clients=16, tasks=16)


@pytest.mark.stress
def test_every_one_of_many_tasks_has_one_winner(url: str, space_name: str, tmp_path: Path) -> None:
    print("\n" + fight(url, space_name, tmp_path, clients=64, tasks=500))


def fight(url: str, space: str, folder: Path, *, clients: int, tasks: int) -> str:
    gate = folder / "gate"
    with served(url, space, folder) as daemon, nursery(folder / "logs") as place:
        owner = daemon.client()
        for number in range(tasks):
            owner("work.add", id=f"task:{number}")
        workers = [
            place.start(
                "daemon_clients:grab",
                seed=number,
                name=f"client-{number}",
                tasks=tasks,
                gate=str(gate),
                **where(daemon),
            )
            for number in range(clients)
        ]
        for worker in workers:
            worker.wait_for("ready")
        open_gate(gate)
        for worker in workers:
            worker.wait(600)
        won = Counter(
            (line["task"], line["epoch"])
            for worker in workers
            for line in worker.log()
            if line["says"] == "won"
        )
        refused = Counter(
            line["code"] for worker in workers for line in worker.log() if line["says"] == "refused"
        )
        assert Counter(task for task, _ in won) == Counter(
            {f"task:{number}": 1 for number in range(tasks)}
        )
        assert set(won.values()) == {1}
        assert won.total() + refused.total() == clients * tasks
        owner.close()  # it has been idle for so long that the daemon may have hung up
        for task, epoch in won:
            assert owner("work.show", id=task)["epoch"] == epoch
    return f"{clients} clients × {tasks} tasks: {won.total()} winners, {dict(refused)}"


def test_a_frozen_client_holds_nobody_up(url: str, space_name: str, tmp_path: Path) -> None:
    """R13: half a request, an unread stream, a lease; and the others go on."""
    with served(url, space_name, tmp_path) as daemon, nursery(tmp_path / "logs") as place:
        frozen = [
            place.start("daemon_clients:stall", name=f"frozen-{number}", **where(daemon))
            for number in range(4)
        ]
        for worker in frozen:
            worker.wait_for("working", times=5)
        for worker in frozen:
            worker.freeze()
        said = [len(worker.log()) for worker in frozen]
        alice, bob = daemon.client("alice"), daemon.client("bob")
        for number in range(100):
            alice("leases.claim", resources=[f"free:{number}"])
            bob("messages.send", body=f"{number}", to="alice")
            assert alice("messages.inbox")[0]["body"] == f"{number}"
        assert [len(worker.log()) for worker in frozen] == said
        # What they hold is theirs for as long as they said.
        assert bob.ask("leases.claim", {"resources": ["stalled:frozen-0"]}).error == "held"
        for worker, lines in zip(frozen, said, strict=True):
            worker.thaw()
            worker.wait_for("working", times=lines + 5, seconds=PATIENCE_S)
