"""`dibs hook CLIENT`: one event of a client, from its payload to its answer.

`dibs hook git NAME …`, which git's hooks run, is in `git_events`.

A client works in one repository, whose hooks are called. If it edits a file in another repository
that uses dibs, the file is claimed there, and released there when the client's session ends
(`visit`).

A failure is never silent, and never blocks a tool by accident: if dibs itself fails, the policy of
the repository decides whether the tool runs, and the failure is recorded for `dibs doctor`. The
exit code is 0, or 1 with a line on standard error if dibs failed; 2 would mean a refusal. A client
that treats every other code as a refusal gets 0.
"""

from __future__ import annotations

import os
import sys

from dibs.clients import Client, client_of, find_client
from dibs.errors import DibsError, NotYoursError, UnfitError
from dibs.operation import EVERYBODY
from dibs.records import quoted, read_json
from dibs.storage.clock import HOOK_S, SILENCE
from dibs.surfaces.hooks.notes import Visits, begin_notes, prune, stir, write
from dibs.surroundings.occasion import (
    AFTER,
    ASKING,
    BEFORE,
    DONE,
    END,
    OTHER,
    PLANNED,
    PROMPT,
    PROVE,
    REFUSED,
    SEEN,
    START,
    STOP,
    SUBAGENT_END,
    Answer,
    Edit,
    Occasion,
    Payload,
)
from dibs.surroundings.wording import note, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
GONE = (
    "dibs: the store of this repository (.dibs) was deleted while you worked, as git clean -fdx "
    "does, and a new one was created. Your leases and tasks are gone, and others may take them. "
    "Claim what you are working on again: dibs claim PATH."
)
FAILED, DENIED = 1, 2
LONGEST_S = 7 * 86_400
PAYLOAD_LIMIT = 16 << 20


def main(call: Globals, client: str = "", *arguments: str) -> int:
    """Answer one event of an agent client or of git; `dibs init` writes the hooks that call this.

    The event is read from standard input as the client sends it, and the answer is written to
    standard output in the client's own format. For git: dibs hook git NAME [ARGUMENT]…

    client: the client, such as claude or codex, or git
    arguments: for git, the hook's name and arguments; or wake, to wait for a message
    example: claude < event.json
    """
    call.tidies = False  # the client is waiting for the answer
    SILENCE.set(HOOK_S)  # then the policy decides
    if client == "git" and arguments:
        from dibs.surfaces.hooks import git_events

        return git_events.run(call, arguments[0], list(arguments[1:]))
    waits = arguments == ("wake",)
    if not client or (arguments and not waits):
        # Not 2: for clients that means that the tool must not run.
        note("dibs hook: which client? see: dibs hook --help")
        return FAILED
    occasion: Occasion | None = None
    os.umask(0o077)  # kept contents may be secret
    try:
        dialect = client_of(client)
        said = sys.stdin.buffer.read(PAYLOAD_LIMIT + 1)
        if len(said) > PAYLOAD_LIMIT:
            raise ValueError(f"the client sent more than {PAYLOAD_LIMIT >> 20} MiB")
        payload = read_json(said.decode("utf-8", "surrogatepass") or "{}")
        if not isinstance(payload, dict):
            raise ValueError("the client sent something other than a JSON object")
        occasion = dialect.read(Payload(payload), os.environ)
        if PROVE not in os.environ:
            return (stand_by if waits else answer)(call, occasion, dialect)
        code = 0 if waits else answer(call, occasion, dialect)
        note(f"{SEEN} {client}")
        return code
    except Exception as error:
        code = failed(client, occasion, error)
        if waits:
            return 0  # any other code would begin a turn or disturb the user
        known = find_client(occasion.client if occasion else client)
        return 0 if code == FAILED and known and known.fails_closed else code


def answer(globals_: Globals, occasion: Occasion, dialect: Client) -> int:
    edits = planned(occasion)
    if occasion.event == OTHER or (occasion.event in (BEFORE, ASKING) and edits is None):
        return 0
    if occasion.event == SUBAGENT_END and not occasion.subagent:
        return 0  # the client does not say which; the agent itself goes on
    if occasion.cwd and not os.path.isdir(occasion.cwd):
        occasion.cwd = ""  # a tool has removed it
    from dibs.dibs import POSTGRES

    if occasion.event not in (BEFORE, AFTER) or not (globals_.store or "").startswith(POSTGRES):
        return in_space(globals_, occasion, edits or [], dialect)
    from dibs.surroundings import nearby

    return nearby.with_daemon(globals_, lambda: in_space(globals_, occasion, edits or [], dialect))


def in_space(globals_: Globals, occasion: Occasion, edits: list[Edit], dialect: Client) -> int:
    with globals_.open(start=occasion.cwd or None) as space:
        if space.scope.place.checkout.kind == "none":
            # Dibs coordinates shared directories, and this one is the agent's own.
            return respond(dialect, occasion, visit(globals_, space, occasion, edits))
        try:
            return decide(globals_, space, occasion, edits, dialect)
        except NotYoursError as error:
            if "session" not in error.details:
                raise
            # Another process of the client has just ended the session: begin again.
            return decide(globals_, space, occasion, edits, dialect)


