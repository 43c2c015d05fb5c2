"""What arguments must be like: stated once, by name, for the library and for every surface.

An argument's name says what it is: `ttl_s` is a number of seconds within the same bounds
wherever it occurs, `note` is a line of text. The few that mean something else in one operation
are declared there (`kinds=` in its marker). Each kind checks a value and returns it in the form
the core works with, or says what is wrong with it. All limits are stated here.
"""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.records import is_hidden, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME_LIMIT = 200
TEXT_LIMIT = 2_000
SEAL = "dibs-seal"
"""A seal of the journal begins with this."""
BODY_LIMIT = 16_384
VALUE_LIMIT = 1_048_576
DEPTH_LIMIT = 100
LIST_LIMIT = 1_000
CLAIM_LIMIT = 200
"""How many resources one call may name."""
ITEMS_LIMIT = 2_097_152
"""How many characters all items of one call may have in total."""
RESOURCE_LIMIT = 4_096
NEWEST = 2**62
"""Above every seq, epoch and version; both databases can hold it."""
TTL_MIN_S, TTL_MAX_S = 1.0, 7 * 86_400.0
WAIT_MAX_S = 86_400.0
DELAY_MAX_S = 366 * 86_400.0
PRIORITY = 1_000_000
DAY_S = 86_400
ATTEMPTS_MAX = 1_000
AGENTS_MAX = 10_000


class Kind:
    """What a value must be like."""

    json = ""
    """Its type in JSON; empty for any type."""
    limit = LIST_LIMIT
    """How many of them a list may have."""
    together = False
    """Whether it checks a list as a whole."""
    local = False
    """Whether only the caller's side knows what it means, so the checked form is sent."""

    def check(self, what: str, value: Any) -> Any:
        return value


class Text(Kind):
    """Text within a limit, valid UTF-8, without control characters.

    lines: whether it may have several lines
    says: "something" if it must not be empty, "words" if it must have a word to search for
    """

    json = "string"

    def __init__(self, length: int = TEXT_LIMIT, *, lines: bool = False, says: str = "") -> None:
        self.length = length
        self.lines = lines
        self.says = says

    def check(self, what: str, value: object) -> str:
        return check_text(what, value, self.length, lines=self.lines, empty=not self.says)


class Name(Kind):
    """A name: text without spaces at its ends, never empty."""

    json = "string"

    def check(self, what: str, value: object) -> str:
        return check_name(what, value)


class TaskId(Name):
    """A task's id: a name. Every spelling of one issue or pull request on GitHub is one id."""

    def check(self, what: str, value: object) -> str:
        name = check_name(what, value)
        return github_key(name) or name if "#" in name or "://" in name else name


class Branch(Name):
    """A branch name that git allows."""

    def check(self, what: str, value: object) -> str:
        name = check_name(what, value)
        parts = name.split("/")
        if (
            any(character in " ~^:?*[\\" for character in name)
            or any(not part or part[0] == "." or part.endswith(".lock") for part in parts)
            or any(signs in name for signs in ("..", "@{"))
            or name[0] == "-"
            or name[-1] == "."
            or name in ("@", "HEAD")
        ):
            raise InvalidError(
                f"{what} is {shown(name)}, which git does not allow as a branch name",
                next="give the name without refs/heads/",
            )
        return name


class Hex(Kind):
    """A digest in lower-case hexadecimal, of one of the given lengths."""

    json = "string"

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def check(self, what: str, value: object) -> str:
        text = check_text(what, value)
        if len(text) not in self.lengths or not _HEX.issuperset(text):
            lengths = " or ".join(str(length) for length in self.lengths if length)
            raise InvalidError(
                f"{what} is {shown(text)}; it must be {lengths} hexadecimal digits in lower case",
                next="give the full id: git rev-parse BRANCH" if what == "commit" else None,
            )
        return text


class SealLine(Kind):
    """A seal of the journal: one line, as `dibs audit seal` prints it."""

    json = "string"

    def check(self, what: str, value: object) -> str:
        text = check_text(what, value, lines=True).strip()
        mark, seq, hash, _, space = [*text.split(" ", 4), "", "", "", "", ""][:5]
        digits = seq.isascii() and seq.isdecimal() and len(seq) < 19
        if (mark, digits) != (SEAL, True) or not hash or not _HEX.issuperset(hash) or not space:
            raise InvalidError(
                f"{what} is {shown(text)}, which is not a seal",
                next=f"give the line that begins with {SEAL}, as dibs audit seal printed it",
            )
        return text


