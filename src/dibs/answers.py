"""What came from an address as the answer of a daemon: read, and not trusted.

Whatever answers there may be a page of a proxy, another program, or somebody who wishes the caller
ill. What no daemon says is an `UnfitError`: no JSON, nesting and numbers that no store holds, a
record of another shape. Text is shown without the characters that a terminal obeys.
"""

from __future__ import annotations

from dibs.arguments import DEPTH_LIMIT, refuse_depth
from dibs.errors import (
    DETAILS,
    BusyError,
    DibsError,
    InvalidError,
    NotYoursError,
    UnavailableError,
    UnfitError,
    error_of,
)
from dibs.records import Record, Rules, read_json, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AROUND = 10
"""How deep a value may stand in an answer."""
AT_THE_DOOR = {401: NotYoursError, 403: NotYoursError, 429: BusyError}
"""What a refusal at the door is for a caller of the library."""


def read(data: bytes, status: int, url: str) -> Any:
    """The JSON of an answer."""
    try:
        answer = read_json(data.decode("utf-8", "surrogatepass"), Finite)
        if data.count(b"[") + data.count(b"{") > DEPTH_LIMIT:
            refuse_depth("the answer", answer, DEPTH_LIMIT + AROUND)
        return answer
    except (ValueError, RecursionError, InvalidError):
        raise unfit(url, f"status {status}, no JSON of ours") from None


def no_number(text: str) -> Any:
    raise ValueError(text)


def finite(text: str) -> float:
    found = float(text)
    return found if found - found == 0 else no_number(text)


class Finite(Rules):
    """Numbers that every store can hold."""

    parse_constant = staticmethod(no_number)
    parse_float = staticmethod(finite)


class Untrusted:
    """A block whose mistakes are those of whatever answers at an address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        mistakes = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
        if kind is not None and issubclass(kind, (InvalidError, *mistakes)):
            raise unfit(self._url, "an answer of another shape") from None


def unfit(url: str, why: str) -> UnfitError:
    return UnfitError(
        f"what answers at {url} is no daemon of dibs ({why})",
        next="look at the address, and at the proxy before it if there is one",
    )


KINDS: dict[str, Any] = {"int": int, "str": str, "bool": bool, "dict[str, int]": dict}


def sound(value: Any, kind: str) -> Any:
    """A value that must be of a kind, as the source spells it; its text without controls."""
    kind = kind.removesuffix(" | None") if value is not None else kind
    if kind == "Any" or (value is None and kind.endswith(" | None")):
        return value
    if kind.endswith(" | DibsError"):
        if isinstance(value, DibsError):
            return with_sound_details(value)
        return sound(value, kind.removesuffix(" | DibsError"))
    if isinstance(value, Record) and type(value).__name__ == kind:
        mine = value.__dict__
        for name, inner in type(value).__annotations__.items():
            mine[name] = sound(mine[name], inner)
        return value
    if isinstance(value, tuple) and kind[:6] == "tuple[":
        inner = kind[6:].split(",")[0]
        return tuple(sound(item, inner) for item in value)
    fits = isinstance(value, KINDS.get(kind, ())) and isinstance(value, bool) == (kind == "bool")
    if not fits or (kind == "int" and value.bit_length() > 64):
        raise TypeError(f"this should be {kind}")
    return harmless(value) if kind == "str" else value


def harmless(text: str) -> str:
    """Text in which a terminal finds no command: what a store holds has none either."""
    if text.isprintable():
        return text
    controls = {one for one in text if (one < " " and one not in "\n\t") or "\x7f" <= one < "\xa0"}
    controls |= {one for one in text if "\ud800" <= one <= "\udfff"}
    return "".join(visible(one) if one in controls else one for one in text)


def refusal(status: int, answer: Any, url: str) -> Exception:
    """What the daemon refused, as the error that the store itself would have raised."""
    if status < 400 or not isinstance(answer, dict) or not isinstance(answer.get("message"), str):
        return unfit(url, f"status {status}")
    other = AT_THE_DOOR.get(status, InvalidError if status < 500 else DibsError)
    error = with_sound_details(error_of(answer, other))
    return AwayError(error) if error.code == UnavailableError.code else error


def with_sound_details(error: DibsError) -> DibsError:
    """An error whose records have passed `sound`."""
    for name, record in DETAILS.items():
        value = error.details.get(name)
        for one in value if isinstance(value, list) else [value]:
            sound(one, f"{record} | None")
    return error


class AwayError(Exception):
    """A daemon is there, and is stopping, or has not said yet that it has begun."""

    def __init__(self, refusal: DibsError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
