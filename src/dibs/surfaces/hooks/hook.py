"""`dibs hook CLIENT`: one event of a client, from its payload to its answer.

Never silent, never in the way by accident: if dibs itself fails, the policy of the repository
decides whether the tool runs, and the failure is written down for `dibs doctor`. The exit code
is 0, or 1 with a line on standard error when dibs has failed; 2 would mean a refusal.
"""

from __future__ import annotations

import json
import os
import sys
from time import time

from dibs.clients import client_of
from dibs.errors import DibsError, NotYoursError
from dibs.surfaces.hooks import failures
from dibs.surfaces.hooks.elsewhere import Elsewhere
from dibs.surroundings.occasion import (
    AFTER,
    BEFORE,
    END,
    OTHER,
    PROMPT,
    START,
    STOP,
    SUBAGENT_END,
    Answer,
    Edit,
    Occasion,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.clients import Client
    from dibs.dibs import Dibs
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings.commands import Globals

FAILED, DENIED = 1, 2
LONGEST_S = 7 * 86_400


def run(globals_: Globals, client: str) -> int:
    """Answer one event, read from standard input."""
    occasion: Occasion | None = None
    os.umask(0o077)  # what is kept may be secret, and nothing else is written here
    try:
        dialect = client_of(client)
        occasion = dialect.read(payload(), os.environ)
        return answer(globals_, occasion, dialect)
    except Exception as error:
        return failed(client, occasion, error)


def payload() -> dict[str, Any]:
    found = json.loads(sys.stdin.buffer.read() or b"{}")
    if not isinstance(found, dict):
        raise ValueError("the client sent something else than an object")
    return found


def answer(globals_: Globals, occasion: Occasion, dialect: Client) -> int:
    edits = planned(occasion)
    if occasion.event == OTHER or (occasion.event == BEFORE and edits is None):
        return 0
    if occasion.event == SUBAGENT_END and not occasion.subagent:
        return 0  # a client that does not say which; the agent itself goes on
    if occasion.cwd and not os.path.isdir(occasion.cwd):
        occasion.cwd = ""  # a tool has removed it
    with globals_.open(start=occasion.cwd or None) as space:
        elsewhere = Elsewhere(globals_, space, occasion, edits or [])
        if space.scope.place.checkout.kind == "none":
            # Dibs is about what people share, which a directory of its own is not.
            return respond(dialect, occasion, elsewhere.visit())
        try:
            return decide(space, occasion, edits or [], elsewhere, dialect)
        except NotYoursError as error:
            if "session" not in error.details:
                raise
            # Another process of the client has ended the session this moment: begin anew.
            return decide(space, occasion, edits or [], elsewhere, dialect)


def planned(occasion: Occasion) -> list[Edit] | None:
    """What a tool is going to change; None if it surely changes nothing."""
    if not occasion.command:
        return list(occasion.edits) or None
    from dibs.surfaces.hooks import shell

    if shell.only_reads(occasion.command):
        return None
    found = shell.writes(occasion.command, occasion.cwd or os.getcwd(), kind_of)
    return [*occasion.edits, *found]


def kind_of(path: str) -> str:
    if os.path.isdir(path):
        return "directory"
    return "file" if os.path.lexists(path) else ""


def decide(
    space: Dibs, occasion: Occasion, edits: list[Edit], elsewhere: Elsewhere, dialect: Client
) -> int:
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings import who

    case = Case(space, who.of_occasion(occasion, os.environ), occasion)
    if occasion.event in (END, SUBAGENT_END):
        from dibs.surfaces.hooks.after import leave

        elsewhere.visit()
        leave(case)
        return 0
    if occasion.event == BEFORE:
        from dibs.surfaces.hooks.guard import abandon, before

        said = before(case, edits)
        if not said.deny and (refusal := elsewhere.visit()).deny:
            abandon(case)
            said = refusal
        return respond(dialect, occasion, said)
    elsewhere.visit()
    brief(case, dialect)
    return 0


def respond(dialect: Client, occasion: Occasion, answer: Answer) -> int:
    """Give the answer as the client wants it; the exit code that belongs to it."""
    if answer.deny and dialect.denies_by_exit:
        print(answer.deny, file=sys.stderr, flush=True)
        return DENIED
    sys.stdout.write(dialect.write(occasion, answer))
    sys.stdout.flush()
    return 0


def brief(case: Case, dialect: Client) -> None:
    """Tell the agent what it has to know after a tool, at a prompt, at the start or at a stop."""
    from dibs.surfaces.hooks.briefing import Briefing

    occasion, told = case.occasion, []
    if occasion.event == AFTER:
        from dibs.surfaces.hooks.after import after

        told = after(case)
    else:
        told = catch_up(case)
    briefing = Briefing(case)
    if occasion.event == START:
        prune(os.path.join(case.store_dir, "hooks"))
        begin(case, dialect)
    if occasion.event == STOP:
        from dibs.surfaces.hooks.after import free_clean

        free_clean(case)
    if occasion.deaf:
        briefing.postpone(told)
        return
    if not (occasion.event == STOP and occasion.again):
        told = [*briefing.postponed(), *told, *briefing.messages()]
    if occasion.event != STOP:
        told += briefing.wishes()
    if occasion.event in (START, PROMPT):
        told += briefing.picture()
    if told:
        respond(dialect, occasion, Answer(context="\n".join(told)))
    try:
        briefing.remember()
    except (DibsError, OSError) as error:
        # It was said. If it is said again, nobody is harmed.
        failures.record(case.store_dir, f"hook {occasion.client} {occasion.event}: {error}")


def catch_up(case: Case) -> list[str]:
    """Look at what tools have done whose end no hook was told of, and free what they left."""
    from dibs.surfaces.hooks.guard import BRIEF, release
    from dibs.surfaces.hooks.sweep import sweep

    flights = case.flights.under_way(case.session)
    told = sweep(case) if any(one.session == case.session for one in flights) else []
    case.flights.end_all(case.session)
    mine = case.agent.leases.list(session=case.session)
    release(case, [lease.resource for lease in mine if lease.note == BRIEF])
    return told


def begin(case: Case, dialect: Client) -> None:
    """End the session that this client process had before, of whose end it says nothing."""
    who, occasion = case.who, case.occasion
    if not dialect.clear_replaces or occasion.subagent or not who.process:
        return
    from dibs.surroundings.who import first_name, name_file

    before = first_name(case.store_dir, who.process, occasion.session)
    if occasion.afresh and before != occasion.session:
        case.space.join(who.name, client=f"{occasion.client}:{before}", shell=True).agents.leave()
        with open(name_file(case.store_dir, who.process), "w", encoding="utf-8") as target:
            target.write(occasion.session)


def prune(folder: str) -> None:
    """Remove what those left who went without a word, and nobody has touched for long."""
    for path, folders, names in os.walk(folder, topdown=False):
        for name in (*names, *folders):
            file = os.path.join(path, name)
            try:
                if time() - os.stat(file).st_mtime > LONGEST_S:
                    os.rmdir(file) if name in folders else os.unlink(file)
            except OSError:
                continue  # another hook was faster, or something young is in the folder


def failed(client: str, occasion: Occasion | None, error: Exception) -> int:
    """Write the failure down, and let the policy decide what becomes of the tool."""
    what = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
    folder, policy = surroundings(occasion)
    event = occasion.event if occasion else "?"
    failures.record(folder, f"hook {client} {event}: {what}")
    print(f"dibs: the hook failed: {what} (see: dibs doctor)", file=sys.stderr)
    if policy != "closed" or (occasion is not None and occasion.event != BEFORE):
        return FAILED
    if occasion is None:
        # Not known how to say it in the client's words; this all of them take for a refusal.
        return DENIED
    reason = (
        f"dibs could not check whether this file is free ({what}), and this repository's policy "
        "is `closed`. Tell the person you work for; dibs doctor says more."
    )
    return respond(client_of(client), occasion, Answer(deny=reason))


def surroundings(occasion: Occasion | None) -> tuple[str, str]:
    """Where failures are written down, and the policy, as far as that can still be found out."""
    from dibs.dibs import default_user_dir
    from dibs.names.paths import find_place
    from dibs.surroundings.settings import load

    try:
        place = find_place(occasion.cwd if occasion and occasion.cwd else None, default_user_dir())
    except DibsError:
        return default_user_dir(), "open"
    return place.store_dir, load(place).policy
