"""The corpus: what agents type into a shell, and what that does to files which another agent holds.

Each file of `commands/` is a category. A command stands below a line of this form:

    %% @web + web/app.ts - web/util.js ~README.md

`+` names files that the command changes, `-` files near them that it does not. The first are held
in one trial, the others in a second one. What is held is being edited: it differs from the last
commit. `~` means that it does not: its holder has claimed it and not begun yet. `@` is the folder
in which the command runs. Lines with `$` run first. `{repo}` is the repository, `{tmp}` a folder
outside it.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

COMMANDS = Path(__file__).parent / "commands"
OPTIONAL = ("node", "perl", "ruby", "ed", "ex", "vim", "jq", "patch", "zip", "unzip", "xz")
"""Without one of these, the commands that begin with it are left out."""
ALSO = re.compile(rf"(?:^|[|&;(]\s*|\bxargs (?:-0 )?)({'|'.join(OPTIONAL)})\s", re.M)


@dataclass(frozen=True)
class Held:
    """A file that another agent holds."""

    path: str
    edited: bool


@dataclass(frozen=True)
class Case:
    """One trial: a command, what is held meanwhile, and whether the command changes that."""

    category: str
    command: str
    held: tuple[Held, ...]
    changes: bool
    setup: str
    folder: str

    def __str__(self) -> str:
        names = " ".join(("" if held.edited else "~") + held.path for held in self.held)
        first, *more = self.command.splitlines()
        return (
            f"[{self.category}] {names} {'+' if self.changes else '-'} | {first}{' …' * bool(more)}"
        )


def corpus() -> list[Case]:
    return [case for file in sorted(COMMANDS.glob("*.txt")) for case in read(file)]


def read(file: Path) -> list[Case]:
    cases = []
    for part in re.split(r"^%% ?", file.read_text(), flags=re.M)[1:]:
        head, _, text = part.partition("\n")
        folder = sign = ""
        held: dict[str, list[Held]] = {"+": [], "-": []}
        for word in shlex.split(head):
            if word in held:
                sign = word
            elif word.startswith("@"):
                folder = word[1:]
            else:
                held[sign].append(Held(word.lstrip("~"), edited=not word.startswith("~")))
        setup, command = parted(text)
        cases += [
            Case(file.stem, command, tuple(files), sign == "+", setup, folder)
            for sign, files in held.items()
            if files
        ]
    return cases


def parted(text: str) -> tuple[str, str]:
    """What runs first, and the command."""
    lines = text.rstrip("\n").split("\n")
    first = [line[2:] for line in lines if line.startswith("$ ")]
    return "\n".join(first), "\n".join(line for line in lines if not line.startswith("$ "))


def everyday(held: tuple[Held, ...]) -> list[Case]:
    """What one agent does all day, while another one holds files in an area of its own."""
    text = (COMMANDS.parent / "everyday.txt").read_text()
    parts = [parted(part) for part in text.split("%%\n")[1:]]
    return [Case("everyday", command, held, False, setup, "") for setup, command in parts]


def runnable(cases: list[Case]) -> list[Case]:
    """Those whose tools are here."""
    missing = {name for name in OPTIONAL if shutil.which(name) is None}
    # Other kinds of awk refuse it.
    gawk = os.path.realpath(shutil.which("awk") or "").endswith("gawk")
    return [
        case
        for case in cases
        if not missing & set(ALSO.findall(case.command))
        and (gawk or "-i inplace" not in case.command)
    ]


def sample(cases: list[Case], per_category: int, seed: int) -> list[Case]:
    """So many of each category, always the same ones."""
    by_category: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_category[case.category].append(case)
    dice = random.Random(seed)
    return [case for each in by_category.values() for case in dice.sample(each, per_category)]
