"""Metrics that other programs send over OTLP/HTTP, in either of its encodings.

Protocol Buffers are converted to the shape of the JSON encoding, so there is one reader for both.
Only the points of sums are read from a request, since clients count in sums. A request that does
not have the form of the protocol is a `ValueError`, and nothing in it counts.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

from dibs.digest import sha256
from dibs.telemetry.protobuf import FIXED64, LENGTH, VARINT, Value, double, fields, signed

SIZE_LIMIT = 4 << 20
"""How many bytes a request may have, once it is unpacked."""
MESSAGES_LIMIT = 200_000
POINTS_LIMIT = 10_000
DELTA, CUMULATIVE = 1, 2
NO_VALUE = 1
"""The flag of a point that only says its series has ended."""
NANOS_LIMIT = 1 << 63
COUNT_LIMIT = 1 << 64
ATTRIBUTES_LIMIT = 128
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "Request": {1: ("resourceMetrics", "ResourceMetrics")},
    "ResourceMetrics": {1: ("resource", "Resource"), 2: ("scopeMetrics", "ScopeMetrics")},
    "Resource": {1: ("attributes", "KeyValue")},
    "ScopeMetrics": {2: ("metrics", "Metric")},
    "Metric": {1: ("name", "string"), 7: ("sum", "Sum")},
    "Sum": {1: ("dataPoints", "Point"), 2: ("aggregationTemporality", "varint")},
    "Point": {
        2: ("startTimeUnixNano", "fixed64"),
        3: ("timeUnixNano", "fixed64"),
        4: ("asDouble", "double"),
        6: ("asInt", "sfixed64"),
        7: ("attributes", "KeyValue"),
        8: ("flags", "varint"),
    },
    "KeyValue": {1: ("key", "string"), 2: ("value", "AnyValue")},
    "AnyValue": {
        1: ("stringValue", "string"),
        2: ("boolValue", "bool"),
        3: ("intValue", "int64"),
        4: ("doubleValue", "double"),
        5: ("arrayValue", "raw"),
        6: ("kvlistValue", "raw"),
        7: ("bytesValue", "raw"),
    },
}
"""The fields that are read, by their numbers; all others are skipped."""
LISTS = frozenset({"resourceMetrics", "scopeMetrics", "metrics", "dataPoints", "attributes"})
ON_THE_WIRE = {"varint": VARINT, "bool": VARINT, "int64": VARINT}
ON_THE_WIRE |= dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64)


class Point(NamedTuple):
    """A number that was counted.

    attributes: those of its resource and its own
    series: identifies the series that a point belongs to
    start, time: when the count began and when it was read, in nanoseconds since 1970
    delta: whether it counts from the point before it, not from the start of the series
    """

    metric: str
    attributes: dict[str, str]
    series: str
    start: int
    time: int
    value: float
    delta: bool


def unpacked(body: bytes, encoding: str) -> bytes:
    """The decompressed body of a request, never more than is allowed."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise ValueError("only gzip and deflate are supported")
    unpacking = zlib.decompressobj(wbits=31 if encoding == "gzip" else 15)
    try:
        found = unpacking.decompress(body, SIZE_LIMIT + 1)
    except zlib.error:
        raise ValueError(f"the body is not valid {encoding}") from None
    if len(found) > SIZE_LIMIT:
        raise ValueError(f"the body has more than {SIZE_LIMIT:,} bytes when decompressed")
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"the body is not one complete {encoding} stream")
    return found


def read_metrics(body: bytes, names: frozenset[str], as_json: bool) -> list[Point]:
    """The points of the metrics with these names."""
    if as_json:
        try:
            request = json.loads(body)
        except RecursionError:
            raise ValueError("the body is nested too deeply") from None
    else:
        request = Decoder().message(body, "Request")
    points: list[Point] = []
    for resource_metrics in items(request, "resourceMetrics"):
        resource = attributes_of(part(resource_metrics, "resource"))
        for scope_metrics in items(resource_metrics, "scopeMetrics"):
            for metric in items(scope_metrics, "metrics"):
                name = metric.get("name")
                if isinstance(name, str) and name in names:
                    points += points_of(metric, resource)
                    if len(points) > POINTS_LIMIT:
                        raise ValueError(f"there are more than {POINTS_LIMIT:,} points")
    return points


