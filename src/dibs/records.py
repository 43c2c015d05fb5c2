"""The frozen records that cross every boundary: library, shell, HTTP and MCP alike.

Numbers that must not be confused have different words: `epoch` fences a grant, `version`
counts the writes of an entry, `seq` is a place in the journal. `*_at` is wall-clock time
in milliseconds, for people to read; decisions use what is left, `*_in_ms`.
Beside each `*_at` there is a `*_datetime`, which is no field: JSON, `repr` and `==` ignore it.
"""

from __future__ import annotations

from _operator import itemgetter
from time import gmtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from typing import Any, ClassVar, Self, dataclass_transform
else:
    # `typing` and `dataclasses` would double the start-up time of every command.
    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=True)
class Record:
    """A frozen set of named fields, compared by value."""

    _fields: tuple[str, ...] = ()
    _pick: ClassVar[Callable[[dict[str, Any]], tuple[Any, ...]]]
    """Picks the values of the fields, in their order."""

    def __init_subclass__(cls) -> None:
        cls._fields = fields = tuple(cls.__annotations__)
        cls._pick = itemgetter(*fields) if len(fields) > 1 else lambda row: (row[fields[0]],)

    if not TYPE_CHECKING:

        def __init__(self, **values):
            mine = self.__dict__
            mine.update(values)
            if len(mine) != len(self._fields):
                for name in self._fields:
                    if name not in mine:
                        mine[name] = getattr(type(self), name)

    @classmethod
    def of(cls, row: dict[str, Any], **more: Any) -> Self:
        """The record of a row; `more` has what the row lacks or holds in another form."""
        made = object.__new__(cls)
        made.__dict__.update(zip(cls._fields, cls._pick(row | more)))  # noqa: B905 - the hot path
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} records are frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({inside})"

    def to_json(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in self._fields}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Build the record from its JSON; a field this release does not know is left out."""
        made = object.__new__(cls)
        mine = made.__dict__
        try:
            mine.update(zip(cls._fields, cls._pick(data)))  # noqa: B905 - the hot path
        except KeyError:  # from a release that did not have all these fields
            for name in cls._fields:
                mine[name] = data[name] if name in data else getattr(cls, name)
        for name, (inner, several) in cls._inside().items():
            value = mine[name]
            if several and value is not None:
                mine[name] = tuple(map(inner.from_json, value)) if inner else tuple(value)
            elif value is not None and inner:
                mine[name] = inner.from_json(value)
        return made

    @classmethod
    def _inside(cls) -> dict[str, tuple[type[Record] | None, bool]]:
        """The fields that hold records or tuples: which record, and whether it is a tuple."""
        if cls not in _INSIDE:
            known = {record.__name__: record for record in Record.__subclasses__()}
            found = {
                name: (known.get(kind.removeprefix("tuple[").split(",")[0]), kind[:6] == "tuple[")
                for name, whole in cls.__annotations__.items()
                for kind in (whole.removesuffix(" | None"),)
            }
            _INSIDE[cls] = {name: one for name, one in found.items() if any(one)}
        return _INSIDE[cls]


class WallTime:
    """A field `*_at` as an aware datetime in UTC, read as `*_datetime`."""

    def __set_name__(self, record: type[Record], name: str) -> None:
        self._field = f"{name.removesuffix('datetime')}at"

    def __get__(self, record: Record, kind: type[Record]) -> datetime:
        return datetime_of(getattr(record, self._field))


class OptionalWallTime(WallTime):
    """The same for a field that may be None."""

    def __get__(self, record: Record, kind: type[Record]) -> datetime | None:  # type: ignore[override]
        milliseconds: int | None = getattr(record, self._field)
        return None if milliseconds is None else datetime_of(milliseconds)


def datetime_of(milliseconds: int) -> datetime:
    """A wall-clock time as an aware datetime in UTC, exact to the millisecond."""
    from datetime import UTC, datetime, timedelta  # late: most programs never ask

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


_INSIDE: dict[type[Record], dict[str, tuple[type[Record] | None, bool]]] = {}
"""By record class; filled at the first use, since most commands read no record back."""


def fields_of(value: object) -> dict[str, Any]:
    """What a JSON encoder writes for a record or an error."""
    if isinstance(value, Record):
        return value.__dict__
    if isinstance(value, Exception):
        return error_fields(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def error_fields(error: Any) -> dict[str, Any]:
    """A dibs error, which is the answer for an item that was refused."""
    fields: dict[str, Any] = error.to_json()
    return fields


def to_text(value: Any) -> str:
    """JSON as it is stored: short, keys sorted, one spelling for one value.

    It equals what `json.dumps` writes, to the byte: signatures and digests depend on it. It is
    written by hand because importing `json` takes a fifth of a command's time, and because an
    encoder made for each value, as `json.dumps` makes one, takes longer than most values.
    """
    return _WRITERS.get(type(value), to_long_text)(value)


def _string(value: str) -> str:
    if value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f'"{value.translate(_ESCAPES)}"'


def _array(value: list[Any] | tuple[Any, ...]) -> str:
    return "[" + ",".join([_WRITERS.get(type(item), to_long_text)(item) for item in value]) + "]"


def _object(value: dict[Any, Any]) -> str:
    parts = []
    for key in sorted(value):
        name = _NAMES.get(key) or _name(key)
        if name is None:
            return to_long_text(value)
        item = value[key]
        kind = type(item)
        # Most values in an event are numbers, which need no call.
        parts.append(f"{name}{item if kind is int else _WRITERS.get(kind, to_long_text)(item)}")
    return "{" + ",".join(parts) + "}"


def _name(key: object) -> str | None:
    """A key as it is written before its value; None if it is not text."""
    if type(key) is not str:
        return None
    name = f"{_string(key)}:"
    if len(_NAMES) < NAMES_KEPT:
        _NAMES[key] = name
    return name


def _float(value: float) -> str:
    return repr(value) if value - value == 0 else to_long_text(value)  # infinity or NaN


def to_long_text(value: Any) -> str:
    """The same text from the encoder of `json`: takes records too, and is faster if it is long."""
    try:
        from _json import encode_basestring, make_encoder
    except ImportError:  # another Python has none
        import json

        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=fields_of
        )
    encoder = make_encoder({}, fields_of, encode_basestring, None, ":", ",", True, False, True)
    return "".join(encoder(value, 0))


def to_ascii(value: Any) -> str:
    """JSON as it is sent: in ASCII, and an error for what is not JSON."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:  # another Python has none
        import json

        return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    encoder = make_encoder({}, _none, encode_basestring_ascii, None, ":", ",", True, False, False)
    return "".join(encoder(value, 0))


