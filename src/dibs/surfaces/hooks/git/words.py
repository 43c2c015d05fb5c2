"""What git hooks say: who is in the way, what for, how long, and what to do instead."""

from __future__ import annotations

import sys

from dibs.surfaces.hooks.words import where
from dibs.surroundings.git import git
from dibs.surroundings.wording import ago, note, paint, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.commit import Findings
    from dibs.surfaces.hooks.git.committer import Committer

MENTIONED = 10
NAMED = 3
"""How many paths the advice spells out."""


def refuse(found: Findings, by: Committer) -> None:
    """Why a commit is stopped, and how to go on."""
    if found.held:
        say("this commit has files that others hold:")
        listed(f"{path}  {holder(one, found.intruded.get(path, ''))}"
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
        listed(f"{path}  {holder(one)}, in {where(one)}" for path, one in found.items())
        note("next: dibs overlap shows whether both would merge cleanly")


def waiting(blocker: Blocker) -> None:
    say(f"{blocker.agent} commits now; waiting for that to end")


def refuse_push(found: Mapping[str, Blocker], by: Committer) -> None:
    say("this push has files that were committed while others held them:")
    listed(f"{path}  {holder(one)}" for path, one in found.items())
    ways = [f"wait for them (dibs wait {spelled(found)})", "have them look at the commit"]
    if by.is_person:
        ways.append("decide yourself (git push --no-verify)")
    offer(ways)


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


def holder(blocker: Blocker, intruder: str = "") -> str:
    doing = f" “{blocker.note}”" if blocker.note else ""
    changed = f"; changed under that lease by {intruder}" if intruder else ""
    return (
        f"{blocker.agent} holds {blocker.resource}{doing} since {ago(blocker.since_at)}, "
        f"{span(blocker.expires_in_ms or 0)} left{changed}"
    )


def spelled(paths: Iterable[str]) -> str:
    """Paths as a shell takes them, not too many."""
    from shlex import quote

    paths = list(paths)
    some = " ".join(quote(printable(path)) for path in paths[:NAMED])
    return f"{some} …" if len(paths) > NAMED else some


def printable(text: str) -> str:
    """What a file is called must not reach a terminal as it is."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
