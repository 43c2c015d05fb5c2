"""`dibs merge`: one merge at a time in the whole space, first come, first served."""

from __future__ import annotations

import os

from dibs.errors import HeldError, InvalidError
from dibs.surfaces.hooks.git.committer import Committer, holders, is_here, named
from dibs.surroundings.commands import seconds, unknown
from dibs.surroundings.git import elsewhere, git, names
from dibs.surroundings.running import Running, perform
from dibs.surroundings.who import person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs merge [--wait TIME] BRANCH
       dibs merge [--wait TIME] -- COMMAND…

Wait for the merge slot (the lease git:merge), then run `git merge BRANCH` or the command. The
next in line begins when it has ended, in whatever worktree.

  --wait TIME              how long to queue for it [1d]

The exit code is the command's own; 1 if the wait was in vain.

example: dibs merge -- sh -c 'git merge feature && make test && git push'"""

SLOT = "git:merge"


def main(globals_: Globals, words: list[str]) -> int:
    options = parse(words)
    if options.command[:2] == ["git", "merge"]:
        refuse_held(globals_, options.command[-1])
    who = globals_.who()
    # The merge is the caller's, who may hold files already; only the slot is ours.
    return perform(globals_, (who and who.name) or person(), options, as_caller=True)


def refuse_held(globals_: Globals, branch: str) -> None:
    """Refuse to merge into files of this checkout that others hold."""
    with globals_.open() as space:
        by = Committer(space)
        os.chdir(by.place.top)  # where git names its paths from
        try:
            range_ = f"HEAD...{branch}"
            said = git("diff", "--name-only", "-z", range_, environment=elsewhere(), codes=(0, 128))
            resources = named(by, names(said))
            for path, others in holders(by, resources).items():
                if any(is_here(one, resources[path]) for one in others):
                    first = others[0]
                    raise HeldError(
                        f"the merge would change {path}, which {first.agent} holds here",
                        next=f"wait for it (dibs wait {path}), or merge in another worktree",
                        blockers=others,
                    )
        finally:
            if by.is_person:
                by.agent.agents.leave()


def parse(words: list[str]) -> Running:
    options, words = Running(), list(words)
    options.claim = [SLOT]
    branch: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            if branch or not words:
                break
            options.command = words
            return options
        name, equals, text = word.partition("=")
        if name == "--wait":
            if not equals and not words:
                raise InvalidError("--wait needs a value")
            options.wait_s = seconds(name, text if equals else words.pop(0))
        elif word.startswith("-") and word != "-":
            raise unknown("option", name, ["--wait", "--"])
        else:
            branch.append(word)
    if len(branch) != 1 or words:
        raise InvalidError("name one branch, or a command after --", next="see: dibs merge --help")
    options.command = ["git", "merge", "--no-edit", *branch]
    return options
