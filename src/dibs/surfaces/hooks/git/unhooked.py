"""Commands in which git would run no hooks: a commit has to be asked for in another way.

A client may set `core.hooksPath` to nothing for the commands that it runs. An option of git's own
counts more than that, so the agent is told which.
"""

from __future__ import annotations

import os
import re

from dibs.clients import client_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.case import Case

RECORDS = re.compile(r"\bgit(?:\s+-[cC]\s+\S+|\s+-\S+)*\s+(commit|merge|pull|push)(?![\w-])")


def refusal(case: Case) -> str:
    """Why a command must not run as it stands: its commit would pass by everybody's leases."""
    command = case.occasion.command
    found = RECORDS.search(command)
    if found is None or case.is_alone():
        return ""
    if "--no-verify" in command:
        return (
            "dibs: only people pass by the checks of a commit, and others work here. Leave out "
            "--no-verify; if a check fails, it says what to do."
        )
    if client_of(case.occasion.client).runs_git_hooks or "core.hooksPath" in command:
        return ""
    folder = hooks(case)
    if not os.path.exists(os.path.join(folder, "pre-commit")):
        return ""  # nor would it anywhere else
    from shlex import quote

    return (
        f"dibs: git runs no hooks in this shell, so nobody would see whether `git {found[1]}` "
        "takes in files of other agents. Write it like this: "
        f"git -c core.hooksPath={quote(folder)} {found[1]} …"
    )


def hooks(case: Case) -> str:
    """Where the hooks of the repository are."""
    from dibs.surroundings.git import elsewhere, git

    said = git("rev-parse", "--git-path", "hooks", cwd=case.place.top, environment=elsewhere())
    return os.path.join(case.place.top, os.fsdecode(said.rstrip(b"\n")))
