"""What the words of a shell command mean, as far as the text says: values, options, state.

A value is a text in which the wildcards that the shell would expand are marked, to distinguish a
quoted `*` from an active one. What the text does not say is None: a variable from elsewhere, the
output of a command, `~user`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Part = tuple[int, str, bool]
Values = list[str | None]
Asks = tuple[tuple[str, ...], ...]
TEXT, VARIABLE, OUTPUT, STREAM, UNKNOWN = range(5)

MAX_VALUES = 64
# A variable that is inserted into itself repeatedly doubles each time.
MAX_LENGTH = 20_000

STAR, QUESTION, BRACKET, OPEN, COMMA, CLOSE, TILDE = map(chr, range(0xE000, 0xE007))
_WILD = {ord("*"): STAR, ord("?"): QUESTION, ord("["): BRACKET}
_MARKED = {**_WILD, ord("{"): OPEN, ord(","): COMMA, ord("}"): CLOSE}
_UNMARKED = {ord(OPEN): "{", ord(COMMA): ",", ord(CLOSE): "}"}
_PLAIN = {**_UNMARKED, ord(STAR): "*", ord(QUESTION): "?", ord(BRACKET): "["}
_ACTIVE = frozenset("*?[{~")
# These make the pattern of `${name%pattern}` more than a text.
_PATTERN = frozenset("*?[$`'\"\\")
_OPERATORS = frozenset(("", *"% %% # ## / // - :- := ? :?".split()))


class Word:
    """A word in parts: (kind, text, whether quoted). A VARIABLE's text is the inside of `${…}`.

    An OUTPUT is what `$(…)` prints, a STREAM the name of the pipe that `<(…)` prints to; the text
    of both is the name under which the value is kept among the variables.

    code: the tokens of each substitution in it, by that name
    array: the words of `name=(…)`
    """

    __slots__ = ("array", "code", "parts")

    def __init__(self, *parts: Part) -> None:
        self.parts = list(parts)
        self.code: dict[str, list[Token]] = {}
        self.array: list[Word] | None = None

    def plain(self) -> str:
        """Give the text of a word without quotes and expansions, "" for any other."""
        if len(self.parts) == 1:
            kind, text, quoted = self.parts[0]
            if kind == TEXT and not quoted:
                return text
        return ""

    def assigns(self) -> str:
        """Give the name of the variable that the word sets if no command precedes it, or ""."""
        kind, text, quoted = self.parts[0] if self.parts else (UNKNOWN, "", True)
        return assigned_name(text) if kind == TEXT and not quoted else ""

    def fields(self, variables: Mapping[str, str]) -> Values:
        """Give the fields that the word expands to, a single None if they cannot be known."""
        if len(self.parts) == 1:
            kind, text, quoted = self.parts[0]
            if kind == TEXT and (quoted or _ACTIVE.isdisjoint(text)):
                return [text]
            if kind in (VARIABLE, OUTPUT) and not quoted:
                value = _held(kind, text, variables)
                return [None] if value is None else [*value.translate(_WILD).split()]
        value = self._joined(variables)
        return [None] if value is None else [*braces(value)] or [None]

    def single(self, variables: Mapping[str, str]) -> str | None:
        """Give the value of a word that must be exactly one field, such as a redirection's."""
        fields = self.fields(variables)
        return fields[0] if len(fields) == 1 else None

    def assigned(self, variables: Mapping[str, str]) -> str | None:
        """Give the value of the right side of an assignment: not split, no wildcard acts."""
        value = self._joined(variables, splits=False)
        return None if value is None else plain(value)

    def _joined(self, variables: Mapping[str, str], *, splits: bool = True) -> str | None:
        found = ""
        length = 0
        for at, (kind, text, quoted) in enumerate(self.parts):
            value: str | None = text
            if kind in (VARIABLE, OUTPUT):
                value = _held(kind, text, variables)
                if value is not None and not quoted and splits:
                    value = None if any(map(str.isspace, value)) else value.translate(_WILD)
                length += len(value or "")
            elif kind != TEXT:
                return None
            elif not quoted:
                value = text.translate(_MARKED)
                if not at and value.startswith("~"):
                    value = TILDE + value[1:]
            if value is None or length > MAX_LENGTH:
                return None
            found += value
        if found.startswith(TILDE):
            home = variables.get("HOME")
            return None if home is None or found[1:2] not in ("", "/") else home + found[1:]
        return found


