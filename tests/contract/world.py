"""The world outside one opening of a space: other openings, other processes, raw access."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg

import dibs

if TYPE_CHECKING:
    from dibs.storage.clock import Clock

LONG_S = 7 * 86_400.0
"""The longest a session may live; on PostgreSQL, moving the clock past it ends the session."""


class Opener:
    """Opens one space of one store again and again, and closes all of it at the end."""

    def __init__(self, url: str, name: str, user_dir: str, clock: Clock) -> None:
        self.url = url
        self.name = name
        self.user_dir = user_dir
        self.clock = clock
        self._spaces: list[dibs.Dibs] = []
        self._agents: list[dibs.Agent] = []

    @property
    def on_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def open(self, clock: Clock | None = None) -> dibs.Dibs:
        space = dibs.open(
            self.url, space=self.name, clock=clock or self.clock, user_dir=self.user_dir
        )
        self._spaces.append(space)
        return space

    def join(self, space: dibs.Dibs, name: str, **options: Any) -> dibs.Agent:
        agent = space.join(name, **{"ttl_s": LONG_S, **options})
        self._agents.append(agent)
        return agent

    def close(self) -> None:
        for agent in self._agents:
            agent.close()
        for space in self._spaces:
            space.close()

    def tamper(self, statement: str, **parameters: Any) -> None:
        """Change rows behind the back of dibs; `%(space)s` is the number of the space."""
        parameters["name"] = self.name
        statement = statement.replace(
            "%(space)s", "(SELECT id FROM space WHERE space.name = %(name)s)"
        )
        if self.on_postgres:
            with psycopg.connect(self.url, options="-c search_path=dibs") as connection:
                changed = connection.execute(statement.encode(), parameters).rowcount
        else:
            # In a process of its own: a second SQLite in this one would drop our locks.
            names = {f"%({name})s": f":{name}" for name in parameters}
            for theirs, ours in names.items():
                statement = statement.replace(theirs, ours)
            process = run_python(TAMPER, self.url, statement, json.dumps(parameters))
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
    return subprocess.run(command, check=False, capture_output=True, text=True)


TAMPER = """
import json, sys, apsw
path, statement, parameters = sys.argv[1:]
database = apsw.Connection(path)
database.execute(statement, json.loads(parameters))
print(database.changes())
database.close()
"""

HOLD_AND_DIE = """
import os, signal, sys, dibs
from dibs.storage.clock import ManualClock
url, name, user_dir, task, *resources = sys.argv[1:]
space = dibs.open(url, space=name, user_dir=user_dir, clock=ManualClock())
victim = space.join("victim", ttl_s=30)
if task:
    victim.work.claim(task, ttl_s=7 * 86400)
if resources:
    victim.leases.claim(*resources, ttl_s=7 * 86400)
os.kill(os.getpid(), signal.SIGKILL)
"""
