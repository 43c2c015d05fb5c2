"""Testing a commit: the user's commands in a separate worktree.

The worktree is below `.dibs/worktrees`, detached, and matches the commit before each command:
whatever an earlier command left there is removed, including ignored files. It is removed at the
end. If its conductor dies, the next one removes it.

Each command leads a process group. When the command has ended, its time is up or the conductor must
stop, the whole group ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial
from typing import NamedTuple

from dibs.digest import sha256
from dibs.errors import UnavailableError
from dibs.records import called
from dibs.storage.folder import Own, open_own
from dibs.surroundings.git import LOCAL, elsewhere, git, names
from dibs.surroundings.output import readable
from dibs.surroundings.running import ENDING, GRACE_S, end, execute, exit_code, send
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from re import Pattern

    from dibs.keeping import Held
    from dibs.surroundings.commands import Globals

WORKTREES, LOGS = "worktrees", "logs"
TAIL_BYTES = 16_384
KEPT_LOGS = 50
LOG_LIMIT = 64 << 20
"""A command that prints more is ended."""
READ_BYTES = 16 << 20
"""How much of an output is searched for failures."""
NAMED = 2_000
NOT_RUN = (126, 127)
"""The exit codes of a shell that cannot run a command."""
STEP_S = 0.1
REMOVALS = 5


class StoppedError(Exception):
    """The conductor was told to end, by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Result(NamedTuple):
    """How a command ended.

    said: the same in words
    tail: the end of its output
    failures: the single failures in its output, as names of a fixed length
    ran: whether the command could be run, and ended by itself
    """

    passed: bool
    said: str
    tail: str
    log: str
    failures: frozenset[str] = frozenset()
    ran: bool = True


