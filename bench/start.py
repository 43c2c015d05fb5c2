"""What a command costs from its start to its end, beside a Python that does nothing.

Compiled modules are kept in a folder of their own, as an installed package has them; a checkout
that may not write them would measure the compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import dibs
from bench.measure import in_turns

DIBS = os.path.join(os.path.dirname(sys.executable), "dibs")
BARE = "python -c pass"
SETTLED_S = 2.5
"""Files that were written just now are read by every hook."""
COMMANDS = {
    "dibs claim PATH": [DIBS, "claim", "a.py", "--as", "alice"],
    "dibs status PATH": [DIBS, "status", "a.py"],
    "dibs status": [DIBS, "status"],
}
HOOK = "dibs hook claude"
MANY_LEASES, MANY_FILES = 1_000, 100_000
BESIDE = f"beside {MANY_LEASES:,} leases of others"
AMONG = f"in a repository of {MANY_FILES:,} files"
HOOKS = {
    f"{HOOK}, before an edit": ("PreToolUse", "Edit", {"file_path": "a.py"}),
    f"{HOOK}, after an edit": ("PostToolUse", "Edit", {"file_path": "a.py"}),
    f"{HOOK}, before `make`": ("PreToolUse", "Bash", {"command": "make"}),
    f"{HOOK}, before `ls`": ("PreToolUse", "Bash", {"command": "ls -l"}),
}


def commands(folder: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds per call of each command, of each hook and of bare Python, in turns."""
    place = os.path.join(folder, "start")
    subprocess.run(["git", "init", "-q", place], check=True)
    names = ("PATH", "LANG", "HOME")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "pycache")
    run = partial(subprocess.run, check=True, cwd=place, env=environment, stdout=subprocess.DEVNULL)
    sides = {BARE: [sys.executable, "-c", "pass"], **COMMANDS}
    for command in sides.values():
        run(command, stderr=subprocess.DEVNULL)  # compile once, and make the store
    # The client whose hooks these are is this very process.
    environment["CLAUDE_PID"] = str(os.getpid())
    calling: dict[str, Callable[[], object]] = {
        name: partial(run, words) for name, words in sides.items()
    }
    for name, (event, tool, tool_input) in HOOKS.items():
        said = {"session_id": "1", "cwd": place, "hook_event_name": event, "tool_name": tool,
                "tool_input": tool_input, "tool_use_id": "1"}  # fmt: skip
        given = json.dumps(said).encode()
        calling[name] = partial(run, [DIBS, "hook", "claude"], input=given)
        calling[name]()
    with open(os.path.join(place, "a.py"), "w", encoding="utf-8") as target:
        target.write("line\n" * 200)
    return in_turns(calling, rounds, calls)


