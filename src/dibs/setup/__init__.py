"""What `dibs init` writes into other people's files, and how it is removed again.

Every change is a set of insertions into a text, and dibs notes what it inserted where (`files`). So
nothing of the user's can be lost, and to remove our parts is to cut the same characters out again.
If the note is gone, or the file has changed since, our parts are recognised by their text
(`targets`, `parts`).

This module decides which files a run concerns, and what is done to them, in order. Each file is
checked first, changed only if necessary, and then noted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from dibs.clients import Client, client_of, every_client
from dibs.errors import InvalidError
from dibs.names.owners import owner_of
from dibs.names.paths import Place
from dibs.setup import files
from dibs.setup.files import Draft, InitRecord, Note, Refusal, inside, undo
from dibs.setup.targets import Block, GitHook, Line, Settings, Target, written_by_pre_commit
from dibs.storage.folder import Own
from dibs.surroundings.git import HOOKS, elsewhere, git

CREATED, UPDATED, UNCHANGED, SKIPPED, REMOVED = "created updated unchanged skipped removed".split()
IGNORED = ("*\n", "*\n!config.toml\n")
"""The `.gitignore` of a store: without `dibs init`, and as `dibs init` leaves it."""

CONFIG = """\
# Settings of dibs for this repository. Each line shows its default; commit this file to share it.

# What happens to an edit if dibs itself fails: "open" allows it, "closed" stops it.
# policy = "open"

# What to do if a file is held in another worktree: "warn", "block" or "off".
# worktrees = "warn"

# Whether a message wakes an idle agent, in clients that can be woken: "direct" or "off".
# wake = "direct"

# How long an edited file stays claimed without activity.
# ttl = "30m"

# How long an agent may hold a whole tree; people may hold it for longer.
# whole_tree = "1h"

# How long the store keeps history, at least an hour.
# keep = "30d"

# Above this size the store keeps less, at least 16 MiB.
# keep_size = "256 MiB"

# Paths and globs that hooks and commits ignore.
# ignored = []

