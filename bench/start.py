"""What a command costs from its start to its end, beside a Python that does nothing.

Compiled modules are kept in a folder of their own, as an installed package has them; a checkout
that may not write them would measure the compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from bench.measure import in_turns

DIBS = os.path.join(os.path.dirname(sys.executable), "dibs")
BARE = "python -c pass"
COMMANDS = {
    "dibs claim PATH": [DIBS, "claim", "a.py", "--as", "alice"],
    "dibs status PATH": [DIBS, "status", "a.py"],
    "dibs status": [DIBS, "status"],
}


def commands(folder: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds per call of each command and of bare Python, in turns."""
    place = os.path.join(folder, "start")
    os.makedirs(os.path.join(place, ".git"))
    names = ("PATH", "LANG", "HOME")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "pycache")
    run = partial(subprocess.run, check=True, cwd=place, env=environment, stdout=subprocess.DEVNULL)
    sides = {BARE: [sys.executable, "-c", "pass"], **COMMANDS}
    for command in sides.values():
        run(command, stderr=subprocess.DEVNULL)  # compile once, and make the store
    return in_turns({name: partial(run, words) for name, words in sides.items()}, rounds, calls)
