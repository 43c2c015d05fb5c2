"""Runs `dibs` many times: a process that has everything loaded forks one for each command.

A fresh interpreter for each of a hundred thousand hooks would take hours. Each command still is a
process of its own, with its own environment, folder and standard streams.

A line of JSON on the standard input is a command, a line on the standard output its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from tests.surfaces.shell import Answer


class ForkedDibs:
    """The side of who wants commands to be run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stress.forked_dibs"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def run(
        self, words: list[str], folder: Path, environment: dict[str, str], given: str = ""
    ) -> Answer:
        assert self._process.stdin and self._process.stdout
        wanted = {"words": words, "folder": str(folder), "env": environment, "given": given}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    import dibs.surfaces.cli.main
    import dibs.surfaces.hooks.after
    import dibs.surfaces.hooks.before
    import dibs.surfaces.hooks.hook
    import dibs.surfaces.hooks.losses
    import dibs.surfaces.hooks.recover
    import dibs.surfaces.hooks.shell.walk  # noqa: F401

    for line in sys.stdin:
        wanted = json.loads(line)
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(wanted["given"].encode())
            given.seek(0)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            pid = os.fork()
            if pid == 0:
                become(wanted, streams)
            _, status = os.waitpid(pid, 0)
            for file in (out, err):
                file.seek(0)
            said = {
                "code": os.waitstatus_to_exitcode(status),
                "out": out.read().decode("utf-8", "surrogateescape"),
                "err": err.read().decode("utf-8", "replace"),
            }
        print(json.dumps(said), flush=True)


def become(wanted: dict[str, object], streams: list[int]) -> None:
    """Be that command, to its end."""
    try:
        for number, handle in enumerate(streams):
            os.dup2(handle, number)
        os.environ.clear()
        os.environ.update(wanted["env"])  # type: ignore[call-overload]
        os.chdir(str(wanted["folder"]))
        sys.argv = ["dibs", *wanted["words"]]  # type: ignore[misc]
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
        from dibs.surfaces.cli.main import main

        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(99)


if __name__ == "__main__":
    serve()
