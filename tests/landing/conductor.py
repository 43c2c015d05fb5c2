"""A conductor as a process of its own, that can be made to die at any of its steps.

    python conductor.py REPOSITORY AGENT STEP BRANCH…

It queues the branches and lands them. Before and after each git command that writes, each write to
the store, each change of a file of a checkout and each command of the bar it counts a step; at the
given one it kills itself. At its end it prints how many steps there were. STEP is a number, or what
the step is called, for the first that is called so. STEP 0: it never does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from dibs.landing.conducting import Options, conduct, submit
from dibs.nouns.leases.operations import Leases
from dibs.nouns.state.operations import State
from dibs.nouns.work.operations import Work
from dibs.surroundings.commands import Globals

READING = {
    "rev-parse", "rev-list", "cat-file", "diff-tree", "ls-tree", "var", "version", "diff-files",
    "diff-index", "merge-base", "log", "diff", "config", "symbolic-ref",
}  # fmt: skip
WRITES = {
    Work: ("next_many", "complete_many", "fail", "ask", "abandon"),
    Leases: ("claim", "release"),
    State: ("set",),
}


class Steps:
    """Counts, and kills at the step that was asked for."""

    def __init__(self, last: str) -> None:
        self.count, self._last = 0, last

    def __call__(self, what: str) -> None:
        self.count += 1
        if self._last in (what, str(self.count)):
            print(f"killed at {what}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*words: Any, **named: Any) -> Any:
            self(f"before {what}")
            answer = call(*words, **named)
            self(f"after {what}")
            return answer

        return stepped


def patch(steps: Steps) -> None:
    run, popen = subprocess.run, subprocess.Popen.__init__

    def ran(command: list[str], *words: Any, **named: Any) -> Any:
        verb = next(word for word in command[1:] if word[:1] != "-" and "=" not in word)
        if command[0] != "git" or verb in READING or "list" in command:
            return run(command, *words, **named)
        return steps.around(f"git {verb}", run)(command, *words, **named)

    def started(self: Any, command: list[str], *words: Any, **named: Any) -> None:
        if command[:2] == ["/bin/sh", "-c"] and "cwd" in named:
            steps("before a command of the bar")
        popen(self, command, *words, **named)

    subprocess.run = ran  # type: ignore[assignment]
    subprocess.Popen.__init__ = started  # type: ignore[assignment,method-assign]
    for noun, names in WRITES.items():
        for name in names:
            setattr(noun, name, steps.around(f"{noun.__name__}.{name}", getattr(noun, name)))
    from dibs.landing import moving

    class Stepped:
        """The calls of `os` that change a file of a checkout."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(os, name)
            return (
                steps.around(f"os.{name}", found)
                if name in ("link", "replace", "unlink")
                else found
            )

    moving.os = Stepped()  # type: ignore[assignment,attr-defined]


def main(repository: str, name: str, step: str, *branches: str) -> None:
    os.chdir(repository)
    call, steps = Globals(), Steps(step)
    with call.open() as space, space.join(name) as agent:
        for branch in branches:
            submit(agent, repository, branch, "main")
        patch(steps)
        outcome = conduct(call, agent, repository, "main", Options())
        print(outcome.stopped, file=sys.stderr)
    print(steps.count)


if __name__ == "__main__":
    main(*sys.argv[1:])
