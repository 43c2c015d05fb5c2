"""`dibs init`: set up a repository for every agent client, and take it out again."""

from __future__ import annotations

import os
from textwrap import fill

from dibs.clients import client_of
from dibs.errors import InvalidError
from dibs.setup import Setup, known
from dibs.setup.steps import CREATED, REMOVED, SKIPPED, UNCHANGED, UPDATED
from dibs.surroundings.wording import note, paint, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.names.paths import Place
    from dibs.setup.steps import Step
    from dibs.surroundings.commands import Globals

NAMED = fill(
    f"only this one: {', '.join(known())}",
    92,
    initial_indent="  --client NAME".ljust(27),
    subsequent_indent=" " * 27,
)
HELP = f"""usage: dibs init [--client NAME]... [--dry-run] [--check] [--remove]

Set up this repository for every agent client that is used here: server, hooks, AGENTS.md, git.

{NAMED}
  --dry-run                show what would change, as a diff, and change nothing
  --check                  exit with 1 if something is not as dibs init would write it
  --remove                 take out what dibs init wrote

example: dibs init --dry-run"""

FLAGS = ("--dry-run", "--check", "--remove")
COLOURS = {CREATED: "green", UPDATED: "green", REMOVED: "green", SKIPPED: "yellow",
           UNCHANGED: "dim"}  # fmt: skip


def main(globals_: Globals, words: list[str]) -> int:
    named, flags = take(words)
    setup = Setup(place_of(globals_), named, os.path.expanduser("~"))
    setup.check_place()
    if "--remove" in flags:
        return remove(globals_, setup, dry="--dry-run" in flags)
    if "--check" in flags:
        return check(globals_, setup)
    names = setup.used()
    if "--dry-run" in flags:
        return preview(globals_, setup, setup.plan(names))
    done = setup.init(names)
    report(globals_, setup, done, advice(names, any(step.changes for step in done)))
    return faults(done)


def take(words: list[str]) -> tuple[list[str], set[str]]:
    """The clients that are named, and the flags."""
    named, flags, words = [], set(), list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "--client":
            if not equals and not words:
                raise InvalidError("--client needs a name", next=f"one of: {', '.join(known())}")
            named.append(value if equals else words.pop(0))
        elif word in FLAGS:
            flags.add(word)
        else:
            raise InvalidError(f"{word!r} is not an option of init", next="dibs init --help")
    for name in named:
        client_of(name)  # or a refusal
    if "--check" in flags and len(flags) > 1:
        raise InvalidError("--check goes alone", next="dibs init --check")
    return named, flags


def place_of(globals_: Globals) -> Place:
    from dibs.dibs import default_user_dir
    from dibs.names.paths import find_place

    return find_place(None, globals_.user_dir or default_user_dir())


def check(globals_: Globals, setup: Setup) -> int:
    """Say what is not as it would be written; a client that is not set up is no drift."""
    wrong = setup.drift()
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json([step.to_json(setup.label(step.path)) for step in wrong])
    for step in [] if globals_.json else wrong:
        say(f"{setup.label(step.path)}{where(step)}: {step.why}")
    if not wrong and not globals_.json:
        note("everything is as dibs init writes it")
    return int(bool(wrong))


def remove(globals_: Globals, setup: Setup, dry: bool) -> int:
    planned = setup.plan_remove()
    if dry:
        return preview(globals_, setup, planned)
    planned += setup.remove(planned)
    touched = [step for step in planned if step.state != UNCHANGED]
    notes = [] if touched else ["nothing of dibs init is here"]
    if os.path.isdir(setup.place.store_dir) and not setup.named:
        notes.append(f"the store stays in {setup.label(setup.place.store_dir)}: delete that folder "
                     "to forget leases, tasks and messages")  # fmt: skip
    report(globals_, setup, touched, notes)
    return faults(planned)


def preview(globals_: Globals, setup: Setup, planned: list[Step]) -> int:
    """What would change, as a diff that `git apply` understands."""
    from difflib import unified_diff

    for step in planned:
        if step.changes:
            label = setup.label(step.path)
            old = f"a/{label}" if step.before is not None else "/dev/null"
            new = f"b/{label}" if step.after is not None else "/dev/null"
            before, after = lines(step.before), lines(step.after)
            text = "".join(unified_diff(before, after, old, new))
            if globals_.json:
                step.why = text
            else:
                print(text, end="")
    report(globals_, setup, planned, ["nothing was changed"], quiet=True)
    return faults(planned)


def lines(text: str | None) -> list[str]:
    """Lines for a diff; a missing line end is said as git says it."""
    found = (text or "").splitlines(keepends=True)
    if found and not found[-1].endswith("\n"):
        found[-1] += "\n\\ No newline at end of file\n"
    return found


def report(
    globals_: Globals, setup: Setup, planned: list[Step], notes: list[str], quiet: bool = False
) -> None:
    """Say what became of each file. `quiet` leaves out what needs no attention."""
    shown = [(setup.label(step.path), step) for step in planned]
    if globals_.json:
        from dibs.surroundings.wording import print_json

        found = [step.to_json(label) for label, step in shown]
        print_json({"files": found, "notes": [*setup.skipped, *notes]})
        return
    for label, step in shown:
        line = f"{label}{where(step)}" + (f": {step.why}" if step.why else "")
        if step.state == SKIPPED or not quiet:
            say(f"{paint(COLOURS[step.state], step.state.ljust(9))}  {line}")
            if step.next:
                say(f"           next: {step.next}")
    for text in [*setup.skipped, *notes]:
        note(text)


def where(step: Step) -> str:
    return f", line {step.line}" if step.line else ""


def faults(planned: list[Step]) -> int:
    return int(any(step.fault for step in planned))


def advice(names: list[str], new: bool) -> list[str]:
    """What is left for the user to do; the second time they know."""
    said, used = [], [client_of(name) for name in names]
    if used:
        said.append(f"clients: {', '.join(client.title for client in used)}")
    else:
        said.append("no agent client was found here: name one with --client, such as "
                    "dibs init --client claude")  # fmt: skip
    said += [client.after for client in used if new and client.after]
    if new:
        said.append("next: commit these files, and start running clients anew")
    return [*said, *unreachable()]


def unreachable() -> list[str]:
    """Whether the clients will find `dibs` where they look for it."""
    import sys
    from shutil import which

    found = which("dibs")
    how = "install it for all: uv tool install agent-dibs, or pipx install agent-dibs"
    if found is None:
        return [f"dibs is not on the PATH, so no client will find it; {how}"]
    if sys.prefix != sys.base_prefix and found.startswith(sys.prefix + os.sep):
        return [f"dibs is in the virtual environment {sys.prefix}: clients that are started "
                f"outside of it will not find it; {how}"]  # fmt: skip
    return []
