"""Before a push: nothing leaves that was committed while somebody else held it.

`pre-commit` stops such a commit, but `--no-verify`, a rebase and a cherry-pick pass it by. What
is to be pushed is compared with the leases now: a path that another session holds in this
checkout, changed by a commit that somebody else made after that lease was granted. The holder's
own commits do not count, nor what nobody noted, such as commits from elsewhere.
"""

from __future__ import annotations

from dibs.surfaces.hooks.git import made
from dibs.surfaces.hooks.git.holders import holders, is_here, named
from dibs.surroundings.git import git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.names.paths import Resource
    from dibs.records import Blocker
    from dibs.surfaces.hooks.git.committer import Committer
    from dibs.surfaces.hooks.git.made import Maker

START = "\1"
"""Before each commit in git's list; no path begins so."""


def before(by: Committer, refs: str) -> int:
    """Let a push begin (0), or stop it (1)."""
    from dibs.surfaces.hooks.git import words

    makers = made.makers(by.place)
    changed: dict[str, list[Maker]] = {}
    for name, path in changes(commits(refs) & set(makers)):
        changed.setdefault(path, []).append(makers[name])
    resources, found = named(by, changed), {}
    for path, others in holders(by, resources).items():
        passed = passed_by(others, resources[path], changed[path])
        if passed:
            found[path] = passed[0]
    if found:
        words.refuse_push(found, by)
    return int(bool(found))


def passed_by(others: list[Blocker], resource: Resource, makers: list[Maker]) -> list[Blocker]:
    """Under whose leases one of these commits was made, and not by themselves."""
    return [
        one
        for one in others
        if is_here(one, resource)
        and any(maker.session != one.session and maker.seq > one.epoch for maker in makers)
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