def stand_by(globals_: Globals, occasion: Occasion, dialect: Client) -> int:
    """Wait beside an agent that has stopped (`wake`)."""
    if occasion.client != dialect.name or not dialect.can_wake(os.environ):
        return 0
    with globals_.open(start=occasion.cwd or None) as space:
        from dibs.surfaces.hooks import wake
        from dibs.surroundings.who import of_client

        who = of_client(occasion.client, occasion.session, os.environ)
        if space.scope.place.checkout.kind == "none" or who.find(space) is None:
            return 0  # it has just ended
        return wake.wait(case_of(space, occasion))


def visit(globals_: Globals, space: Dibs, occasion: Occasion, edits: list[Edit]) -> Answer:
    """Do what the event requires in the other repositories that it concerns.

    Return a refusal if one of them refuses.
    """
    visits = Visits(space.scope.place.store_dir, occasion)
    found: dict[str, list[Edit]] = {}
    if occasion.event == END:
        found = {root: [] for root in visits.roots()}
    elif not globals_.store:  # a named store means that store only
        for edit in edits:
            root = root_of(os.path.join(occasion.cwd or os.getcwd(), edit.path))
            if root and root != space.scope.place.root:
                found.setdefault(root, []).append(edit)
    for root, theirs in found.items():
        try:
            with globals_.open(start=root) as other:
                if (said := in_other(case_of(other, occasion), theirs)).deny:
                    return said
        except UnfitError as error:
            # A failure there must not leave the client's own repository unguarded.
            unguarded(occasion, error)
            continue
        if occasion.event == BEFORE:
            visits.add(root)
    return Answer()


def case_of(space: Dibs, occasion: Occasion) -> Case:
    from dibs.surfaces.hooks.case import Case
    from dibs.surroundings.who import of_client

    who = of_client(occasion.client, occasion.session, os.environ)
    if occasion.subagent:
        who = who.subagent(occasion.subagent, occasion.subagent_kind)
    return Case(space, who, occasion)


def in_other(case: Case, edits: list[Edit]) -> Answer:
    """What an event means in a repository that the client does not work in."""
    if case.occasion.event == BEFORE:
        from dibs.surfaces.hooks.before import before

        return before(case, edits)
    from dibs.surfaces.hooks.after import after, leave
    from dibs.surfaces.hooks.endings import renew

    if case.occasion.event == AFTER:
        from dibs.surfaces.hooks.briefing import Briefing

        Briefing(case).postpone([*after(case), *renew(case)])
    elif case.occasion.event == END:
        leave(case)
    return Answer()


def root_of(path: str) -> str:
    """The root of the repository that contains a path; "" if dibs is not used there."""
    from dibs.names.checkouts import checkout_around

    try:
        root = checkout_around(os.path.realpath(path)).root
    except (DibsError, OSError, ValueError):
        return ""
    return root if os.path.isdir(os.path.join(root, ".dibs")) else ""


def planned(occasion: Occasion) -> list[Edit] | None:
    """What a tool will change; None if it is certain that it changes nothing."""
    if not occasion.command:
        return list(occasion.edits) or None
    from dibs.surfaces.hooks import shell
    from dibs.surfaces.hooks.shell.call import DISK

    verdict = shell.read(occasion.command, occasion.cwd or os.getcwd(), DISK)
    return None if verdict.says == shell.READS else [*occasion.edits, *verdict.edits]


def decide(
    globals_: Globals, space: Dibs, occasion: Occasion, edits: list[Edit], dialect: Client
) -> int:
    case = case_of(space, occasion)
    if case.is_first:
        arrive(case)
    if occasion.event in (BEFORE, PROMPT):
        case.works()
    if occasion.event in (PLANNED, DONE):
        from dibs.surfaces.hooks.client_tasks import mirror

        mirror(case)
        return 0
    if occasion.event == ASKING:
        from dibs.surfaces.hooks.before import asking

        asking(case)
        return 0
    if occasion.event == BEFORE:
        from dibs.surfaces.hooks.before import abandon, before

        said = before(case, edits)
        if not said.deny and (refusal := visit(globals_, space, occasion, edits)).deny:
            abandon(case)
            said = refusal
        return respond(dialect, occasion, said)
    visit(globals_, space, occasion, edits)
    if occasion.event in (END, SUBAGENT_END):
        from dibs.surfaces.hooks.after import leave

        leave(case)
    elif occasion.event == REFUSED:
        refused(case)
    else:
        brief(case, dialect)
    return 0


def refused(case: Case) -> None:
    """Handle a tool that will not run; if it is not named, all that this session has begun."""
    from dibs.surfaces.hooks.briefing import Briefing
    from dibs.surfaces.hooks.endings import drop

    if case.occasion.call:
        flight = case.flights.of(case.occasion)
        drop(case, [flight] if flight else [])
        return
    Briefing(case).postpone(catch_up(case))
    case.rests()