class Redirect:
    """A redirection; `body` is the text of a here-document, and `inner` what it substitutes.

    number: of the file descriptor, "" if the text does not say which
    """

    def __init__(self, op: str, word: Word, number: str = "") -> None:
        self.op = op
        self.word = word
        self.number = number
        self.body = ""
        self.inner = Word()

    def writes(self, target: str | None) -> bool:
        """Say whether it writes a file, if that is its target."""
        if self.op == ">&":
            return target is None or not (target.isdecimal() or target == "-")
        return self.op in ("&>", "&>>", "<>", ">", ">>", ">|")

    def is_output(self) -> bool:
        """Say whether it redirects standard output."""
        return self.op[0] in "&>" and self.number in ("", "1")


# A string is an operator or a line's end.
Token = Word | Redirect | str


def name_length(text: str, at: int = 0) -> int:
    """Give the length of the variable name that begins here, 0 if none does."""
    end = at
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    starts = end > at and text[at].isascii() and not text[at].isdigit()
    return end - at if starts else 0


def assigned_name(text: str) -> str:
    """Give the name in `name=…` or `name+=…`, "" if it is not an assignment."""
    length = name_length(text)
    return text[:length] if length and text.startswith(("=", "+="), length) else ""


def split_parameter(parameter: str) -> tuple[str, str, str]:
    """Split the inside of a `${…}` into name, operator and rest; no name if it is anything else."""
    keys = parameter[:1] == "!" and parameter.endswith(("[@]", "[*]"))
    length = name_length(parameter) or int(parameter[:1] in ("@", "*"))
    length = length or (keys and name_length(parameter, 1) + 1) or int(parameter in ("#", "?"))
    while not name_length(parameter) and parameter[length : length + 1].isdecimal():
        length += 1
    rest = parameter[length:]
    if rest.startswith("[") and "]" in rest:
        rest = rest.partition("]")[2]  # whichever item it is, a loop meets each of them
    op = rest[:2] if rest[:1] == rest[1:2] or rest[:1] == ":" else rest[:1]
    return (parameter[:length] if op in _OPERATORS else ""), op, rest[len(op) :]


def _held(kind: int, text: str, variables: Mapping[str, str]) -> str | None:
    return _parameter(text, variables) if kind == VARIABLE else variables.get(text)


def _parameter(parameter: str, variables: Mapping[str, str]) -> str | None:
    name, op, rest = split_parameter(parameter)
    value = variables.get(name) if name else None
    if op in ("-", ":-", ":="):
        return value or _default(rest, variables)
    if value is None or op in ("", "?", ":?"):
        return value
    if op in ("/", "//"):
        old, _, new = rest.partition("/")
        if not old or old[0] in "#%" or not _PATTERN.isdisjoint(rest):
            return None
        return value.replace(old, new, -1 if op == "//" else 1)
    if (op, rest) == ("%", "/*"):
        return value.rpartition("/")[0] if "/" in value else value
    if (op, rest) == ("##", "*/"):
        return value.rpartition("/")[2]
    if (op, rest) == ("%", ".*"):
        return value.rpartition(".")[0] if "." in value else value
    if not _PATTERN.isdisjoint(rest):
        return None
    return value.removesuffix(rest) if op[0] == "%" else value.removeprefix(rest)


def _default(text: str, variables: Mapping[str, str]) -> str | None:
    """Give what `${name:-text}` stands for if the name has no value here."""
    if text[:1] == text[-1:] and text[:1] in ("'", '"') and len(text) > 1:
        text = text[1:-1]
    if text.startswith("$") and name_length(text, 1) == len(text) - 1:
        return variables.get(text[1:])
    return text if _PATTERN.isdisjoint(text) else None


def plain(text: str) -> str:
    """Remove the marks, so that a wildcard is an ordinary character again."""
    return text.translate(_PLAIN)


def marked(text: str) -> str:
    """Mark the wildcards, so that they act."""
    return text.translate(_WILD)


def braces(text: str) -> list[str]:
    """Expand the marked braces; nothing if they give too many."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > MAX_VALUES:
            return []
        text = waiting.pop()
        close = text.find(CLOSE, text.find(OPEN)) if OPEN in text else -1
        if close < 0:
            done.append(text.translate(_UNMARKED))
            continue
        opened = text.rindex(OPEN, 0, close)
        before, inside, after = text[:opened], text[opened + 1 : close], text[close + 1 :]
        choices = _choices(inside)
        if choices is None:
            # Not an expansion, as in `find -exec rm {} +`: the braces are ordinary characters.
            waiting.append(f"{before}{{{inside}}}{after}")
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
    """Expand `{a,b}` in a pattern that the tool itself expands, such as prettier's."""
    return braces(text.translate(_MARKED)) or [text]


