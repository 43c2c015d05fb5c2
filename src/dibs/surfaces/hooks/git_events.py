"""`dibs hook git NAME ARGS…`: what git calls, one process for each hook.

Git runs a hook at the top of its working tree, with git's environment. If dibs itself fails, the
policy of the repository decides. By default the commit goes on, with a line on standard error, and
the failure is recorded for `dibs doctor`.

After a checkout, a merge or a rewrite, git itself has changed files. A change to a file that git's
caller holds is the caller's own work, and noted as such. A change to a file that others hold is an
intrusion, and it is certain who did it. Other changes are left to the sweep. The notes about what
sessions have read stay as they are, since the file did change after they read it.

A push must not contain files that were committed while somebody else held them. `pre-commit` stops
such a commit, but `--no-verify`, a rebase and a cherry-pick bypass it. So a push is compared with
the current leases: it is stopped by a path that another session holds in this checkout, if somebody
else committed a change to it after that lease was granted. The holder's own commits do not count.
Neither do commits that were not noted, such as commits from elsewhere.

Git records authors, not sessions. So a note on the local disk says which session made which commit,
and where the journal was at that time, which shows whether a lease was in force. Only the latest
notes are kept.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import NotYoursError
from dibs.records import quoted
from dibs.storage.folder import Own
from dibs.surfaces.hooks.notes import Stagings, append, read_note, write
from dibs.surroundings.git import COMMIT, HOOKS, LEARN, STOPPING, git, names
from dibs.surroundings.wording import blocker_line, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.dibs import Dibs
    from dibs.names.paths import Place
    from dibs.surfaces.hooks.commit import Committer
    from dibs.surroundings.commands import Globals

Maker = tuple[int, int]
"""The session that made a commit (0 for a person), and the seq of the journal then."""
START = "\1"
"""Marks each commit in git's list; no path begins with it."""
KEPT = 5_000
MADE = "hooks/commits"


def run(globals_: Globals, name: str, words: list[str]) -> int:
    """Answer git: 0 to go on, 1 to stop."""
    given = sys.stdin.read() if name in ("pre-push", "post-rewrite") else ""
    # During a rebase: one hook follows for all its commits.
    if name not in HOOKS or (name == "post-commit" and is_rebasing()):
        return 0
    try:
        with globals_.open() as space:
            if name in LEARN and not space.leases.list(limit=1):
                return 0  # nobody can be affected; most checkouts are like this
            return answer(space, name, words, given)
    except Exception as error:
        return failed(name, error)


def is_rebasing() -> bool:
    directory = os.environ.get("GIT_DIR", ".git")
    return any(os.path.isdir(f"{directory}/{name}") for name in ("rebase-merge", "rebase-apply"))


def answer(space: Dibs, name: str, words: list[str], given: str) -> int:
    from dibs.surfaces.hooks import commit

    by = commit.Committer(space)
    if name in COMMIT:
        return commit.before(by, merges=name == "pre-merge-commit")
    if name == "prepare-commit-msg":
        return commit.again(by)
    try:
        if name == "post-commit":
            return commit.after(by)
        if name == "pre-push":
            return before_push(by, given)
        if name == "post-rewrite" and words[:1] == ["rebase"]:
            rewritten(by, given)
        return learn(by, heads(name, words))
    finally:
        if by.is_person:  # the session was only for this hook
            try:
                by.agent.agents.leave()
            except NotYoursError:
                pass  # the commit has ended, and its session with it


def heads(name: str, words: list[str]) -> tuple[str, ...]:
    """The commits between which git changed the files here; none if it changed no file."""
    if name == "post-checkout":
        return tuple(words[:2])
    return () if words[:1] == ["amend"] else ("ORIG_HEAD", "HEAD")


