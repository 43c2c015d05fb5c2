"""`dibs` and Python scripts in processes that need not load anything: forked, not started cold.

A stove is a process that has imported dibs and opened nothing. Asked for a command, it forks one in
a few milliseconds, where a fresh interpreter that loads dibs takes 50 and more. To the test it is
the same: a process of its own and a child of the test, with its own standard streams, environment
and folder, that ends by itself or is killed. `Warm` is `subprocess.Popen`. Each worker has two
stoves, since a fork takes the longer the more was loaded: one for most commands, and one for those
that need nearly everything.

What belongs to the start of an interpreter is not the same: what is loaded, the command line that
the system shows, the environment that other processes see. What is tested there runs cold, with
`Shell.spawn`. So does everything on systems other than Linux, and with `--cold`.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DIBS = str(Path(sys.executable).parent / "dibs")
ENVIRONMENT = {"LANG": "C.UTF-8"}
"""The stove's own, as far as an interpreter looks at it when it starts."""
LATER = {
    "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONPATH",
}  # fmt: skip
"""What can still be obeyed after the start."""
OPTIONS = {
    "stdin", "stdout", "stderr", "cwd", "env", "text", "encoding", "errors", "bufsize",
    "start_new_session", "umask",
}  # fmt: skip
"""What a forked process can be started with."""

LARGE = {"serve", "mcp", "demo", "open", "swarm", "land"}
"""The commands that need most of what there is to load."""
SELDOM = (
    "dibs.aio", "dibs.landing", "dibs.mcp", "dibs.storage.postgres", "dibs.surfaces.dashboard",
    "dibs.surfaces.cli.land", "dibs.surfaces.cli.swarm", "dibs.surfaces.cli.work_",
    "dibs.surfaces.http", "dibs.surfaces.stdio", "dibs.swarm", "dibs.trackers",
)  # fmt: skip
"""The modules that other commands load when they need them."""
SERVING = ("concurrent.futures.thread", "uvicorn.lifespan.on", "uvicorn.loops.uvloop")
"""What uvicorn loads when it starts."""

PR_GET_TID_ADDRESS = 40
CLONE_PARENT = 0x8000
CLONE_CHILD_CLEARTID = 0x200000
CLONE_CHILD_SETTID = 0x1000000
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0)


class Stove:
    """The process that forks, seen from the test process whose children it makes."""

    def __init__(self, size: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), size],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", pass_fds=[theirs.fileno()],
                env=ENVIRONMENT | {"PATH": os.environ["PATH"]}, start_new_session=True,
            )  # fmt: skip

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Start what is asked for with these standard streams: its process."""
        text = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._socket, [struct.pack("I", len(text))], streams)
            self._socket.sendall(text)
            (pid,) = struct.unpack("I", self._socket.recv(4))
        return int(pid)

    def close(self) -> None:
        self._socket.close()
        self._process.communicate()
        assert self._process.returncode == 0


class Kitchen:
    """Which process may have stoves, and its stoves by their size."""

    allowed = 0
    stoves: dict[str, Stove] = {}
    lock = threading.Lock()


def allow() -> None:
    """Let this process fork what it runs, where that can be done."""
    if CLONE and sys.platform == "linux":
        Kitchen.allowed = os.getpid()


def stove_for(command: list[str]) -> Stove:
    size = "small" if command[0] == DIBS and LARGE.isdisjoint(command) else "large"
    with Kitchen.lock:  # a test may run its commands in several threads
        if size not in Kitchen.stoves:
            Kitchen.stoves[size] = Stove(size)
        return Kitchen.stoves[size]


def cool() -> None:
    """End the stoves."""
    for stove in Kitchen.stoves.values():
        stove.close()
    Kitchen.allowed, Kitchen.stoves = 0, {}


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start `dibs` or a script of Python: warm, unless its start would not be the same."""
    kind = Warm if can_be_forked(list(command), options) else subprocess.Popen
    return kind(list(command), **options)


def at_start(name: str) -> bool:
    """Whether an interpreter looks at this variable when it starts, and never again."""
    return name.startswith(("LANG", "LC_", "LD_", "PYTHON")) and name not in LATER


