"""Before and after a commit: it includes no file of another agent, and commits take turns.

Merges with `dibs merge` take turns too: one at a time in the whole space, first come, first served.

A session of the git process leases `git:index` around each commit. The lease ends with the commit,
or with the process if the commit is abandoned. A second commit waits. By then HEAD has moved, and
git would refuse with a message about a reference, so dibs asks for another commit instead.

Other hooks may run after ours, for as long as tests take, and git reads the index again when they
are done. So the index is checked again then (`prepare-commit-msg`), unless a person has chosen to
skip the check.

dibs stops a commit with a path that another session holds or has staged and, for agents, with a
protected path. A lease in another worktree only warns, by default.

A person may commit what their own agents have edited or staged in this checkout: silently when the
agent's turn has ended, with a warning while the agent works. An agent is theirs if its hooks run
for this user in this checkout. Leases of anybody else stop a person too.

After a commit, files that hooks claimed and that have no uncommitted changes are released: those of
the agent that committed or, if a person committed, those of that person's agents.

The committer is an agent's sessions or a person, and the git process itself (`Committer`). A client
passes its own session to the commands of its subagents too. So the running tools show which of them
runs git: those of this agent and its subagents that call git now. If hooks note no tools, it is the
agent itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from dibs.arguments import CLAIM_LIMIT
from dibs.dibs import Agent, Dibs
from dibs.errors import HeldError, InvalidError, PrunedError, StaleError, TimeoutError
from dibs.names.checkouts import git_directory
from dibs.names.paths import Place, Resource
from dibs.operation import EVERYBODY
from dibs.records import Blocker, called
from dibs.surfaces.hooks.case import Case
from dibs.surfaces.hooks.notes import Stagings
from dibs.surroundings.changes import Asking
from dibs.surroundings.commands import Globals
from dibs.surroundings.git import git, own_git_dir, staged_paths
from dibs.surroundings.occasion import OTHER, Occasion
from dibs.surroundings.running import QUEUE_S, perform
from dibs.surroundings.who import Who, of_environment, person
from dibs.surroundings.wording import argument, blocker_line, complaint, note, paint, where_held
from dibs.system import ancestors, process_name

BY = {"merge": EVERYBODY}
INDEX = "git:index"
MERGE = "git:merge"
WAIT_S = 30.0
TTL_S = 600.0
"""How long an editor that stays open can keep others from committing."""
NOTE = "git commit"
SHARED = "shared"
WORKED_ON = "this commit includes files that one of your agents is still working on:"
MENTIONED = 10
NAMED = 3
"""How many paths the advice lists."""


class Committer(Case):
    """
    is_person: whether no agent runs git; then every holder is somebody else
    sessions: the sessions that it may be; for a person, the session of this git process
    """

    has_hooks = False

    def __init__(self, space: Dibs) -> None:
        who = of_environment(os.environ)
        self.is_person = who is None
        super().__init__(space, who or of_git(person()), Occasion("git", OTHER))
        self.name = self.agent.name
        calling_git = {
            flight.session
            for flight in self.flights.under_way()
            if "git" in flight.command
            and (flight.session == self.session or flight.agent.startswith(f"{self.name}/"))
        }
        self.sessions = calling_git or {self.session}

    def is_own_agent(self, session: int) -> bool:
        """Whether a person commits, and the session belongs to one of their agents.

        Its hooks leave notes in a folder that only this user can write to.
        """
        return self.is_person and self.is_hooked(session)

    def turn(self) -> Agent:
        """The session that holds the index for this commit; it ends with git at the latest."""
        return of_git(self.name).join(self.space)


def of_git(name: str) -> Who:
    """Join as a session of the nearest git process above: hook managers may be in between.

    If somebody runs a hook by hand, use this process instead, so that nothing outlasts it.
    """
    above = list(ancestors())
    # None is found on systems that do not list processes.
    own = os.getpid() if above else os.getppid()
    process = process_name(next((pid for pid, called in above if called == "git"), own))
    return Who(name, f"git:{process}", process)


def index_name(place: Place, directory: str) -> str:
    """The name under which the index of a git directory is leased.

    `git:index` in the main checkout, `git:index:NAME` in the linked worktree of that name.
    """
    inside = os.path.relpath(directory, git_directory(place.root))
    return INDEX if inside == "." else f"{INDEX}:{inside.removeprefix('worktrees/')}"


def named(by: Committer, paths: Iterable[str]) -> dict[str, Resource]:
    """The resources of paths in this working tree, without those that cannot be leased."""
    found, top = {}, os.getcwd()  # git runs its hooks there
    for path in paths:
        try:
            resource = by.place.resource(f"path:{top}/{path}")
        except InvalidError:
            continue  # such as a file of the store, or a link that leads out
        if not by.config.ignores(resource):
            found[path] = resource
    return found


def holders(by: Committer, resources: dict[str, Resource]) -> dict[str, list[Blocker]]:
    """The paths that others hold, and all paths."""
    paths = list(resources)
    found: dict[str, list[Blocker]] = {}
    for start in range(0, len(paths), CLAIM_LIMIT):
        some = paths[start : start + CLAIM_LIMIT]
        # By its place on disk: in a submodule, a name from the top means another file.
        states = by.space.leases.status(*(f"path:{resources[path].file}" for path in some))
        for path, state in zip(some, states, strict=True):
            if others := without_own(by, [one for one in state.blockers if not one.waiting]):
                found[path] = others
    return found


def without_own(by: Committer, blockers: list[Blocker]) -> list[Blocker]:
    # Everybody who shares a file may commit it.
    sharing = any(one.mode == SHARED and one.session in by.sessions for one in blockers)
    return [
        one
        for one in blockers
        if one.session not in by.sessions and not (sharing and one.mode == SHARED)
    ]


def is_here(blocker: Blocker, resource: Resource) -> bool:
    """Whether somebody holds a path in this checkout rather than in another worktree."""
    return blocker.checkout in (None, resource.checkout)


class Findings:
    """What is wrong with the staged files: paths, each with what to say about it."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.worked_on: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.staged_by: dict[str, str] = {}
        self.protected: dict[str, str] = {}
        self.merges = False

    @property
    def stops(self) -> bool:
        return bool(self.held or self.staged_by or self.protected)


