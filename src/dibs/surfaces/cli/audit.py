"""`dibs audit`: seal the journal, keep the seal, and compare it later. And `dibs verify`."""

from __future__ import annotations

import sys

from dibs.arguments import SEAL
from dibs.errors import CorruptError, InvalidError, NotFoundError
from dibs.operation import EVERYBODY
from dibs.records import called
from dibs.surroundings.wording import note, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals

BY = {"verify": EVERYBODY, "audit seal": EVERYBODY, "audit check": EVERYBODY}
RESTORED = 5
"""How many times the store went back are told."""
NOTES = "refs/notes/dibs"
TAGS = "refs/tags/"
SEAL_BYTES = 4_096


def verify(call: Globals) -> int:
    """Check that only dibs has changed the store; exit code 1 and a list of rows if not.

    Each is listed with what happened to it: changed, removed, inserted, or replayed (an older row
    was put back). An event that follows a replaced one is unproven. The chain proves the journal,
    and the journal proves the rows.
    """
    from dibs.nouns.events.proof import verify as prove
    from dibs.operation import OPERATIONS
    from dibs.surfaces.cli.main import answer

    with call.open() as space:
        handle = call.look(space)
        here = handle.scope.daemon is None
        found = prove(handle.scope, note) if here else handle.agents.verify()
        __import__("dibs.nouns.agents.operations")
        answer(call, OPERATIONS["agents.verify"], found)
        note_restored(handle)
    return 1 if found else 0


def note_restored(handle: Dibs) -> None:
    """Say when the store went back in time: then nothing is left that could show what was lost."""
    from dibs.surfaces.cli.show import moment

    try:
        events = handle.events.latest(kind="space.restored", limit=RESTORED)
    except CorruptError:
        return  # the rows that were found say why
    for event in events:
        last = (event.data or {}).get("from", "an unknown event")
        note(
            f"at {moment(event.at)} the store had gone back in time, and everything after event "
            f"{last} was lost: a backup was restored, the store was reset, or somebody removed it"
        )


def seal(call: Globals, *, git_tag: str | None = None, git_note: bool = False) -> int:
    """Seal the journal: print its end as one line, to keep somewhere else.

    With --git-tag or --git-note the line is also kept in the repository; push it to a place where
    nobody here can change it. Git signs the tag if your settings say so (tag.gpgSign).

    git_tag: make an annotated tag of this name on HEAD
    git_note: add a note to HEAD (refs/notes/dibs)
    example: --git-tag audit/2026-11-18
    """
    if git_tag is not None:
        refuse_tag(git_tag)
    with call.open() as space:
        made = call.look(space).events.seal()
    if git_tag is not None or git_note:
        from dibs.surroundings.git import git

        if git_tag is not None:
            git("tag", "-a", "-m", made.text, "--", git_tag, settings=())
        if git_note:
            git("notes", "--ref", NOTES, "append", "-m", made.text, "HEAD", settings=())
    if call.json:
        print_json(made.to_json())
    else:
        say(made.text)
    return 0


def refuse_tag(name: str) -> None:
    """Refuse a name that no tag can have, or that one has already: a seal is not overwritten."""
    from dibs.surroundings.git import git

    said = git("check-ref-format", "--normalize", f"{TAGS}{name}", codes=(0, 1))
    if said.decode("utf-8", "replace").rstrip("\n") != f"{TAGS}{name}" or name.startswith("-"):
        raise InvalidError(f"git allows no tag called {called(name)}", next="choose another name")
    if tagged(name) is not None:
        raise InvalidError(
            f"there is a tag called {called(name)} already", next="choose another name"
        )


def tagged(name: str) -> str | None:
    """The first line of a tag; None if there is no such tag."""
    from dibs.surroundings.git import git

    # Git takes the beginning of a name, and a pattern, for all tags that it fits.
    said = git("for-each-ref", "--format=%(refname) %(contents:subject)", f"{TAGS}{name}")
    for line in said.decode("utf-8", "replace").splitlines():
        full, _, text = line.partition(" ")
        if full == f"{TAGS}{name}":
            return text
    return None


def check(call: Globals, seal: str) -> int:
    """Compare the journal with a seal of it; exit code 1 if they differ.

    seal: the line, @FILE, - for the standard input, or the git tag that has it
    example: @seal.txt
    """
    text = read(seal)
    with call.open() as space:
        found = call.look(space).events.check_seal(text)
    if call.json:
        print_json(found.to_json())
    elif found.holds:
        say(f"the journal up to {found.seq} matches the seal")
    elif found.what == "removed":
        note(f"the journal has no event {found.seq}: it was cut, or a backup was restored")
    else:
        note(f"the journal up to {found.seq} does not match the seal: it was rewritten")
    return 0 if found.holds else 1


def read(seal: str) -> str:
    """The line of the seal, from what was typed."""
    if seal == "-":
        return sys.stdin.read(SEAL_BYTES)
    if seal.startswith("@"):
        try:
            with open(seal[1:], encoding="utf-8") as file:
                return file.read(SEAL_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidError(f"the seal cannot be read: {error}") from None
    if seal.startswith(f"{SEAL} "):
        return seal
    text = tagged(seal)
    if text is not None:
        return text
    raise NotFoundError(
        "this is neither a seal nor a git tag of this repository", next="give the line, or @FILE"
    )
