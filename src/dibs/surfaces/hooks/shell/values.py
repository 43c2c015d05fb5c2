"""What a word of a command stands for, as far as its text says.

A value is a text in which the wildcards that the shell would act on are marked, so that a quoted
`*` and an active one stay apart. What cannot be known from the text is None: a variable that
came from elsewhere, the output of a command, `~user`.
"""

from __future__ import annotations

import re

from dibs.surfaces.hooks.shell import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.surfaces.hooks.shell.words import Word

MAX_VALUES = 64
# A variable that is put into itself again and again doubles each time.
MAX_LENGTH = 20_000

STAR, QUESTION, BRACKET, OPEN, COMMA, CLOSE, TILDE = map(chr, range(0xE000, 0xE007))
_SPECIAL = re.compile(r"[*?\[{~]").search
_MARKED = {
    ord("*"): STAR, ord("?"): QUESTION, ord("["): BRACKET,
    ord("{"): OPEN, ord(","): COMMA, ord("}"): CLOSE,
}  # fmt: skip
_WILD = {ord("*"): STAR, ord("?"): QUESTION, ord("["): BRACKET}
_UNMARKED = {ord(OPEN): "{", ord(COMMA): ",", ord(CLOSE): "}", ord(TILDE): "~"}
_PLAIN = {**_UNMARKED, ord(STAR): "*", ord(QUESTION): "?", ord(BRACKET): "["}
_INNERMOST = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}").search
_PARAMETER = re.compile(r"([A-Za-z_]\w*)(?:\[[@*]\])?(?:(%%?|##?|//?)(.*))?", re.DOTALL).fullmatch


def name_of(parameter: str) -> str:
    """Give the variable's name in the inside of a `${…}`, "" if it is more than can be known."""
    found = _PARAMETER(parameter)
    return found[1] if found else ""


def expand(word: Word, variables: Mapping[str, str]) -> list[str] | None:
    """Give the fields a word becomes, None if that cannot be known."""
    if len(word.parts) == 1:
        kind, text, quoted = word.parts[0]
        if kind == words.TEXT and (quoted or not _SPECIAL(str(text))):
            return [str(text)]
        if kind == words.VARIABLE and not quoted:
            value = _parameter(str(text), variables)
            return None if value is None else value.translate(_WILD).split()
    text = _joined(word, variables)
    if text is None:
        return None
    if text.startswith(TILDE):
        home = variables.get("HOME")
        if home is None or text[1:2] not in ("", "/"):
            return None
        text = home + text[1:]
    return braces(text)


def single(word: Word, variables: Mapping[str, str]) -> str | None:
    """Give the value of a word that must be exactly one field, such as a redirection's."""
    fields = expand(word, variables)
    return fields[0] if fields is not None and len(fields) == 1 else None


def assigned(word: Word, variables: Mapping[str, str]) -> str | None:
    """Give the value of the right side of an assignment: nothing is split, no wildcard acts."""
    text = _joined(word, variables)
    if text is None or not text.startswith(TILDE):
        return None if text is None else plain(text)
    home = variables.get("HOME")
    return None if home is None or text[1:2] not in ("", "/") else home + plain(text[1:])


def plain(text: str) -> str:
    """Take the marks off, so that a wildcard is a letter again."""
    return text.translate(_PLAIN)


def _joined(word: Word, variables: Mapping[str, str]) -> str | None:
    found: list[str] = []
    length = 0
    for kind, content, quoted in word.parts:
        text: str | None = str(content)
        if kind == words.VARIABLE:
            text = _parameter(str(content), variables)
            if text is not None and not quoted:
                text = None if any(map(str.isspace, text)) else text.translate(_WILD)
        elif kind != words.TEXT:
            return None
        elif not quoted:
            text = str(content).translate(_MARKED)
            if not found and text.startswith("~"):
                text = TILDE + text[1:]
        if text is None:
            return None
        found.append(text)
        length += len(text) if kind == words.VARIABLE else 0
        if length > MAX_LENGTH:
            return None
    return "".join(found)


def _parameter(parameter: str, variables: Mapping[str, str]) -> str | None:
    found = _PARAMETER(parameter)
    value = variables.get(found[1]) if found else None
    if value is None or not found or not found[2]:
        return value
    op, rest = found[2], found[3]
    if op in ("/", "//"):
        old, _, new = rest.partition("/")
        if not old or old[0] in "#%" or re.search(r"[*?\[$`'\"\\]", rest):
            return None
        return value.replace(old, new, -1 if op == "//" else 1)
    if rest == "/*" and op == "%":
        return value.rpartition("/")[0] if "/" in value else value
    if rest == "*/" and op == "##":
        return value.rpartition("/")[2]
    if rest == ".*" and op == "%":
        return value.rpartition(".")[0] if "." in value else value
    if re.search(r"[*?\[$`'\"\\]", rest):
        return None
    return value.removesuffix(rest) if op[0] == "%" else value.removeprefix(rest)


def braces(text: str) -> list[str] | None:
    """Expand the marked braces; None if they give too many."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > MAX_VALUES:
            return None
        text = waiting.pop()
        found = _INNERMOST(text)
        if not found:
            done.append(text.translate(_UNMARKED))
            continue
        before, after = text[: found.start()], text[found.end() :]
        choices = _choices(found[1])
        if choices is None:
            # Not an expansion, as in `find -exec rm {} +`: the braces are letters.
            waiting.append(f"{before}{{{found[1]}}}{after}")
        else:
            waiting += [before + choice + after for choice in reversed(choices)]
    return done


def _choices(inside: str) -> list[str] | None:
    if COMMA in inside:
        return inside.split(COMMA)
    first, dots, last = inside.partition("..")
    if dots and first.isdecimal() and last.isdecimal() and len(first + last) < 10:
        a, b = int(first), int(last)
        step = 1 if a <= b else -1
        width = len(first) if first.startswith("0") else 0
        return [f"{n:0{width}}" for n in range(a, b + step, step)[: MAX_VALUES + 1]]
    if dots and len(first) == len(last) == 1 and first.isascii() and last.isascii():
        return [chr(n) for n in range(ord(first), ord(last) + 1)] or None
    return None


def quoted_braces(text: str) -> list[str]:
    """Expand `{a,b}` in a pattern that the tool itself reads, such as prettier's."""
    return braces(text.translate(_MARKED)) or [text]
