"""Which side has changed what since both were last equal, and which side wins.

For each field, a hash of its last common value is kept. The side that still has that value follows
the other one. If both have changed it, the rule decides: `theirs`, `ours`, or `newest`, the side
that changed last. The first time, without a common value, an empty field follows the other side
and, with `newest`, an issue that has ended on one side ends on both.
"""

from __future__ import annotations

import json

from dibs.digest import sha256
from dibs.trackers.fields import CANCELLED, COMPLETED, OPEN, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.records import Task
    from dibs.trackers.hosts import Issue

FIELDS = ("state", "title", "labels", "assignee")
ASSIGNEE = FIELDS.index("assignee")
RULES = ("newest", "theirs", "ours")
SHORT = 12


class Merge:
    """What must be changed in one issue.

    here, there: the fields that follow the other side, with their new values
    base: the hash of each field after that
    """

    def __init__(self, common: dict[str, Any] | None = None) -> None:
        self.here: dict[str, Any] = {}
        self.there: dict[str, Any] = {}
        self.base = [hashed(value) for value in (common or {}).values()]


def merged(
    base: list[str] | None, ours: dict[str, Any], theirs: dict[str, Any], rule: str, newer: bool
) -> Merge:
    """
    base: the hash of each field when both sides were last equal; None if they never were
    ours: the fields here; None means no preference
    newer: whether ours changed after theirs
    """
    merge = Merge()
    for place, field in enumerate(FIELDS):
        mine, other = ours[field], theirs[field]
        was = None if base is None else base[place]
        if mine is None or mine == other:
            value = other
        elif follows(field, was, mine, other, rule, newer):
            value = merge.here[field] = other
        else:
            value = merge.there[field] = mine
        merge.base.append(hashed(value))
    return merge


def follows(field: str, was: str | None, mine: Any, other: Any, rule: str, newer: bool) -> bool:
    """Whether their value wins over ours."""
    if was is not None and was in (hashed(mine), hashed(other)):
        return was == hashed(mine)
    if was is None and not mine:
        return True
    if was is None and field == "state" and rule == "newest":
        return bool(mine == OPEN)
    return rule == "theirs" or (rule == "newest" and not newer)


def hashed(value: Any) -> str:
    return str(sha256(json.dumps(value).encode()).hexdigest()[:SHORT])


def theirs_of(issue: Issue, cancels: bool) -> dict[str, Any]:
    assert isinstance(issue.item, dict)
    item = issue.item
    return {
        "state": settled(item["state"], cancels),
        "title": item["title"],
        "labels": list(item.get("labels", ())),
        "assignee": issue.assignee,
    }


def ours_of(
    task: Task, assigned: Callable[[str], bool], cancels: bool, accounts: dict[str, str] | None
) -> dict[str, Any]:
    """
    assigned: whether an account is the assignee there
    accounts: each agent's account there, with "" for all others; None if agents have the same
        name there
    """
    return {
        "state": settled(state_of(task.state), cancels),
        "title": task.title,
        "labels": sorted(task.labels),
        "assignee": assignee_of(task, assigned, accounts),
    }


def assignee_of(
    task: Task, assigned: Callable[[str], bool], accounts: dict[str, str] | None
) -> str | None:
    """The account of the agent that claimed or completed it; None if we should not set it."""
    if task.agent is None:
        return None
    account = task.agent if accounts is None else accounts.get(task.agent, accounts.get("", ""))
    if task.state in ("claimed", "completed"):
        return account or None
    # Given back: somebody else assigned any other account there.
    return "" if account and assigned(account) else None


def settled(state: str, cancels: bool) -> str:
    """A state that the other side can express."""
    return COMPLETED if state == CANCELLED and not cancels else state