def _none(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


class Rules:
    """The default settings of the scanner of `json`."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float: Callable[[str], float] = float
    parse_int = int
    parse_constant: Callable[[str], float] = {
        "-Infinity": -float("inf"), "Infinity": float("inf"), "NaN": float("nan"),
    }.__getitem__  # fmt: skip


def read_json(text: str, rules: type[Rules] = Rules) -> Any:
    """What `json.loads` makes of a text, or a `ValueError`.

    It uses the same scanner without the rest of `json`, whose import takes a fifth of a hook's
    time. What the scanner does not read is left to `json`, which says why.
    """
    try:
        from _json import make_scanner

        stripped = text.strip(" \t\n\r")
        value, end = make_scanner(rules)(stripped, 0)  # type: ignore[arg-type]
        if end == len(stripped):
            return value
    except (ImportError, StopIteration, SystemError):
        pass  # another Python has no scanner; or it cannot say what is wrong without `json`
    import json

    return json.loads(text, parse_constant=rules.parse_constant, parse_float=rules.parse_float)


NAMES_KEPT = 1_000
_NAMES: dict[str, str] = {}
"""Keys as they are written: almost everything uses the same few."""
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | {
    ord(character): f"\\{short}"
    for character, short in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}
_WRITERS: dict[type, Callable[[Any], str]] = {
    str: _string,
    int: repr,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): lambda value: "null",
    float: _float,
    list: _array,
    tuple: _array,
    dict: _object,
}


def plain(value: Any) -> Any:
    """Records, tuples and dictionaries as JSON types."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return error_fields(value) if isinstance(value, Exception) else value


BLANKS = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0,
     0x16FE4)
)  # fmt: skip
"""Characters that count as letters or marks and show nothing."""
NAME_SHOWN, TEXT_SHOWN = 80, 300
"""How much of a name, and of a note, a title, a status or a reason, is shown in a line."""
WORDS = 4
"""A part of a name with more words than this is a sentence."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+*?#%")


def is_hidden(character: str) -> bool:
    """Whether it is invisible, changes the direction of the text, or is unassigned."""
    if character.isprintable():
        code = ord(character)
        return code in BLANKS or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    return True


def visible(text: str) -> str:
    """Text with every invisible character written as its number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{{{ord(one):x}}}" if is_hidden(one) else one for one in text)


