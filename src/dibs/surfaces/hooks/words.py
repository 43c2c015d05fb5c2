"""What hooks say to a model: what is so, why, and what to do next."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.records import Blocker, Lease

DIFFERENCE_LIMIT = 128 << 10
LINES = 60
"""At most so many lines of a difference: the model can read the file itself."""
ADVICE = (
    "Work on something else first, or wait for it with the dibs tool `wait` "
    "(in a shell: dibs wait {name}) and then try again. "
    "To ask for it: dibs send 'TEXT' --to {agent}. Do not write to it by other means."
)


def held(blockers: list[Blocker]) -> str:
    """Why an edit is denied: who holds the file, what for, how long."""
    first = next((one for one in blockers if not one.waiting), blockers[0])
    name = quote(first.resource)
    doing = f" (note: {json.dumps(first.note)})" if first.note else ""
    if first.waiting:
        said = f"dibs: {name} is wanted by {first.agent}{doing}, who waits for it already."
    else:
        said = (
            f"dibs: {name} is held by {first.agent}{doing}, for {span(age(first))} now; it is "
            f"free in {span((first.expires_in_ms or 0) // 1000)} unless they work on."
        )
    if len(blockers) > 1:
        said += f" {len(blockers) - 1} more are in the way."
    return f"{said} {ADVICE.format(name=name, agent=first.agent)}"


def age(blocker: Blocker) -> int:
    from time import time

    return max(0, round(time() - blocker.since_at / 1000))


def span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def protected(name: str) -> str:
    return (
        f"dibs: {name} is protected in this repository; only people may change it. "
        "Say what you would change there, and leave it to them."
    )


def worktree(blockers: list[Blocker]) -> str:
    """What an agent has to know about others who change the same file elsewhere."""
    said = sorted({f"{one.resource} by {one.agent} in {where(one)}" for one in blockers})
    return (
        f"dibs: also being changed: {'; '.join(said)}. You may go on, but both changes will have "
        "to be merged: keep yours small, and look with: dibs overlap"
    )


def where(blocker: Blocker) -> str:
    return (blocker.checkout or "").partition(":")[2] or "another worktree"


def stale(name: str, changes: str) -> str:
    return (
        f"dibs: {name} has changed since you read it, so this edit may undo somebody's work. "
        f"This is what changed:\n{changes}\n"
        "Look whether your edit still fits, then try again; it is not refused a second time."
    )


def difference(then: bytes | None, now: bytes | None) -> str:
    """What changed, as lines, as far as both contents are known and are text."""
    if then is None or now is None or b"\0" in then + now:
        return "(the earlier content was not kept: read the file again)"
    if len(then) + len(now) > DIFFERENCE_LIMIT:
        return "(too large to be shown: read the file again)"
    from difflib import unified_diff

    lines = list(
        unified_diff(
            then.decode("utf-8", "replace").splitlines(),
            now.decode("utf-8", "replace").splitlines(),
            "as you read it",
            "as it is now",
            lineterm="",
            n=2,
        )
    )
    more = [f"(and {len(lines) - LINES} lines more)"] if len(lines) > LINES else []
    return "\n".join(lines[:LINES] + more)


def intruded(lease: Lease, by: list[str], doing: str) -> str:
    whom = " or ".join(by) or "somebody whom dibs does not know"
    how = f" ({doing})" if doing else ""
    return (
        f"dibs: {lease.resource}, which you hold, was changed by {whom}{how}. What you had is "
        f"kept: `dibs recover {quote(lease.resource)}` brings it back. Read the file before you "
        "go on."
    )


def intruder(lease: Lease) -> str:
    return (
        f"dibs: {lease.resource} is held by {lease.agent}, and changed while your command ran. "
        f"They have been told. If it was you, undo it with `dibs recover {quote(lease.resource)}`, "
        "and wait for the file before you edit it."
    )


def quote(name: str) -> str:
    """A name as a shell takes it."""
    if all(sign.isalnum() or sign in "_-./:@%+," for sign in name):
        return name
    from shlex import quote  # hardly ever needed

    return quote(name)