Rows = list[tuple[str, ...]]


class ShellState:
    """Where a shell is and what its variables are, each with all the values it may have.

    rows: for variables that `read` set together, the lines, and the place of each in them
    """

    def __init__(self, cwds: tuple[str, ...], variables: dict[str, tuple[str, ...]]) -> None:
        self.cwds = cwds
        self.before: tuple[str, ...] = ()
        self.stack: tuple[tuple[str, ...], ...] = ()
        self.variables = variables
        self.rows: dict[str, tuple[Rows, int]] = {}

    def copy(self) -> ShellState:
        other = ShellState(self.cwds, dict(self.variables))
        other.before, other.stack, other.rows = self.before, self.stack, dict(self.rows)
        return other

    def join(self, other: ShellState) -> None:
        """Add the alternatives of another state."""
        self.cwds = few(self.cwds + other.cwds)
        for name, found in other.variables.items():
            if self.variables.get(name) != found:
                self.rows.pop(name, None)
            self.variables[name] = few(self.variables.get(name, ()) + found)

    def set(self, name: str, found: Iterable[str]) -> None:
        self.rows.pop(name, None)
        held = few(found)
        if held and max(map(len, held)) <= MAX_LENGTH:
            self.variables[name] = held
        else:
            self.variables.pop(name, None)

    def set_together(self, names: list[str], rows: Rows) -> None:
        """Set several variables at once, so that each has its value from the same row."""
        for at, name in enumerate(names):
            self.set(name, filter(None, [row[at] for row in rows]))
            if name in self.variables and len(names) > 1:
                self.rows[name] = rows, at

    def arguments(self, args: Values) -> dict[str, tuple[str, ...]]:
        """Set `$1`, `$2` and so on, and `$@`; give their previous values."""
        names = [name for name in self.variables if name[0] in "@*#0123456789"]
        before = {name: self.variables.pop(name) for name in names}
        known = [plain(arg) for arg in args if arg is not None]
        self.set("@", known)
        self.set("*", known)
        for number, arg in enumerate(args[:MAX_VALUES], 1):
            self.set(str(number), () if arg is None else (plain(arg),))
        if None not in args:
            self.set("#", (str(len(args)),))
            for number in range(len(args) + 1, 10):
                self.set(str(number), ("",))
        return before

    def any_argument(self) -> None:
        """Let `$1` be any of the arguments: a loop may shift them."""
        if "1" in self.variables and len(self.variables.get("@", ())) > 1:
            self.set("1", self.variables["@"])


def few(found: Iterable[str]) -> tuple[str, ...]:
    """Give each once, none at all if they are too many."""
    once = tuple(dict.fromkeys(found))
    return once if len(once) <= MAX_VALUES else ()


class Options(dict[str, str | None]):
    """The options that a command was given, each with its value, "" if it has none."""

    def has(self, names: str) -> bool:
        """Say whether one of them was given."""
        return any(name in self for name in names.split())

    def value(self, names: str) -> str | None:
        """Give the value of the first of them that has one."""
        return next((value for name in names.split() if (value := self.get(name))), None)


def options(
    args: Iterable[str | None], valued: str = "", optional: str = "", *, ordered: bool = False
) -> tuple[Options, Values]:
    """Split arguments into options and operands.

    valued: the options with a value, as one text: letters for short ones, then the long ones,
        as in `tS --target-directory`
    optional: the letters whose value, if any, is in the same word
    ordered: whether the first operand ends the options
    """
    letters, *names = valued.split(" ")
    found = Options()
    operands: Values = []
    rest = iter(args)
    for arg in rest:
        if arg is None or arg == "-" or not arg.startswith("-"):
            operands.append(arg)
            if ordered:
                break
        elif arg == "--":
            break
        elif arg in names:
            found[arg] = next(rest, None)
        elif arg.startswith("--"):
            name, _, value = arg.partition("=")
            found[name] = value
        else:
            for at, letter in enumerate(arg[1:], 2):
                found[f"-{letter}"] = ""
                if letter in optional or letter in letters:
                    here = arg[at:] or letter in optional
                    found[f"-{letter}"] = arg[at:] if here else next(rest, None)
                    break
    operands.extend(rest)
    return found, operands


def every(args: Values, *names: str) -> list[str]:
    """Give every value of an option that may be given several times."""
    found = [args[at + 1] for at, arg in enumerate(args[:-1]) if arg in names]
    found += [arg.partition("=")[2] for arg in args if arg and arg.partition("=")[0] in names]
    return [value for value in found if value]
