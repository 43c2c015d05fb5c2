"""Which waiters an event wakes: the topics that waiters listen to in a daemon.

`message:bob` is woken by messages to bob or to everybody, `lease:src` by what happens to `src`,
above it or below it, and a plain `task` by every event of that noun. A waiter in a queue listens
to the number of its ticket.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NOUNS = ("session", "lease", "task", "message", "entry", "token", "space")
"""The nouns that event kinds begin with."""


def keys(topic: str) -> list[str]:
    """The keys that wake a topic."""
    noun, _, subject = topic.partition(":")
    if noun.isdigit():
        return [noun]
    if noun != "lease" or not subject:
        return [topic, f"{noun}:"] if subject else [topic]
    above = list(ancestors(subject))
    return [f"at {above[0]}", *(f"under {base}" for base in above)]


def touched(kind: str, subject: str, data: str) -> Iterator[str]:
    """The keys of the topics that an event may wake."""
    noun = kind.partition(".")[0]
    yield noun
    yield f"{noun}:{subject}"
    if noun == "lease":
        above = list(ancestors(subject))
        yield f"under {above[0]}"
        for base in above:
            yield f"at {base}"
        # The event that made a ticket does not wake its own waiter.
        if kind != "lease.queued" and '"ticket":' in data:
            yield str(json.loads(data)["ticket"])


def ancestors(subject: str) -> Iterator[str]:
    """The fixed part of a resource, and all folders around it."""
    base = subject.partition("*")[0].partition("?")[0]
    if base != subject or base == "." or base.endswith("//."):  # that of a labelled repository
        base = base.rpartition("/")[0]
    while base:
        yield base
        base = base.rpartition("/")[0]
    yield ""
