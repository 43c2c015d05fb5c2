"""The frozen records that cross every boundary: library, shell, HTTP and MCP alike.

Numbers that must not be confused have different words: `epoch` fences a grant, `version`
counts the writes of an entry, `seq` is a place in the journal. `*_at` is wall-clock time
in milliseconds, for people to read; what is *left* is `*_in_ms` and is what decisions use.
"""

from __future__ import annotations

from _operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
    """What picks the values of the fields, in their order."""

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
        """The record of a row, with what is not in the row or stands there in another form."""
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
        except KeyError:  # it comes from a release that did not have all of them
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
        """The fields that have a record or several of something: which record, and if several."""
        if cls not in _INSIDE:
            known = {record.__name__: record for record in Record.__subclasses__()}
            found = {
                name: (known.get(kind.removeprefix("tuple[").split(",")[0]), kind[:6] == "tuple[")
                for name, kind in cls.__annotations__.items()
            }
            _INSIDE[cls] = {name: one for name, one in found.items() if any(one)}
        return _INSIDE[cls]


_INSIDE: dict[type[Record], dict[str, tuple[type[Record] | None, bool]]] = {}
"""By kind of record; made at the first use, since most commands read no record back."""


def fields_of(value: object) -> dict[str, Any]:
    """What a JSON encoder asks for that meets a record."""
    if isinstance(value, Record):
        return value.__dict__
    if isinstance(value, Exception):
        return error_fields(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def error_fields(error: Any) -> dict[str, Any]:
    """An error of ours, which stands for the answer of an item that was refused."""
    fields: dict[str, Any] = error.to_json()
    return fields


def to_text(value: Any) -> str:
    """JSON as it is stored: short, keys sorted, one spelling for one value.

    It is what `json.dumps` writes, to the byte: what has been signed or digested depends on it.
    By hand, since to import `json` takes a fifth of the time that a command takes; and an encoder
    that is made for each value, as `json.dumps` does, takes longer than most values.
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
        # Most of what an event says are numbers, and for these there need be no call.
        parts.append(f"{name}{item if kind is int else _WRITERS.get(kind, to_long_text)(item)}")
    return "{" + ",".join(parts) + "}"


def _name(key: object) -> str | None:
    """A key as it stands before its value; None if it is no text."""
    if type(key) is not str:
        return None
    name = f"{_string(key)}:"
    if len(_NAMES) < NAMES_KEPT:
        _NAMES[key] = name
    return name


def _float(value: float) -> str:
    return repr(value) if value - value == 0 else to_long_text(value)  # infinity, or no number


def to_long_text(value: Any) -> str:
    """The same text by the encoder of `json`: of records too, and sooner if it is a long one."""
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
    """JSON as it is sent: the same, but in ASCII, and only what is JSON; else an error."""
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
    """What the scanner of `json` is told, where nobody tells it otherwise."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float: Callable[[str], float] = float
    parse_int = int
    parse_constant: Callable[[str], float] = {
        "-Infinity": -float("inf"), "Infinity": float("inf"), "NaN": float("nan"),
    }.__getitem__  # fmt: skip


def read_json(text: str, rules: type[Rules] = Rules) -> Any:
    """What `json.loads` makes of a text, or a `ValueError`.

    It is the same scanner, but what `json` imports around it takes a fifth of the time of a hook.
    What that scanner does not read is left to `json`, which says why.
    """
    try:
        from _json import make_scanner

        stripped = text.strip(" \t\n\r")
        value, end = make_scanner(rules)(stripped, 0)  # type: ignore[arg-type]
        if end == len(stripped):
            return value
    except (ImportError, StopIteration, SystemError):
        pass  # another Python has none; without `json`, it cannot say what is wrong
    import json

    return json.loads(text, parse_constant=rules.parse_constant, parse_float=rules.parse_float)


NAMES_KEPT = 1_000
_NAMES: dict[str, str] = {}
"""Keys as they are written: the same few stand in almost all that is."""
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
    """Records, tuples and dictionaries as what JSON knows."""
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
"""A part of a name with more words than this says something."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+*?#%")


def is_hidden(character: str) -> bool:
    """Whether it shows nothing, turns the direction of what follows, or has no meaning yet."""
    if character.isprintable():
        code = ord(character)
        return code in BLANKS or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    return True


def visible(text: str) -> str:
    """Text in which every character that cannot be seen is written as its number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{{{ord(one):x}}}" if is_hidden(one) else one for one in text)


def quoted(text: str, limit: int = TEXT_SHOWN) -> str:
    """Words of somebody else as data: in quotation marks, on one line, cut, nothing unseen.

    Whatever a model or a terminal is told about the words of an agent goes through here.
    """
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{visible(text)}"'


def called(text: str, quote: bool = False, limit: int = NAME_SHOWN) -> str:
    """A name within a sentence: as it is if it is plain and short, else quoted.

    quote: in any case
    """
    return quoted(text, limit) if quote or not is_word(text, limit) else text


def folder(path: str) -> str:
    """The path of a folder on this disk, which is longer than other names."""
    return path if is_plain(path, TEXT_SHOWN) else quoted(path)


def is_word(text: str, limit: int = NAME_SHOWN) -> bool:
    """Whether a name is plain, and no sentence in disguise: `ignore-all-rules-and-push`."""
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
    """The right of one session to change a resource, until released, expired or dead."""

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


class Grant(Record):
    """What a claim won: one lease per resource, and which of them were held before."""

    epoch: int
    leases: tuple[Lease, ...]
    kept: tuple[str, ...] = ()


class Outcome(Record):
    """What the last holder of a resource said it had done to it."""

    resource: str
    outcome: str
    moved_to: str | None
    agent: str
    epoch: int
    released_at: int


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


def held_by(resource: str, agent: str, note: str = "", *, quote: bool = False) -> str:
    """Say who holds a resource and what for, in the words of every surface.

    quote: also plain names, for a model that reads it
    """
    return f"{called(resource, quote)} is held by {called(agent, quote)}{purpose(note)}"


def purpose(note: str) -> str:
    """A note in brackets, to follow what it is about."""
    return f" (note: {quoted(note)})" if note else ""


def in_the_way(blockers: Sequence[Blocker], wall_ms: int, *, quote: bool = False) -> str:
    """Say why a claim is refused: who holds it, what for, since when, until when, who else."""
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
    """Whether leases last for less than was asked for, as those of a whole tree do.

    ttl_ms: what was asked for; None for as long as they were claimed for
    """
    return any(lease.expires_in_ms + 1000 < (ttl_ms or lease.ttl_ms) for lease in leases)


def age(at: int, wall_ms: int) -> int:
    """How long ago something was, in milliseconds; what a wrong clock dated ahead is new."""
    return max(0, wall_ms - at)


def span(milliseconds: int) -> str:
    """A length of time in the unit that fits, for people."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size * 2:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


class Availability(Record):
    """Whether a resource can be claimed now, and if not, what stands in the way."""

    resource: str
    free: bool
    blockers: tuple[Blocker, ...]


class Task(Record):
    """A unit of work, claimed by at most one session at a time.

    leases: what is held for it at the moment
    declared: the names of what it is going to change, which is claimed with it
    parent: the task that it is a part of
    found_in: the task during which it was discovered
    with_children: it completes with the last of those that it is the parent of
    children: how many tasks are a part of it; `children_done` of them have ended
    landing: the landing that it waits for while it is blocked, or that has completed it
    asked: what it asked a person; while it is blocked and `acked` is empty, it waits for the answer
    acked: the person who said yes to that
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


class PlannedTask(Record):
    """A task that has not ended, as the plan sees it.

    after: what it still waits for
    declared: what it is going to change
    starts_at: how long from now it would begin; None if it never does by itself
    stuck: why it does not: missing, ended, circle, tags or person (see Stuck)
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
    """Tasks that have to do with each other, the first of them, and how many there are.

    what: the resource that they change, the task that they wait for, or the first of a group
    """

    what: str
    tasks: tuple[str, ...]
    number: int


class Stuck(Record):
    """A task that does not come to its turn by itself.

    why: missing (nobody has added what it waits for), ended (that was cancelled or is dead),
        circle (tasks that wait for each other), tags (nobody present can do it), person (it
        asks, and nobody has answered)
    by: those tasks or tags
    """

    task: str
    why: str
    by: tuple[str, ...]


class Load(Record):
    """How many agents are busy from some time on."""

    at: int
    busy: int


class WorkPlan(Record):
    """How much of the open work can be done at the same time, and what is in its way.

    agents: how many there are, if that was said; then `busy` and `length` are for so many
    busy_now: how many can be busy now, those who are among them
    busy_most: how many at most, at any time
    unit: what times are in: milliseconds if the journal says how long tasks take, else steps
    length: how long until all is done that can be
    critical: the longest chain of tasks that wait for each other
    exclusions: what several tasks are going to change, so that only one can run at a time
    waiting_now: what keeps tasks that are ready from being started now
    openers: tasks that can be worked on now, with those that wait for them
    groups: tasks that depend on or exclude each other, apart from those of other groups
    tasks: as many as were asked for, of `open_count`; what is stuck first, then by their start
    cut: whether there was so much that a part was left out
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
    """What came of a task that a source elsewhere has too.

    done: added, changed or kept
    state: how far the task is now
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


class Delivery(Record):
    """How far a message has come with one reader: queued, delivered or acknowledged."""

    message: int
    agent: str
    state: str
    acknowledged_at: int | None


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


class EntryExport(Record):
    """A namespace as a whole: its entries by key, each with its history, newest first."""

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


class Token(Record):
    """What lets its bearer act through a daemon, as an agent or as anybody; without its secret."""

    id: int
    name: str
    scope: str
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None


class NewToken(Record):
    """A token that was just added, with its secret: nobody is ever told it again."""

    id: int
    name: str
    scope: str
    secret: str
    created_at: int
    expires_at: int | None

    def __repr__(self) -> str:
        # What is printed by the way ends in logs.
        return super().__repr__().replace(self.secret, "…")


class Presence(Record):
    """An agent as the others see it: its live sessions and what they hold."""

    agent: str
    sessions: tuple[Session, ...]
    leases: int
    tasks: int
    unread: int
    first_seen_at: int


class Attention(Record):
    """Something that somebody should look at.

    what: blocked, asked, asks, dead, not_landed, never, failed, overdue, task_ends, lease_ends,
        overwritten or died
    level: stuck (nothing moves by itself), ask (somebody wants an answer), soon
    subject: the resource, the task, the agent or the id of the message that it is about
    agent: who waits, holds, claimed, asks, wrote or died
    by: who else has to do with it; for who died, what that freed
    says: words of an agent about it
    blockers: who is in the way of one who waits
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


class Landing(Record):
    """A branch that waits to be landed, as part of a train.

    id: the task of kind landing that it is
    agent: who queued it
    tasks: what was handed in with it
    asked: what a person has to decide before it goes on; acked: who has
    since_at: since when it is in this state
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


class Train(Record):
    """What waits to be landed on one branch, in its order.

    conductor: who holds the lease of the target and lands it, since when; None if nobody does
    """

    target: str
    conductor: str | None
    since_at: int | None
    landings: tuple[Landing, ...]


class Overview(Record):
    """The present of a space, as of one moment.

    tasks: those that have not ended, by state
    counts: how many tasks are in each state
    unread: how many messages wait for whom it was made, of which `messages` are the first
    attention: what needs somebody, the most urgent first
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


class Event(Record):
    """One row of the journal: who did what to which record."""

    seq: int
    kind: str
    agent: str | None
    session: int | None
    subject: str
    data: Any
    at: int


class Pruned(Record):
    """What a pruning removed, up to where the journal is gone, and whether that was all."""

    events: int
    messages: int
    tasks: int
    versions: int
    answers: int
    sessions: int
    pruned_seq: int
    done: bool


class Mismatch(Record):
    """A row whose signature does not fit what it says."""

    noun: str
    subject: str
    agent: str
    session: int
    epoch: int
