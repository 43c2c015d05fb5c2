"""TOML, changed as text: every candidate is parsed, and only one that says the right thing counts.

The standard library reads TOML and does not write it. So we try the few places where our table
can stand, and keep the first after which the file means what it meant plus our table.
"""

from __future__ import annotations

import tomllib

from dibs.surfaces.init.draft import BOM, Draft, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_TRIES = 400


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except tomllib.TOMLDecodeError as error:
        raise Refusal(*_where(str(error)), "mend the file, then run dibs init again") from None
    except RecursionError:
        raise Refusal("it is nested too deeply") from None


def add(draft: Draft, path: tuple[str, str], table: dict[str, str]) -> None:
    """Add a table; its values are written as TOML already."""
    outer, name = path
    before = parse(draft.text)
    if not isinstance(before.get(outer, {}), dict):
        raise Refusal(f"{outer} is not a table", next=f"make {outer} a table")
    after = merged(before, path, tomllib.loads(_lines(table)))
    for place, text in candidates(draft, path, table):
        trial = Draft(draft.text)
        trial.insert(place, text)
        if _means(trial.text, after):
            draft.insert(place, text)
            return
    raise Refusal(
        f"there is no place for [{outer}.{name}] in it", next=f"write [{outer}.{name}] by hand"
    )


def strip(text: str, path: tuple[str, str], table: dict[str, str]) -> str:
    """Take the table out if it is as we wrote it; else leave it."""
    before = parse(text)
    outer, name = path
    holder = before.get(outer)
    if not isinstance(holder, dict) or holder.get(name) != tomllib.loads(_lines(table)):
        return text
    rest = {key: value for key, value in holder.items() if key != name}
    wanted = [before | {outer: rest}]
    if not rest:
        wanted.append({key: value for key, value in before.items() if key != outer})
    newline = Draft(text).newline
    pieces = [_block(path, table), *(piece for piece in _inlined(name, table))]
    for piece in pieces:
        piece = piece.replace("\n", newline)
        at = text.find(piece)
        if at < 0:
            continue
        blank = newline if text[:at].endswith(newline * 2) else ""
        without = text[: at - len(blank)] + text[at + len(piece) :]
        if any(_means(without, meaning) for meaning in wanted):
            return without
    raise Refusal(f"[{outer}.{name}] is not written as dibs writes it", next="take it out by hand")


def candidates(
    draft: Draft, path: tuple[str, str], table: dict[str, str]
) -> Iterator[tuple[int, str]]:
    text = draft.text
    gap = "" if not text.strip(BOM) else "\n" if text.endswith("\n") else "\n\n"
    yield len(text), gap + _block(path, table)
    # Where the outer table is written in one line, it can only be extended inside its braces.
    place = len(text)
    for _ in range(MOST_TRIES):
        place = text.rfind("}", 0, place)
        if place < 0:
            return
        end = len(text[:place].rstrip())
        for piece in _inlined(path[1], table):
            yield end, piece


def merged(before: dict[str, Any], path: tuple[str, str], table: dict[str, Any]) -> dict[str, Any]:
    outer, name = path
    return before | {outer: before.get(outer, {}) | {name: table}}


def _block(path: tuple[str, str], table: dict[str, str]) -> str:
    return f"[{'.'.join(path)}]\n{_lines(table)}"


def _inlined(name: str, table: dict[str, str]) -> tuple[str, str]:
    inside = ", ".join(f"{key} = {value}" for key, value in table.items())
    return f", {name} = {{ {inside} }}", f" {name} = {{ {inside} }} "


def _lines(table: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in table.items())


def _means(text: str, meaning: dict[str, Any]) -> bool:
    try:
        return bool(_plain(tomllib.loads(text.removeprefix(BOM))) == _plain(meaning))
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def _plain(value: Any) -> Any:
    """Floats as text: one of them is not a number, and equals nothing, not even itself."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return repr(value) if isinstance(value, float) else value


def _where(message: str) -> tuple[str, int | None]:
    """The parser says `… (at line 3, column 5)`."""
    why, _, place = message.partition(" (at line ")
    digits = place.partition(",")[0]
    return why[:1].lower() + why[1:], int(digits) if digits.isdigit() else None
