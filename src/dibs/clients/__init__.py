"""The dialects of the clients' hooks: one module for each, loaded when its client calls.

EVENTS: the client's events that dibs wants to be called for, and for which tools ("" for all)
DENIES_BY_EXIT: whether a denial is a text on standard error and exit code 2, instead of an answer
read: what the client says, as an occasion; ValueError if that cannot be understood
write: an answer in the client's own form, "" for nothing
"""

from __future__ import annotations

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol, cast

    from dibs.clients.occasion import Answer, Occasion

    class Dialect(Protocol):
        EVENTS: dict[str, str]
        DENIES_BY_EXIT: bool

        def read(self, payload: dict[str, Any], environ: Mapping[str, str]) -> Occasion: ...
        def write(self, occasion: Occasion, answer: Answer) -> str: ...


NAMES = ("claude", "codex", "gemini", "opencode", "cursor", "copilot", "devin", "windsurf")


def of(client: str) -> Dialect:
    """The dialect of a client."""
    if client not in NAMES:
        raise InvalidError(f"no client is called {client!r}", next=f"one of {', '.join(NAMES)}")
    found = __import__(f"{__name__}.{client}", fromlist=["read"])
    if TYPE_CHECKING:
        return cast("Dialect", found)
    return found
