"""The trace that a call belongs to, if its caller says so (W3C Trace Context).

A surface checks it, and sets `store.TRACE` for the calls that it makes. Nothing depends on it.
"""

from __future__ import annotations

SHAPE = (2, 32, 16, 2)
DIGITS = frozenset("0123456789abcdef")


def checked(traceparent: object) -> str:
    """A valid `traceparent`, or "": the text comes from outside."""
    if not isinstance(traceparent, str) or len(traceparent) != 55:
        return ""
    parts = traceparent.split("-")
    if tuple(map(len, parts)) != SHAPE or not DIGITS.issuperset("".join(parts)):
        return ""
    version, trace, span, _ = parts
    return traceparent if version == "00" and int(trace, 16) and int(span, 16) else ""