def learn(by: Committer, between: tuple[str, ...]) -> int:
    """Record what the files contain now, and report what git did to those of others."""
    from dibs.names.checkouts import content_hash
    from dibs.surfaces.hooks.after import report, sweep

    told = []
    for lease, file in by.leased_files():
        if content_hash(file) == lease.content_hash:
            continue
        if lease.session == by.session:
            by.see(lease)
        elif lease.session not in by.sessions and differs(file, between):
            told += report(by, lease, file, {by.name: "git"}, sure=True)
    for line in [*told, *sweep(by)]:
        note(line)
    Stagings(by.place).refresh()
    return 0


def differs(file: str, between: tuple[str, ...]) -> bool:
    """Whether a file differs between two commits; false if a commit or the file is missing."""
    words = ("--literal-pathspecs", "diff", "--name-only", *between, "--", file)
    return bool(between and git(*words, codes=(0, 128)))


def rewritten(by: Committer, pairs: str) -> None:
    """Commits that a rebase has rewritten still belong to their first authors."""
    known = makers(by.place)
    words = [line.split() for line in pairs.splitlines() if line]
    note_made(by.place, [(new, known[old]) for old, new, *_ in words if old in known])


def before_push(by: Committer, refs: str) -> int:
    """Let a push begin (0), or stop it (1)."""
    from dibs.surfaces.hooks.commit import holders, is_here, listed, named, offer, spelled

    known = makers(by.place)
    changed: dict[str, list[Maker]] = {}
    for name, path in changes(commits(refs) & set(known)):
        changed.setdefault(path, []).append(known[name])
    resources = named(by, changed)
    found: dict[str, str] = {}
    for path, others in holders(by, resources).items():
        for one in others:
            # Made under their lease, and not by them.
            made = any(session != one.session and seq > one.epoch for session, seq in changed[path])
            if made and is_here(one, resources[path]) and not by.is_own_agent(one.session):
                found.setdefault(path, blocker_line(one))
    if not found:
        return 0
    listed("this push includes files that were committed while others held them:", found)
    ways = [f"wait for them (dibs wait {spelled(found)})", "ask them to review the commit"]
    if by.is_person:
        ways.append("decide yourself (git push --no-verify)")
    offer(ways)
    return 1


def commits(refs: str) -> set[str]:
    """The commits that git's lines name, without those that a remote already has."""
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
    said = git("log", "--name-only", "--no-renames", "--no-relative", "--no-color",
               "--no-show-signature", "-z", f"--format={START}%H", "--no-walk", "--stdin",
               input="\n".join(those).encode())  # fmt: skip
    name = ""
    for part in names(said):
        if part.startswith(START):
            name = part[1:]
        elif path := part.lstrip("\n"):
            yield name, path


def note_made(place: Place, made: Iterable[tuple[str, Maker]]) -> None:
    """Note who made these commits; if a commit is noted twice, the last note counts."""
    own = Own(place.store_dir)
    append(own, MADE, "".join(f"{commit} {session} {seq}\n" for commit, (session, seq) in made))
    status = own.status(MADE)
    if status is not None and status.st_size > 2 * KEPT * 80:
        write(own, MADE, "\n".join([*(read_note(own, MADE) or "").splitlines()[-KEPT:], ""]))


def makers(place: Place) -> dict[str, Maker]:
    """Who made the noted commits."""
    found = {}
    for line in (read_note(Own(place.store_dir), MADE) or "").splitlines():
        fields = line.split()
        # The last line may be incomplete.
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
            found[fields[0]] = (int(fields[1]), int(fields[2]))
    return found


def failed(name: str, error: Exception) -> int:
    """Record the failure, and let the policy decide whether git goes on."""
    from dibs.surroundings.failures import hook_failed

    what, policy = hook_failed(f"git {name}", error)
    note(f"dibs: the hook {name} failed: {quoted(what)} (see: dibs doctor)")
    stops = policy == "closed" and name in STOPPING
    if stops:
        note("next: the policy here is closed, so git stops; a person may use --no-verify to go on")
    return int(stops)
