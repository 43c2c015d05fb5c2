"""What happens to one file: looked at first, done only if it is to be done."""

from __future__ import annotations

import os

from dibs.surfaces.init import files
from dibs.surfaces.init.draft import Draft, Refusal, undo
from dibs.surfaces.init.githooks import GitHook
from dibs.surfaces.init.record import Entry
from dibs.surfaces.init.targets import Kept, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.surfaces.init.record import Record

CREATED, UPDATED, UNCHANGED, SKIPPED, REMOVED = "created updated unchanged skipped removed".split()


class Step:
    """One file: what is to become of it, and why if nothing can.

    fault: whether that is something the user has to mend
    """

    def __init__(self, target: Target, state: str, why: str = "", fault: bool = False) -> None:
        self.target = target
        self.state = state
        self.why = why
        self.fault = fault
        self.before: str | None = None
        self.after: str | None = None
        self.entry: Entry | None = None
        self.line: int | None = None
        self.next = ""

    @property
    def path(self) -> str:
        return self.target.path

    @property
    def changes(self) -> bool:
        return self.state in (CREATED, UPDATED, REMOVED)

    def refuse(self, refusal: Refusal) -> None:
        self.state, self.why, self.fault = SKIPPED, refusal.why, True
        self.line, self.next = refusal.line, refusal.next

    def to_json(self, label: str) -> dict[str, Any]:
        return {"file": label, "state": self.state, "why": self.why, "line": self.line,
                "next": self.next}  # fmt: skip


def read(target: Target) -> str | None:
    """The text to work on; None if there is no file, or one that will be moved aside."""
    if not isinstance(target, GitHook):
        return files.read(target.path)
    try:
        text = files.read(target.path)
    except files.NotText:
        if target.bare:
            raise
        text = None
    target.look(text)
    return None if target.moving else text


def plan_init(target: Target, record: Record) -> Step:
    """Find out what has to be added."""
    step = Step(target, UNCHANGED)
    try:
        step.before = text = read(target)
        if text is not None and target.present(text):
            return step
        clean, made = own(target, text, record.get(target.path))
        draft = Draft(clean)
        parts = target.add(draft)
        step.after = draft.text
        step.entry = Entry(made, draft.insertions, parts)
        step.state = CREATED if text is None else UPDATED
        if isinstance(target, GitHook) and target.moving:
            move(step, target)
    except Kept as kept:
        step.state, step.why = SKIPPED, str(kept)
    except Refusal as refusal:
        step.refuse(refusal)
    return step


def move(step: Step, hook: GitHook) -> None:
    """Say that the hook that is there will be moved aside, if there is room for it."""
    if os.path.lexists(hook.aside):
        raise Refusal(
            "a hook that was moved aside before is in the way", next=f"look at {hook.aside}"
        )
    step.state = UPDATED
    step.why = f"the hook that was there is {os.path.basename(hook.aside)} now, and is called"


def own(target: Target, text: str | None, entry: Entry | None) -> tuple[str, bool]:
    """What is the user's own in a text, and whether there was no file without us."""
    if text is None:
        return "", True
    if entry is not None and not entry.parts:
        return text, False  # it said the same before we came
    exact = undo(text, entry.insertions) if entry else None
    if exact is not None and target.strip(exact, set(entry.parts) if entry else None) == exact:
        return exact, bool(entry and entry.made and target.void(exact))
    clean = target.strip(text, set(entry.parts) if entry else None)
    if clean == text:
        return text, False
    if target.void(clean) and (entry is None or entry.made):
        return "", True
    return clean, False


def plan_remove(target: Target, record: Record) -> Step:
    """Find out what is ours, and what is left without it."""
    step = Step(target, UNCHANGED)
    try:
        step.before = text = read(target)
        if text is None or (isinstance(target, GitHook) and target.moving):
            return step
        clean, made = own(target, text, record.get(target.path))
        if clean == text and not made:
            return step
        step.state = REMOVED if made else UPDATED
        step.after = None if made else clean
    except Kept:
        pass
    except Refusal as refusal:
        step.refuse(refusal)
    return step


def do(step: Step, record: Record, top: str) -> None:
    """Write what was planned, and note it."""
    try:
        if step.state == REMOVED:
            unlink(step, record, top)
        elif step.changes:
            record.made(write(step))
            if step.entry is None:
                record.drop(step.path)
            else:
                record.put(step.path, step.entry)
    except Refusal as refusal:
        step.refuse(refusal)
    except OSError as error:
        step.refuse(Refusal(f"it cannot be changed: {error.strerror}", next="look at its folder"))


def write(step: Step) -> list[str]:
    target = step.target
    if not isinstance(target, GitHook) or not target.moving:
        return files.write(step.path, step.after or "", target.mode)
    os.rename(target.path, target.aside)
    try:
        return files.write(step.path, step.after or "", target.mode)
    except BaseException:
        os.rename(target.aside, target.path)
        raise


def unlink(step: Step, record: Record, top: str) -> None:
    if isinstance(step.target, GitHook) and os.path.lexists(step.target.aside):
        os.rename(step.target.aside, step.path)
    else:
        os.unlink(step.path)
    if record.get(step.path) is not None:
        record.remove_folders()
    else:
        files.remove_empty(folders_below(top, step.path))
    record.drop(step.path)


def folders_below(top: str, path: str) -> list[str]:
    """The folders between the top of the checkout and a file in it."""
    found = []
    folder = os.path.dirname(path)
    while folder.startswith(top + os.sep) and ".git" not in folder[len(top) :].split(os.sep):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found
