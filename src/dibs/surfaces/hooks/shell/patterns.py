"""Texts that must be in a file before a command changes anything in it.

`sed -i 's/old/new/' src/*.py` changes only files that contain `old`. Regular expressions of others
are never run; they are read for the longest text that is in each of their matches.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.filters import address, part
from dibs.surfaces.hooks.shell.values import Asks, Values, plain

MAX_PATTERN = 2_000
_QUANTIFIERS = frozenset("*?{")
# In a basic regular expression, these are plain unless a backslash precedes them.
_BASIC = frozenset("(){}+?|")
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
# Characters by number, back references, quoting.
_UNCLEAR = frozenset("0123456789cgkopPQuxN")


def literals(pattern: str, *, basic: bool = False) -> list[str]:
    """Give texts, one of which is in every match.

    basic: whether it is a basic regular expression, as of `sed` and `grep` without `-E`
    """
    if len(pattern) > MAX_PATTERN or _is_unclear(pattern):
        return [""]
    return _Pattern(pattern, basic).alternatives()


def _is_unclear(pattern: str) -> bool:
    """Say whether it has what is not followed: `(?i)`, `\\x41`, a variable of Perl."""
    for at, char in enumerate(pattern):
        after = pattern[at + 1 : at + 2]
        if char == "\\" and after in _UNCLEAR and after and pattern[at - 1 : at] != char:
            return True
        if char == "$" and (after.isalnum() or after == "_"):
            return True
        if char == "(" and after == "?":
            flags = pattern[at + 2 :].partition(")")[0].partition(":")[0]
            if flags.isalpha() and not {"i", "x"}.isdisjoint(flags):
                return True
    return False


class _Pattern:
    """A regular expression that is read from left to right."""

    def __init__(self, text: str, basic: bool) -> None:
        self.text = text
        self.basic = basic
        self.at = 0

    def alternatives(self) -> list[str]:
        """Read up to the end of a group; give texts, one of which is in every match of it."""
        found = self._sequence()
        while self._sign() == "|":
            self._take()
            found = [*found, *self._sequence()]
        return found

    def _sign(self) -> str:
        """Give what is next if it has a meaning of its own, "" for a plain character."""
        char, after = self.text[self.at : self.at + 1], self.text[self.at + 1 : self.at + 2]
        if char == "\\" and after:
            if after in _BASIC:
                return after if self.basic else ""
            return char if after.isalnum() or after in "<>`'" else ""
        if char in _BASIC:
            return "" if self.basic else char
        return char if char in ("*", ".", "[", "^", "$") else ""

    def _take(self) -> str:
        self.at += 1 + (self.text[self.at] == "\\")
        return self.text[self.at - 1 : self.at]

    def _sequence(self) -> list[str]:
        run = ""
        sure: list[list[str]] = []
        while self.at < len(self.text) and self._sign() not in ("|", ")"):
            sign = self._sign()
            found = self._group() if sign == "(" else [self._one(sign)]
            if self._sign() in _QUANTIFIERS:
                sure, run = [*sure, [run]], ""
            elif sign:
                sure, run = [*sure, [run], found], ""
            else:
                run += found[0]
        return max([*sure, [run]], key=lambda texts: min(map(len, texts)))

    def _one(self, sign: str) -> str:
        """Pass one character, or what stands for one; give it if it is plain."""
        if sign == "[":
            self.at += 1 + (self.text[self.at + 1 : self.at + 2] == "^")
            self.at += self.text[self.at : self.at + 1] == "]"
            while self.at < len(self.text) and self.text[self.at] != "]":
                named = self.text.startswith("[:", self.at)
                end = self.text.find(":]", self.at) + 1 if named else 0
                self.at = max(end, self.at + (self.text[self.at] == "\\")) + 1
            self.at += 1
        elif sign == "{":
            end = self.text.find("}", self.at)
            self.at = end + 1 if end > 0 else len(self.text)
        else:
            taken = self._take()
            return "" if sign else taken
        return ""

    def _group(self) -> list[str]:
        self._take()
        special = self.text.startswith("?", self.at) and not self.basic
        plainly = self.text.startswith("?:", self.at)
        self.at += 2 * (special and plainly)
        found = self.alternatives()
        if self.at < len(self.text):
            self._take()
        return [""] if special and not plainly else found


def sought(scripts: Values, *, basic: bool = False, perl: bool = False) -> Asks:
    """What must be in a file for these scripts of sed, or of `perl -p`, to change it."""
    texts: list[str] = []
    ignoring = ""
    for script in scripts:
        found = _patterns(plain(script or "?"), perl)
        if found is None:
            return ()
        for pattern, flags in found:
            texts += literals(pattern, basic=basic) if "x" not in flags else [""]
            ignoring = "i" if "i" in flags.lower() else ignoring
    return (("only", "with", ignoring, *texts),) if texts and all(texts) else ()


def _patterns(text: str, perl: bool) -> list[tuple[str, str]] | None:
    """Give patterns, one of which must match, with their flags; None if none has to."""
    found = []
    at = 0
    while at < len(text):
        start, at = at, address(text, at)
        where = text[start:at].lstrip("};, \t\n")
        command = text[at : at + 1]
        if command == "s" and text[at + 1 : at + 2] and not text[at + 1].isalnum():
            opener = text[at + 1]
            closer = _PAIRS.get(opener, opener)
            end = part(text, at + 2, closer)
            pattern = text[at + 2 : end - 1].replace(f"\\{opener}", opener)
            flags = at = part(text, end + (closer != opener), closer, pattern=False)
            while text[at : at + 1].isalnum():
                at += 1
            found.append((pattern, text[flags:at]))
        elif command and where[:1] == "/" and "!" not in where and not perl:
            end = part(where, 1, "/")
            found.append((where[1 : end - 1], where[end : end + 1]))
            ends = "}" if "{" in where[end:] else "\n" if command in "aicrRwW" else command
            at = text.find(ends, at) + 1 or len(text)
        elif command:
            return None
        if text[at : at + 1] and text[at] not in "; \t\n}":
            return None
    return found
