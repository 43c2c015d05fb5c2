"""What the records of all formats have in common: words for states, and printable text.

Imported text was written by somebody else. A title becomes one line, and a label loses invisible
characters. `work.put` itself refuses whatever else is wrong, and names the record.
"""

from __future__ import annotations

from dibs.arguments import TEXT_LIMIT
from dibs.errors import InvalidError
from dibs.records import is_hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Item = dict[str, Any]
    """The arguments of `work.put`."""
    Found = tuple[str, Item | InvalidError]
    """Where a record is, and its contents or what is wrong with it."""
    Parsed = Iterator[Found]

OPEN, COMPLETED, CANCELLED = "open", "completed", "cancelled"
STATES = {
    **dict.fromkeys(("closed", "complete", "completed", "done", "resolved", "x"), COMPLETED),
    **dict.fromkeys(
        ("cancelled", "canceled", "duplicate", "not_planned", "wontfix", "-", "~"), CANCELLED
    ),
}
"""The words for ended tasks; every other word means an open task."""
PARTS = ("labels", "tags", "after", "leases")
"""The fields that are lists in every format."""


def state_of(word: object) -> str:
    return STATES.get(str(word).strip().lower(), OPEN)


def line_of(text: object) -> str:
    """A title as one line within its limit."""
    words = "".join(sign if sign.isprintable() else " " for sign in str(text or ""))
    return " ".join(words.split())[:TEXT_LIMIT]


def names_of(values: object) -> list[str]:
    """Labels as names, without invisible characters, each once; of an object its name."""
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, list):
        return []
    texts = [one.get("name") if isinstance(one, dict) else one for one in values]
    cleaned = [name_of(text) for text in texts if isinstance(text, str)]
    return sorted({name for name in cleaned if name})


def name_of(text: str) -> str:
    shown = "".join(" " if sign.isspace() else sign for sign in text)
    return " ".join("".join(sign for sign in shown if not is_hidden(sign)).split())


def filled(**values: Any) -> Item:
    """These values without the empty ones."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def wrong(says: str, next: str = "fix the record") -> InvalidError:
    return InvalidError(says, next=next)


def text_in(record: Item, *names: str) -> str:
    """The first of these fields that is a text and not empty."""
    return next((text for name in names if isinstance(text := record.get(name), str) and text), "")
