"""A text that only grows: what is inserted is kept, so that it can be cut out again."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BOM = "\ufeff"


class Refusal(Exception):
    """A file that dibs does not dare to change: where, why, and what to do about it."""

    def __init__(self, why: str, line: int | None = None, next: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.line = line
        self.next = next


class Draft:
    """A file's text with what was inserted into it.

    insertions: (place, text) in ascending order, places counted in the text as it is now
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.insertions: list[tuple[int, str]] = []
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def insert(self, place: int, text: str) -> None:
        """Insert a text, its line ends written as the file's own."""
        text = text.replace("\r\n", "\n").replace("\n", self.newline)
        self.text = self.text[:place] + text + self.text[place:]
        moved, grown = [], False
        for at, mine in self.insertions:
            if at <= place <= at + len(mine) and not grown:
                # It falls into, or touches, what was inserted before: one insertion from now on.
                mine = mine[: place - at] + text + mine[place - at :]
                grown = True
            elif at >= place:
                at += len(text)
            moved.append((at, mine))
        if not grown:
            moved.append((place, text))
        self.insertions = sorted(moved)


def undo(text: str, insertions: Sequence[tuple[int, str]]) -> str | None:
    """Cut insertions out again; None if one of them is not where it was."""
    for at, mine in reversed(insertions):
        if text[at : at + len(mine)] != mine:
            return None
        text = text[:at] + text[at + len(mine) :]
    return text


def cut(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Cut spans out of a text; they do not overlap."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
