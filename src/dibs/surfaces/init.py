"""`dibs init`: set up a repository for every agent client, and take it out again."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dibs.arguments import Choice
from dibs.clients import client_of
from dibs.errors import InvalidError
from dibs.names.paths import find_place
from dibs.operation import EVERYBODY
from dibs.setup import CREATED, REMOVED, SKIPPED, UNCHANGED, UPDATED, Setup, Step, known
from dibs.surroundings.commands import Globals
from dibs.surroundings.wording import note, paint, print_json, say

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
    from dibs.storage.user_dir import default_user_dir

    if check and (dry_run or remove):
        raise InvalidError("--check takes neither --dry-run nor --remove", next="dibs init --check")
    setup = Setup(find_place(None, default_user_dir()), clients)
    setup.check_place()
    if remove:
        return take_out(call, setup, dry_run)
    if check:
        return compare(call, setup)
    names = setup.used()
    if dry_run:
        return preview(call, setup, setup.plan(names))
    done = setup.init(names)
    return report(call, setup, done, advice(names, any(step.changes for step in done)))


def compare(call: Globals, setup: Setup) -> int:
    """Say what is not as it would be written; a client that is not set up is no drift."""
    wrong = setup.drift()
    if call.json:
        print_json([step.to_json(setup.label(step.path)) for step in wrong])
    elif wrong:
        say("\n".join(line_for(setup, step) for step in wrong))
    else:
        note("everything is as dibs init writes it")
    return int(bool(wrong))


def take_out(call: Globals, setup: Setup, dry: bool) -> int:
    planned = setup.plan_remove()
    if dry:
        return preview(call, setup, planned)
    planned += setup.remove(planned)
    touched = [step for step in planned if step.state != UNCHANGED]
    notes = [] if touched else ["nothing of dibs init is here"]
    if os.path.isdir(setup.place.store_dir) and not setup.named:
        notes.append(f"the store stays in {setup.label(setup.place.store_dir)}: delete that folder "
                     "to forget leases, tasks and messages")  # fmt: skip
    return report(call, setup, touched, notes)


def preview(call: Globals, setup: Setup, planned: list[Step]) -> int:
    """What would change, as a diff that `git apply` understands."""
    from difflib import unified_diff

    for step in planned:
        if step.changes:
            label = setup.label(step.path)
            old = f"a/{label}" if step.before is not None else "/dev/null"
            new = f"b/{label}" if step.after is not None else "/dev/null"
            text = "".join(unified_diff(lines(step.before), lines(step.after), old, new))
            if call.json:
                step.why = text
            else:
                say(text, end="")
    return report(call, setup, planned, ["nothing was changed"], quiet=True)


def lines(text: str | None) -> list[str]:
    """Lines for a diff; a missing line end is said as git says it."""
    found = (text or "").splitlines(keepends=True)
    if found and not found[-1].endswith("\n"):
        found[-1] += "\n\\ No newline at end of file\n"
    return found


def report(
    call: Globals, setup: Setup, planned: list[Step], notes: list[str], quiet: bool = False
) -> int:
    """Say what became of each file. `quiet` leaves out what needs no attention."""
    notes = [*setup.skipped, *notes]
    code = int(any(step.fault for step in planned))
    if call.json:
        files = [step.to_json(setup.label(step.path)) for step in planned]
        print_json({"files": files, "notes": notes})
        return code
    for step in planned:
        if step.state == SKIPPED or not quiet:
            say(f"{paint(COLOURS[step.state], step.state.ljust(9))}  {line_for(setup, step)}")
            if step.next:
                say(f"           next: {step.next}")
    for text in notes:
        note(text)
    return code


def line_for(setup: Setup, step: Step) -> str:
    where = f", line {step.line}" if step.line else ""
    return f"{setup.label(step.path)}{where}" + (f": {step.why}" if step.why else "")


def advice(names: list[str], new: bool) -> list[str]:
    """What is left for the user to do; the second time they know."""
    used = [client_of(name) for name in names]
    titles = ", ".join(client.title for client in used)
    said = [f"clients: {titles}" if used else "no agent client was found here: name one with "
            "--client, such as dibs init --client claude"]  # fmt: skip
    said += [client.after for client in used if new and client.after]
    if new:
        said.append("next: commit these files, and restart the clients that are running")
    return [*said, *unreachable()]


def unreachable() -> list[str]:
    """Whether the clients will find `dibs` where they look for it."""
    import sys
    from shutil import which

    found = which("dibs")
    how = "install it for all clients: uv tool install PATH, with the path of a checkout of dibs"
    if found is None:
        return [f"dibs is not on the PATH, so no client will find it; {how}"]
    if sys.prefix != sys.base_prefix and found.startswith(sys.prefix + os.sep):
        return [f"dibs is in the virtual environment {sys.prefix}: clients that are started "
                f"outside of it will not find it; {how}"]  # fmt: skip
    return []
