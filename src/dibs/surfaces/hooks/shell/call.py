"""A command that is going to run, and its surroundings: the disk, earlier commands.

A name may carry a question (`asking`): it stands for several files, only some of them are meant,
and the text does not say which. `grep -l`, `git diff --name-only` and similar commands print such
names. The question goes along with the edit, and is answered when it is known who holds what
(`narrowing`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from stat import S_ISREG

from dibs.surfaces.hooks.shell.values import BRACKET, QUESTION, STAR, Asks, Values
from dibs.surroundings.occasion import Edit

MAX_EDITS = 1_000
MAX_QUESTIONS = 500
MAX_TEXTS = 40
MAX_NAMES = 20
ASKED = chr(0xE007)
MEMORY = "/dev/shm/"
"""The one folder of devices with ordinary files in it; a repository may be there."""
TEXT_LIMIT = 64 << 10
NAMES_LIMIT = 1_000


class Disk:
    """How existing files are examined; by default, nothing is seen.

    kind_of: says of a path whether it is now a "directory", a "file" or nothing ("")
    text_of: returns the text of a file that is not too long
    names_in: returns the names in a directory that does not have too many
    """

    def __init__(
        self,
        kind_of: Callable[[str], str] = lambda _: "",
        text_of: Callable[[str], str | None] = lambda _: None,
        names_in: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        self.kind_of = kind_of
        self.text_of = text_of
        self.names_in = names_in


def kind_of(path: str) -> str:
    if os.path.isdir(path):
        return "directory"
    return "file" if os.path.lexists(path) else ""


def text_of(path: str) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as source:
            if not S_ISREG(os.fstat(handle).st_mode):
                return None
            content = source.read(TEXT_LIMIT + 1)
    except (OSError, ValueError):
        return None
    return content.decode("utf-8", "surrogateescape") if len(content) <= TEXT_LIMIT else None


def names_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            found = [entry.name for entry in islice(entries, NAMES_LIMIT + 1)]
    except (OSError, ValueError):
        return []
    return found if len(found) <= NAMES_LIMIT else []


DISK = Disk(kind_of, text_of, names_in)
"""The real disk. A file there may be anything, written by anybody: only regular files are opened,
and nothing long is read."""


class Scene:
    """What all commands of a text share.

    edits: what they will change
    files: the contents of the files that they have already written
    asked: the questions that names carry, by their numbers
    made: how many temporary files they have made
    fetched: the branch in FETCH_HEAD, if they have fetched one
    added: the paths that they have added to git's index, None for all changed files
    bisected: the ends of a bisection that they have started, before its first step
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.edits: dict[Edit, None] = {}
        self.files: dict[str, str] = {}
        self.asked: list[Asks] = []
        self.texts = MAX_TEXTS
        self.made = 0
        self.fetched = ""
        self.added: list[str | None] = []
        self.bisected: dict[str, Values] = {}

    def written_below(self, folder: str) -> list[str]:
        return [edit.path for edit in self.edits if edit.path.startswith(f"{folder}/")]


