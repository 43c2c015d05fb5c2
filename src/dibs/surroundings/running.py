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
import sys

from dibs.errors import StaleError
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.dibs import Agent
    from dibs.keeping import HeldLease
    from dibs.surroundings.commands import Globals

FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
SIGNALS = FORWARDED | {signal.SIGCHLD}
FROM_A_PROCESS = 0
GRACE_S = 5
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PR_SET_PDEATHSIG = 1


class Running:
    """What to run, and what to claim for it."""

    def __init__(self) -> None:
        self.claim: list[str] = []
        self.shared = False
        self.wait_s = 86_400.0
        self.ttl_s = 60.0
        self.note = ""
        self.on_loss = "warn"
        self.command: list[str] = []


def perform(globals_: Globals, name: str, options: Running, *, as_caller: bool = False) -> int:
    """Run the command while a session of this process holds what it claims.

    as_caller: the command acts as whoever called, not in that session
    """
    # Every thread starts with what is blocked here, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with globals_.open() as space, space.join(name) as agent:
        acting: Agent | None = agent
        if as_caller:
            who = globals_.who()
            acting = None if who is None else who.join(space)
        if not options.claim:
            return execute(globals_, acting, options, mask, None)
        claim: dict[str, Any] = {
            "ttl_s": options.ttl_s,
            "note": options.note or printable(" ".join(options.command))[:200],
            "mode": "shared" if options.shared else "exclusive",
        }
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # in the queue, a signal ends us
        agent.leases.claim(*options.claim, wait_s=options.wait_s, **claim)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        code = None
        try:
            with agent.lease(*options.claim, **claim) as lease:
                code = execute(globals_, acting, options, mask, lease)
                lease.check()
        except StaleError as error:
            if code is None:
                raise
            note(f"dibs: {error.message}; the command ran unprotected for a while")
        return code


def printable(text: str) -> str:
    """A script has lines; a note is one."""
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()


def execute(
    globals_: Globals,
    agent: Agent | None,
    options: Running,
    mask: set[signal.Signals] | set[int],
    lease: HeldLease | None,
) -> int:
    """Start the command, pass signals on, and watch the lease until it ends."""
    environment = dict(os.environ)
    if agent is not None:
        environment |= {"DIBS_AGENT": agent.name, "DIBS_SESSION": agent.token}
    if globals_.store:
        # The command may go to another folder.
        path = "://" not in globals_.store and not globals_.store.startswith("unix:/")
        environment["DIBS_URL"] = os.path.abspath(globals_.store) if path else globals_.store
    if globals_.space:
        environment["DIBS_SPACE"] = globals_.space
    try:
        # Only between fork and exec can a child ask to die with its parent.
        prepare = _prepare(mask)
        child = subprocess.Popen(options.command, env=environment, preexec_fn=prepare)  # noqa: PLW1509
    except FileNotFoundError:
        note(f"dibs: {options.command[0]}: not found")
        return NOT_FOUND
    except PermissionError:
        note(f"dibs: {options.command[0]}: may not be executed")
        return NOT_EXECUTABLE
    warned = False
    while child.poll() is None:
        came = signal.sigtimedwait(SIGNALS, 0.2)
        # A Ctrl-C at the terminal reaches the command by itself; a kill reaches only us. After
        # a freeze Python may return one that never came, of no kind that there is.
        if came and came.si_signo in FORWARDED and came.si_code <= FROM_A_PROCESS:
            child.send_signal(came.si_signo)
        if lease is not None and lease.lost is not None and not warned:
            warned = True
            note(f"dibs: {lease.lost.message}; the command is no longer protected")
            if options.on_loss == "kill":
                return end(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end(child: subprocess.Popen[bytes]) -> int:
    """End a command that has lost its lease: politely, then not."""
    note("dibs: ending the command")
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return 1


def _prepare(mask: set[signal.Signals] | set[int]) -> Callable[[], None]:
    """What the child does between fork and exec: it must not outlive us, nor miss signals."""
    parent = os.getpid()
    control = None
    if sys.platform == "linux":
        import ctypes

        control = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if control is not None:
            control(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare
