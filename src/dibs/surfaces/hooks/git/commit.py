"""Before and after a commit: it takes in nothing that is another's, and commits take turns.

`git:index` is leased around each commit, by a session of the git process: it ends with the
commit, or with the process if the commit is abandoned. Whoever comes second waits. Then HEAD has
moved under their git, which would refuse with words about a reference; so they are told to
commit again.

Other hooks may run after ours, for as long as tests take, and git reads the index once more when
they are done. So it is looked at again then (`prepare-commit-msg`), unless somebody has decided
to commit without a look.

What stops a commit: a staged path that another session holds, a path that another session has
staged, and for agents a protected path. A lease in another worktree warns, by default.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import HeldError, PrunedError, StaleError, TimeoutError
from dibs.names.checkouts import git_directory
from dibs.surfaces.hooks.git import staged
from dibs.surfaces.hooks.git.committer import holders, is_here, named
from dibs.surfaces.hooks.git.staged import index_name, own_git_dir, staged_paths
from dibs.surroundings.git import git
from dibs.surroundings.wording import blocker_line, complaint, note, paint, where_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dibs.dibs import Agent
    from dibs.names.paths import Resource
    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.committer import Committer

WAIT_S = 30.0
TTL_S = 600.0
"""An editor that stays open keeps others from committing for no longer than this."""
NOTE = "git commit"
MENTIONED = 10
NAMED = 3
"""How many paths the advice spells out."""


class Findings:
    """What is wrong with what is staged, by path; who is in the way is the first of them."""

    def __init__(self) -> None:
        self.held: dict[str, Blocker] = {}
        self.elsewhere: dict[str, Blocker] = {}
        self.staged_by: dict[str, str] = {}
        self.protected: list[str] = []
        self.intruded: dict[str, str] = {}
        self.merges = False

    @property
    def stops(self) -> bool:
        return bool(self.held or self.staged_by or self.protected)


def before(by: Committer, merges: bool) -> int:
    """Let a commit begin (0), or stop it (1).

    merges: whether git has merged by itself; it does not say so in its directory yet
    """
    directory = own_git_dir()
    turn, goes_on = by.turn(), False
    try:
        take_turn(turn, index_name(by.place, directory))
        found = look(by, directory)
        found.merges |= merges
        warn(found.elsewhere)
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
    """Look once more, now that git has read what it will commit."""
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
    """Claim the index; a `StaleError` if somebody else has committed meanwhile."""
    try:
        turn.leases.claim(name, ttl_s=TTL_S, note=NOTE)
        return
    except HeldError as error:
        first = error.blockers[0]
        say(f"{first.agent} commits now; waiting for that to end")
    head = git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1))
    turn.leases.claim(name, ttl_s=TTL_S, note=NOTE, wait_s=WAIT_S)
    if git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1)) != head:
        raise StaleError(
            f"{first.agent} has just committed", next="what you staged is still so: commit again"
        )


def look(by: Committer, directory: str) -> Findings:
    """Compare what is staged with what others hold and have staged."""
    found, paths = Findings(), staged_paths()
    found.merges = os.path.exists(f"{directory}/MERGE_HEAD")
    resources = named(by, paths)
    if not by.is_person:
        found.protected = [path for path, one in resources.items() if by.config.protects(one)]
    for path, others in holders(by, resources).items():
        here = [one for one in others if is_here(one, resources[path])]
        if here or by.config.worktrees == "block":
            found.held[path] = (here or others)[0]
            if said := intruders(by, resources[path], found.held[path]):
                found.intruded[path] = said
        elif by.config.worktrees == "warn":
            found.elsewhere[path] = others[0]
    if directory == git_directory(by.place.top):  # not the index of a submodule
        found.staged_by = of_others(by, paths)
    return found


def intruders(by: Committer, resource: Resource, blocker: Blocker) -> str:
    """Who has changed a file under the lease that is on it."""
    try:
        events = by.space.events.since(blocker.epoch, kind="lease.intruded", subject=resource.text)
    except PrunedError:
        return ""
    mine = [event.data for event in events if event.data["holder_session"] == blocker.session]
    return " or ".join(mine[-1]["by"]) or "somebody" if mine else ""


def of_others(by: Committer, paths: dict[str, str]) -> dict[str, str]:
    """The paths that only others have staged, who are here still; with the names of those."""
    suspects = {
        path: entry.sessions
        for path, entry in staged.known(by.place).items()
        if entry.sessions
        and paths.get(path) == entry.content
        and not by.sessions & set(entry.sessions)
    }
    if not suspects:
        return {}
    here = {session.id for one in by.space.agents.list() for session in one.sessions}
    return {
        path: " or ".join(sorted(who.values())) for path, who in suspects.items() if here & set(who)
    }


def after(by: Committer) -> int:
    """Give the index to the next, and note who made this commit."""
    from dibs.surfaces.hooks.git import push

    if not by.space.leases.status(index_name(by.place, own_git_dir()))[0].free:
        by.turn().agents.leave()
    if len(by.sessions) == 1:
        commit = git("rev-parse", "HEAD").decode().strip()
        maker = push.Maker(sum(by.sessions), by.space.events.last())
        push.note_made(by.place, [(commit, maker)])
    staged.refresh(by.place)
    return 0


def refuse(found: Findings, by: Committer) -> None:
    """Why a commit is stopped, and how to go on."""
    if found.held:
        say("this commit has files that others hold:")
        listed(f"{path}  {blocker_line(one)}{changed_by(found.intruded.get(path, ''))}"
               for path, one in found.held.items())  # fmt: skip
    if found.staged_by:
        say("this commit has files that others have staged:")
        listed(f"{path}  staged by {names}" for path, names in found.staged_by.items())
    if found.protected:
        say("this commit has files that only people may change:")
        listed(found.protected)
    advise(found, by)


def advise(found: Findings, by: Committer) -> None:
    ways = ["give the merge up (git merge --abort)"] if found.merges else smaller(found)
    if found.held:
        then = "; git commit" if found.merges else ""
        ways.insert(0, f"wait for them (dibs wait {spelled(found.held)}{then})")
    if by.is_person:
        ways.append("decide yourself (git commit --no-verify)")
    offer(ways)


def smaller(found: Findings) -> list[str]:
    """How to commit less; a merge cannot be divided."""
    paths = spelled(dict.fromkeys([*found.held, *found.staged_by, *found.protected]))
    # Before the first commit there is nothing to restore from.
    born = git("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1))
    return [
        "commit only your own (git commit -- YOUR PATHS)",
        f"take these out (git {'restore --staged' if born else 'rm -q --cached'} {paths})",
    ]


def warn(found: Mapping[str, Blocker]) -> None:
    """A lease in another worktree does not stop a commit, but its holder will have to merge."""
    if found:
        say("this commit has files that others hold in another worktree:")
        listed(f"{path}  {blocker_line(one)}, in {where_held(one)}" for path, one in found.items())
        note("next: dibs overlap shows whether both would merge cleanly")


def offer(ways: list[str]) -> None:
    note("next: " + ", or ".join(filter(None, (", ".join(ways[:-1]), ways[-1]))))


def say(text: str) -> None:
    note(f"{paint('red', 'dibs:', sys.stderr)} {text}")


def listed(lines: Iterable[str]) -> None:
    lines = list(lines)
    for line in lines[:MENTIONED]:
        note(f"  {printable(line)}")
    if len(lines) > MENTIONED:
        note(f"  and {len(lines) - MENTIONED} more")


def changed_by(intruder: str) -> str:
    return f"; changed under that lease by {intruder}" if intruder else ""


def spelled(paths: Iterable[str]) -> str:
    """Paths as a shell takes them, not too many."""
    from shlex import quote

    paths = list(paths)
    some = " ".join(quote(printable(path)) for path in paths[:NAMED])
    return f"{some} …" if len(paths) > NAMED else some


def printable(text: str) -> str:
    """What a file is called must not reach a terminal as it is."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
