"""Run a command while a session of this process holds what it needs.

The session is bound to this process, and the command ends when this process does, so the claims
last exactly as long as the command, even if this process is killed. The command finds its identity
in DIBS_AGENT, DIBS_SESSION and DIBS_URL, so any `dibs` that it calls acts in the same session, and
the epoch of what it holds in DIBS_EPOCH.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from dibs.errors import RefusedError, UnavailableError
from dibs.storage.clock import SILENCE
from dibs.surroundings.patience import Waiting
from dibs.surroundings.wording import note as tell
from dibs.system import Tether, next_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from dibs.dibs import Agent
    from dibs.keeping import Held
    from dibs.records import Task
    from dibs.surroundings.commands import Globals
    from dibs.system.portable import GroupTether

QUEUE_S = 86_400
TTL_S = 60
FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
SIGNALS = FORWARDED | {signal.SIGCHLD}
ENDING = FORWARDED - {signal.SIGUSR1, signal.SIGUSR2}
GRACE_S = 5.0
STEP_S = 0.02
SOON_S = 3.0
"""How long before a lease could be lost to check it more often."""
END_S = 3.0
"""How long to wait for a silent store after the command has ended, before we exit."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
LIST_LIMIT = 32_768
"""How many bytes a list may have in the environment, whose size is limited."""


def perform(
    call: Globals,
    name: str,
    command: Sequence[str],
    claim: Sequence[str],
    wait_s: float,
    *,
    on_loss: str = "warn",
    as_caller: bool = False,
    **facts: Any,
) -> int:
    """Run the command while a session of this process holds what it claims.

    as_caller: the command acts as the caller, not in that session
    facts: more arguments of the claim
    """
    # Threads inherit the blocked signals, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    code: int | None = None
    try:
        with call.open() as space, space.join(name or call.named(space)) as agent:
            acting: Agent | None = agent
            if as_caller:
                who = call.who()
                acting = None if who is None else who.join(space)
            if not claim:
                code = execute(call, acting, command, mask, attend)
                SILENCE.set(END_S)
                return code
            # A script may have several lines; a note has one.
            words = " ".join(command)
            note = "".join(sign if sign.isprintable() else " " for sign in words).strip()[:200]
            facts = {"ttl_s": TTL_S, "note": note, **facts}
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # in the queue, a signal ends us
            with Waiting(agent, claim):
                agent.leases.claim(*claim, wait_s=wait_s, **facts)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            with agent.lease(*claim, **facts) as lease:
                code = execute(
                    call, acting, command, mask, lambda child: attend(child, lease, on_loss),
                    environment={"DIBS_EPOCH": str(lease.epoch)},
                )  # fmt: skip
                SILENCE.set(END_S)
                lease.check()
    except RefusedError as error:
        if code is None:
            raise
        tell(f"dibs: {error.message}; the command ran unprotected for a while")
    except UnavailableError as error:
        if code is None:
            raise
        tell(f"dibs: {error.message}; the command may have been unprotected at its end")
    return code


def execute(
    call: Globals,
    agent: Agent | None,
    command: Sequence[str],
    mask: set[signal.Signals] | set[int],
    attend: Callable[[subprocess.Popen[bytes]], int],
    tether: Tether | GroupTether | None = None,
    environment: Mapping[str, str | None] | None = None,
    **streams: Any,
) -> int:
    """Start the command, which must end when we do, and wait until it has ended.

    attend: waits for it, and returns its exit code; not called if it cannot start
    tether: what ends the command with us, if more than the command itself has to end
    environment: variables to add to its environment, or to remove from it
    streams: its standard input and output, if they are not ours, and its folder
    """
    given = environment or {}
    told = {name: text for name, text in os.environ.items() if name not in given}
    told |= {name: text for name, text in given.items() if text is not None}
    if agent is not None:
        told |= {"DIBS_AGENT": agent.name, "DIBS_SESSION": agent.token}
    if call.store:
        # The command may change to another folder.
        path = "://" not in call.store and not call.store.startswith("unix:/")
        told["DIBS_URL"] = os.path.abspath(call.store) if path else call.store
    if call.space:
        told["DIBS_SPACE"] = call.space
    tether = tether or Tether()

    def prepare() -> None:
        tether.tie()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        child = subprocess.Popen(
            command,
            env=told,
            preexec_fn=prepare,  # noqa: PLW1509
            **streams,
        )
    except FileNotFoundError:
        tell(f"dibs: {command[0]}: not found")
        return NOT_FOUND
    except PermissionError:
        tell(f"dibs: {command[0]}: permission denied")
        return NOT_EXECUTABLE
    except OSError as error:
        tell(f"dibs: {command[0]}: {error.strerror}")
        return NOT_EXECUTABLE
    else:
        return attend(child)
    finally:
        tether.cut()


