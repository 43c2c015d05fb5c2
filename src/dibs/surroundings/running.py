"""Run a command while a session of this process holds what it needs.

The session is bound to this process, and the command is told to end when this process does,
so what is claimed lives exactly as long as the command: the kernel frees it whatever kills us.
The command finds its identity in DIBS_AGENT, DIBS_SESSION and DIBS_URL, so whatever `dibs` it
calls acts in the same session.
"""

from __future__ import annotations

import os
import signal
import subprocess

from dibs.errors import RefusedError, UnavailableError
from dibs.storage.clock import SILENCE
from dibs.surroundings.wording import note as tell
from dibs.system import Tether, next_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Agent
    from dibs.keeping import HeldLease
    from dibs.surroundings.commands import Globals

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
GRACE_S = 5.0
SOON_S = 3.0
"""So long before the lease may be lost, it is looked at more often."""
END_S = 3.0
"""How long a store may stay silent once the command has ended: its exit code waits for that."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


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

    as_caller: the command acts as whoever called, not in that session
    facts: what else to say of the claim
    """
    # Every thread starts with what is blocked here, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    code: int | None = None
    try:
        with call.open() as space, space.join(name) as agent:
            acting: Agent | None = agent
            if as_caller:
                who = call.who()
                acting = None if who is None else who.join(space)
            if not claim:
                code = execute(call, acting, command, mask, None, on_loss)
                SILENCE.set(END_S)
                return code
            # A script has lines; a note is one.
            words = " ".join(command)
            note = "".join(sign if sign.isprintable() else " " for sign in words).strip()[:200]
            facts = {"ttl_s": TTL_S, "note": note, **facts}
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # in the queue, a signal ends us
            agent.leases.claim(*claim, wait_s=wait_s, **facts)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            with agent.lease(*claim, **facts) as lease:
                code = execute(call, acting, command, mask, lease, on_loss)
                SILENCE.set(END_S)
                lease.check()
    except RefusedError as error:
        if code is None:
            raise
        tell(f"dibs: {error.message}; the command ran unprotected for a while")
    except UnavailableError as error:
        if code is None:
            raise
        tell(f"dibs: {error.message}; whether the command was protected to its end is not known")
    return code


def execute(
    call: Globals,
    agent: Agent | None,
    command: Sequence[str],
    mask: set[signal.Signals] | set[int],
    lease: HeldLease | None,
    on_loss: str,
) -> int:
    """Start the command, which must not outlive us, and stay until it has ended."""
    environment = dict(os.environ)
    if agent is not None:
        environment |= {"DIBS_AGENT": agent.name, "DIBS_SESSION": agent.token}
    if call.store:
        # The command may go to another folder.
        path = "://" not in call.store and not call.store.startswith("unix:/")
        environment["DIBS_URL"] = os.path.abspath(call.store) if path else call.store
    if call.space:
        environment["DIBS_SPACE"] = call.space
    tether = Tether()

    def prepare() -> None:
        tether.tie()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        child = subprocess.Popen(command, env=environment, preexec_fn=prepare)  # noqa: PLW1509
        return attend(child, lease, on_loss)
    except FileNotFoundError:
        tell(f"dibs: {command[0]}: not found")
        return NOT_FOUND
    except PermissionError:
        tell(f"dibs: {command[0]}: may not be executed")
        return NOT_EXECUTABLE
    finally:
        tether.cut()


def attend(child: subprocess.Popen[bytes], lease: HeldLease | None, on_loss: str) -> int:
    """Pass signals on to the command, and watch the lease until it ends."""
    warned = False
    while child.poll() is None:
        soon = lease is not None and lease.left_s < SOON_S
        # A Ctrl-C at the terminal reaches the command by itself; a kill reaches only us.
        came = next_signal(SIGNALS, 0.02 if soon else 0.2)
        if came in FORWARDED:
            child.send_signal(came)
        if lease is not None and lease.lost is not None and not warned:
            warned = True
            tell(f"dibs: {lease.lost.message}; the command is no longer protected")
            if on_loss == "kill":
                # Before somebody else can have it, if there is time.
                return end(child, min(lease.left_s or GRACE_S, GRACE_S))
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end(child: subprocess.Popen[bytes], grace_s: float) -> int:
    """End a command that has lost its lease: politely, then not."""
    tell("dibs: ending the command")
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return 1
