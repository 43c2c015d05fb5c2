"""Write src/dibs/aio_nouns.pyi from the registry: what type checkers know of the async nouns.

    python -m tools.async_stub            write it
    python -m tools.async_stub --check    fail if it is not what would be written

A test does the same check, so the stub cannot fall behind the operations.
"""

from __future__ import annotations

import collections.abc
import datetime
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from dibs import errors, records
from dibs.dibs import operations
from dibs.operation import NOUNS, Operation

STUB = Path(__file__).parent.parent / "src" / "dibs" / "aio_nouns.pyi"
HEAD = "# Made from the registry of operations by `make docs`; do not edit it.\n"
WIDTH = 100
HOMES = {"collections.abc": collections.abc, "datetime": datetime, "typing": typing}
OWN = {"dibs.errors": errors, "dibs.records": records}
LOWER = {"overload", "datetime"}
"""What is imported though its name has no capital."""
OR_ERROR = " | DibsError"


def render() -> str:
    """The whole file."""
    body = [f"class AsyncNoun:\n{indented(['def __repr__(self) -> str: ...'])}"]
    body += ["\n".join(noun_class(noun)).rstrip() for noun in NOUNS]
    text = "\n\n".join(body)
    return "\n".join([HEAD, *imports(text), "", text, ""])


def noun_class(noun: str) -> Iterator[str]:
    yield f"class Async{noun.capitalize()}(AsyncNoun):"
    yield f"    sync: {noun.capitalize()}\n"
    yield f"    def __init__(self, sync: {noun.capitalize()}) -> None: ..."
    for entry in operations().values():
        if entry.noun == noun:
            yield from method(entry)


def method(entry: Operation) -> Iterator[str]:
    """One operation. Where `each` decides whether errors are among the answers, two overloads."""
    if OR_ERROR in entry.result and "each" in entry.arguments():
        whole = entry.result.replace(OR_ERROR, "")
        yield "    @overload"
        yield signature(entry, whole, each="Literal[False] = False") + " ..."
        yield "    @overload"
        yield signature(entry, entry.result, each="bool") + " ..."
        return
    yield signature(entry, entry.result)
    indent = " " * 8
    yield fill(f'"""{entry.summary}"""', WIDTH, initial_indent=indent, subsequent_indent=indent)
    yield ""


def signature(entry: Operation, result: str, **types: str) -> str:
    parts = ["self"]
    for one in inspect.signature(entry.method).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        star = "*" * (one.kind is one.VAR_POSITIONAL)
        default = "" if one.default is one.empty else f" = {spelled(one.default)}"
        parts.append(f"{star}{one.name}: {types.get(one.name) or one.annotation + default}")
    head, tail = f"    async def {entry.verb}(", f") -> {result}:"
    line = head + ", ".join(parts) + tail
    if len(line) + 4 <= WIDTH:
        return line
    inside = f"        {', '.join(parts)}"
    if len(inside) > WIDTH:
        inside = "\n".join(f"        {part}," for part in parts)
    return f"{head}\n{inside}\n    {tail}"


def spelled(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def imports(text: str) -> Iterator[str]:
    """What the annotations name, from wherever that is."""
    names = set(re.findall(r"[A-Z]\w+", re.sub(r'""".*?"""|"[^"]*"|\'[^\']*\'', "", text)))
    names = {name for name in names if not name.startswith("Async")} - {"None", "True", "False"}
    names |= LOWER & set(re.findall(r"\w+", text))
    for home, module in HOMES.items():
        found = sorted((name for name in names if hasattr(module, name)), key=by_kind)
        names -= set(found)
        if found:
            yield imported(home, found)
    yield ""
    nouns = {noun.capitalize() for noun in NOUNS}
    for home, module in OWN.items():
        found = sorted(name for name in names - nouns if hasattr(module, name))
        names -= set(found)
        if home == "dibs.records":
            for noun in sorted(nouns):
                yield imported(f"dibs.nouns.{noun.lower()}.operations", [noun])
        yield imported(home, found)
    if names - nouns:
        raise NameError(f"an annotation of an operation names {sorted(names - nouns)}")


def by_kind(name: str) -> tuple[bool, str]:
    """The order that ruff wants: classes, then functions."""
    return name[0].islower(), name


def imported(home: str, names: list[str]) -> str:
    line = f"from {home} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {home} import (", *(f"    {name}," for name in names), ")"])


def indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if STUB.read_text(encoding="utf-8") != render():
            sys.exit("src/dibs/aio_nouns.pyi is out of date: run make docs")
    else:
        STUB.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
