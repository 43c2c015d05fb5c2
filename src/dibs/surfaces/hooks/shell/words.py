"""The words of a shell command, and what is inside them: quotes, expansions, substitutions.

A substitution is read where it stands, so that its commands count too and a `)` inside it ends
nothing. Text that is no shell at all gives some words, never an error.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 20
# How far the end of an arithmetic expression is looked for.
MAX_ARITHMETIC = 2_000

Part = tuple[int, object, bool]
TEXT, VARIABLE, CODE, ARRAY, UNKNOWN = range(5)

_PLAIN = re.compile(r"""[^\s;&|<>()'"`\\$]+""").match
_QUOTED = re.compile(r'[^"\\$`]+').match
_NAME = re.compile(r"[A-Za-z_]\w*").match
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=$").match


class Word:
    """A word in parts: (kind, content, whether quoted).

    The content is a text, the inside of a `${…}`, or the tokens of a substitution.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts

    def plain(self) -> str:
        """Give the text of a word without quotes and expansions, "" for any other."""
        if len(self.parts) == 1:
            kind, text, quoted = self.parts[0]
            if kind == TEXT and not quoted:
                return str(text)
        return ""


class Redirect:
    """A redirection; `body` is the text of a here-document once its end has been read."""

    __slots__ = ("body", "inner", "op", "word")

    def __init__(self, op: str, word: Word) -> None:
        self.op = op
        self.word = word
        self.body = ""
        self.inner: Word | None = None


Token = Word | Redirect | str


class TooMuch(Exception):
    """The text is too deep or too long to go on."""


class WordReader:
    """Reads words from where it is in a text; what reads commands is built on it."""

    __slots__ = ("at", "depth", "left", "text")

    def __init__(self, text: str, left: int) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.left = left

    def _commands(self, out: list[Token], closer: str) -> None:
        raise NotImplementedError

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuch

    def _find(self, what: str, start: int = -1) -> int:
        found = self.text.find(what, self.at if start < 0 else start)
        return len(self.text) if found < 0 else found

    def _substitutes(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def _arithmetic(self) -> bool:
        """Step over `((…))` if there is one here."""
        if not self.text.startswith("((", self.at):
            return False
        depth = 0
        for at in range(self.at, min(len(self.text), self.at + MAX_ARITHMETIC)):
            char = self.text[at]
            depth += (char == "(") - (char == ")")
            if depth == 0:
                if self.text[at - 1] != ")":
                    return False
                self.at = at + 1
                return True
        self.left -= 100  # Looking that far and in vain must not be free.
        return False

    def _word(self) -> Word:
        text, end = self.text, len(self.text)
        parts: list[Part] = []
        while self.at < end:
            self._spend()
            char = text[self.at]
            if found := _PLAIN(text, self.at):
                self.at = found.end()
                parts.append((TEXT, found[0], False))
            elif char == "\\":
                if (after := text[self.at + 1 : self.at + 2]) != "\n":
                    parts.append((TEXT, after, True))
                self.at += 2
            elif char == "'":
                close = self._find("'", self.at + 1)
                parts.append((TEXT, text[self.at + 1 : close], True))
                self.at = close + 1
            elif char == '"':
                self.at += 1
                self._quoted(parts, '"')
            elif char == "$":
                self._dollar(parts, False)
            elif char == "`":
                self._backticks(parts, False)
            elif self._substitutes():
                self.at += 2
                self._code(parts, False)
            elif char == "(" and len(parts) == 1 and _ASSIGNED(str(parts[0][1])):
                self.at += 1
                self._code(parts, False, ARRAY)
            else:
                break
        return Word(parts)

    def _quoted(self, parts: list[Part], closer: str) -> None:
        """Read the inside of double quotes, or the body of a here-document (no closer)."""
        text, end = self.text, len(self.text)
        parts.append((TEXT, "", True))
        while self.at < end:
            self._spend()
            char = text[self.at]
            if found := _QUOTED(text, self.at):
                self.at = found.end()
                parts.append((TEXT, found[0], True))
            elif char == '"':
                self.at += 1
                if closer:
                    return
                parts.append((TEXT, char, True))
            elif char == "\\":
                after = text[self.at + 1 : self.at + 2]
                self.at += 2
                if after != "\n":
                    parts.append((TEXT, after if after in '$`"\\' else char + after, True))
            elif char == "`":
                self._backticks(parts, True)
            else:
                self._dollar(parts, True)

    def _dollar(self, parts: list[Part], quoted: bool) -> None:
        text = self.text
        self.at += 1
        after = text[self.at : self.at + 1]
        if after == "(":
            if self._arithmetic():
                parts.append((UNKNOWN, "", True))
            else:
                self.at += 1
                self._code(parts, quoted)
        elif after == "{":
            close = self._closing_brace(quoted)
            parts.append((VARIABLE, text[self.at + 1 : close], quoted))
            self.at = close + 1
        elif found := _NAME(text, self.at):
            self.at = found.end()
            parts.append((VARIABLE, found[0], quoted))
        elif after and after in "0123456789@*#?$!-":
            self.at += 1
            parts.append((UNKNOWN, "", quoted))
        elif after == "'" and not quoted:
            self._ansi(parts)
        elif after != '"' or quoted:
            parts.append((TEXT, "$", True))

    def _closing_brace(self, quoted: bool) -> int:
        depth, at = 0, self.at
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'" and not quoted:
                at = self._find("'", at + 1)
            elif char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if not depth:
                    return at
            at += 1
        return len(self.text)

    def _ansi(self, parts: list[Part]) -> None:
        """Read `$'…'`; of its escapes only the everyday ones are known."""
        at = self.at + 1
        found: list[str] = []
        known = True
        while at < len(self.text) and self.text[at] != "'":
            char = self.text[at]
            if char == "\\":
                at += 1
                char = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}.get(
                    self.text[at : at + 1], ""
                )
                known = known and bool(char)
            found.append(char)
            at += 1
        self.at = at + 1
        parts.append((TEXT, "".join(found), True) if known else (UNKNOWN, "", True))

    def _code(self, parts: list[Part], quoted: bool, kind: int = CODE) -> None:
        def read(out: list[Token]) -> None:
            self._commands(out, ")")

        parts.append((kind, self._deeper(read), quoted))

    def _backticks(self, parts: list[Part], quoted: bool) -> None:
        at = self.at + 1
        while (close := self._find("`", at)) < len(self.text) and _escaped(self.text, close):
            at = close + 1
        code = re.sub(r"\\([\\$`])", r"\1", self.text[self.at + 1 : close])
        self.at = close + 1
        parts.append((CODE, self._apart(code, lambda out: self._commands(out, "")), quoted))

    def _deeper(self, read: Callable[[list[Token]], None]) -> list[Token]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooMuch
        out: list[Token] = []
        read(out)
        self.depth -= 1
        return out

    def _apart(self, text: str, read: Callable[[list[Token]], None]) -> list[Token]:
        """Read another text, and come back to this one."""
        here = self.text, self.at
        self.text, self.at = text, 0
        out = self._deeper(read)
        self.text, self.at = here
        return out


def _escaped(text: str, at: int) -> bool:
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1