class Decoder:
    """Reads Protocol Buffers; the number of messages in a request is limited."""

    def __init__(self) -> None:
        self._left = MESSAGES_LIMIT

    def message(self, data: bytes, kind: str) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"there are more than {MESSAGES_LIMIT:,} messages in it")
        found: dict[str, Any] = {}
        known = MESSAGES[kind]
        for number, wire, value in fields(data):
            if number not in known:
                continue
            name, type_ = known[number]
            if wire != ON_THE_WIRE.get(type_, LENGTH):
                raise ValueError(f"{name} does not have its OTLP type")
            read = self.value(type_, value)
            if name in LISTS:
                found.setdefault(name, []).append(read)
            else:
                found[name] = read
        return found

    def value(self, type_: str, value: Value) -> Any:
        if isinstance(value, bytes):
            if type_ in MESSAGES:
                return self.message(value, type_)
            return value.hex() if type_ == "raw" else value.decode()
        if type_ in ("int64", "sfixed64"):
            return signed(value)
        if type_ == "double":
            return double(value)
        return bool(value) if type_ == "bool" else value


def items(message: Any, name: str) -> list[dict[str, Any]]:
    """The messages of a list, which may be missing."""
    if not isinstance(message, dict):
        raise ValueError(f"what should contain {name} is not an object")
    found = message.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name} is not a list of objects")
    return found


def part(message: dict[str, Any], name: str) -> dict[str, Any]:
    found = message.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not an object")
    return found


def points_of(metric: dict[str, Any], resource: dict[str, str]) -> list[Point]:
    counted = part(metric, "sum")
    temporality = counted.get("aggregationTemporality", DELTA if not counted else None)
    if temporality not in (DELTA, CUMULATIVE):
        raise ValueError("a sum is neither delta nor cumulative")
    found = []
    for point in items(counted, "dataPoints"):
        if whole("flags", point.get("flags", 0)) & NO_VALUE:
            continue
        name, attributes = metric["name"], attributes_of(point)
        start = whole("startTimeUnixNano", point.get("startTimeUnixNano", 0))
        time = whole("timeUnixNano", point.get("timeUnixNano", 0))
        if not 0 <= start <= time < NANOS_LIMIT or not time:
            raise ValueError("the times of a point are not in order")
        told = json.dumps([name, sorted(resource.items()), sorted(attributes.items())])
        series = sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        found.append(
            Point(
                name,
                resource | attributes,
                series,
                start,
                time,
                value_of(point),
                temporality == DELTA,
            )
        )
    return found


def value_of(point: dict[str, Any]) -> float:
    """The number of a point, which no text, infinity or NaN is."""
    if "asInt" in point:
        number: float = whole("asInt", point["asInt"])
    else:
        number = point.get("asDouble", 0.0)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError("asDouble is not a number")
    if not 0 <= number < COUNT_LIMIT:
        raise ValueError(f"a count must be a number from 0 to {COUNT_LIMIT}")
    return number


def whole(name: str, value: object) -> int:
    """A whole number; JSON carries 64-bit numbers as text."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        value = int(value) if len(value) <= 20 else None
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{name} is not a whole number")
    return value


def attributes_of(message: dict[str, Any]) -> dict[str, str]:
    """The attributes of a message as text; lists and maps only distinguish series."""
    found: dict[str, str] = {}
    for pair in items(message, "attributes"):
        key, value = pair.get("key"), part(pair, "value")
        if not isinstance(key, str):
            raise ValueError("an attribute has no name")
        text = next(iter(value.values()), "")
        found[key] = text if isinstance(text, str) else json.dumps(text)
        if len(found) > ATTRIBUTES_LIMIT:
            raise ValueError(f"there are more than {ATTRIBUTES_LIMIT} attributes")
    return found
