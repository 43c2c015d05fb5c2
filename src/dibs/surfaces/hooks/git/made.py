"""Which session made which commit, for the push that comes later.

A note on the local disk: git keeps authors, not sessions. With each commit is noted how far the
journal was, so that it can be said whether a lease was in force then. Only the latest are kept.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.names.paths import Place

KEPT = 5_000


class Maker:
    """The session that made a commit (0 for a person), and the seq of the journal then."""

    __slots__ = ("seq", "session")

    def __init__(self, session: int, seq: int) -> None:
        self.session = session
        self.seq = seq


def note(place: Place, made: Iterable[tuple[str, Maker]]) -> None:
    """Note who made these commits; a commit that is noted again is by the last."""
    file = _file(place)
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    lines = "".join(f"{commit} {maker.session} {maker.seq}\n" for commit, maker in made)
    with open(file, "a", encoding="ascii") as target:
        target.write(lines)
        long = target.tell() > 2 * KEPT * 80
    if long:
        _shorten(file)


def makers(place: Place) -> dict[str, Maker]:
    """Who made the commits that are noted."""
    found = {}
    for line in _lines(_file(place)):
        fields = line.split()
        # The last line may be half written.
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
            found[fields[0]] = Maker(int(fields[1]), int(fields[2]))
    return found


def _file(place: Place) -> str:
    return os.path.join(place.store_dir, "hooks", "commits")


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            return source.read().splitlines()
    except OSError:
        return []


def _shorten(file: str) -> None:
    draft = f"{file}.{os.getpid()}"
    with open(draft, "w", encoding="ascii") as target:
        target.write("\n".join([*_lines(file)[-KEPT:], ""]))
    os.replace(draft, file)