class AgentName(Kind):
    """An agent's name: `bob`, or `alice/tests` for a subagent."""

    json = "string"

    def check(self, what: str, value: object) -> str:
        return check_agent(what, value)


class ResourceName(Kind):
    """What can be claimed; the rest is checked where the name is compared with the disk."""

    json = "string"
    limit = CLAIM_LIMIT

    def check(self, what: str, value: object) -> str:
        if not isinstance(value, str):
            raise InvalidError(f"{what} must be text, not {type(value).__name__}")
        return value


LONG_S = 3_600
"""A bound of this many seconds is also written in another unit."""


class Seconds(Kind):
    """A duration in seconds, within bounds."""

    json = "number"

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    def check(self, what: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidError(f"{what} must be a number of seconds, not {type(value).__name__}")
        if not self.low <= value <= self.high:
            long = f" ({span(int(self.high * 1000))})" if self.high >= LONG_S else ""
            raise InvalidError(
                f"{what} is {shown(value)} s; "
                f"it must be between {self.low:g} and {self.high:g} s{long}",
                low=self.low,
                high=self.high,
            )
        return value


class Whole(Kind):
    """A whole number within bounds."""

    json = "integer"

    def __init__(self, low: int, high: int = NEWEST) -> None:
        self.low = low
        self.high = high

    def check(self, what: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidError(f"{what} must be a whole number, not {type(value).__name__}")
        if not self.low <= value <= self.high:
            raise InvalidError(
                f"{what} is {shown(value)}; it must be between {self.low:,} and {self.high:,}"
            )
        return value


class When(Kind):
    """A seq, or a time in any form that `moments` reads, which is returned in one form.

    side: which end of a period it names (since, until), or a moment (at)
    """

    json = "string"
    local = True

    def __init__(self, side: str) -> None:
        self.side = side

    def check(self, what: str, value: Any) -> int | str:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return NUMBER.check(what, value)
        from dibs.moments import canonical  # late, since most calls name no time

        return canonical(what, value, self.side)


class Choice(Kind):
    """One of a few words."""

    json = "string"

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def check(self, what: str, value: Any) -> str:
        if value not in self.choices:
            allowed = ", ".join(self.choices)
            raise InvalidError(f"{what} is {shown(value)}; it must be one of: {allowed}")
        return str(value)


class Flag(Kind):
    """True or false."""

    json = "boolean"

    def check(self, what: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidError(f"{what} must be true or false, not {type(value).__name__}")
        return value


class Json(Kind):
    """Any JSON, returned as the text to store; None stays None."""

    def check(self, what: str, value: object) -> str | None:
        return check_json(what, value, VALUE_LIMIT)


class Fields(Kind):
    """An object whose fields are checked by the operation."""

    json = "object"

    def check(self, what: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidError(f"{what} must be an object, not {type(value).__name__}")
        return value


_HEX = frozenset("0123456789abcdef")
LINE, LINES = Text(), Text(lines=True)
BODY = Text(BODY_LIMIT, lines=True, says="something")
FILTER = Text(VALUE_LIMIT)
"""What a reader searches for: any text that could be stored."""
NAME, AGENT_NAME, RESOURCE, FLAG, JSON = Name(), AgentName(), ResourceName(), Flag(), Json()
TASK = TaskId()
TTL, WAIT, DELAY = Seconds(TTL_MIN_S, TTL_MAX_S), Seconds(0, WAIT_MAX_S), Seconds(0, DELAY_MAX_S)
NUMBER = Whole(0)
"""A seq, a version, or an id that the store assigned."""

BY_KIND: list[tuple[Kind, str]] = [
    (NAME, "channel idempotency_key key labels namespace tags"),
    (TASK, "after follows found_in id parent precedes task"),
    (AGENT_NAME, "by name to"),
    (RESOURCE, "leases moved_to path resource resources"),
    (FILTER, "agent kind subject title_has was"),
    (LINE, "doing note status title"),
    (LINES, "reason"),
    (Text(lines=True, says="something"), "question"),
    (Branch(), "branch onto"),
    (Hex(40, 64), "commit"),
    (Hex(0, 16, 32, 40, 64), "check"),
    (BODY, "body"),
    (Text(BODY_LIMIT, lines=True), "announce"),
    (Text(says="words"), "text"),
    (SealLine(), "seal"),
    (JSON, "payload result value"),
    (Fields(), "entry"),
    (NUMBER, "after_version before expected_version ids reply_to seq session thread"),
    (When("since"), "since"),
    (When("until"), "until"),
    (When("at"), "a at b"),
    (Whole(1), "epoch"),
    (Whole(1, LIST_LIMIT), "limit"),
    (Whole(1, ATTEMPTS_MAX), "max_attempts"),
    (Whole(1, AGENTS_MAX), "agents"),
    (Whole(-PRIORITY, PRIORITY), "priority"),
    (Whole(-DAY_S, DAY_S), "east_s"),
    (TTL, "ttl_s"),
    (WAIT, "wait_s"),
    (DELAY, "delay_s"),
    (Seconds(TTL_MIN_S, DELAY_MAX_S), "expires_s"),
    (Seconds(0, DELAY_MAX_S * 10), "keep_s"),
    (Choice("exclusive", "shared"), "mode"),
    (Choice("released", "modified", "created", "deleted", "moved"), "outcome"),
    (Choice("read", "agent", "admin"), "scope"),
    (
        Choice("available", "blocked", "claimed", "completed", "failed", "dead", "cancelled"),
        "state",
    ),
]
KINDS = {name: kind for kind, names in BY_KIND for name in names.split()}


HELPS = {
    "epoch": "refuse unless it has this epoch",
    "idempotency_key": "a repeated call with the same key gets the first answer",
    "key": "the entry's name within the namespace",
    "limit": "the maximum number to return",
    "namespace": "the group of entries",
}
"""Help for arguments that mean the same everywhere; an operation's docstring may override it."""


class Argument:
    """One argument, as a surface needs to know it.

    type: as the source spells it
    kind: what a value must be like; for a list, what each item must be like
    placed: it may be given by position
    many: any number of them may be given, by position
    """

    __slots__ = ("default", "help", "kind", "list", "many", "name", "optional", "placed",
                 "required", "type")  # fmt: skip

    def __init__(
        self,
        name: str,
        type: str,
        kind: Kind,
        help: str,
        *,
        placed: bool = False,
        many: bool = False,
        required: bool = False,
        default: object = None,
    ) -> None:
        self.name = name
        self.type = type
        self.kind = kind
        self.help = help
        self.placed = placed
        self.many = many
        self.required = required
        self.default = default
        self.optional = type.endswith(" | None")
        self.list = type.startswith("Sequence[")

    def check(self, value: Any) -> Any:
        """Check a value that was given for it."""
        if value is None and self.optional:
            return None
        if not self.list or self.kind.together:
            return self.kind.check(self.name, value)
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise InvalidError(f"{self.name} must be a list, not {type(value).__name__}")
        check_number_of(self.name, value, self.kind)
        checked = [self.kind.check(self.name, item) for item in value]
        return list(dict.fromkeys(checked))


def kind_of(name: str, type: str) -> Kind:
    """What an argument must be like, by its name; a flag is recognised by its type."""
    if type == "bool":
        return FLAG
    try:
        return KINDS[name]
    except KeyError:
        raise TypeError(f"no rule says what the argument {name!r} must be like") from None


def check_number_of(what: str, values: Any, kind: Kind) -> None:
    if len(values) > kind.limit:
        few = " in one call" if isinstance(kind, ResourceName) else ""
        raise InvalidError(
            f"{len(values):,} {what}{few}; the limit is {kind.limit:,}",
            next="name a directory or a pattern instead" if few else "give fewer",
            limit=kind.limit,
        )


UNITS = {
    "ms": 0.001,
    **dict.fromkeys("s sec secs second seconds".split(), 1),
    **dict.fromkeys("m min mins minute minutes".split(), 60),
    **dict.fromkeys("h hr hrs hour hours".split(), 3600),
    **dict.fromkeys("d day days".split(), DAY_S),
    **dict.fromkeys("w week weeks".split(), 7 * DAY_S),
}
DIGITS = 15
"""How many digits a number in a length of time may have."""


def duration(text: str) -> float | None:
    """The seconds in `90s`, `1h30m`, `1.5h`, `5 min` or `2 weeks`; None if it is no such text."""
    rest, total, first = text.strip(" ").casefold(), 0.0, True
    while rest:
        number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(number) :].lstrip(" ")
        unit = rest[: len(rest) - len(rest.lstrip("abcdefghijklmnopqrstuvwxyz"))]
        rest = rest[len(unit) :].lstrip(" ")
        whole, _, part = number.partition(".")
        if unit not in UNITS or not whole.isdecimal() or not (part or "0").isdecimal():
            return None
        if len(whole) > DIGITS or len(part) > DIGITS or number.endswith("."):
            return None
        total, first = total + float(number) * UNITS[unit], False
    return None if first else total


def shown(value: object) -> str:
    """A wrong value as a message shows it: short, and without raising another error."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    text = f"{value:g}" if isinstance(value, float) else ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_text(
    what: str, value: object, limit: int = TEXT_LIMIT, *, lines: bool = False, empty: bool = True
) -> str:
    """Text within a limit, valid UTF-8, without control characters."""
    if not isinstance(value, str):
        raise InvalidError(f"{what} must be text, not {type(value).__name__}")
    if len(value) > limit:
        raise InvalidError(
            f"{what} has {len(value):,} characters; the limit is {limit:,}",
            next=f"shorten {what}",
            limit=limit,
        )
    if not value.strip() and not empty:
        raise InvalidError(f"{what} is empty", next="give it a value")
    if value.isascii() and value.isprintable():
        return value
    allowed = "\n\t" if lines else ""
    for place, character in enumerate(value):
        code = ord(character)
        if (code < 0x20 and character not in allowed) or 0x7F <= code < 0xA0:
            raise InvalidError(f"{what} has a control character ({code:#04x}) at position {place}")
        if 0xD800 <= code < 0xE000:
            raise InvalidError(f"{what} is not valid UTF-8 (at position {place})")
    return value


def check_name(what: str, value: object) -> str:
    """A name in one spelling (NFC), without invisible characters."""
    name = check_text(what, value, NAME_LIMIT, empty=False)
    if name != name.strip():
        raise InvalidError(f"{what} begins or ends with a space: {shown(name)}")
    if name.isascii():
        return name
    import unicodedata  # late, since most names need none of it

    for place, character in enumerate(name):
        if is_hidden(character):
            raise InvalidError(
                f"{what} has an invisible character (U+{ord(character):04X}) at position {place}",
                next="remove it",
            )
    return unicodedata.normalize("NFC", name)


def github_key(name: str) -> str | None:
    """`github:owner/repo#12` from an issue's URL, from `Owner/Repo#12`, or from itself in any case.

    GitHub ignores case in the names of owners and repositories; issues and pull requests share
    one sequence of numbers.
    """
    rest, number = name, ""
    for start in ("https://", "http://", "www."):
        rest = rest.removeprefix(start)
    if rest.casefold().startswith("github.com/"):
        parts = rest.split("#")[0].split("?")[0].split("/")[1:]
        if len(parts) < 4 or parts[2] not in ("issues", "pull"):
            return None
        rest, number = "/".join(parts[:2]), parts[3]
    elif rest == name:
        head, _, rest = name.rpartition(":")
        if head.casefold() not in ("", "github"):
            return None
        rest, _, number = rest.partition("#")
    owner, _, repo = rest.partition("/")
    signs = {*"-_."}
    sound = all(one and all(c in signs or (c.isascii() and c.isalnum()) for c in one)
                for one in (owner, repo))  # fmt: skip
    if not sound or not (number.isascii() and number.isdigit()):
        return None
    return f"github:{owner.casefold()}/{repo.casefold()}#{int(number)}"


def check_agent(what: str, value: object) -> str:
    name = check_name(what, value)
    parts = name.split("/")
    if not all(parts) or any(character.isspace() or character == "," for character in name):
        raise InvalidError(
            f"{name!r} cannot be an agent's name",
            next="use a word such as bob, or alice/tests for a subagent of alice",
        )
    return name


def refuse_depth(what: str, value: object, limit: int = DEPTH_LIMIT) -> None:
    """Refuse what is nested too deeply for a reader with little stack left."""
    front, depth = [value], 0
    while front:
        if depth > limit:
            raise InvalidError(
                f"{what} is nested deeper than {limit}",
                next="flatten it, or store it as text",
                limit=limit,
            )
        depth += 1
        inner: list[object] = []
        for item in front:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, (list, tuple)):
                inner += item
        front = inner


_ENCODE: list[Callable[[object], str]] = []
"""The JSON encoder, made at the first use: making it takes longer than encoding most values."""


def _encoder() -> Callable[[object], str]:
    import json  # a claim does not need it

    made = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
    )
    _ENCODE.append(made.encode)
    return made.encode


def check_json(what: str, value: object, limit: int) -> str | None:
    """A JSON value as text within a limit; None stays None."""
    if value is None:
        return None
    refuse_depth(what, value)
    try:
        text = (_ENCODE[0] if _ENCODE else _encoder())(value)
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidError(f"{what} is not valid UTF-8") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"{what} cannot be written as JSON: {error}") from None
    if size > limit:
        raise InvalidError(
            f"{what} has {size:,} bytes as JSON; the limit is {limit:,}",
            next="store the large part in a file and put its path here",
            limit=limit,
        )
    return text


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