def before(by: Committer, merges: bool) -> int:
    """Let a commit begin (0), or stop it (1).

    merges: whether this is git's own merge, which its directory does not show yet
    """
    directory = own_git_dir()
    turn, goes_on = by.turn(), False
    try:
        take_turn(turn, index_name(by.place, directory))
        found = look(by, directory)
        found.merges |= merges
        listed(WORKED_ON, found.worked_on)
        # This does not stop a commit, but one of the two will have to merge.
        if found.elsewhere:
            listed(
                "this commit includes files that others hold in another worktree:", found.elsewhere
            )
            note("next: dibs overlap shows whether both changes would merge cleanly")
        goes_on = not found.stops
        if not goes_on:
            refuse(found, by)
    except (StaleError, TimeoutError) as error:
        complaint(error)
    finally:
        if not goes_on:
            turn.agents.leave()
    return int(not goes_on)


def again(by: Committer) -> int:
    """Check again, now that git has read what it will commit."""
    directory = own_git_dir()
    (state,) = by.space.leases.status(index_name(by.place, directory))
    if state.free:
        return 0
    turn = by.turn()
    ours = any(one.session == turn.session for one in state.blockers)
    found = look(by, directory) if ours else Findings()
    if found.stops:
        refuse(found, by)
    if found.stops or not ours:
        turn.agents.leave()
    return int(found.stops)


def take_turn(turn: Agent, name: str) -> None:
    """Claim the index; raise a `StaleError` if somebody else has committed meanwhile."""
    try:
        turn.leases.claim(name, ttl_s=TTL_S, note=NOTE)
        return
    except HeldError as error:
        first = error.blockers[0]
        say("another commit is running; waiting for it to end")
        note(f"  {blocker_line(first)}")
    then = head()
    turn.leases.claim(name, ttl_s=TTL_S, note=NOTE, wait_s=WAIT_S)
    if head() != then:
        raise StaleError(
            "somebody else has just committed",
            next="your files are still staged: commit again",
            blockers=[first],
        )


def head() -> bytes:
    """The commit that is checked out; nothing before the first one."""
    return git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1))


def look(by: Committer, directory: str) -> Findings:
    """Compare the staged files with what others hold and have staged."""
    found, paths = Findings(), staged_paths()
    found.merges = os.path.exists(f"{directory}/MERGE_HEAD")
    resources = named(by, paths)
    if not by.is_person:
        found.protected = {path: "" for path, one in resources.items() if by.config.protects(one)}
    for path, others in holders(by, resources).items():
        here = [one for one in others if is_here(one, resources[path])]
        if here and all(by.is_own_agent(one.session) for one in here):
            if working := [one for one in here if not by.is_resting(one.session)]:
                found.worked_on[path] = blocker_line(working[0])
        elif here or by.config.worktrees == "block":
            first = (here or others)[0]
            found.held[path] = f"{blocker_line(first)}{intruders(by, resources[path], first)}"
        elif by.config.worktrees == "warn":
            found.elsewhere[path] = f"{blocker_line(others[0])}, in {where_held(others[0])}"
    if directory == git_directory(by.place.top):  # not the index of a submodule
        for path, who in of_others(by, paths).items():
            said = f"staged by {' or '.join(sorted(map(called, who.values())))}"
            if not all(map(by.is_own_agent, who)):
                found.staged_by[path] = said
            elif not all(map(by.is_resting, who)):
                found.worked_on.setdefault(path, said)
    return found


def intruders(by: Committer, resource: Resource, blocker: Blocker) -> str:
    """Who has changed a file under its current lease, in words; "" if nobody has."""
    journal, kind = by.space.events, "lease.intruded"
    try:
        events = journal.since(blocker.epoch, kind=kind, subject=resource.text)
    except PrunedError:
        events = journal.since(kind=kind, subject=resource.text)  # as far as the journal goes back
    mine = [event.data for event in events if event.data["holder_session"] == blocker.session]
    if not mine:
        return ""
    whom = " or ".join(map(called, mine[-1]["by"])) or "somebody"
    return f"; changed under that lease by {whom}"


