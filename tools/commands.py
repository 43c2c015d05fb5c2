"""Write docs/commands.md from the source: every command with its usage, options and example.

    python -m tools.commands            write it
    python -m tools.commands --check    fail if it is not what would be written

A test does the same check, so the page cannot fall behind the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dibs.operation import NOUNS
from dibs.surfaces.cli.help import GLOBALS, about, by_hand, offered, title
from dibs.surroundings.commands import Command

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"

HEAD = """\
# Commands

This page is made from the source by `make docs`; do not edit it. `dibs COMMAND --help` says the
same. A walk-through is in the [README](../README.md#in-two-shells), and what each operation means
is in [reference.md](reference.md#operations).

Data goes to standard output, words go to standard error. With `--json` every command answers with
one JSON value in the shape of the library's [records](reference.md#records), `dibs log` and what
reads lines with `--many` with one per line; a refusal is
`{"error": …, "message": …, "next": …, "details": …}`. `dibs release` and the like act in the
agent's *shell session*, which outlives the command, or in the session that `DIBS_SESSION` names,
which `dibs run` sets.

| exit code | meaning |
|--:|---|
| 0 | done |
| 1 | refused: somebody else won, or the record has moved on; nothing was changed |
| 2 | misuse: the call is wrong, whoever holds what |
| 3, 4, 5 | `work next` has no task: all is done, nothing fits this worker, or one may later |
| 70 | a bug in dibs |
| 75 | the store cannot answer now; try again later |
| 130 | interrupted |
"""


def render() -> str:
    """The whole page."""
    return "\n".join(page()).rstrip() + "\n"


def page() -> Iterator[str]:
    yield HEAD
    for noun in NOUNS:
        links = [command.words for command in offered(noun)]
        yield f"- {title(noun)}: {', '.join(link(name) for name in links)}"
    yield f"- Tools: {', '.join(link(command.words) for command in by_hand(''))}"
    yield ""
    yield "```text"
    yield GLOBALS
    yield "```\n"
    for noun in NOUNS:
        yield f"## {title(noun)}\n"
        for command in offered(noun):
            yield from section(command)
    yield "## Tools\n"
    for command in by_hand(""):
        yield from section(command)


def link(name: str) -> str:
    return f"[{name}](#dibs-{name.replace(' ', '-')})"


def section(command: Command) -> Iterator[str]:
    yield f"### dibs {command.words}\n"
    yield f"{command.summary}\n"
    usage = about(command).replace(f"\n\n{command.summary}", "", 1)
    yield f"```text\n{usage}\n```\n"
    yield f"Example:\n\n    {command.example}\n"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("docs/commands.md is out of date: run make docs")
    else:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