def attend(child: subprocess.Popen[bytes], held: Held | None = None, on_loss: str = "warn") -> int:
    """Pass signals on to the command, and watch its leases until it ends."""
    warned = False
    while child.poll() is None:
        # Ctrl-C reaches the command directly; a kill reaches only us.
        came = next_signal(SIGNALS, pause_s(held))
        if came in FORWARDED:
            child.send_signal(came)
        if held is not None and held.lost is not None and not warned:
            warned = True
            tell(f"dibs: {held.lost.message}; the command is no longer protected")
            if on_loss == "kill":
                end(child.pid, child, grace_s(held))
                return 1
    return exit_code(child)


def to_this_process(seconds: float) -> int:
    """Wait up to this many seconds for a signal; 0 if none arrives."""
    return next_signal(SIGNALS, seconds, typed=True)


def attend_group(
    child: subprocess.Popen[bytes],
    held: Held | None,
    listen: Callable[[float], int] = to_this_process,
) -> tuple[int, int]:
    """Wait for a command that leads a group of processes, and end all of them when it must end.

    Returns the exit code, and the signal that told us to end, if any.

    listen: waits up to some seconds for a signal, and returns it; only one thread can listen for
        the signals of this process
    """
    told = 0
    while child.poll() is None and not told and not is_lost(held):
        came = listen(pause_s(held))
        if came in ENDING:
            told = came
        elif came in FORWARDED:
            send(-child.pid, came)
    if told or is_lost(held):
        end(-child.pid, child, grace_s(held), told or signal.SIGTERM)
    return exit_code(child), told


def is_lost(held: Held | None) -> bool:
    return held is not None and held.lost is not None


def grace_s(held: Held | None) -> float:
    """How long a command may take to end by itself before it is killed.

    If its lease is lost, that is half of the time until somebody else can claim it, if there is
    any: to kill it takes time, too.
    """
    left_s = held.left_s / 2 if held is not None and is_lost(held) else 0.0
    return min(left_s or GRACE_S, GRACE_S)


def environment(task: Task) -> dict[str, str]:
    """The variables that tell a command about its task."""
    held = [lease.resource for lease in task.leases]
    told = {
        "id": task.id,
        "title": task.title,
        "kind": task.kind,
        "priority": str(task.priority),
        "attempts": str(task.attempts),
        "max_attempts": str(task.max_attempts),
        "epoch": str(task.epoch),
        "reason": task.reason,
        "author": task.author,
        "parent": task.parent or "",
        "tags": "\n".join(task.tags),
        "labels": "\n".join(task.labels),
        "leases": "\n".join(dict.fromkeys([*task.declared, *held])),
    }
    return {
        f"DIBS_TASK_{name.upper()}": text if len(text.encode()) <= LIST_LIMIT else ""
        for name, text in told.items()
    }


def pause_s(held: Held | None) -> float:
    return STEP_S if held is not None and held.left_s < SOON_S else 0.2


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a command, as shells report it."""
    code: int = child.returncode
    return code if code >= 0 else 128 - code


def end(
    target: int, child: subprocess.Popen[bytes], grace_s: float, by: int = signal.SIGTERM
) -> None:
    """End a command, first with SIGTERM, then with SIGKILL.

    target: its process id; negative for all of its group
    """
    tell("dibs: ending the command")
    send(target, by)
    until = time.monotonic() + grace_s
    while child.poll() is None or (target < 0 and send(target, 0)):
        if time.monotonic() > until:
            send(target, signal.SIGKILL)
            break
        time.sleep(STEP_S)
    child.wait()


def send(target: int, number: int) -> bool:
    """Send a signal to a process or to a group; whether there still was one."""
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return False  # it has ended by itself
    return True