def of_others(by: Committer, paths: dict[str, str]) -> dict[str, dict[int, str]]:
    """The paths that only others staged, at least one of whom is still here; and who they are."""
    suspects = {
        path: sessions
        for path, (content, sessions) in Stagings(by.place).known().items()
        if sessions and paths.get(path) == content and not by.sessions & set(sessions)
    }
    if not suspects:
        return {}
    here = {session.id for one in by.space.agents.list() for session in one.sessions}
    return {path: who for path, who in suspects.items() if here & set(who)}


def after(by: Committer) -> int:
    """Release the index, note who made this commit, and release the files that are clean now."""
    from dibs.surfaces.hooks import git_events
    from dibs.surfaces.hooks.endings import free_clean

    if not by.space.leases.status(index_name(by.place, own_git_dir()))[0].free:
        by.turn().agents.leave()
    if len(by.sessions) == 1:
        commit = git("rev-parse", "HEAD").decode().strip()
        git_events.note_made(by.place, [(commit, (sum(by.sessions), by.space.events.last()))])
    Stagings(by.place).refresh()
    holding = {one.session for one in by.space.leases.list()}
    free_clean(by, {one for one in holding if one in by.sessions or by.is_own_agent(one)})
    return 0


def refuse(found: Findings, by: Committer) -> None:
    """Why a commit is stopped, and how to go on."""
    listed("this commit includes files that others hold:", found.held)
    listed("this commit includes files that others have staged:", found.staged_by)
    listed("this commit includes files that only people may change:", found.protected)
    ways = ["give up the merge (git merge --abort)"]
    if not found.merges:  # a merge cannot be split
        paths = spelled(found.held | found.staged_by | found.protected)
        # Before the first commit there is nothing to restore from.
        out = "restore --staged" if head() else "rm -q --cached"
        ways = [
            "commit only your own files (git commit -- YOUR PATHS)",
            f"unstage these (git {out} {paths})",
        ]
    if found.held:
        then = "; git commit" if found.merges else ""
        ways.insert(0, f"wait for them (dibs wait {spelled(found.held)}{then})")
    if by.is_person:
        ways.append("decide yourself (git commit --no-verify)")
    offer(ways)


def offer(ways: list[str]) -> None:
    note("next: " + ", or ".join(filter(None, (", ".join(ways[:-1]), ways[-1]))))


def say(text: str) -> None:
    note(f"{paint('red', 'dibs:', sys.stderr)} {text}")


def listed(what: str, found: dict[str, str]) -> None:
    """Say what is wrong, if anything, and with which paths."""
    if found:
        say(what)
    for path, said in list(found.items())[:MENTIONED]:
        note(f"  {called(path)}{f'  {said}' if said else ''}")
    if len(found) > MENTIONED:
        note(f"  and {len(found) - MENTIONED} more")


def spelled(paths: dict[str, str]) -> str:
    """Paths quoted for a shell, not too many."""
    some = " ".join(map(argument, list(paths)[:NAMED]))
    return f"{some} …" if len(paths) > NAMED else some


def merge(call: Globals, branch: str | None = None, *command: str, wait_s: float = QUEUE_S) -> int:
    """Wait for the merge slot, then run git merge BRANCH, or the command.

    The slot is the lease git:merge. The next in line starts when this merge has ended, in any
    worktree. The exit code is the command's own, or 1 if the wait timed out.

    branch: what to merge
    command: what to run instead of git merge
    wait_s: how long to queue for it
    example: -- sh -c 'git merge feature && make test && git push'
    """
    if (branch is None) == (not command):
        raise InvalidError("name one branch, or a command after --", next="see: dibs merge --help")
    if branch is not None:
        command = ("git", "merge", "--no-edit", branch)
    if command[:2] == ("git", "merge"):
        refuse_held(call, command[-1])
    who = call.who()
    # The caller does the merge, and may hold files already; only the slot is ours.
    name = (who and who.name) or person()
    return perform(call, name, command, [MERGE], wait_s, as_caller=True)


def refuse_held(call: Globals, branch: str) -> None:
    """Refuse to merge into files of this checkout that others hold."""
    with call.open() as space:
        by = Committer(space)
        os.chdir(by.place.top)  # git's paths are relative to it
        try:
            resources = named(by, Asking(by.place.top, WAIT_S).merged(branch))
            for path, others in holders(by, resources).items():
                if any(is_here(one, resources[path]) for one in others):
                    first = others[0]
                    raise HeldError(
                        f"the merge would change {called(path)}, which {called(first.agent)} holds "
                        "here",
                        next=f"wait for it (dibs wait {argument(path)}), or merge in another "
                        "worktree",
                        blockers=others,
                    )
        finally:
            if by.is_person:
                by.agent.agents.leave()