# Paths and globs that only people may change.
# protected = []
"""


class Ignore(Line):
    """The `.gitignore` of `.dibs`: everything except the settings, which a team shares."""

    def __init__(self, store_dir: str) -> None:
        super().__init__(os.path.join(store_dir, ".gitignore"), "!config.toml")

    def add(self, draft: Draft) -> list[str]:
        if not draft.text:
            draft.insert(0, "*\n")
        return super().add(draft)


class Step:
    """One file: what to do with it, or why nothing can be done.

    fault: whether the user has to fix something
    """

    state = UNCHANGED
    why = next = ""
    fault = False
    before: str | None = None
    after: str | None = None
    note: Note | None = None
    line: int | None = None

    def __init__(self, target: Target) -> None:
        self.target = target
        self.path = target.path

    @property
    def changes(self) -> bool:
        return self.state in (CREATED, UPDATED, REMOVED)

    def refuse(self, refusal: Refusal) -> None:
        self.state, self.why, self.fault = SKIPPED, refusal.why, refusal.fault
        self.line, self.next = refusal.line, refusal.next

    def to_json(self, label: str) -> dict[str, Any]:
        return {"file": label, "state": self.state, "why": self.why, "line": self.line,
                "next": self.next}  # fmt: skip


class Setup:
    """One checkout, and what dibs writes into it.

    named: the requested clients; if empty, those that are used here
    """

    def __init__(self, place: Place, named: Iterable[str] = ()) -> None:
        self.place = place
        self.record = InitRecord(place.root, place.store_dir)
        self.named = list(dict.fromkeys(named))
        self.skipped: list[str] = []

    def check_place(self) -> None:
        if self.place.checkout.kind == "none":
            raise InvalidError(
                "this is not a repository", next="run git init; without git: mkdir .dibs"
            )
        has_checkout = os.path.lexists(os.path.join(self.place.top, ".git"))
        said = "rev-parse", "--is-bare-repository"
        if self.has_git and (not has_checkout or git_line(self.place.top, *said) == "true"):
            raise InvalidError(
                "this is a bare repository, without a checkout", next="cd into one of its worktrees"
            )

    @property
    def has_git(self) -> bool:
        return self.place.checkout.kind == "repository"

    def label(self, path: str) -> str:
        return files.label(path, self.place.top)

    def used(self) -> list[str]:
        """The clients to set up."""
        return self.named or [one.name for one in every_client() if self.is_used(one)]

    def is_used(self, client: Client) -> bool:
        from shutil import which

        home = os.path.expanduser("~")
        traces = [os.path.join(home, name) for name in client.home]
        traces += [os.path.join(self.place.top, name) for name in client.traces]
        return any(map(which, client.commands)) or any(map(os.path.exists, traces))

    def set_up(self) -> list[str]:
        """The clients that were set up here before, as far as can be told."""
        if self.named or self.record.clients:
            return self.named or self.record.clients
        return [
            name
            for name in known()
            if any(map(self.has_ours, self.not_for([one for one in known() if one != name], name)))
        ]

    def drift(self) -> list[Step]:
        """The files that differ from what would be written, each with the reason and what to do."""
        wrong = [step for step in self.plan(self.set_up()) if step.changes or step.fault]
        for step in wrong:
            if step.changes:
                step.why = "missing" if step.before is None else "not as dibs init writes it"
                step.next = "dibs init"
        return wrong

    def has_ours(self, target: Target) -> bool:
        try:
            self.stay_inside(target.path)
            text = files.read(target.path)
            return text is not None and own(target, text, None)[0] != text
        except Refusal:
            return False

    def of_clients(self, names: Iterable[str]) -> list[Target]:
        """The files of these clients; a file that two clients read is the same for both."""
        found: dict[str, Target] = {}
        for target in (one for name in names for one in client_of(name).targets(self.place.top)):
            found.setdefault(target.path, target)
        return list(found.values())

    def not_for(self, others: list[str], *names: str) -> list[Target]:
        """The files of these clients that none of the others reads."""
        theirs = {target.path for target in self.of_clients(others)}
        return [target for target in self.of_clients(names) if target.path not in theirs]

    @cached_property
    def of_repository(self) -> list[Target]:
        """What every client needs."""
        store = self.place.store_dir
        found: list[Target] = [
            Block(os.path.join(self.place.top, "AGENTS.md")),
            Ignore(store),
            Settings(os.path.join(store, "config.toml"), CONFIG),
        ]
        for checkout in with_submodules(self.place.top) if self.has_git else ():
            hooks, why = git_hooks(checkout, self.place.top)
            found += hooks
            self.skipped += [why] if why else []
        return found

    def targets(self, names: list[str]) -> list[Target]:
        return [*self.of_clients(names), *self.of_repository]

    def plan(self, names: list[str]) -> list[Step]:
        """What to do for these clients and for the repository."""
        return [self.plan_init(target) for target in self.targets(names)]

    def plan_init(self, target: Target) -> Step:
        """Find out what must be added."""
        step = Step(target)
        try:
            self.stay_inside(target.path)
            step.before = text = target.read()
            if text is not None and target.present(text):
                return step
            clean, made = own(target, text, self.record.notes.get(target.path))
            draft = Draft(clean)
            parts = target.add(draft)
            step.after = draft.text
            step.note = Note(made, draft.insertions, parts)
            step.why = target.moves()
            step.state = CREATED if text is None and not step.why else UPDATED
        except Refusal as refusal:
            step.refuse(refusal)
        return step

    def init(self, names: list[str]) -> list[Step]:
        from dibs.dibs import own_store

        targets, theirs, done = self.targets(names), self.said_before(names), []
        had_ignore = os.path.exists(os.path.join(self.place.store_dir, ".gitignore"))
        own_store(self.place)
        for target in targets:
            # One after the other: two names may mean the same file.
            step = self.plan_init(target)
            self.do(step)
            done.append(step)
            if step.state == UNCHANGED and step.path in theirs:
                self.record.notes[step.path] = Note(False, [], [])
            if isinstance(target, Ignore):
                # The store needs it as long as it exists.
                self.record.notes.pop(step.path, None)
                step.state = step.state if had_ignore or step.fault else CREATED
        self.record.clients = [name for name in known() if name in (*self.record.clients, *names)]
        self.record.save()
        return done

    def said_before(self, names: list[str]) -> set[str]:
        """The client files that dibs has not changed: what they already contain is the user's."""
        before = self.record.clients
        if not self.record.notes and any(map(self.has_ours, self.of_repository)):
            before = known()  # the notes are lost, or git brought them to another machine
        new = [name for name in names if name not in before]
        paths = {target.path for target in self.of_clients(new)}
        return paths - self.record.notes.keys()

    def plan_remove(self) -> list[Step]:
        """Find out what is ours, and what remains without it."""
        left = [name for name in self.record.clients if name not in self.named]
        targets = self.not_for(left if self.named else [], *(self.named or known()))
        if not self.named:
            targets += [one for one in self.of_repository if not isinstance(one, Ignore)]
        planned = [Step(target) for target in targets]
        for step in planned:
            try:
                self.stay_inside(step.path)
                step.before = text = step.target.read()
                clean, made = own(step.target, text, self.record.notes.get(step.path))
                if text is not None and (made or clean != text):
                    step.state = REMOVED if made else UPDATED
                    step.after = None if made else clean
            except Refusal as refusal:
                step.refuse(refusal)
        return planned

    def remove(self, planned: list[Step]) -> list[Step]:
        for step in planned:
            self.do(step)
            if not step.fault:
                self.record.notes.pop(step.path, None)
        gone = self.named or self.record.clients
        self.record.clients = [name for name in self.record.clients if name not in gone]
        self.record.save()
        return [] if self.named else self.remove_store()

    def remove_store(self) -> list[Step]:
        """Remove `.dibs` if only its `.gitignore` is left; otherwise git keeps ignoring it."""
        target = Ignore(self.place.store_dir)
        step = Step(target)
        try:
            self.stay_inside(target.path)
            text = target.read()
            if text is None:
                return []
            store = Own(self.place.store_dir)
            there = store.names()
            if there == [".gitignore"] and text in IGNORED:
                store.remove(".gitignore")
                os.rmdir(store.folder())
                step.state = REMOVED
            elif "config.toml" not in there and (clean := target.strip(text, None)) != text:
                target.write(clean)
                step.state = UPDATED
        except Refusal as refusal:
            step.refuse(refusal)
        return [step]

    @cached_property
    def bounds(self) -> list[str]:
        """Where dibs may write: the checkout, the folder of the store, and the git directory."""
        found = [self.place.top, self.place.store_dir]
        if self.has_git and owner_of(self.place.top) is None:
            said = git_line(self.place.top, "rev-parse", "--git-common-dir")
            found.append(os.path.join(self.place.top, said))
        return found

    def stay_inside(self, path: str) -> None:
        files.stay_inside(path, self.bounds, self.place.store_dir)

    def do(self, step: Step) -> None:
        """Write what was planned, and note it."""
        try:
            if step.state == REMOVED:
                self.unlink(step.target)
            elif step.changes:
                self.record.folders += step.target.write(step.after or "")
                if step.note is not None:
                    self.record.notes[step.path] = step.note
        except Refusal as refusal:
            step.refuse(refusal)
        except OSError as error:
            why = f"it cannot be changed: {error.strerror}"
            step.refuse(Refusal(why, next="check its folder"))

    def unlink(self, target: Target) -> None:
        target.unlink()
        if target.path in self.record.notes:
            files.remove_empty(self.record.folders)
            self.record.folders = [one for one in self.record.folders if os.path.isdir(one)]
        else:
            files.remove_empty(folders_below(self.place.top, target.path))


