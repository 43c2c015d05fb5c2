"""The world outside one opening of a space: other openings, other processes, raw access."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

import dibs
from tests import warm
from tests.not_linux import denied

if TYPE_CHECKING:
    from dibs.storage.clock import Clock

F = TypeVar("F", bound=Callable[..., object])
LONG_S = 7 * 86_400.0
"""The longest a session may live; on PostgreSQL, moving the clock past it ends the session."""


def direct(why: str) -> Callable[[F], F]:
    """Mark a test that cannot run through a daemon, and say why."""

    def mark(test: F) -> F:
        test.direct = why  # type: ignore[attr-defined]
        return test

    return mark


class Other:
    """Another process, which opens the space at once and joins it when it is told to.

    It lives by a clock of its own, and does what it is asked until it is closed or killed.
    """

    name: str
    session: int

    def __init__(self, opener: Opener, options: dict[str, Any]) -> None:
        arguments = [opener.url, opener.name, opener.user_dir, json.dumps(options)]
        self._process = warm.popen(
            [sys.executable, "-c", JOIN_AND_STAY, *arguments],
            env=with_tests(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _said(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _ask(self, request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def ready(self) -> None:
        """Wait until it has opened the space."""
        assert self._said() == "open"

    def begin_to_join(self) -> None:
        self._ask("join")

    def joined(self) -> Other:
        """Wait until it has joined."""
        self.name, self.session = self._said()
        return self

    def begin(self, operation: str, *args: Any, **options: Any) -> None:
        """Have it call an operation, and do not wait for the answer."""
        self._ask([*operation.split("."), args, options])

    def call(self, operation: str, *args: Any, **options: Any) -> Any:
        """What the operation answers there, as JSON; a refusal too."""
        self.begin(operation, *args, **options)
        return self._said()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Let it leave, and wait until it has ended."""
        if self._process.poll() is None:
            self._process.communicate(timeout=30)
            assert self._process.returncode == 0


class Opener:
    """Opens one space of one store again and again, and closes all of it at the end."""

    def __init__(self, url: str, name: str, user_dir: str, clock: Clock, store: str) -> None:
        """An opener of what is at `url`, whose rows are in the database at `store`."""
        self.url = url
        self.store = store
        self.name = name
        self.user_dir = user_dir
        self.clock = clock
        self._spaces: list[dibs.Dibs] = []
        self._agents: list[dibs.Agent] = []
        self._others: list[Other] = []
        self.proves = True
        """Whether nobody has changed the store but dibs."""

    @property
    def on_postgres(self) -> bool:
        return self.store.startswith("postgresql")

    @property
    def by_beats(self) -> bool:
        """Whether sessions live by beats, since nobody sees their processes."""
        return self.on_postgres or self.through_daemon

    @property
    def through_daemon(self) -> bool:
        """Whether a daemon keeps the time, which nobody can move."""
        return self.url.startswith("http")

    def open(self, clock: Clock | None = None) -> dibs.Dibs:
        told = None if self.through_daemon else clock or self.clock
        space = dibs.open(self.url, space=self.name, clock=told, user_dir=self.user_dir)
        self._spaces.append(space)
        return space

    def join(self, space: dibs.Dibs, name: str, **options: Any) -> dibs.Agent:
        agent = space.join(name, **{"ttl_s": LONG_S, **options})
        self._agents.append(agent)
        return agent

    def prepare(self, **options: Any) -> Other:
        """Start a process that will join with these options."""
        other = Other(self, options)
        self._others.append(other)
        other.ready()
        return other

    def other(self, **options: Any) -> Other:
        """Start a process, and wait until it has joined with these options."""
        other = self.prepare(**options)
        other.begin_to_join()
        return other.joined()

    def close(self) -> None:
        """Close all of it; unless the test has changed rows by hand, the store proves itself."""
        for other in self._others:
            other.kill()
        for agent in self._agents:
            agent.close()
        try:
            if self.proves and self._spaces:
                with contextlib.suppress(dibs.ClosedError):  # the test has closed it
                    assert self._spaces[0].agents.verify() == ()
        finally:
            for space in self._spaces:
                space.close()

    def tamper(self, statement: str, **parameters: Any) -> None:
        """Change rows behind the back of dibs; `%(space)s` is the number of the space."""
        self.proves = False
        parameters["name"] = self.name
        statement = statement.replace(
            "%(space)s", "(SELECT id FROM space WHERE space.name = %(name)s)"
        )
        if self.on_postgres:
            with psycopg.connect(self.store, options="-c search_path=dibs") as connection:
                changed = connection.execute(statement.encode(), parameters).rowcount
        else:
            # In a process of its own: a second SQLite in this one would drop our locks.
            names = {f"%({name})s": f":{name}" for name in parameters}
            for theirs, ours in names.items():
                statement = statement.replace(theirs, ours)
            process = run_python(TAMPER, self.store, statement, json.dumps(parameters))
            assert process.returncode == 0, process.stderr
            changed = int(process.stdout)
        assert changed == 1, f"{changed} rows were changed"

    def killed_holder(self, *resources: str, task: str = "") -> None:
        """Let a process join as `victim`, claim all this, and die of SIGKILL."""
        arguments = [self.url, self.name, self.user_dir, task, *resources]
        process = run_python(HOLD_AND_DIE, *arguments)
        assert process.returncode == -signal.SIGKILL, process.stderr


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    process = warm.popen(command, env=with_tests(), stdout=-1, stderr=-1, text=True)
    out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def with_tests() -> dict[str, str]:
    """The environment of a child that imports these tests, whatever folder it is in."""
    others = {name: value for name, value in os.environ.items() if not warm.at_start(name)}
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), **denied()}
    return {**others, **warm.ENVIRONMENT, **own}


TAMPER = """
import json, sys, apsw
path, statement, parameters = sys.argv[1:]
database = apsw.Connection(path)
database.execute(statement, json.loads(parameters))
print(database.changes())
database.close()
"""

JOIN_AND_STAY = """
import json, sys, dibs
from dibs.records import plain
from tests.clock import ManualClock

def say(answer):
    print(json.dumps(answer), flush=True)

url, name, user_dir, options = sys.argv[1:]
clock = None if url.startswith("http") else ManualClock()
space = dibs.open(url, space=name, user_dir=user_dir, clock=clock)
say("open")
sys.stdin.readline()
agent = space.join(**json.loads(options))
say([agent.name, agent.session])
for line in sys.stdin:
    noun, verb, args, options = json.loads(line)
    try:
        say(plain(getattr(getattr(agent, noun), verb)(*args, **options)))
    except dibs.DibsError as error:
        say(error.to_json())
agent.close()
space.close()
"""

HOLD_AND_DIE = """
import os, signal, sys, dibs
from tests.clock import ManualClock
url, name, user_dir, task, *resources = sys.argv[1:]
clock = None if url.startswith("http") else ManualClock()
space = dibs.open(url, space=name, user_dir=user_dir, clock=clock)
victim = space.join("victim", ttl_s=30)
if task:
    victim.work.claim(task, ttl_s=7 * 86400)
if resources:
    victim.leases.claim(*resources, ttl_s=7 * 86400)
os.kill(os.getpid(), signal.SIGKILL)
"""