class Runner:
    """How the user's commands are run.

    call: the environment of a `dibs` that they call
    pause: waits so many seconds at most, and returns the signal that tells us to end
    mask: the signal mask of a command
    """

    def __init__(
        self,
        call: Globals,
        held: Held,
        pause: Callable[[float], int] | None = None,
        mask: set[signal.Signals] | set[int] | None = None,
    ) -> None:
        self._call = call
        self.held = held
        self._pause = pause
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if mask is None else mask

    def check(self) -> None:
        """Raise if the lease is lost, or we are told to end."""
        told = self._pause(0.0) if self._pause else 0
        if told in ENDING:
            raise StoppedError(told)
        if self.held.lost is not None:
            raise self.held.lost

    def run(
        self,
        command: str,
        folder: str,
        log: int,
        limit_s: float,
        environment: Mapping[str, str | None],
    ) -> tuple[int, str]:
        """Run a command in a shell; return its exit code, and what ended it, "" if nothing did."""
        self.check()
        ended, told = "", 0

        def attend(child: subprocess.Popen[bytes]) -> int:
            nonlocal ended, told
            until = time.monotonic() + limit_s
            while child.poll() is None:
                told = self._wait(child)
                if time.monotonic() > until:
                    ended = f"it was stopped after {limit_s:g} s"
                elif os.fstat(log).st_size > LOG_LIMIT:
                    ended = f"it was stopped because it printed more than {LOG_LIMIT >> 20} MiB"
                if told in ENDING or ended or self.held.lost is not None:
                    end(-child.pid, child, min(GRACE_S, max(0.5, self.held.left_s)))
                    break
            send(-child.pid, signal.SIGKILL)  # what it left running
            return exit_code(child)

        code = execute(
            self._call, None, ["/bin/sh", "-c", command], self._mask, attend, GroupTether(),
            {**dict.fromkeys(LOCAL), **environment}, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
        if told in ENDING:
            raise StoppedError(told)
        self.check()
        return code, ended

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        if self._pause is not None:
            return self._pause(STEP_S)
        try:
            child.wait(STEP_S)
        except subprocess.TimeoutExpired:
            pass
        return 0


class Worktree:
    """A checkout for tests, created when it is first needed."""

    def __init__(self, top: str, store_dir: str, onto: str, session: int) -> None:
        self._top = top
        self._own = Own(store_dir)
        self._begins = begins(onto)
        self._name = f"{self._begins}{session}"
        self._logs = 0
        self._git = partial(git, cwd=top, environment=elsewhere(), timeout_s=600)
        self.path = f"{store_dir}/{WORKTREES}/{self._name}"

    def at(self, commit: str) -> str:
        """The folder, with exactly the files of the commit."""
        for tried in range(2):
            if not os.path.exists(f"{self.path}/.git"):
                self.remove()
                self._own.folder(WORKTREES, make=True)
                self._own.once(".gitignore", b"*\n")
                self._git("worktree", "add", "--detach", "--no-checkout", self.path, commit)
            inside = partial(git, cwd=self.path, environment=elsewhere(), timeout_s=600)
            try:
                said = inside("rev-parse", "--absolute-git-dir")
                try:
                    os.unlink(f"{os.fsdecode(said).strip()}/index.lock")
                except FileNotFoundError:
                    pass
                inside("checkout", "-q", "-f", "--detach", commit)
                inside("clean", "-ffdxq")
                break
            except UnavailableError:
                # A command may have done anything to it.
                self.remove()
                if tried:
                    raise
        return self.path

    def remove(self) -> None:
        """Remove it, whatever its state."""
        remove(self._top, self.path)

    def sweep(self) -> None:
        """Remove what earlier conductors left; the caller is the conductor."""
        listed = names(self._git("worktree", "list", "--porcelain", "-z"))
        there = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
        folder = f"{self._own.base}/{WORKTREES}"
        there |= {f"{folder}/{name}" for name in self._own.names(WORKTREES)}
        for path in there:
            name = path.removeprefix(f"{folder}/")
            if name.startswith(self._begins) and "/" not in name and name != self._name:
                remove(self._top, path)

    def new_log(self) -> tuple[str, int]:
        """A new file for the output of a command; the oldest ones are removed."""
        self._own.folder(LOGS, make=True)
        old = sorted(
            (name for name in self._own.names(LOGS) if name.startswith("land-")),
            key=lambda name: os.lstat(f"{self._own.base}/{LOGS}/{name}").st_mtime,
        )
        for name in old[:-KEPT_LOGS]:
            self._own.remove(f"{LOGS}/{name}")
        self._logs += 1
        file = self._own.file(f"{LOGS}/{self._name}-{self._logs}.log", make=True)
        return file, open_own(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def try_out(
        self,
        runner: Runner,
        commit: str,
        command: str,
        limit_s: float,
        failures: Pattern[bytes] | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Run a command on the files of a commit."""
        file, log = self.new_log()
        try:
            told = {"DIBS_LAND_COMMIT": commit, **(environment or {})}
            code, ended = runner.run(command, self.at(commit), log, limit_s, told)
        finally:
            os.close(log)
        said, ran = ended or f"exit code {code}", not ended and code not in NOT_RUN
        if not ran and not ended:
            said = f"exit code {code}: a command was not found or could not be run"
        passed = code == 0 and not ended
        found: frozenset[str] = frozenset()
        if not passed and not ended and failures is not None:
            with open(file, "rb") as text:
                found = failed(failures, text.read(READ_BYTES))
        result = Result(passed, said, tail_of(file), file, found, ran)
        if passed:
            os.unlink(file)
        return result


def begins(onto: str) -> str:
    """The prefix of the names of all worktrees for a target."""
    return f"land-{sha256(onto.encode()).hexdigest()[:8]}-"


def failed(pattern: Pattern[bytes], output: bytes) -> frozenset[str]:
    found = set()
    for match in pattern.finditer(output):
        found.add(sha256(match.group(match.lastindex or 0)).hexdigest()[:16])
        if len(found) >= NAMED:
            break
    return frozenset(found)


def tail_of(file: str) -> str:
    with open(file, "rb") as text:
        text.seek(max(0, os.fstat(text.fileno()).st_size - TAIL_BYTES))
        return readable(text.read().decode("utf-8", "replace"))


def remove(top: str, path: str) -> None:
    """Remove a worktree: its folder, and the repository's record of it."""
    from shutil import rmtree

    def open_up(call: Callable[[str], object], name: str, _: object) -> None:
        try:
            os.chmod(os.path.dirname(name), 0o700)
            os.chmod(name, 0o700)
            call(name)
        except OSError:
            pass  # a process that still runs there may have been faster

    call = partial(git, cwd=top, environment=elsewhere())
    for _ in range(REMOVALS):
        if os.path.lexists(path):
            rmtree(path, onerror=open_up)
        if not os.path.lexists(path):
            break
        time.sleep(STEP_S)
    listed = names(call("worktree", "list", "--porcelain", "-z"))
    if f"worktree {path}" in listed:
        try:
            call("worktree", "remove", "--force", "--force", path)
        except UnavailableError:
            if os.path.lexists(path):
                raise UnavailableError(
                    f"the worktree {called(path)} cannot be removed",
                    next="stop the processes there, then dibs land --run",
                ) from None