def crowded(folder: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """The same for the hooks of edits: beside many leases of others, and among many files."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "HOME")}
    environment |= {
        "PYTHONPYCACHEPREFIX": os.path.join(folder, "pycache"), "CLAUDE_PID": str(os.getpid()),
    }  # fmt: skip
    bare = [sys.executable, "-c", "pass"]
    calling: dict[str, Callable[[], object]] = {
        BARE: partial(subprocess.run, bare, check=True, env=environment)
    }
    held = os.path.join(folder, "held")
    many_files(held, MANY_LEASES)
    many_files(place := os.path.join(folder, "many"), MANY_FILES)
    git = ["git", "-C", place, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "many"], check=True)
    with dibs.open(start=held) as space, space.join("other") as other:
        names = [f"{held}/{number // 100}/{number}.py" for number in range(MANY_LEASES)]
        for begin in range(0, MANY_LEASES, 100):
            other.leases.claim(*names[begin : begin + 100])
        for where, at in ((BESIDE, held), (AMONG, place)):
            for event, when in (("PreToolUse", "before"), ("PostToolUse", "after")):
                said = {"session_id": "1", "cwd": at, "hook_event_name": event,
                        "tool_name": "Edit", "tool_input": {"file_path": f"{at}/a.py"},
                        "tool_use_id": "1"}  # fmt: skip
                calling[f"{HOOK}, {when} an edit, {where}"] = partial(
                    subprocess.run, [DIBS, "hook", "claude"], input=json.dumps(said).encode(),
                    check=True, cwd=at, env=environment, stdout=subprocess.DEVNULL,
                )  # fmt: skip
        time.sleep(SETTLED_S)
        for _ in range(3):
            for call in calling.values():
                call()
        return in_turns(calling, rounds, calls)


def on_postgres(folder: str, url: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """The same for the hooks of edits on PostgreSQL: by the daemon that they start, and without."""
    place = os.path.join(folder, "postgres")
    many_files(place, 1)
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "HOME")}
    environment |= {
        "CLAUDE_PID": str(os.getpid()), "DIBS_URL": url, "DIBS_SPACE": "hooks",
        "XDG_DATA_HOME": os.path.join(folder, "data"),
    }  # fmt: skip
    run = partial(subprocess.run, check=True, cwd=place, stdout=subprocess.DEVNULL)
    calling: dict[str, Callable[[], object]] = {
        BARE: partial(run, [sys.executable, "-c", "pass"], env=environment)
    }
    for way, more in (("by the daemon", {}), ("without it", {"DIBS_DAEMON": "off"})):
        for event, when in (("PreToolUse", "before"), ("PostToolUse", "after")):
            said = {"session_id": "1", "cwd": place, "hook_event_name": event,
                    "tool_name": "Edit", "tool_input": {"file_path": f"{place}/a.py"},
                    "tool_use_id": "1"}  # fmt: skip
            calling[f"{HOOK}, {when} an edit, {way}"] = partial(
                run, [DIBS, "hook", "claude"], input=json.dumps(said).encode(),
                env=environment | more,
            )  # fmt: skip
    try:
        for _ in range(3):
            for call in calling.values():
                call()
            time.sleep(SETTLED_S)  # until the daemon is there
        return in_turns(calling, rounds, calls)
    finally:
        run([DIBS, "stop"], env=environment)


def many_files(place: str, number: int) -> None:
    """A repository with so many files, and one more."""
    subprocess.run(["git", "init", "-q", place], check=True)
    for each in range(number):
        if each % 100 == 0:
            os.mkdir(f"{place}/{each // 100}")
        with open(f"{place}/{each // 100}/{each}.py", "w", encoding="utf-8") as target:
            target.write(f"x = {each}\n")
    with open(f"{place}/a.py", "w", encoding="utf-8") as target:
        target.write("line\n" * 200)


SHELLS, CLAIMS = 16, 16


def crowds(folder: str, rounds: int) -> dict[str, list[float]]:
    """Seconds for 16 shells that claim 16 things each, and for as many bare interpreters."""
    place = os.path.join(folder, "crowd")
    subprocess.run(["git", "init", "-q", place], check=True)
    environment = {
        name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ
    }
    environment["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "pycache")
    sides = {
        "bare": f"{sys.executable} -c pass",
        "dibs": f"{DIBS} claim thing:$1-$2-$i --as agent-$1",
    }
    loop = "i=0; while [ $i -lt %d ]; do %s || exit 1; i=$((i+1)); done"

    def crowd(side: str, number: int) -> None:
        script = loop % (CLAIMS, sides[side])
        shells = [
            subprocess.Popen(
                ["sh", "-c", script, "sh", str(shell), str(number)],
                cwd=place,
                env=environment,
                stdout=subprocess.DEVNULL,
            )
            for shell in range(SHELLS)
        ]
        for shell in shells:
            if shell.wait() != 0:
                raise RuntimeError(f"a shell of {side} ended with {shell.returncode}")

    figures: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, taken in figures.items():
            began = time.perf_counter()
            crowd(side, number)
            if number:  # the first time, everything is compiled and everybody joins
                taken.append(time.perf_counter() - began)
    return figures
