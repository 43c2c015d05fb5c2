"""What happens to one file: looked at first, done only if it is to be done, and then noted.

`.dibs/init.json` (`InitRecord`) says what was inserted where, so that it can be taken out to the
byte. It is a convenience, not the truth: `git clean` may take it at any time, and then our parts
are recognised by what they say. It belongs to one machine and is not committed.
"""

from __future__ import annotations

import json
import os

from dibs.setup import files
from dibs.setup.files import Draft, Refusal, undo
from dibs.setup.githooks import GitHook
from dibs.setup.targets import Overruled, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "init.json"


class Note:
    """What was done to one file.

    made: whether the file was not there before
    insertions: what was inserted, at places of the text as it was then
    parts: the names of what was added; without any, the file said the same before we came
    """

    def __init__(self, made: bool, insertions: list[tuple[int, str]], parts: list[str]) -> None:
        self.made = made
        self.insertions = insertions
        self.parts = parts

    def to_json(self) -> dict[str, Any]:
        return {"made": self.made, "insertions": self.insertions, "parts": self.parts}


class InitRecord:
    """The notes of one space; paths below its root are named from there, so that it can move."""

    def __init__(self, root: str, store_dir: str) -> None:
        self.root = root
        self.path = os.path.join(store_dir, FILE)
        self.clients: list[str] = []
        self.notes: dict[str, Note] = {}
        self.folders: list[str] = []  # those that were made on the way
        self.load()

    def load(self) -> None:
        try:
            with open(self.path, encoding="utf-8") as source:
                said = json.load(source)
            self.clients = [str(name) for name in said["clients"]]
            self.folders = [str(name) for name in said["folders"]]
            for name, note in said["files"].items():
                insertions = [(int(place), str(text)) for place, text in note["insertions"]]
                self.notes[name] = Note(bool(note["made"]), insertions, list(note["parts"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            # Gone, or not ours any more: see above.
            self.clients, self.notes, self.folders = [], {}, []

    def name(self, path: str) -> str:
        below = os.path.relpath(path, self.root)
        return path if below.startswith("..") else below

    def get(self, path: str) -> Note | None:
        return self.notes.get(self.name(path))

    def put(self, path: str, note: Note) -> None:
        self.notes[self.name(path)] = note

    def drop(self, path: str) -> None:
        self.notes.pop(self.name(path), None)

    def made(self, folders: list[str]) -> None:
        self.folders += [self.name(folder) for folder in folders]

    def remove_folders(self) -> None:
        """Remove the folders we have made that are empty again."""
        files.remove_empty([os.path.join(self.root, name) for name in self.folders])
        there = [name for name in self.folders if os.path.isdir(os.path.join(self.root, name))]
        self.folders = there

    def save(self) -> None:
        """Write it down; with nothing to say there is no file."""
        if not self.notes:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass
            return
        said = {name: note.to_json() for name, note in sorted(self.notes.items())}
        notes = {"clients": self.clients, "folders": self.folders, "files": said}
        text = json.dumps(notes, indent=1)
        files.write(self.path, text + "\n", 0o600)


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
        self.note: Note | None = None
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


def plan_init(target: Target, record: InitRecord) -> Step:
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
        step.note = Note(made, draft.insertions, parts)
        step.state = CREATED if text is None else UPDATED
        if isinstance(target, GitHook) and target.moving:
            move(step, target)
    except Overruled as decision:
        step.state, step.why = SKIPPED, str(decision)
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


def own(target: Target, text: str | None, note: Note | None) -> tuple[str, bool]:
    """What is the user's own in a text, and whether there was no file without us."""
    if text is None:
        return "", True
    if note is not None and not note.parts:
        return text, False  # it said the same before we came
    exact = undo(text, note.insertions) if note else None
    if exact is not None and target.strip(exact, set(note.parts) if note else None) == exact:
        return exact, bool(note and note.made and target.void(exact))
    clean = target.strip(text, set(note.parts) if note else None)
    if clean == text:
        return text, False
    if target.void(clean) and (note is None or note.made):
        return "", True
    return clean, False


def plan_remove(target: Target, record: InitRecord) -> Step:
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
    except Overruled:
        pass
    except Refusal as refusal:
        step.refuse(refusal)
    return step


def do(step: Step, record: InitRecord, top: str) -> None:
    """Write what was planned, and note it."""
    try:
        if step.state == REMOVED:
            unlink(step, record, top)
        elif step.changes:
            record.made(write(step))
            if step.note is None:
                record.drop(step.path)
            else:
                record.put(step.path, step.note)
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


def unlink(step: Step, record: InitRecord, top: str) -> None:
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
