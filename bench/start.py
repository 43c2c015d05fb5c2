"""What a command costs from its start to its end, beside a Python that does nothing.

Compiled modules are kept in a folder of their own, as an installed package has them; a checkout
that may not write them would measure the compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from bench.measure import in_turns

DIBS = os.path.join(os.path.dirname(sys.executable), "dibs")
BARE = "python -c pass"
COMMANDS = {
    "dibs claim PATH": [DIBS, "claim", "a.py", "--as", "alice"],
    "dibs status PATH": [DIBS, "status", "a.py"],
    "dibs status": [DIBS, "status"],
}
HOOK = "dibs hook claude"
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