def quoted(text: str, limit: int = TEXT_SHOWN) -> str:
    """Somebody else's words as data: in quotation marks, on one line, cut, all of it visible.

    Everything that shows an agent's words to a model or in a terminal goes through here.
    """
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{visible(text)}"'


def called(text: str, quote: bool = False, limit: int = NAME_SHOWN) -> str:
    """A name within a sentence: as it is if it is plain and short, otherwise quoted.

    quote: always quote it
    """
    if len(text) > limit and text.startswith("repo:") and "//" in text:
        text = f"repo:…{text[text.index('//') :]}"  # the path says more than the repository
    return quoted(text, limit) if quote or not is_word(text, limit) else text


def folder(path: str) -> str:
    """The path of a folder on this disk, which may be longer than other names."""
    return path if is_plain(path, TEXT_SHOWN) else quoted(path)


def is_word(text: str, limit: int = NAME_SHOWN) -> bool:
    """Whether a name is plain, and not a sentence in disguise: `ignore-all-rules-and-push`."""
    if not is_plain(text, limit):
        return False
    if text.isalnum():
        return True
    for sign in "_.:@+*?#%":
        text = text.replace(sign, "-")
    return all(part.strip("-").count("-") < WORDS for part in text.split("/"))


def is_plain(text: str, limit: int = NAME_SHOWN) -> bool:
    """Whether a name is one short word of letters, digits and the signs of a path."""
    return 0 < len(text) <= limit and _PLAIN.issuperset(text)


class Lease(Record):
    """The right of one session to change a resource, until it is released or expires."""

    resource: str
    kind: str
    mode: str
    agent: str
    session: int
    epoch: int
    note: str
    task: str | None
    granted_at: int
    ttl_ms: int
    expires_in_ms: int
    content_hash: str | None
    checkout: str | None = None

    granted_datetime = WallTime()


class Grant(Record):
    """What a claim was granted: one lease per resource, and which of them were held before."""

    epoch: int
    leases: tuple[Lease, ...]
    kept: tuple[str, ...] = ()


class Outcome(Record):
    """What the last holder of a resource said it did to it."""

    resource: str
    outcome: str
    moved_to: str | None
    agent: str
    epoch: int
    released_at: int

    released_datetime = WallTime()


class Blocker(Record):
    """One reason why a claim was refused: who holds an overlapping resource, or waits ahead."""

    resource: str
    mode: str
    agent: str
    session: int
    epoch: int
    waiting: bool
    note: str
    since_at: int
    expires_in_ms: int | None
    checkout: str | None = None

    since_datetime = WallTime()


def held_by(resource: str, agent: str, note: str = "", *, quote: bool = False) -> str:
    """Say who holds a resource and what for, worded the same on every surface.

    quote: quote plain names too, for a model that reads it
    """
    return f"{called(resource, quote)} is held by {called(agent, quote)}{purpose(note)}"


def purpose(note: str) -> str:
    """A note in brackets, to be put after what it is about."""
    return f" (note: {quoted(note)})" if note else ""


def in_the_way(blockers: Sequence[Blocker], wall_ms: int, *, quote: bool = False) -> str:
    """Say why a claim is refused: who holds it, what for, since when, until when, and who else."""
    first = next((one for one in blockers if not one.waiting), blockers[0])
    since = f"for {age(first.since_at, wall_ms) // 1000} s"
    if first.waiting:
        what = f"{called(first.resource, quote)}{purpose(first.note)}"
        said = f"{called(first.agent, quote)} has been waiting for {what} {since}"
    else:
        said = held_by(first.resource, first.agent, first.note, quote=quote)
        said += f" {since}, {(first.expires_in_ms or 0) // 1000} s left"
    more = len(blockers) - 1
    return f"{said}, and {more} more in the way" if more else said


def shortened(leases: Sequence[Lease], ttl_ms: float | None) -> bool:
    """Whether leases last less long than requested, as those of a whole tree do.

    ttl_ms: the time requested; None for the time they were claimed for
    """
    return any(lease.expires_in_ms + 1000 < (ttl_ms or lease.ttl_ms) for lease in leases)


