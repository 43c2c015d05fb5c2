"""Write docs/commands.md from the source: every command with its usage, options and example.

    python -m tools.commands            write it
    python -m tools.commands --check    fail if it is not what would be written

A test does the same check, so the page cannot fall behind the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dibs.surfaces.cli.help import GLOBALS, about, sections
from dibs.surroundings.commands import Command

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"

HEAD = """\
# Commands

This page is made from the source by `make docs`; do not edit it. `dibs COMMAND --help` says the
same. A walk-through is in the [README](../README.md#in-two-shells), and what each operation means
is in [reference.md](reference.md#operations).

Data goes to standard output, messages to standard error; `--quiet` suppresses all messages except
errors. With `--json` every command answers with one JSON value in the shape of the library's
[records](reference.md#records); `dibs log` and commands with `--many` answer with one value on each
line. A refusal is `{"error": …, "message": …, "next": …, "details": …}`. Commands act in the
agent's *shell session*, which outlives the command, or in the session that `DIBS_SESSION` names,
which `dibs run` sets.

`eval "$(dibs completion bash)"` completes commands, options, agents, tasks, resources, paths and
settings with the Tab key; also for zsh and fish. `dibs.1`, the manual, is made from the same source
and comes with the package.

| exit code | meaning |
|--:|---|
| 0 | done |
| 1 | refused: somebody else won, or the record has changed since; nothing was changed |
| 2 | misuse: the call itself is wrong |
| 3, 4, 5 | `work next` has no task: all are done, none fits this worker, or one may fit later |
| 70 | a bug in dibs |
| 74 | the output could not be written |
| 75 | the store cannot answer now; try again later |
| 130 | interrupted |
"""


def render() -> str:
    """The whole page."""
    return "\n".join(page()).rstrip() + "\n"


def page() -> Iterator[str]:
    yield HEAD
    for heading, commands in sections():
        yield f"- {heading}: {', '.join(link(command.words) for command in commands)}"
    yield ""
    yield "```text"
    yield GLOBALS
    yield "```\n"
    for heading, commands in sections():
        yield f"## {heading}\n"
        for command in commands:
            yield from section(command)


def link(name: str) -> str:
    return f"[{name}](#dibs-{name.replace(' ', '-')})"


def section(command: Command) -> Iterator[str]:
    yield f"### dibs {command.words}\n"
    yield f"{command.summary}\n"
    usage = about(command).replace(f"\n\n{command.summary}", "", 1)
    yield f"```text\n{usage}\n```\n"
    yield f"Example: `{command.example}`\n"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("docs/commands.md is out of date: run make docs")
    else:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
