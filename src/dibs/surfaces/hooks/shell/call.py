"""One simple command with its arguments known as far as they can be, and what it changes."""

from __future__ import annotations

import os.path

from dibs.surfaces.hooks.shell.values import BRACKET, QUESTION, STAR
from dibs.surroundings.occasion import Edit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_EDITS = 1_000


class Call:
    """A command that is going to run.

    args: its arguments; None is one that cannot be known
    cwd: where it runs, "" if that cannot be known
    stdin: what it reads, if the text says that
    """

    __slots__ = ("args", "cwd", "edits", "files", "look", "name", "stdin")

    def __init__(
        self,
        name: str,
        args: list[str | None],
        *,
        cwd: str,
        edits: dict[Edit, None],
        files: Mapping[str, str],
        look: Callable[[str], str],
        stdin: str | None = None,
    ) -> None:
        self.name = name
        self.args = args
        self.cwd = cwd
        self.edits = edits
        self.files = files
        self.look = look
        self.stdin = stdin

    def path(self, value: str | None) -> str | None:
        """Give the absolute path, wildcards and all; None if it cannot be known or claimed."""
        if not value or BRACKET in value:
            return None
        value = value.replace(STAR, "*").replace(QUESTION, "?")
        if not value.startswith("/"):
            if not self.cwd:
                return None
            value = f"{self.cwd}/{value}"
        path = os.path.normpath(value)
        return path[1:] if path.startswith("//") else path

    def add(self, path: str | None, kind: str = "write") -> None:
        if path is None or path == "/dev" or path.startswith("/dev/"):
            return
        if len(self.edits) < MAX_EDITS:
            self.edits[Edit(path, kind)] = None

    def write(self, values: Iterable[str | None]) -> None:
        for value in values:
            self.add(self.path(value))

    def remove(self, values: Iterable[str | None]) -> None:
        for value in values:
            self.add(self.path(value), "remove")

    def tree(self) -> None:
        """Say that any file of the checkout may change."""
        if self.cwd:
            self.add(self.cwd, "tree")

    def is_directory(self, value: str) -> bool:
        """Say whether the value names a directory, by how it is written or by looking."""
        if value.endswith(("/", "/.", "/..")) or value in (".", ".."):
            return True
        path = self.path(value)
        return path is not None and self.look(path) == "directory"

    def text(self, value: str | None) -> str | None:
        """Give the content of a file that the same command has written before."""
        path = self.path(value)
        return None if path is None else self.files.get(path)

    def top(self) -> str:
        """Give the checkout's top directory, the working directory if it cannot be seen."""
        path = self.cwd
        while path and not self.look(f"{path}/.git"):
            path = path.rpartition("/")[0]
        return path or self.cwd


def options(
    args: list[str | None], valued: str = "", optional: str = "", *, ordered: bool = False
) -> tuple[dict[str, str | None], list[str | None]]:
    """Split arguments into options and operands.

    valued: the options with a value, as one text: letters for short ones, then the long ones,
        as in `tS --target-directory`
    optional: the letters whose value, if any, is in the same word
    ordered: whether the first operand ends the options
    """
    letters, *names = valued.split(" ")
    found: dict[str, str | None] = {}
    operands: list[str | None] = []
    rest = iter(args)
    for arg in rest:
        if arg is None or arg == "-" or not arg.startswith("-"):
            operands.append(arg)
            if ordered:
                break
        elif arg == "--":
            break
        elif arg.startswith("--"):
            name, equals, value = arg.partition("=")
            found[name] = value if equals else next(rest, None) if name in names else ""
        elif arg in names:
            found[arg] = next(rest, None)
        else:
            _cluster(arg, letters, optional, found, rest)
    operands.extend(rest)
    return found, operands


def _cluster(
    arg: str, letters: str, optional: str, found: dict[str, str | None], rest: Iterable[str | None]
) -> None:
    for at, letter in enumerate(arg[1:], 2):
        if letter in optional:
            found[f"-{letter}"] = arg[at:]
            return
        if letter in letters:
            found[f"-{letter}"] = arg[at:] or next(iter(rest), None)
            return
        found[f"-{letter}"] = ""
