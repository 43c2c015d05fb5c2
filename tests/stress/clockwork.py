"""Real processes for the stress tests: started, told, heard, frozen and killed.

A `Child` runs one function of a module in a process of its own. Both sides speak in lines of
JSON over the pipes: the test with `tell` and `hear`, the function with `say` and `ask`. A
process that is killed in the middle of a line leaves only that line behind, no lock and no
queue that others would wait for.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


class Child:
    def __init__(
        self,
        function: Callable[..., object],
        *args: Any,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = function.__name__
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", __name__, function.__module__, self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | (env or {}),
        )
        self._heard = b""
        self.tell(args)

    def tell(self, value: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, within_s: float = 60) -> Any:
        """The next thing it says; a child that says nothing in time fails the test."""
        assert self.process.stdout
        end = time.monotonic() + within_s
        while b"\n" not in self._heard:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, left))
            assert ready, f"{self.name} said nothing within {within_s} s"
            part = os.read(self.process.stdout.fileno(), 65536)
            assert part, f"{self.name} ended with {self.process.wait()} instead of an answer"
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, within_s: float = 60) -> None:
        """Wait for it to end by itself, without an error."""
        assert self.process.wait(within_s) == 0, f"{self.name} failed"

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # what was not read by the dead needs no flush


class Children:
    """The children of one test; none outlives it."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(self, function: Callable[..., object], *args: Any, **options: Any) -> Child:
        child = Child(function, *args, **options)
        self._all.append(child)
        return child

    def close(self) -> None:
        for child in self._all:
            child.close()


@contextmanager
def children() -> Iterator[Children]:
    some = Children()
    try:
        yield some
    finally:
        some.close()


def say(value: Any) -> None:
    """Tell the test something, from inside a child."""
    print(json.dumps(value), flush=True)


def ask() -> Any:
    """Wait for what the test tells, from inside a child; the end of the test ends the child."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def database(url: str) -> str:
    """The word for a database in a line of figures."""
    return "postgres" if url.startswith("postgresql") else "sqlite"


def middle(values: Sequence[float], part: float) -> float:
    """The value below which that part of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def main() -> None:
    # A test that is killed leaves nobody at work.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    module, name = sys.argv[1:]
    function = getattr(importlib.import_module(module), name)
    function(*ask())


if __name__ == "__main__":
    main()
