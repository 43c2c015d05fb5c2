"""`dibs work run [--loop] [--until-empty] -- COMMAND…`: a command for each task.

Each task has a session of its own, bound to this process, so whatever the command claims on the
way is free when the task has ended. The command leads a session of processes: when it has to end,
because we are told to, because the claim is lost or because we are killed, all of it ends.
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
"""How often to look whether all is done; what can be taken wakes it before."""


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

    The command finds the task in DIBS_TASK_ID, DIBS_TASK_TITLE and so on, and the payload on its
    standard input. If it ends with 0, the task is completed with the last line of its output that
    is a JSON object or list, if there is one. Else the task has failed, and the end of its output
    says why. The claim is renewed meanwhile; if it is lost, the command is ended.
    SIGTERM or Ctrl-C ends the command, and another worker can take the task at once.

    The exit code is the command's own for a single task. With --until-empty it is 0 if all is
    done, and 4 if tasks are left of which this worker can never take one.

    command: what to run for each task
    loop: go on with the next task, and wait for it as long as it takes
    until_empty: go on until no task is left, also those that others work on now
    kind: only tasks of this kind
    tags: what the command can do; a task that needs more is left to others
    wait_s: how long to wait for the task
    ttl_s: how long the claim outlives a freeze of this process
    example: --as ci --loop --until-empty -- ./agent.sh
    """
    if not command:
        raise InvalidError("no command was given", next="dibs work run -- COMMAND…")
    name = call.agent or worker_name(call.who())
    loop = loop or until_empty
    wanted: dict[str, Any] = {"kind": kind, "tags": tags, "ttl_s": ttl_s}
    # Every thread starts with what is blocked here, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with call.open() as space:
        while True:
            with space.join(name) as agent:
                # While it waits, a signal ends us.
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
    """The command, as it runs for one task.

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
        """Say what becomes of the task, by how the command has ended."""
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