def arrive(case: Case) -> None:
    """At the first event of a session in a store, check that the notes belong to this store.

    A session that was already working, but is new to the store, used an earlier store in the same
    place, which was deleted with everything in it.
    """
    from dibs.storage.folder import Note
    from dibs.storage.user_dir import home_user_dir
    from dibs.surfaces.hooks.briefing import Briefing
    from dibs.surfaces.hooks.case import hooked

    if begin_notes(case.own, case.mark):
        write(case.own, hooked(case.session), case.who.client or "")
    if case.occasion.event == START or case.space.scope.daemon:
        return
    store = Note(home_user_dir(), f"{case.store_dir}/dibs.db")
    if store.above:  # a store elsewhere cannot be deleted from here
        Briefing(case).postpone([GONE])


def respond(dialect: Client, occasion: Occasion, answer: Answer) -> int:
    """Print the answer in the client's format; return the exit code."""
    if answer.deny or answer.context:
        answer.deny, answer.context = shown(answer.deny), shown(answer.context)
    if answer.deny and dialect.denies_by_exit:
        note(answer.deny)
        return DENIED
    sys.stdout.write(dialect.write(occasion, answer))
    sys.stdout.flush()
    return 0


def brief(case: Case, dialect: Client) -> None:
    """Tell the agent what it needs to know after a tool, at a prompt, at the start or at a stop."""
    from dibs.surfaces.hooks.after import after
    from dibs.surfaces.hooks.briefing import Briefing
    from dibs.surfaces.hooks.endings import free_clean, renew

    occasion, stops = case.occasion, case.occasion.event == STOP
    told = after(case) if occasion.event == AFTER else catch_up(case)
    given = renew(case)
    found = case.agent.agents.overview(limit=1000) if occasion.event in (START, PROMPT) else None
    briefing = Briefing(case)
    if occasion.event == PROMPT:
        stir(case.own, case.session)
    if occasion.event == START:
        prune(case.store_dir, LONGEST_S)
        begin(case, dialect)
    if stops:
        free_clean(case, {case.session})
    if occasion.deaf:
        briefing.postpone([*told, *given])
        return
    if not (stops and occasion.again):
        told = [*briefing.postponed(), *told, *briefing.messages(found)]
    if not stops:
        told += [*given, *briefing.wishes()]
    if found is not None:
        told += briefing.picture(found)
    if told:
        if occasion.event == STOP:
            stir(case.own, case.session)  # it continues
        respond(dialect, occasion, Answer(context="\n".join(told)))
    elif stops:
        case.rests()
        if dialect.wake_command(occasion.session, ()):
            from dibs.surfaces.hooks.wake import send_out

            send_out(case, dialect)
    if stops:  # a released file is no reason to continue
        briefing.postpone(given)
    try:
        briefing.remember()
    except (DibsError, OSError) as error:
        from dibs.surroundings import failures

        # It was said. Saying it again does no harm.
        failures.record(case.store_dir, f"hook {occasion.client} {occasion.event}: {error}")


def catch_up(case: Case) -> list[str]:
    """Check what tools did whose end was not reported, and release what they left."""
    from dibs.surfaces.hooks.after import sweep
    from dibs.surfaces.hooks.endings import release, unused

    told = sweep(case) if case.flights.own() else []
    case.flights.end()
    release(case, unused(case))
    return told


def begin(case: Case, dialect: Client) -> None:
    """End the earlier session of this client process, whose end the client did not report."""
    who, occasion = case.who, case.occasion
    if not dialect.clear_replaces or occasion.subagent or not who.process:
        return
    from dibs.surroundings.who import first_name, name_file

    before = first_name(case.store_dir, who.process, occasion.session)
    if occasion.afresh and before != occasion.session:
        case.space.join(who.name, client=f"{occasion.client}:{before}", shell=True).agents.leave()
        write(case.own, name_file(who.process), occasion.session)


def unguarded(occasion: Occasion, error: UnfitError) -> int:
    """Say once that dibs guards no file until a person has looked; return the exit code."""
    from dibs.surroundings import failures

    if not failures.is_news(f"{occasion.client} {occasion.session} {error.message}"):
        return 0
    note(f"dibs: no file is guarded here: {error.message}; next: {error.next}")
    return FAILED


def failed(client: str, occasion: Occasion | None, error: Exception) -> int:
    """Record the failure, and let the policy decide whether the tool runs."""
    from dibs.surroundings import failures

    event, cwd = (occasion.event, occasion.cwd) if occasion else ("?", "")
    what, policy = failures.hook_failed(f"{client} {event}", error, cwd)
    opens = policy != "closed" or (occasion is not None and occasion.event != BEFORE)
    if opens and occasion and isinstance(error, UnfitError) and "untrusted" in error.details:
        return unguarded(occasion, error)
    note(f"dibs: the hook failed: {quoted(what)} (see: dibs doctor)")
    if opens:
        return FAILED
    if occasion is None:
        # The client's own format is not known here; every client treats this as a refusal.
        return DENIED
    reason = (
        f"dibs could not check whether this file is free ({quoted(what)}), and this repository's "
        "policy is `closed`. Tell the person you work for; dibs doctor says more."
    )
    return respond(client_of(client), occasion, Answer(deny=reason))