def can_be_forked(command: list[str], options: dict[str, Any]) -> bool:
    is_dibs = command[0] == DIBS
    looked_at = {name: value for name, value in options["env"].items() if at_start(name)}
    return (
        Kitchen.allowed == os.getpid()
        and (is_dibs or command[:2] == [sys.executable, "-c"])
        and not (is_dibs and "PYTHONPATH" in options["env"])  # it may hide what is loaded already
        and looked_at == ENVIRONMENT
        and options.keys() <= OPTIONS
        and os.path.isdir(options.get("cwd") or ".")
    )


class Warm(subprocess.Popen[Any]):
    """A process that the stove forks."""

    def _execute_child(
        self, args: list[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
        cwd: Any, env: dict[str, str], startupinfo: Any, creationflags: Any, shell: Any,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
        restore_signals: Any, gid: Any, gids: Any, uid: Any, umask: int,
        start_new_session: bool, process_group: Any,
    ) -> None:  # fmt: skip
        streams = (p2cread, c2pwrite, errwrite)
        used = [number if handle == -1 else handle for number, handle in enumerate(streams)]
        request = {
            "words": args, "folder": os.path.abspath(cwd or "."), "environment": env,
            "session": start_new_session, "umask": umask,
        }  # fmt: skip
        self.pid = stove_for(args).fork(request, used)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        )


# The stove's own side, below, runs as a process of its own.


def load(size: str) -> None:
    import dibs

    left_out = () if size == "large" else SELDOM
    for name in () if left_out else SERVING:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(dibs.__path__, "dibs."):
        if not module.name.endswith("__main__") and not module.name.startswith(left_out):
            importlib.import_module(module.name)
    from dibs.dibs import operations

    operations()
    gc.collect()
    gc.freeze()


def keep(source: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork whatever is asked for, and end with who asks; only the forked processes return."""
    fork = child_of_parent()
    while True:
        head, streams, _, _ = socket.recv_fds(source, 4, 3)
        if not head:
            os._exit(0)
        (length,) = struct.unpack("I", head)
        text = source.recv(length, socket.MSG_WAITALL)
        pid = fork()
        if pid == 0:
            source.close()
            return json.loads(text), streams
        for stream in streams:
            os.close(stream)
        source.sendall(struct.pack("I", pid))


def child_of_parent() -> Callable[[], int]:
    """A fork whose child is a child of this process's parent, which can wait for it.

    Otherwise it does what `os.fork` does, in a process that has one thread.
    """
    python = ctypes.PyDLL(None)
    at = ctypes.c_void_p()
    failed = python.prctl(PR_GET_TID_ADDRESS, ctypes.byref(at), 0, 0, 0)
    assert CLONE and not failed and at.value
    own = ctypes.c_ulong(at.value)  # where the C library keeps the number of the thread
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    nothing = ctypes.c_ulong(0)
    last = (own, nothing) if platform.machine() == "x86_64" else (nothing, own)

    def fork() -> int:
        python.PyOS_BeforeFork()
        pid = int(python.syscall(CLONE, ctypes.c_ulong(flags), nothing, nothing, *last))
        if pid == 0:
            python.PyOS_AfterFork_Child()
        else:
            python.PyOS_AfterFork_Parent()
            assert pid > 0
        return pid

    return fork


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Be what was asked for, as far as the system sees it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    if request["session"]:
        os.setsid()
    if request["umask"] >= 0:
        os.umask(request["umask"])
    os.chdir(request["folder"])
    environment: dict[str, str] = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()


def run(words: list[str]) -> None:
    """Run the command or the script, up to the end of the interpreter."""
    before = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, *words]
    if words[0] == DIBS:
        Path("/proc/self/comm").write_text("dibs")
        sys.argv, sys.path[:1] = words, [str(Path(DIBS).parent), *before]
        from dibs.surfaces.cli.main import main as dibs

        sys.exit(dibs())
    script = words[2]
    sys.argv, sys.path[:1] = ["-c", *words[3:]], ["", *before]
    exec(compile(script, "<string>", "exec"), main.__dict__)
    # What an interpreter does at its end, but for taking apart all that was loaded here.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


def serve() -> None:
    load(sys.argv[2])
    become_what, streams = keep(socket.socket(fileno=int(sys.argv[1])))
    become(become_what, streams)
    run(become_what["words"])


if __name__ == "__main__":
    serve()