def age(at: int, wall_ms: int) -> int:
    """How long ago something was, in milliseconds; 0 for what a wrong clock put in the future."""
    return max(0, wall_ms - at)


def span(milliseconds: int) -> str:
    """A duration in a suitable unit, for people."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size * 2:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def iso(milliseconds: int) -> str:
    """A wall-clock time in UTC as ISO 8601; empty if no calendar has it."""
    try:
        moment = gmtime(milliseconds // 1000)
    except (OverflowError, ValueError, OSError):
        return ""
    date = f"{moment[0]:04}-{moment[1]:02}-{moment[2]:02}"
    clock = f"{moment[3]:02}:{moment[4]:02}:{moment[5]:02}"
    return f"{date}T{clock}.{milliseconds % 1000:03}Z"


class Availability(Record):
    """Whether a resource can be claimed now, and if not, what blocks it.

    yours_in_ms: how much longer the caller itself holds it, or a directory around it; else None
    """

    resource: str
    free: bool
    blockers: tuple[Blocker, ...]
    yours_in_ms: int | None = None


class Task(Record):
    """A unit of work, claimed by at most one session at a time.

    leases: the leases held for it now
    declared: the resources it will change, which are claimed with it
    parent: the task that it is a part of
    found_in: the task during which it was discovered
    with_children: it is a group, which completes when the last of its parts does
    children: how many parts it has; `children_done` of them have ended
    landing: the landing it waits for while it is blocked, or the one that completed it
    asked: the question to a person; it waits for the answer while it is blocked without `acked`
    acked: the person who approved that
    """

    id: str
    state: str
    title: str
    kind: str
    priority: int
    tags: tuple[str, ...]
    after: tuple[str, ...]
    payload: Any
    result: Any
    reason: str
    attempts: int
    max_attempts: int
    author: str
    seq: int
    added_at: int
    changed_at: int
    agent: str | None
    session: int | None
    epoch: int | None
    ttl_ms: int | None
    due_in_ms: int | None
    leases: tuple[Lease, ...] = ()
    labels: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    parent: str | None = None
    found_in: str | None = None
    with_children: bool = False
    children: int = 0
    children_done: int = 0
    landing: str | None = None
    asked: str | None = None
    acked: str | None = None

    added_datetime = WallTime()
    changed_datetime = WallTime()


class PlannedTask(Record):
    """A task that has not ended, as the plan sees it.

    after: what it still waits for
    declared: the resources it will change
    starts_at: how long from now it would start; None if it never starts by itself
    stuck: why it never starts: missing, ended, cycle, tags or person (see Stuck)
    """

    id: str
    state: str
    title: str
    priority: int
    agent: str | None
    after: tuple[str, ...]
    declared: tuple[str, ...]
    starts_at: int | None
    lasts: int
    stuck: str | None


class Bundle(Record):
    """A group of related tasks: the first few of them, and how many there are.

    what: the resource they all change, the task they all wait for, or the first of a group
    """

    what: str
    tasks: tuple[str, ...]
    number: int


class Stuck(Record):
    """A task that will not start by itself.

    why: missing (nobody has added what it waits for), ended (that was cancelled or is dead),
        cycle (tasks that wait for each other), tags (nobody present can do it),
        person (it waits for a person's answer)
    by: the tasks or tags that cause it
    """

    task: str
    why: str
    by: tuple[str, ...]


class Load(Record):
    """How many agents are busy from some time on."""

    at: int
    busy: int


class WorkPlan(Record):
    """How much of the open work can be done in parallel, and what prevents more.

    agents: the number of agents, if one was given; `busy` and `length` are then for that number
    busy_now: how many can be busy now, including those that are
    busy_most: how many can be busy at the most parallel moment
    unit: the unit of times: milliseconds if the journal says how long tasks take, else steps
    length: how long until everything that can be done is done
    critical: the longest chain of tasks that wait for each other
    exclusions: resources that several tasks will change, so only one of them can run at a time
    waiting_now: what keeps ready tasks from starting now
    openers: tasks that can be worked on now, with the tasks that wait for them
    groups: tasks that depend on or exclude each other; different groups are independent
    tasks: as many of `open_count` as requested; stuck ones first, then by start
    cut: whether part of the work was left out because there was too much
    """

    counts: dict[str, int]
    agents: int | None
    busy_now: int
    busy_most: int
    busy: tuple[Load, ...]
    unit: str
    length: int
    critical: tuple[str, ...]
    critical_length: int
    exclusions: tuple[Bundle, ...]
    waiting_now: tuple[Bundle, ...]
    openers: tuple[Bundle, ...]
    groups: tuple[Bundle, ...]
    group_count: int
    stuck: tuple[Stuck, ...]
    stuck_count: int
    tasks: tuple[PlannedTask, ...]
    open_count: int
    cut: bool


class Put(Record):
    """The result for a task that an external source also has.

    done: added, changed or kept
    state: the state of the task now
    """

    id: str
    done: str
    state: str


class Message(Record):
    """A line from one agent to another, to a channel, or to everybody."""

    id: int
    kind: str
    sender: str
    to: str | None
    channel: str | None
    thread: int
    reply_to: int | None
    body: str
    sent_at: int
    acknowledged: bool

    sent_datetime = WallTime()


class Delivery(Record):
    """How far a message has got with one reader: queued, delivered or acknowledged."""

    message: int
    agent: str
    state: str
    acknowledged_at: int | None

    acknowledged_datetime = OptionalWallTime()


class Entry(Record):
    """A JSON value at `namespace/key`, as of one version."""

    namespace: str
    key: str
    value: Any
    version: int
    deleted: bool
    author: str
    set_at: int
    expires_in_ms: int | None

    set_datetime = WallTime()


class EntryExport(Record):
    """A whole namespace: its entries by key, each with its history, newest first."""

    namespace: str
    entries: tuple[Entry, ...]
    history: tuple[Entry, ...]


class Session(Record):
    """One running instance of an agent; the holder of leases and tasks."""

    id: int
    agent: str
    alive: bool
    process_bound: bool
    host: str
    pid: int
    status: str
    joined_at: int
    seen_at: int
    expires_in_ms: int | None

    joined_datetime = WallTime()
    seen_datetime = WallTime()


class Token(Record):
    """Lets its owner act through a daemon, as one agent or as any; shown without its secret."""

    id: int
    name: str
    scope: str
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None

    created_datetime = WallTime()
    expires_datetime = OptionalWallTime()
    revoked_datetime = OptionalWallTime()


class NewToken(Record):
    """A token that was just added, with its secret, which is never shown again."""

    id: int
    name: str
    scope: str
    secret: str
    created_at: int
    expires_at: int | None

    created_datetime = WallTime()
    expires_datetime = OptionalWallTime()

    def __repr__(self) -> str:
        # What is printed in passing ends up in logs.
        return super().__repr__().replace(self.secret, "…")


class Presence(Record):
    """An agent as the others see it: its live sessions and what they hold."""

    agent: str
    sessions: tuple[Session, ...]
    leases: int
    tasks: int
    unread: int
    first_seen_at: int

    first_seen_datetime = WallTime()


class Attention(Record):
    """Something that needs attention.

    what: blocked, asked, asks, dead, not_landed, never, failed, overdue, task_ends, lease_ends,
        overwritten or died
    level: stuck (nothing will happen by itself), ask (somebody wants an answer), soon
    subject: the resource, task, agent or message id that it is about
    agent: who waits, holds, claimed, asks, wrote or died
    by: who else is involved; for `died`, what was freed
    says: what an agent wrote about it
    blockers: who blocks an agent that waits
    """

    what: str
    level: str
    subject: str
    agent: str | None = None
    session: int | None = None
    by: tuple[str, ...] = ()
    says: str = ""
    at: int | None = None
    due_in_ms: int | None = None
    blockers: tuple[Blocker, ...] = ()

    datetime = OptionalWallTime()


class Landing(Record):
    """A branch that waits to be landed, as part of a train.

    id: the id of its task, which has the kind landing
    agent: who queued it
    tasks: what was handed in with it
    asked: what a person must decide before it continues; acked: who decided
    since_at: when it entered this state
    """

    id: str
    branch: str
    commit: str
    state: str
    agent: str
    tasks: tuple[str, ...]
    asked: str | None
    acked: str | None
    reason: str
    since_at: int
    due_in_ms: int | None

    since_datetime = WallTime()


class Train(Record):
    """What waits to be landed on one branch, in its order.

    conductor: who holds the target's lease and lands these, since `since_at`; None if nobody does
    """

    target: str
    conductor: str | None
    since_at: int | None
    landings: tuple[Landing, ...]

    since_datetime = OptionalWallTime()


class Overview(Record):
    """The current state of a space, at one moment.

    tasks: those that have not ended, by state
    counts: how many tasks are in each state
    unread: how many unread messages the reader has; `messages` are the first of them
    attention: what needs attention, the most urgent first
    trains: what waits to be landed, by target
    """

    space: str
    seq: int
    agents: tuple[Presence, ...]
    leases: tuple[Lease, ...]
    waiting: tuple[Blocker, ...]
    tasks: tuple[Task, ...]
    counts: dict[str, int]
    unread: int
    messages: tuple[Message, ...]
    attention: tuple[Attention, ...]
    trains: tuple[Train, ...] = ()


TRACED = frozenset({"lease.claimed", "lease.queued", "task.claimed"})
"""The events that start something, and keep the trace context of their call."""


class Event(Record):
    """One row of the journal: who did what to which record; `time` is `at` in ISO 8601."""

    seq: int
    kind: str
    agent: str | None
    session: int | None
    subject: str
    data: Any
    at: int
    time: str = ""

    datetime = WallTime()


class Moment(Record):
    """A space as it stood at an earlier moment.

    seq: the last event up to then, or of the same write
    at: the moment, by the clock of the process that wrote then
    agents, leases, waiting, tasks, entries: what existed then; if there is no room for all,
        tasks that had ended are left out first
    counts: how many tasks were in each state
    cut: which of the lists had more
    """

    seq: int
    at: int
    agents: tuple[Presence, ...]
    leases: tuple[Lease, ...]
    waiting: tuple[Blocker, ...]
    tasks: tuple[Task, ...]
    counts: dict[str, int]
    entries: tuple[Entry, ...]
    cut: tuple[str, ...] = ()

    datetime = WallTime()


class Change(Record):
    """How one agent, lease, place in a queue, task or entry changed between two moments.

    noun: agent, lease, wait, task or entry
    what: added, removed or changed
    before, after: its values then and later; if it changed, only the fields that differ
    kind, agent, seq, at: the last event about it and who caused it; None if it expired
    """

    noun: str
    subject: str
    what: str
    before: Any
    after: Any
    kind: str | None = None
    agent: str | None = None
    seq: int | None = None
    at: int | None = None

    datetime = OptionalWallTime()


class Difference(Record):
    """What changed between two moments.

    a, b: the last events of the two moments, the earlier first; `a_at`, `b_at`: their times
    counts: how many were added, removed and changed
    changes: as many as requested
    """

    a: int
    a_at: int
    b: int
    b_at: int
    counts: dict[str, int]
    changes: tuple[Change, ...]
    cut: bool = False

    a_datetime = WallTime()
    b_datetime = WallTime()


class Pruned(Record):
    """What pruning removed, the last event removed, and whether pruning is finished."""

    events: int
    messages: int
    tasks: int
    versions: int
    answers: int
    sessions: int
    pruned_seq: int
    done: bool


class Seal(Record):
    """The end of the journal. A seal kept elsewhere shows later whether the journal was changed.

    text: the whole seal as one line, which `dibs audit check` reads
    """

    space: str
    seq: int
    hash: str
    at: int
    text: str

    datetime = WallTime()


class Sealed(Record):
    """Whether the journal still agrees with a seal.

    what: whole, changed (the chain up to it differs), or removed (the journal ends before it)
    hash: the journal's hash at that seq; None if it has none
    """

    seq: int
    what: str
    holds: bool
    hash: str | None


class Tally(Record):
    """What happened in a period, for one agent, task, path or day, or for all of them.

    key: which one; None for events that belong to none, and for the total
    done: tasks that completed; failed: attempts that failed; dead: tasks that ended as dead
    abandoned: tasks given back; cancelled; reopened; returned: after a landing that failed
    claims: of tasks; worked_ms: how long tasks were claimed
    leases: claimed; held_ms: how long leases were held, added up
    waits: claims that had to wait; served and gave_up: how waits ended
    passed: tasks handed out instead of a better one that did not fit
    avoided: conflicts avoided, which is waits plus passed
    intrusions: leased files that others changed; revoked: leases and tasks taken away
    died: sessions that died; freed_leases, freed_tasks: what they held
    lapsed: claims of tasks that expired; expired: leases that expired
    taken_over: tasks lost in one of these ways and claimed again
    landed, not_landed: branches
    cost_usd: the cost of tokens that sessions reported
    """

    key: str | None
    done: int = 0
    failed: int = 0
    dead: int = 0
    abandoned: int = 0
    cancelled: int = 0
    reopened: int = 0
    returned: int = 0
    claims: int = 0
    worked_ms: int = 0
    leases: int = 0
    held_ms: int = 0
    waits: int = 0
    waited_ms: int = 0
    served: int = 0
    gave_up: int = 0
    passed: int = 0
    avoided: int = 0
    intrusions: int = 0
    revoked: int = 0
    died: int = 0
    freed_leases: int = 0
    freed_tasks: int = 0
    lapsed: int = 0
    expired: int = 0
    taken_over: int = 0
    landed: int = 0
    not_landed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_tokens: int = 0
    cost_usd: float = 0.0


class Report(Record):
    """What was done in a period, and what it cost; see docs/ledger.md for what counts.

    since_at, until_at: the period
    known_at: when the first event that is still kept was written, if that is in the period;
        nothing is known about the time before it. None if nothing of the period is missing.
    unknown: how many leases, claims and waits ended in the period but began before the events read
    events: how many events were read; last_seq: the last of them
    groups: as many of `group_count` as requested; `rest` is the sum of the others
    cut: whether there were too many events, so the report ends before the period does
    """

    space: str
    by: str
    since_at: int
    until_at: int
    known_at: int | None
    unknown: int
    events: int
    last_seq: int
    total: Tally
    groups: tuple[Tally, ...]
    group_count: int
    rest: Tally | None
    cut: bool

    since_datetime = WallTime()
    until_datetime = WallTime()
    known_datetime = OptionalWallTime()


class Waits(Record):
    """How long waits took: their number, their sum, and percentiles by nearest rank.

    what: the path, or None for all
    """

    what: str | None
    waits: int
    waited_ms: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int


class Pair(Record):
    """Two agents that blocked each other, or one that blocked the other.

    meets: how often, whichever of them waited; waited_ms: how long they waited
    """

    agents: tuple[str, ...]
    meets: int
    waited_ms: int


class Saving(Record):
    """Waiting that a different arrangement would have avoided.

    how: split (if nobody else had wanted that path) or order (if the second task had been added
        with `after` the first)
    tasks: for an order, the task that had to come first and the one that waited for it
    waits: how many waits it would have avoided; saved_ms: how long they took
    """

    how: str
    path: str
    tasks: tuple[str, ...]
    waits: int
    saved_ms: int


class Waiter(Record):
    """An agent that waits now, and who blocks it: the holders, or else earlier waiters."""

    ticket: int
    agent: str
    session: int
    resources: tuple[str, ...]
    note: str
    since_at: int
    blockers: tuple[Blocker, ...]

    since_datetime = WallTime()


class Contention(Record):
    """Who waits for whom now, and who waited for whom in a period.

    now: the waiters, in the order they came; waiting_count: how many there are
    since_at, until_at, known_at, unknown, events, last_seq, cut: as in a report
    served, gave_up: how waits of the period ended
    paths, pairs, splits, orders: those with the most waiting first
    """

    space: str
    now: tuple[Waiter, ...]
    waiting_count: int
    since_at: int
    until_at: int
    known_at: int | None
    unknown: int
    events: int
    last_seq: int
    served: int
    gave_up: int
    total: Waits
    paths: tuple[Waits, ...]
    path_count: int
    pairs: tuple[Pair, ...]
    splits: tuple[Saving, ...]
    orders: tuple[Saving, ...]
    cut: bool

    since_datetime = WallTime()
    until_datetime = WallTime()
    known_datetime = OptionalWallTime()


class Mismatch(Record):
    """A row that was changed without dibs.

    what: changed, removed, inserted, replayed (an older row was put back), or unproven (an event:
        the event before it was replaced, so it can no longer be checked)
    seq: the event itself, or the last event that left the row like this; None if there is none
    """

    noun: str
    subject: str
    agent: str
    session: int
    epoch: int
    what: str = "changed"
    seq: int | None = None
