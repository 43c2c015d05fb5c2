"""What an address returned as a daemon's answer: read, but not trusted.

It may be a page of a proxy, another program, or an attacker. What no daemon would say is an
`UnfitError`: invalid JSON, nesting or numbers that no store holds, a record of another shape. Text
is shown without the control characters that a terminal obeys.
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
    from collections.abc import Callable
    from typing import Any

AROUND = 10
"""How deep a value may be nested in an answer."""
AT_THE_DOOR = {401: NotYoursError, 403: NotYoursError, 429: BusyError}
"""The library's error for a refused login."""


def read(data: bytes, status: int, url: str) -> Any:
    """The JSON of an answer."""
    try:
        answer = read_json(data.decode("utf-8", "surrogatepass"), Finite)
        if data.count(b"[") + data.count(b"{") > DEPTH_LIMIT:
            refuse_depth("the answer", answer, DEPTH_LIMIT + AROUND)
        return answer
    except (ValueError, RecursionError, InvalidError):
        raise unfit(url, f"status {status}, not JSON from dibs") from None


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
    """A block in which every error is blamed on whatever answers at an address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        mistakes = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
        if kind is not None and issubclass(kind, (InvalidError, *mistakes)):
            raise unfit(self._url, "an answer with another shape") from None


def unfit(url: str, why: str) -> UnfitError:
    return UnfitError(
        f"what answers at {url} is not a dibs daemon ({why})",
        next="check the address, and any proxy in front of it",
    )


KINDS: dict[str, Any] = {"bool": bool, "dict[str, int]": dict}


def sound(value: Any, kind: str) -> Any:
    """A value that must have a type, as the source spells it; without control characters."""
    return _check_of(kind)(value)


def _check_of(kind: str) -> Callable[[Any], Any]:
    found = _CHECKS.get(kind)
    if found is None:
        found = _CHECKS[kind] = _new_check(kind)
    return found


def _new_check(kind: str) -> Callable[[Any], Any]:
    """A function that checks values of a type; made once, since an answer has thousands."""
    if kind.endswith(" | None"):
        inner = _check_of(kind.removesuffix(" | None"))
        return lambda value: None if value is None else inner(value)
    if kind.endswith(" | DibsError"):
        record = _check_of(kind.removesuffix(" | DibsError"))
        return lambda value: (
            with_sound_details(value) if isinstance(value, DibsError) else record(value)
        )
    if kind[:6] == "tuple[":
        item = _check_of(kind[6:].partition(",")[0])
        return lambda value: tuple([item(one) for one in of_type(tuple, value)])
    if kind in KINDS:
        return lambda value: of_type(KINDS[kind], value)
    kinds = {"Any": anything, "float": sound_float, "int": sound_int, "str": sound_text}
    return kinds.get(kind) or _record_check(kind)


def _record_check(kind: str) -> Callable[[Any], Any]:
    fields: list[tuple[str, Callable[[Any], Any]]] = []

    def check(value: Any) -> Any:
        if not isinstance(value, Record) or type(value).__name__ != kind:
            raise TypeError(f"this should be {kind}")
        if not fields:  # not earlier: a record may contain its own type
            kinds = type(value).__annotations__.items()
            fields.extend((name, _check_of(inner)) for name, inner in kinds if inner != "Any")
        mine = value.__dict__
        for name, inner in fields:
            mine[name] = inner(mine[name])
        return value

    return check


_CHECKS: dict[str, Callable[[Any], Any]] = {}


def anything(value: Any) -> Any:
    return value


def of_type(type_: type, value: Any) -> Any:
    if not isinstance(value, type_):
        raise TypeError(f"this should be {type_.__name__}")
    return value


def sound_int(value: Any) -> int:
    if type(value) is not int or value.bit_length() > 64:
        raise TypeError("this should be int")
    return value


def sound_float(value: Any) -> float:
    if type(value) not in (int, float) or value - value != 0:  # infinity or NaN
        raise TypeError("this should be float")
    return float(value)


def sound_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("this should be str")
    return value if value.isprintable() else harmless(value)


def harmless(text: str) -> str:
    """Text without terminal commands; what a store holds has none either."""
    if text.isprintable():
        return text
    controls = {one for one in text if (one < " " and one not in "\n\t") or "\x7f" <= one < "\xa0"}
    controls |= {one for one in text if "\ud800" <= one <= "\udfff"}
    return "".join(visible(one) if one in controls else one for one in text)


NO_AGENT_HEADER = "leave Dibs-Agent out"
SEND_TOKEN = "send Authorization: Bearer TOKEN"
OTHER_TOKEN = "use another token"
SEE_OPENAPI = "look at /openapi.json"
IN_OTHER_WORDS = {
    NO_AGENT_HEADER: "leave out --as and DIBS_AGENT (in Python: join as the token's agent)",
    SEND_TOKEN: "set DIBS_TOKEN, or give token=",
    OTHER_TOKEN: "where the store is, run dibs token add NAME --scope agent (or admin); then set "
    "DIBS_TOKEN, or give token=",
    SEE_OPENAPI: "restart the daemon with this release of dibs",
}
"""Advice for HTTP clients, in the words of the commands and the library."""


def refusal(status: int, answer: Any, url: str) -> Exception:
    """A daemon's refusal, as the error that the store itself would have raised."""
    if status < 400 or not isinstance(answer, dict) or not isinstance(answer.get("message"), str):
        return unfit(url, f"status {status}")
    other = AT_THE_DOOR.get(status, InvalidError if status < 500 else DibsError)
    error = with_sound_details(error_of(answer, other))
    error.next = IN_OTHER_WORDS.get(error.next or "", error.next)
    return AwayError(error) if error.code == UnavailableError.code else error


def with_sound_details(error: DibsError) -> DibsError:
    """An error whose records have passed `sound`."""
    for name, record in DETAILS.items():
        value = error.details.get(name)
        for one in value if isinstance(value, list) else [value]:
            sound(one, f"{record} | None")
    return error


class AwayError(Exception):
    """A daemon is there, but is stopping or has not finished starting."""

    def __init__(self, refusal: DibsError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
