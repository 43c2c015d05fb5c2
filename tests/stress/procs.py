"""Real processes for the stress tests: started, killed, frozen and thawed at will.

A *nursery* is one Python process that has imported dibs and opened nothing. Asked for a worker,
it forks one, which costs 2 ms where a fresh interpreter costs 300: at a kill every 50 ms the
workers would otherwise do little but start. No store is ever open across a fork.

A worker is a function `name(config, log)` of a module in this folder. It says what it does in
an append-only file of its own, one JSON line per `os.write`, so that a SIGKILL takes nothing
back that was written. When the nursery goes, or its starter does, all workers are killed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NS = 1_000_000_000
PATIENCE_S = 60.0


class Log:
    """The worker's side of its file."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, **entry: Any) -> None:
        os.write(self._handle, json.dumps(entry, separators=(",", ":")).encode() + b"\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a worker's file; a line without its end was never finished."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


class Worker:
    """One process, as its starter sees it."""

    def __init__(self, nursery: Nursery, pid: int, path: Path) -> None:
        self._nursery = nursery
        self._read = 0
        self._said: list[dict[str, Any]] = []
        self.pid = pid
        self.path = path

    def log(self) -> list[dict[str, Any]]:
        """What it has said so far; only what is new is read."""
        if self.path.exists():
            with open(self.path, "rb") as source:
                source.seek(self._read)
                fresh = source.read().rpartition(b"\n")[0]
            if fresh:
                self._read += len(fresh) + 1
                self._said += [json.loads(line) for line in fresh.split(b"\n")]
        return self._said

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self._nursery.ask(do="kill", pid=self.pid)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        self._nursery.ask(do="freeze", pid=self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE_S) -> None:
        """Wait until it has ended well; otherwise show what it said."""
        status = self._nursery.ask(do="wait", pid=self.pid, seconds=seconds)["status"]
        if status != 0:
            said = self.path.with_suffix(".err").read_text()
            raise AssertionError(f"{self.path.name} ended with {status}:\n{said}")

    def wait_for(self, says: str, times: int = 1, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until the worker has written `says` so many times; return the last such line."""
        end = time.monotonic() + seconds
        while True:
            # Before its log is read: it may say it and go.
            over = time.monotonic() > end or self._nursery.ask(do="gone", pid=self.pid)["gone"]
            found = [entry for entry in self.log() if entry.get("says") == says]
            if len(found) >= times:
                return found[-1]
            if over:
                said = self.path.with_suffix(".err").read_text()
                raise AssertionError(f"{self.path.name} never said {says!r} {times} times:\n{said}")
            time.sleep(0.005)


class Nursery:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stress.procs"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, job: str, **config: Any) -> Worker:
        """Fork a worker for `module:function`, with a file of its own."""
        self._number += 1
        name = job.replace(":", "-")
        path = self.folder / f"{name}-{self._number:04}.jsonl"
        return Worker(
            self, self.ask(do="start", job=job, log=str(path), config=config)["pid"], path
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery is gone"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    folder.mkdir(parents=True, exist_ok=True)
    opened = Nursery(folder)
    try:
        yield opened
    finally:
        opened.close()


def run(folder: Path, job: str, **config: Any) -> list[dict[str, Any]]:
    """Run one worker to its end in a process of its own; return what it said."""
    with nursery(folder) as place:
        worker = place.start(job, **config)
        worker.wait(seconds=600)
        return worker.log()


def orphaned(starter: int) -> bool:
    """Whether a worker's nursery is gone; long loops end then."""
    return os.getppid() != starter


def wait_at_gate(gate: str) -> str:
    """Wait until the test has opened a gate; return what it wrote there."""
    starter, path = os.getppid(), Path(gate)
    while not path.exists():
        if orphaned(starter):
            raise SystemExit("the nursery is gone")
        time.sleep(0.002)
    return path.read_text()


def open_gate(gate: Path, text: str = "") -> None:
    """Let through whoever waits at the gate; the text is there before the gate is."""
    draft = gate.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(gate)


def until(moment_ns: int) -> None:
    """Sleep until a moment of the machine's monotonic clock, which all processes share."""
    left = moment_ns - time.monotonic_ns()
    if left > 0:
        time.sleep(left / NS)


# The nursery's own side, below, runs as a process of its own.


class Keeper:
    def __init__(self) -> None:
        self._children: dict[int, int | None] = {}

    def start(self, job: str, log: str, config: dict[str, Any]) -> dict[str, Any]:
        module, _, name = job.partition(":")
        work = getattr(importlib.import_module(f"tests.stress.{module}"), name)
        pid = os.fork()
        if pid == 0:
            self._be_child(work, log, config)
        self._children[pid] = None
        return {"pid": pid}

    def _be_child(
        self, work: Callable[[dict[str, Any], Log], None], log: str, config: dict[str, Any]
    ) -> None:
        status = 1
        try:
            errors = os.open(log.removesuffix(".jsonl") + ".err", os.O_WRONLY | os.O_CREAT, 0o600)
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.dup2(errors, 2)
            work(config, Log(log))
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)

    def kill(self, pid: int) -> dict[str, Any]:
        if not self.gone(pid)["gone"]:
            os.kill(pid, signal.SIGKILL)
            _, self._children[pid] = os.waitpid(pid, 0)
        return {}

    def freeze(self, pid: int) -> dict[str, Any]:
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._children[pid] = status
            return {"error": f"{pid} ended before it could be frozen"}
        return {}

    def gone(self, pid: int) -> dict[str, Any]:
        if self._children[pid] is None:
            found, status = os.waitpid(pid, os.WNOHANG)
            self._children[pid] = status if found else None
        return {"gone": self._children[pid] is not None}

    def wait(self, pid: int, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while not self.gone(pid)["gone"]:
            if time.monotonic() > end:
                return {"error": f"{pid} still runs after {seconds} s"}
            time.sleep(0.002)
        return {"status": self._children[pid]}

    def end(self) -> None:
        for pid, status in self._children.items():
            if status is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def keep() -> None:
    # Loaded once, here, so that every worker has them from its first moment.
    for module in ("dibs.dibs", "dibs.keeping", "dibs.storage.sqlite", "dibs.storage.postgres"):
        importlib.import_module(module)
    for noun in ("leases", "work", "messages", "state", "agents", "events"):
        importlib.import_module(f"dibs.nouns.{noun}")
    keeper = Keeper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(keeper, request.pop("do"))(**request)
            except Exception:
                answer = {"error": traceback.format_exc()}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        keeper.end()


if __name__ == "__main__":
    keep()
