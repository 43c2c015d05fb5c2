"""Spans and figures as requests of OTLP, in Protocol Buffers.

Attribute names come from the semantic conventions of the version that `SCHEMA` names, where these
define one; all others begin with `dibs.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs import __version__
from dibs.telemetry.protobuf import fields, of_bytes, of_fixed32, of_fixed64, of_int, of_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dibs.telemetry.figures import Figure
    from dibs.telemetry.spans import Link, Span

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
INTERNAL, ERROR, CUMULATIVE = 1, 2, 2
HAS_REMOTE, IS_REMOTE = 0x100, 0x200
"""Flags of a link: its span is known to be remote."""
MS = 1_000_000


def traces(spans: Iterable[Span], resource: Mapping[str, str]) -> bytes:
    """A request with these spans."""
    inside = b"".join(of_bytes(2, written(span)) for span in spans)
    return request(resource, inside)


def metrics(figures: Iterable[Figure], resource: Mapping[str, str], since: int, now: int) -> bytes:
    """A request with these figures.

    since, now: when counting began and when they were read, in nanoseconds since 1970
    """
    return request(resource, b"".join(of_bytes(2, metric(one, since, now)) for one in figures))


def request(resource: Mapping[str, str], inside: bytes) -> bytes:
    scope = of_bytes(1, of_text(1, "dibs") + of_text(2, __version__))
    about = of_bytes(1, attributes(1, resource))
    return of_bytes(
        1, about + of_bytes(2, scope + inside + of_text(3, SCHEMA)) + of_text(3, SCHEMA)
    )


def attributes(number: int, values: Mapping[str, str | int]) -> bytes:
    """Attributes as fields with that number."""
    return b"".join(
        of_bytes(number, of_text(1, name) + of_bytes(2, value_of(value)))
        for name, value in values.items()
    )


def value_of(value: str | int) -> bytes:
    return of_text(1, value) if isinstance(value, str) else of_int(3, value)


def written(span: Span) -> bytes:
    parts = [of_bytes(1, span.trace), of_bytes(2, span.id)]
    if span.parent:
        parts.append(of_bytes(4, span.parent))
    parts += [of_text(5, span.name), of_int(6, INTERNAL)]
    parts += [of_fixed64(7, span.start * MS), of_fixed64(8, span.end * MS)]
    parts.append(attributes(9, span.attributes))
    if span.link is not None:
        parts.append(of_bytes(13, linked(span.link)))
    if span.error:
        parts.append(of_bytes(15, of_text(2, span.error) + of_int(3, ERROR)))
    return b"".join(parts)


def linked(link: Link) -> bytes:
    flags = link.flags | HAS_REMOTE | IS_REMOTE
    return of_bytes(1, link.trace) + of_bytes(2, link.span) + of_fixed32(6, flags)


def metric(figure: Figure, since: int, now: int) -> bytes:
    head = of_text(1, figure.otel_name) + of_text(2, figure.says)
    points = b"".join(
        of_bytes(
            1,
            attributes(7, dict(labels)) + of_fixed64(2, since) + of_fixed64(3, now)
            + of_fixed64(6, number),
        )
        for labels, number in figure.numbers.items()
    )  # fmt: skip
    if figure.kind == "counter":
        return head + of_bytes(7, points + of_int(2, CUMULATIVE) + of_int(3, 1))
    return head + of_bytes(5, points)


def rejected(answer: bytes) -> int:
    """How many items of a request a receiver says it rejected."""
    for number, _, partial in fields(answer):
        if number == 1 and isinstance(partial, bytes):
            for inner, _, value in fields(partial):
                if inner == 1 and isinstance(value, int):
                    return value
    return 0
