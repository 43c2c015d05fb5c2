"""Starts `dibs` by forking a process that has imported it, which takes a tenth of the time.

Every call is a process of its own, as it is for a client: a fresh copy of the imported modules,
with the directory, the environment and the standard input that the caller gives it.

    python -m tests.corpus.forked

reads one call per line and answers with one line.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from typing import Any

from tests.surfaces.shell import Answer


class Forks:
    """The process that forks, seen from the tests."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.corpus.forked"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def call(
        self, folder: str, environment: dict[str, str], words: list[str], given: str
    ) -> Answer:
        """Run `dibs` to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([folder, environment, words, given]) + "\n")
        self.process.stdin.flush()
        return Answer(*json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.communicate()


def run(folder: str, environment: dict[str, str], words: list[str], given: str) -> list[Any]:
    with (
        tempfile.TemporaryFile() as text,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        text.write(given.encode())
        text.seek(0)
        pid = os.fork()
        if not pid:
            for number, file in enumerate((text, out, err)):
                os.dup2(file.fileno(), number)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["dibs", *words]
            from dibs.surfaces.cli.main import main

            main()
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return [os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode()]


def preload() -> None:
    import dibs.dibs
    import dibs.storage.sqlite
    import dibs.surfaces.cli.main
    import dibs.surfaces.hooks

    dibs.dibs.operations()
    for module in pkgutil.walk_packages(dibs.surfaces.hooks.__path__, "dibs.surfaces.hooks."):
        __import__(module.name)


if __name__ == "__main__":
    preload()
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
