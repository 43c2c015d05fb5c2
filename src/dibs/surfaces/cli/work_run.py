"""`dibs work run [--loop] [--until-empty] -- COMMAND…`: a command for each task.

Each task has its own session, bound to this process, so everything that the command claims is free
when the task has ended. The command leads a session of processes, and all of them end when it must
end: on a signal, when the claim is lost, or when this process is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

from dibs.arguments import NAME, TTL, WAIT_MAX_S
from dibs.errors import AllDoneError, EmptyError, InvalidError, LaterError, StaleError
from dibs.operation import EVERYBODY
from dibs.records import called, plain, quoted, span, to_text
from dibs.storage.clock import SILENCE
from dibs.surroundings.output import Output
from dibs.surroundings.running import END_S, SIGNALS, TTL_S, attend_group, environment, execute
from dibs.surroundings.who import worker_name
from dibs.surroundings.wording import note, print_json
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Agent
    from dibs.keeping import HeldTask
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"tags": NAME, "ttl_s": TTL}
LOOK_S = 1.0
"""How often to check whether all are done; a task that can be taken wakes it earlier."""


def main(
    call: Globals,
    *command: str,
    loop: bool = False,
    until_empty: bool = False,
    kind: str | None = None,
    tags: Sequence[str] = (),
    wait_s: float = 0,
    ttl_s: float = TTL_S,
) -> int:
    """Take the next task and run a command for it; complete it with the command's result.

    The command gets the task in DIBS_TASK_ID, DIBS_TASK_TITLE and so on, and the payload on its
    standard input. If it exits with 0, the task is completed, with the last line of its output that
    is a JSON object or list as the result. Otherwise the task has failed, with the end of the
    output as the reason. The claim is renewed while the command runs; if it is lost, the command is
    ended. SIGTERM or Ctrl-C ends the command, and another worker can take the task at once.

    For a single task, the exit code is that of the command. With --until-empty it is 0 if all tasks
    are done, and 4 if only tasks are left that this worker can never take.

    command: what to run for each task
    loop: continue with the next task, and wait for it as long as it takes
    until_empty: continue until no task is left, including those that others work on
    kind: only tasks of this kind
    tags: what the command can do; tasks that need more are left to others
    wait_s: how long to wait for the task
    ttl_s: how long the claim lasts if this process freezes
    example: --as ci --loop --until-empty -- ./agent.sh
    """
    if not command:
        raise InvalidError("no command was given", next="dibs work run -- COMMAND…")
    loop = loop or until_empty
    wanted: dict[str, Any] = {"kind": kind, "tags": tags, "ttl_s": ttl_s}
    # Threads inherit the blocked signals, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with call.open() as space:
        name = call.agent or worker_name(call.named(space, people=True))
        while True:
            with space.join(name) as agent:
                # While it waits, a signal ends this process.
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                try:
                    task = take(agent, wait_s, loop, until_empty, **wanted)
                except AllDoneError as done:
                    if not until_empty:
                        raise
                    note(f"dibs: {done.message}")
                    return 0
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
                run = Run(call, agent, task, command, ttl_s)
                code = run.perform(mask)
            if not loop or run.over:
                return code


def take(agent: Agent, wait_s: float, loop: bool, until_empty: bool, **wanted: Any) -> Task:
    """Claim the next task, as soon as there is one."""
    wait_s = LOOK_S if until_empty else WAIT_MAX_S if loop else wait_s
    while True:
        try:
            return agent.work.next(wait_s=wait_s, **wanted)
        except EmptyError as empty:
            if not loop or (until_empty and not isinstance(empty, LaterError)):
                raise


class Run:
    """A run of the command for one task.

    over: whether no other task may follow
    """

    def __init__(
        self, call: Globals, agent: Agent, task: Task, command: Sequence[str], ttl_s: float
    ) -> None:
        self._call = call
        self._agent = agent
        self._command = command
        self._held = agent.task(task.id, ttl_s=ttl_s)
        self._output = Output(2 if call.json else 1)
        self._started = False
        self._told = 0
        self.over = False

    def perform(self, mask: set[signal.Signals] | set[int]) -> int:
        """Run the command, settle the task, and return the exit code."""
        try:
            with self._held as held, tempfile.TemporaryFile() as payload:
                if held.task.payload is not None:
                    payload.write(f"{to_text(held.task.payload)}\n".encode())
                    payload.seek(0)
                told, pipe = environment(held.task), subprocess.PIPE
                code = execute(
                    self._call, self._agent, self._command, mask, self._attend, GroupTether(),
                    told, stdin=payload, stdout=pipe, stderr=pipe,
                )  # fmt: skip
                self._settle(held, code)
                SILENCE.set(END_S)
        except StaleError as error:
            note(f"dibs: {error.message}; nothing was completed")
            return 1
        self._tell(held.task)
        return 128 + self._told if self._told else code

    def _attend(self, child: subprocess.Popen[bytes]) -> int:
        self._started = True
        self._output.follow(child)
        code, self._told = attend_group(child, self._held)
        self._output.finish()
        return code

    def _settle(self, held: HeldTask, code: int) -> None:
        """Complete, fail or abandon the task, depending on how the command ended."""
        if not self._started:
            self.over = True
            held.abandon(f"{self._command[0]} could not be run")
        elif self._told:
            self.over = True
            held.abandon(f"its worker was told to end by {signal.Signals(self._told).name}")
        elif held.lost is not None:
            held.abandon("its claim was lost for a while")
        elif code:
            held.fail(f"exit code {code}: {self._output.tail}")
        else:
            held.result = self._output.result

    def _tell(self, task: Task) -> None:
        if self._call.json:
            print_json(plain(task))
            sys.stdout.flush()
            return
        again = f", and is tried again in {span(task.due_in_ms)}" if task.due_in_ms else ""
        what = "given back" if task.state == "available" else f"{task.state}{again}"
        why = f": {quoted(task.reason)}" if task.reason else ""
        note(f"dibs: {called(task.id)} is {what}{why}")
