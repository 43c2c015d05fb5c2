"""Write man/dibs.1, the manual page, from the source: every command with its options.

    python -m tools.manual            write it
    python -m tools.manual --check    fail if it is not what would be written

The package installs it below share/man/man1, where `man dibs` finds it in a virtual environment
that is on the PATH.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dibs.surfaces.cli.help import GLOBALS, MORE, arguments, reads, sections, usage
from dibs.surroundings.commands import Command

PAGE = Path(__file__).parent.parent / "man" / "dibs.1"
ENVIRONMENT = {
    "DIBS_AGENT": "who you are, as with --as",
    "DIBS_SESSION": "the session to act in, which dibs run sets for its command",
    "DIBS_URL": "the store, as with --store",
    "DIBS_SPACE": "the space, as with --space",
    "DIBS_TOKEN": "the access token for somebody else's daemon",
    "DIBS_KEY": "the key of a space on PostgreSQL, as dibs key show prints it",
    "DIBS_DAEMON": "off: hooks start no daemon",
    "DIBS_WAKE": "all: broadcasts wake an idle agent too; off: nothing does",
    "DIBS_EXPORT": "the folder to which records are exported before they are removed",
    "DIBS_SIZE_LIMIT": "how many bytes a SQLite store may hold",
    "NO_COLOR": "print no colour, unless --color says otherwise",
}
CODES = {
    "0": "done",
    "1": "refused: somebody else won, or the record has changed since",
    "2": "misuse: the call itself is wrong",
    "3, 4, 5": "there is no task: all are done, none fits this worker, or one may fit later",
    "70": "a bug in dibs",
    "74": "the output could not be written",
    "75": "the store cannot answer now; try again later",
    "130": "interrupted",
}
FILES = {
    ".dibs/": "the store of a repository, in its main worktree; git ignores it",
    ".dibs/config.toml": "the settings of a repository; see dibs config list",
    "~/.local/share/dibs/config.toml": "your own settings",
}


def render() -> str:
    """The whole page."""
    return "\n".join(page()) + "\n"


def page() -> Iterator[str]:
    yield '.\\" This page is made from the source by `make docs`; do not edit it.'
    yield '.TH DIBS 1 "" "dibs" "User Commands"'
    yield ".SH NAME"
    yield r"dibs \- coordinate agents that share a codebase"
    yield ".SH SYNOPSIS"
    yield ".B dibs"
    yield r"\fICOMMAND\fR [\fIARGUMENT\fR...] [\fIOPTION\fR...]"
    yield ".SH DESCRIPTION"
    yield "Agents that share a codebase call dibs before they touch something,"
    yield "and exactly one wins."
    yield "Data goes to standard output, messages to standard error."
    yield ".PP"
    yield ".nf"
    yield from map(text, MORE.splitlines())
    yield ".fi"
    yield ".SH OPTIONS"
    yield "These can be given with every command."
    yield from tagged(everywhere())
    yield ".SH COMMANDS"
    for heading, commands in sections():
        yield f".SS {text(heading)}"
        for command in commands:
            yield from section(command)
    for heading, known in (
        ("EXIT STATUS", CODES), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES),
    ):  # fmt: skip
        yield f".SH {heading}"
        yield from tagged(list(known.items()))


def everywhere() -> list[tuple[str, str]]:
    """The options of all commands, from their help."""
    found: list[tuple[str, str]] = []
    for line in GLOBALS.partition("\n\n")[0].splitlines()[1:]:
        name, says = line[2:17].strip(), line[17:].strip()
        if name:
            found.append((name, says))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]} {says}")
    return found


def section(command: Command) -> Iterator[str]:
    yield ".TP"
    yield f".B {text(usage(command).removeprefix('usage: '))}"
    yield text(command.summary)
    for paragraph in command.about.split("\n\n"):
        if paragraph:
            yield ".IP"
            yield from (text(line) for line in paragraph.splitlines())
    if command.items is not None:
        yield ".IP"
        yield text(reads(command))
    rows = arguments(command)
    if rows:
        yield ".RS"
        yield from tagged(rows)
        yield ".RE"


def tagged(rows: list[tuple[str, str]]) -> Iterator[str]:
    for name, says in rows:
        yield ".TP"
        yield f".B {text(name)}"
        yield text(says)


def text(line: str) -> str:
    """A line as roff takes it: no character of it is markup."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    escaped = escaped.replace("'", "\\(aq").replace("`", "\\(ga").replace('"', "\\(dq")
    escaped = "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("man/dibs.1 is out of date: run make docs")
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
