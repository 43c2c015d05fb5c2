"""The wire format of Protocol Buffers, as far as OTLP needs it.

The input comes from other programs. It is read once, from left to right; anything that is cut off,
too long or of a type that OTLP does not use is a `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The four wire types. Groups, which are older than OTLP, are refused."""
NUMBER_LIMIT = 1 << 29
Value = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message as they come: number, wire type and value.

    Varints and the fixed types are unsigned numbers, whatever they mean later.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < NUMBER_LIMIT:
            raise ValueError("a field has an invalid number")
        if kind == VARINT:
            value: Value
            value, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value = int.from_bytes(cut(data, at, size), "little")
            at += size
        elif kind == LENGTH:
            size, at = varint(data, at)
            value = cut(data, at, size)
            at += size
        else:
            raise ValueError(f"a field has the wire type {kind}, which OTLP does not use")
        yield number, kind, value


def cut(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("the message is cut off")
    return data[at : at + size]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and the position after it."""
    number = 0
    for place in range(10):
        if at + place >= len(data):
            raise ValueError("the message is cut off")
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if number >= 1 << 64:
                break
            return number, at + place + 1
    raise ValueError("a number is longer than 64 bits")


def signed(number: int) -> int:
    """A number of 64 bits in two's complement."""
    return number - (1 << 64) if number >> 63 else number


def double(number: int) -> float:
    """The double with these 64 bits."""
    found: float = struct.unpack("<d", number.to_bytes(8, "little"))[0]
    return found


def write_varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def tag(number: int, kind: int) -> bytes:
    return write_varint(number << 3 | kind)


def of_bytes(number: int, value: bytes) -> bytes:
    """A field that holds bytes or a message."""
    return tag(number, LENGTH) + write_varint(len(value)) + value


def of_text(number: int, value: str) -> bytes:
    return of_bytes(number, value.encode("utf-8", "replace"))


def of_int(number: int, value: int) -> bytes:
    """A field that is an int64, an enum or a bool."""
    return tag(number, VARINT) + write_varint(value)


def of_fixed64(number: int, value: int) -> bytes:
    return tag(number, FIXED64) + (value & (1 << 64) - 1).to_bytes(8, "little")


def of_fixed32(number: int, value: int) -> bytes:
    return tag(number, FIXED32) + value.to_bytes(4, "little")
