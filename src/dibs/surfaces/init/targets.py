"""The files that `dibs init` changes: whether our parts are in them, and how to add and strip them.

A target works on text alone. `steps` reads, writes and notes what was done.
"""

from __future__ import annotations

import re

from dibs.surfaces.init import jsonc, toml
from dibs.surfaces.init.draft import BOM, Draft, Refusal, line_of
from dibs.surfaces.init.words import BEGIN, END

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.surfaces.init.parts import Part


class Target:
    """A file, by its path.

    mode: the permissions of the file if it is made
    """

    mode = 0o666

    def __init__(self, path: str) -> None:
        self.path = path

    def present(self, text: str) -> bool:
        """Whether everything of ours is in it; a `Refusal` if that cannot be said."""
        raise NotImplementedError

    def add(self, draft: Draft) -> list[str]:
        """Add what is missing, and name it."""
        raise NotImplementedError

    def strip(self, text: str, only: set[str] | None) -> str:
        """The text without our parts, or without those of them that are named."""
        raise NotImplementedError

    def void(self, text: str) -> bool:
        """Whether what is left is as good as no file."""
        return not text.strip(BOM + jsonc.BLANK)


class JsonFile(Target):
    def __init__(self, path: str, parts: Sequence[Part]) -> None:
        super().__init__(path)
        self.parts = parts

    def present(self, text: str) -> bool:
        value = jsonc.parse(text).value
        return all(part.present(value) for part in self.parts)

    def add(self, draft: Draft) -> list[str]:
        return [name for part in self.parts for name in part.add(draft)]

    def strip(self, text: str, only: set[str] | None) -> str:
        for part in reversed(self.parts):
            text = part.strip(text, only)
        return text

    def void(self, text: str) -> bool:
        return re.sub(r"[\s{}]", "", text.removeprefix(BOM)) == ""


class TomlFile(Target):
    def __init__(self, path: str, table: tuple[str, str], values: dict[str, str]) -> None:
        super().__init__(path)
        self.table = table
        self.values = values

    def present(self, text: str) -> bool:
        holder = toml.parse(text).get(self.table[0])
        return isinstance(holder, dict) and self.table[1] in holder

    def add(self, draft: Draft) -> list[str]:
        toml.add(draft, self.table, self.values)
        return [".".join(self.table)]

    def strip(self, text: str, only: set[str] | None) -> str:
        if only == set():
            return text
        return toml.strip(text, self.table, self.values)


class Block(Target):
    """A delimited block at the end of a text for people."""

    def __init__(self, path: str, body: str) -> None:
        super().__init__(path)
        self.block = f"{BEGIN}\n{body}{END}\n"

    def present(self, text: str) -> bool:
        span = delimited(text, BEGIN, END)
        return span is not None and text[slice(*span)].replace("\r\n", "\n") == self.block

    def add(self, draft: Draft) -> list[str]:
        text = draft.text
        gap = "" if not text.strip(BOM) else "\n" if text.endswith("\n") else "\n\n"
        draft.insert(len(text), gap + self.block)
        return ["block"]

    def strip(self, text: str, only: set[str] | None) -> str:
        span = delimited(text, BEGIN, END)
        if span is None:
            return text
        start, end = span
        newline = Draft(text).newline
        if text[:start].endswith(newline * 2):
            start -= len(newline)
        return text[:start] + text[end:]


class Instead(Block):
    """The same block in a file that is read instead of AGENTS.md, unless that one imports it."""

    def present(self, text: str) -> bool:
        return "@AGENTS.md" in text or super().present(text)


class Whole(Target):
    """A file that is ours alone, known by the words that it begins with."""

    def __init__(self, path: str, content: str, sign: str) -> None:
        super().__init__(path)
        self.content = content
        self.sign = sign

    def present(self, text: str) -> bool:
        if text and not text.startswith(self.sign):
            raise Refusal("a file of somebody else has this name", 1, "rename it")
        return text == self.content

    def add(self, draft: Draft) -> list[str]:
        draft.insert(0, self.content)
        return ["file"]

    def strip(self, text: str, only: set[str] | None) -> str:
        return "" if text.startswith(self.sign) else text


class Settings(Target):
    """A file that is made for people to edit: never changed once it is there."""

    def __init__(self, path: str, content: str) -> None:
        super().__init__(path)
        self.content = content

    def present(self, text: str) -> bool:
        return True

    def add(self, draft: Draft) -> list[str]:
        draft.insert(0, self.content)
        return ["file"]

    def strip(self, text: str, only: set[str] | None) -> str:
        return "" if text == self.content else text


class Line(Target):
    """One line in a file of lines, such as a pattern in `.gitignore`."""

    def __init__(self, path: str, line: str) -> None:
        super().__init__(path)
        self.line = line

    def present(self, text: str) -> bool:
        return self.line in text.splitlines()

    def add(self, draft: Draft) -> list[str]:
        gap = "" if not draft.text or draft.text.endswith("\n") else "\n"
        draft.insert(len(draft.text), f"{gap}{self.line}\n")
        return ["line"]

    def strip(self, text: str, only: set[str] | None) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if line.rstrip("\r\n") != self.line)


class YamlLine(Line):
    """A setting at the top of a YAML file that is simple enough to be read line by line."""

    SIMPLE = re.compile(r"\s*(#.*)?|---|[\w-]+:(\s.*)?|\s+\S.*|-\s.*")

    def __init__(self, path: str, key: str, value: str) -> None:
        super().__init__(path, f"{key}: {value}")
        self.key = key

    def present(self, text: str) -> bool:
        started = False
        found = None
        for number, line in enumerate(text.removeprefix(BOM).splitlines(), 1):
            if not self.SIMPLE.fullmatch(line) or (line == "---" and started):
                raise Refusal(
                    "dibs reads only plain `key: value` lines", number, f"add `{self.line}` by hand"
                )
            started = started or line.strip()[:1] not in ("", "#")
            if line.partition(":")[0] == self.key:
                if found is not None:
                    raise Refusal(f"{self.key} is there twice", number, "take one out")
                found = line.partition(":")[2].partition(" #")[0].strip()
        if found is not None and found.lower() not in ("true", "yes", "on"):
            raise Kept(f"it says `{self.key}: {found}`; with `{self.line}` git hooks would run")
        return found is not None


class Kept(Exception):
    """The user has decided otherwise, and that stands."""


def delimited(text: str, begin: str, end: str) -> tuple[int, int] | None:
    """Where a block of ours is, with the end of its last line; None if there is none."""
    start, stop = text.find(begin), text.find(end)
    if start < 0 and stop < 0:
        return None
    if start < 0 or stop < start or text.count(begin) != 1 or text.count(end) != 1:
        raise Refusal(
            "the block of dibs has not exactly one beginning and one end",
            line_of(text, max(start, 0)),
            f"leave one {begin} and one {end} after it, or neither",
        )
    stop += len(end)
    line_end = text.find("\n", stop)
    rest = text[stop : line_end if line_end >= 0 else len(text)]
    if not rest.strip():
        stop = len(text) if line_end < 0 else line_end + 1
    return start, stop
