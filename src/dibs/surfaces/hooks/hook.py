"""`dibs hook CLIENT`: one event of a client, from its payload to its answer.

Never silent, never in the way by accident: if dibs itself fails, the policy of the repository
decides whether the tool runs, and the failure is written down for `dibs doctor`. The exit code
is 0, or 1 with a line on standard error when dibs has failed; 2 would mean a refusal.
"""

from __future__ import annotations

import json
import os
import sys

from dibs.errors import DibsError, NotYoursError
from dibs.surfaces.hooks import dialects, failures
from dibs.surfaces.hooks.occasion import (
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

    from dibs.dibs import Dibs
    from dibs.surfaces.cli.main import Globals
    from dibs.surfaces.hooks.case import Case
    from dibs.surfaces.hooks.dialects import Dialect

FAILED, DENIED = 1, 2


def run(globals_: Globals, client: str) -> int:
    """Answer one event, read from standard input."""
    occasion: Occasion | None = None
    try:
        dialect = dialects.of(client)
        occasion = dialect.read(payload(), os.environ)
        return answer(globals_, occasion, dialect)
    except Exception as error:
        return failed(client, occasion, error)


def payload() -> dict[str, Any]:
    found = json.loads(sys.stdin.buffer.read() or b"{}")
    if not isinstance(found, dict):
        raise ValueError("the client sent something else than an object")
    return found


def answer(globals_: Globals, occasion: Occasion, dialect: Dialect) -> int:
    edits = planned(occasion)
    if occasion.event == OTHER or (occasion.event == BEFORE and edits is None):
        return 0
    if occasion.event == SUBAGENT_END and not occasion.subagent:
        return 0  # a client that does not say which; the agent itself goes on
    if occasion.cwd and not os.path.isdir(occasion.cwd):
        occasion.cwd = ""  # a tool has removed it
    with globals_.open(start=occasion.cwd or None) as space:
        if edits and not globals_.store:
            refusal = elsewhere(globals_, space, occasion, edits)
            if refusal.deny:
                return respond(dialect, occasion, refusal)
        if space.scope.place.checkout.kind == "none":
            return 0  # dibs is about what people share, which a directory of its own is not
        try:
            return decide(space, occasion, edits or [], dialect)
        except NotYoursError as error:
            if "session" not in error.details:
                raise
            # Another process of the client has ended the session this moment: begin anew.
            return decide(space, occasion, edits or [], dialect)


def elsewhere(globals_: Globals, space: Dibs, occasion: Occasion, edits: list[Edit]) -> Answer:
    """Files of other repositories that use dibs are guarded there."""
    from dibs.surfaces.hooks import who
    from dibs.surfaces.hooks.after import after
    from dibs.surfaces.hooks.case import Case
    from dibs.surfaces.hooks.guard import before

    found: dict[str, list[Edit]] = {}
    for edit in edits:
        root = root_of(os.path.join(occasion.cwd or os.getcwd(), edit.path))
        if root and root != space.scope.place.root:
            found.setdefault(root, []).append(edit)
    for root, some in found.items():
        with globals_.open(start=root) as other:
            case = Case(other, who.of_occasion(occasion, os.environ), occasion)
            if occasion.event == AFTER:
                after(case)
            elif (answer := before(case, some)).deny:
                return answer
    return Answer()


def root_of(path: str) -> str:
    """The root of the repository that a path lies in, "" if dibs is not used there."""
    from dibs.nouns.checkouts import checkout_around

    try:
        root = checkout_around(os.path.realpath(path)).root
    except (DibsError, OSError, ValueError):
        return ""
    return root if os.path.isdir(os.path.join(root, ".dibs")) else ""


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


def decide(space: Dibs, occasion: Occasion, edits: list[Edit], dialect: Dialect) -> int:
    from dibs.surfaces.hooks import who
    from dibs.surfaces.hooks.case import Case

    case = Case(space, who.of_occasion(occasion, os.environ), occasion)
    if occasion.event in (END, SUBAGENT_END):
        leave(case)
        return 0
    if occasion.event == BEFORE:
        from dibs.surfaces.hooks.guard import before

        return respond(dialect, occasion, before(case, edits))
    brief(case, dialect)
    return 0


def respond(dialect: Dialect, occasion: Occasion, answer: Answer) -> int:
    """Give the answer as the client wants it; the exit code that belongs to it."""
    if answer.deny and dialect.DENIES_BY_EXIT:
        print(answer.deny, file=sys.stderr, flush=True)
        return DENIED
    sys.stdout.write(dialect.write(occasion, answer))
    sys.stdout.flush()
    return 0


def brief(case: Case, dialect: Dialect) -> None:
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
        case.reads.prune()
        begin(case)
    if occasion.deaf:
        briefing.postpone(told)
        return
    if not (occasion.event == STOP and occasion.again):
        told = [*briefing.postponed(), *told, *briefing.messages()]
    if occasion.event in (START, PROMPT):
        told += briefing.picture()
    if told:
        respond(dialect, occasion, Answer(context="\n".join(told)))
    briefing.remember()


def catch_up(case: Case) -> list[str]:
    """Look at what tools have done whose end no hook was told of."""
    mine = [one for one in case.flights.under_way(case.session) if one.session == case.session]
    if not mine:
        return []
    from dibs.surfaces.hooks.guard import release
    from dibs.surfaces.hooks.sweep import sweep

    told = sweep(case)
    case.flights.end_all(case.session)
    release(case, sorted({name for flight in mine for name in flight.brief}))
    return told


def begin(case: Case) -> None:
    """End the session that this client process had before, of whose end it says nothing."""
    who, occasion = case.who, case.occasion
    if occasion.client != "codex" or occasion.subagent or not who.process:
        return
    from dibs.surfaces.hooks.who import first_name, name_file

    before = first_name(case.store_dir, who.process, occasion.session)
    if occasion.afresh and before != occasion.session:
        case.space.join(who.name, client=f"codex:{before}", shell=True).agents.leave()
        with open(name_file(case.store_dir, who.process), "w", encoding="utf-8") as target:
            target.write(occasion.session)


def leave(case: Case) -> None:
    """The session is over: everything it holds is free."""
    from dibs.surfaces.hooks.briefing import Briefing
    from dibs.surfaces.hooks.case import hooked
    from dibs.surfaces.hooks.flights import remove

    case.flights.end_all(case.session)
    case.reads.forget()
    Briefing(case).forget()
    remove(hooked(case.store_dir, case.session))
    case.agent.agents.leave()


def failed(client: str, occasion: Occasion | None, error: Exception) -> int:
    """Write the failure down, and let the policy decide what becomes of the tool."""
    what = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
    folder, policy = surroundings(occasion)
    event = occasion.event if occasion else "?"
    failures.record(folder, f"hook {client} {event}: {what}")
    print(f"dibs: the hook failed: {what} (see: dibs doctor)", file=sys.stderr)
    if policy != "closed" or occasion is None or occasion.event != BEFORE:
        return FAILED
    reason = (
        f"dibs could not check whether this file is free ({what}), and this repository's policy "
        "is `closed`. Tell the person you work for; dibs doctor says more."
    )
    return respond(dialects.of(client), occasion, Answer(deny=reason))


def surroundings(occasion: Occasion | None) -> tuple[str, str]:
    """Where failures are written down, and the policy, as far as that can still be found out."""
    from dibs.dibs import default_user_dir
    from dibs.nouns.paths import find_place
    from dibs.surfaces.config import load

    try:
        place = find_place(occasion.cwd if occasion and occasion.cwd else None, default_user_dir())
    except DibsError:
        return default_user_dir(), "open"
    try:
        return place.store_dir, load(place).policy
    except (DibsError, OSError):
        return place.store_dir, "open"