class ShellCall:
    """A command that is going to run.

    args: its arguments; None for an unknown one
    cwd: where it runs, "" if that cannot be known
    edits: what it changes is added here
    stdin: what it reads, if the text says that
    settings: the variables set for this command only; `variables`: those of the shell
    script: the file whose code it runs, "" if that is in the text
    """

    def __init__(self, args: Values, cwd: str, scene: Scene) -> None:
        self.name = ""
        self.spelled = ""
        self.args = args
        self.cwd = cwd
        self.scene = scene
        self.edits = scene.edits
        self.kind_of = scene.disk.kind_of
        self.stdin: str | None = None
        self.settings: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.script = ""

    def path(self, value: str | None) -> str | None:
        """Give the absolute path, wildcards and all; None if it cannot be known or claimed."""
        number, value = self._parted(value or "")
        if not value:
            return None
        value = value.replace(STAR, "*").replace(QUESTION, "?")
        if not value.startswith("/"):
            if not self.cwd:
                return None
            value = f"{self.cwd}/{value}"
        path = os.path.normpath(value)
        path = path[1:] if path.startswith("//") else path
        path = path if BRACKET not in path else self._bracketed(path)
        return f"{path}{ASKED}{number}{ASKED}" if number else path

    def _bracketed(self, path: str) -> str:
        """Give what a path with `[…]` means: a file with that very name, which the shell uses if
        nothing else matches, or any character in its place."""
        literal = path.replace(BRACKET, "[")
        if self.kind_of(literal):
            return literal
        done, *rest = path.split(BRACKET)
        for piece in rest:
            # A leading `]` is one of the characters.
            close = piece.find("]", 2 if piece[:1] in "!^" else 1)
            done += "?" + piece[close + 1 :] if close > 0 else "[" + piece
        return done

    def asking(self, name: str, *asks: tuple[str, ...]) -> str:
        """Give the name with a question about the files that it stands for."""
        number, name = self._parted(name)
        asks = (*self.questions(number), *asks)
        if asks not in self.scene.asked:
            self.scene.asked.append(asks)
        place = self.scene.asked.index(asks)
        return f"{ASKED}{place}{ASKED}{name}" if place < MAX_QUESTIONS else name

    def _parted(self, name: str) -> tuple[str, str]:
        """Give the number of the question that a name carries, and the name without it."""
        if ASKED not in name:
            return "", name
        before, number, after = [*name.split(ASKED, 2), "", ""][:3]
        return number, (before + after).replace(ASKED, "")

    def questions(self, number: str) -> Asks:
        asked = self.scene.asked
        known = number.isdecimal() and len(number) < 5 and int(number) < len(asked)
        return asked[int(number)] if known else ()

    def asked(self, text: str | None) -> Asks:
        """Give the question that stands for a whole text, such as a patch that git prints."""
        number, rest = self._parted((text or "").strip())
        return () if rest else self.questions(number)

    def add(self, path: str | None, kind: str = "write", asks: Asks = ()) -> None:
        if path is None or (f"{path}/".startswith("/dev/") and not path.startswith(MEMORY)):
            return
        number, path = self._parted(path)
        if len(self.edits) < MAX_EDITS:
            self.edits[Edit(path, kind, asks=self.questions(number) or asks)] = None

    def write(self, values: Iterable[str | None], kind: str = "write", asks: Asks = ()) -> None:
        for value in values:
            self.add(self.path(value), kind, asks)

    def tree(self, *asks: tuple[str, ...]) -> None:
        """Note that any file of the checkout may change, or what to ask git to find out which."""
        if self.cwd:
            self.add(self.cwd, "tree", asks)

    def is_directory(self, value: str) -> bool:
        """Say whether the value names a directory, by how it is written or by looking."""
        if value.endswith(("/", "/.", "/..")) or value in (".", ".."):
            return True
        path = self.path(value)
        return path is not None and self.kind_of(path) == "directory"

    def written(self, value: str | None) -> str | None:
        """Give the content of a file that the same text has written before."""
        return self.scene.files.get(self.path(value) or "")

    def text(self, value: str | None) -> str | None:
        """Give the content of a file: what the same text has written before, or what is there."""
        path = self.path(value)
        if path is None or path in self.scene.files:
            return self.written(value)
        if self.scene.texts <= 0 or any(edit.path == path for edit in self.scene.edits):
            return None
        self.scene.texts -= 1
        return self.scene.disk.text_of(path)

    def made_below(self, value: str | None) -> list[str]:
        """Give the names of what the same text puts into a directory that is not there yet."""
        path = self.path(value)
        if not path or self.kind_of(path):
            return []
        return [one[len(path) + 1 :] for one in self.scene.written_below(path)]

    def expanded(self, values: Values) -> Values:
        """Give the names of the files that are there instead of wildcards, if they are few.

        What matches nothing is left out: there is no such file.
        """
        found: Values = []
        for value in values:
            names = self._matching(value) if value else None
            found += [value] if names is None else names
        return found

    def _matching(self, value: str) -> list[str] | None:
        """Wildcards only in the last part of a path, the usual case."""
        folder, slash, last = value.rpartition("/")
        if not {STAR, QUESTION} & {*last} or {STAR, QUESTION, BRACKET} & {*folder}:
            return None
        path = self.path(folder or ("/" if slash else "."))
        if path is None or BRACKET in last or ASKED in value:
            return None
        from fnmatch import fnmatchcase

        pattern = last.replace("[", "[[]").replace(STAR, "*").replace(QUESTION, "?")
        there = self.scene.disk.names_in(path)
        made = [one[len(path) + 1 :].partition("/")[0] for one in self.scene.written_below(path)]
        if not there and not made:
            return None
        there = [*there, *made]
        names = [name for name in dict.fromkeys(there) if fnmatchcase(name, pattern)]
        names = [name for name in names if name[0] != "." or last[0] == "."]
        if len(names) > MAX_NAMES or (not names and any("*" in name for name in made)):
            return None
        return [f"{folder}{slash}{name}" for name in sorted(names)]
