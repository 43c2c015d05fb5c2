"""`dibs init`: set up a repository for every agent client, and take it out again."""

from __future__ import annotations

import os

from dibs.arguments import Choice
from dibs.clients import client_of
from dibs.errors import InvalidError
from dibs.operation import EVERYBODY
from dibs.setup import Setup, known
from dibs.setup.steps import CREATED, REMOVED, SKIPPED, UNCHANGED, UPDATED
from dibs.surroundings.wording import note, paint, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.names.paths import Place
    from dibs.setup.steps import Step
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"clients": Choice(*known())}
COLOURS = {CREATED: "green", UPDATED: "green", REMOVED: "green", SKIPPED: "yellow",
           UNCHANGED: "dim"}  # fmt: skip


def main(
    call: Globals,
    *,
    clients: Sequence[str] = (),
    dry_run: bool = False,
    check: bool = False,
    remove: bool = False,
) -> int:
    """Set up this repository for every agent client used here: server, hooks, AGENTS.md, git.

    clients: only this one
    dry_run: show what would change, as a diff, and change nothing
    check: exit with 1 if something is not as dibs init would write it
    remove: take out what dibs init wrote
    example: --dry-run
    """
    if check and (dry_run or remove):
        raise InvalidError("--check goes alone", next="dibs init --check")
    setup = Setup(place_of(call), list(clients), os.path.expanduser("~"))
    setup.check_place()
    if remove:
        return take_out(call, setup, dry_run)
    if check:
        return compare(call, setup)
    names = setup.used()
    if dry_run:
        return preview(call, setup, setup.plan(names))
    done = setup.init(names)
    report(call, setup, done, advice(names, any(step.changes for step in done)))
    return faults(done)


def place_of(globals_: Globals) -> Place:
    from dibs.dibs import default_user_dir
    from dibs.names.paths import find_place

    return find_place(None, globals_.user_dir or default_user_dir())


def compare(globals_: Globals, setup: Setup) -> int:
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


def take_out(globals_: Globals, setup: Setup, dry: bool) -> int:
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