def known() -> list[str]:
    return [client.name for client in every_client()]


def own(target: Target, text: str | None, note: Note | None) -> tuple[str, bool]:
    """The user's own part of a text, and whether the file exists only because of dibs."""
    if text is None:
        return "", True
    if note is not None and not note.parts:
        return text, False  # it said the same before dibs init
    made, parts = (note.made, set(note.parts)) if note else (True, None)
    exact = undo(text, note.insertions) if note else None
    if exact is not None and target.strip(exact, parts) == exact:
        return exact, made and target.void(exact)
    clean = target.strip(text, parts)
    if clean != text and made and target.void(clean):
        return "", True
    return clean, False


def folders_below(top: str, path: str) -> list[str]:
    """The folders between the top of the checkout and a file in it."""
    found = []
    folder = os.path.dirname(path)
    while folder.startswith(top + os.sep) and ".git" not in folder[len(top) :].split(os.sep):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def with_submodules(top: str) -> list[str]:
    """A checkout and its submodules, which have hooks of their own."""
    if not os.path.exists(os.path.join(top, ".gitmodules")):
        return [top]
    listing = "submodule --quiet foreach --recursive".split()
    found = git_line(top, *listing, "pwd -P").splitlines()
    return [top, *(one for one in found if inside(one, top))]


def git_hooks(checkout: str, top: str) -> tuple[list[GitHook], str]:
    """The hooks of one repository, and why they cannot be set up, if so.

    - husky keeps its own scripts in `.husky/_`; people's are beside that folder, so the block goes
      there.
    - `pre-commit install` rewrites the script of pre-commit. It runs `NAME.legacy` first,
      and leaves that alone, so the block goes there.
    - lefthook has no such place: the block is in its script, and `dibs init --check` says when
      lefthook has overwritten it.
    """

    def path(*words: str) -> str:
        return os.path.normpath(os.path.join(checkout, git_line(checkout, "rev-parse", *words)))

    if owner := owner_of(checkout):
        return [], (f"the git directory of {checkout} belongs to {owner}: run dibs init there; "
                    "if a worktree was moved, run git worktree repair first")  # fmt: skip
    folder, common = path("--git-path", "hooks"), path("--git-common-dir")
    if not any(inside(folder, root) for root in (top, common)):
        return [], (f"core.hooksPath is {folder}, which other repositories may share: "
                    'make its scripts run `dibs hook git NAME "$@"`')  # fmt: skip
    bare = os.path.basename(folder) == "_" and os.path.exists(os.path.join(folder, "h"))
    if bare:
        folder = os.path.dirname(folder)
    targets = []
    for name in HOOKS:
        script = os.path.join(folder, name)
        if not bare and written_by_pre_commit(script):
            script += ".legacy"
        targets.append(GitHook(script, name, bare))
    return targets, ""


def git_line(folder: str, *words: str) -> str:
    """What git prints about the repository in a folder."""
    return os.fsdecode(git(*words, cwd=folder, environment=elsewhere())).rstrip("\n")
