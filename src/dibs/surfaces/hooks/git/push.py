"""Before a push: nothing leaves that was committed while somebody else held it.

`pre-commit` stops such a commit, but `--no-verify`, a rebase and a cherry-pick pass it by. What
is to be pushed is compared with the leases now: a path that another session holds in this
checkout, changed by a commit that somebody else made after that lease was granted. The holder's
own commits do not count, nor what nobody noted, such as commits from elsewhere.

Which session made which commit is a note on the local disk: git keeps authors, not sessions. With
each commit is noted how far the journal was, so that it can be said whether a lease was in force
then. Only the latest are kept.
"""

from __future__ import annotations

import os

from dibs.surfaces.hooks.git.commit import holders, is_here, listed, named, offer, say, spelled
from dibs.surfaces.hooks.notes import append, read_note, write
from dibs.surroundings.git import git, names
from dibs.surroundings.wording import blocker_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dibs.names.paths import Place, Resource
    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.commit import Committer

Maker = tuple[int, int]
"""The session that made a commit (0 for a person), and the seq of the journal then."""
START = "\1"
"""Before each commit in git's list; no path begins so."""
KEPT = 5_000


def before(by: Committer, refs: str) -> int:
    """Let a push begin (0), or stop it (1)."""
    known = makers(by.place)
    changed: dict[str, list[Maker]] = {}
    for name, path in changes(commits(refs) & set(known)):
        changed.setdefault(path, []).append(known[name])
    resources, found = named(by, changed), {}
    for path, others in holders(by, resources).items():
        if passed := passed_by(others, resources[path], changed[path]):
            found[path] = passed[0]
    if found:
        refuse(found, by)
    return int(bool(found))


def refuse(found: Mapping[str, Blocker], by: Committer) -> None:
    say("this push has files that were committed while others held them:")
    listed(f"{path}  {blocker_line(one)}" for path, one in found.items())
    ways = [f"wait for them (dibs wait {spelled(found)})", "have them look at the commit"]
    if by.is_person:
        ways.append("decide yourself (git push --no-verify)")
    offer(ways)


def passed_by(others: list[Blocker], resource: Resource, makers: list[Maker]) -> list[Blocker]:
    """Under whose leases one of these commits was made, and not by themselves."""
    return [
        one
        for one in others
        if is_here(one, resource)
        and any(session != one.session and seq > one.epoch for session, seq in makers)
    ]


def commits(refs: str) -> set[str]:
    """What the lines of git name: the commits there, without those that a remote has."""
    found: set[str] = set()
    for line in filter(None, refs.splitlines()):
        _, local, _, remote = line.split(" ")
        if local.strip("0"):
            known = remote.strip("0") and git("cat-file", "-t", remote, codes=(0, 128))
            there = [remote] if known else []
            found |= set(git("rev-list", local, "--not", "--remotes", *there).decode().split())
    return found


def changes(those: set[str]) -> Iterator[tuple[str, str]]:
    """Each commit with each path that it changes."""
    if not those:
        return
    said = git("log", "--name-only", "--no-renames", "--no-relative", "--no-ext-diff", "--no-color",
               "--no-show-signature", "-z", f"--format={START}%H", "--no-walk", "--stdin",
               input="\n".join(those).encode())  # fmt: skip
    name = ""
    for part in names(said):
        if part.startswith(START):
            name = part[1:]
        elif path := part.lstrip("\n"):
            yield name, path


def note_made(place: Place, made: Iterable[tuple[str, Maker]]) -> None:
    """Note who made these commits; a commit that is noted again is by the last."""
    file = made_file(place)
    append(file, "".join(f"{commit} {session} {seq}\n" for commit, (session, seq) in made))
    if os.path.getsize(file) > 2 * KEPT * 80:
        write(file, "\n".join([*(read_note(file) or "").splitlines()[-KEPT:], ""]))


def makers(place: Place) -> dict[str, Maker]:
    """Who made the commits that are noted."""
    found = {}
    for line in (read_note(made_file(place)) or "").splitlines():
        fields = line.split()
        # The last line may be half written.
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
            found[fields[0]] = (int(fields[1]), int(fields[2]))
    return found


def made_file(place: Place) -> str:
    return os.path.join(place.store_dir, "hooks", "commits")
