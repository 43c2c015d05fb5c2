"""Who owns a git directory, and what somebody else's settings could make git run."""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.names.checkouts import (
    SETTINGS_BYTES,
    back_link,
    common_dir,
    git_directory,
    read_bytes,
    same_place,
    setting,
    upwards,
)

SETTINGS = ("config", "config.worktree")


def owner_of(top: str) -> str | None:
    """The checkout that the git directory of this one belongs to, if that is another."""
    git_dir = git_directory(top)
    if git_dir in (top, f"{top}/.git"):
        return None
    if common_dir(top, git_dir) is not None:
        owner = back_link(git_dir)
    elif (worktree := setting(git_dir, "core", "worktree")) is not None:
        owner = os.path.realpath(os.path.join(git_dir, worktree))
    else:
        # Git does not record the owner of a git directory that was made elsewhere.
        owner = os.path.dirname(git_dir) if os.path.basename(git_dir) == ".git" else top
    return None if owner is not None and same_place(owner, top) else owner or git_dir


def may_define(directory: str, heads: tuple[bytes, ...]) -> bool:
    """Whether the settings of a repository around a directory may have one of these sections.

    All repositories around are searched, because git uses one of them. The header of a section is
    always on one line, so nothing is parsed; an unreadable file may have any section.
    """
    try:
        for up in upwards(directory):
            # Some versions accept a directory as a bare repository by default.
            found = [up] if os.access(f"{up}/HEAD", os.F_OK) else []
            found += [git_directory(up)] if os.access(f"{up}/.git", os.F_OK) else []
            folders = [
                one for git_dir in found for one in (git_dir, common_dir(up, git_dir)) if one
            ]
            for file in [f"{one}/{name}" for one in folders for name in SETTINGS]:
                if not os.path.lexists(file):
                    continue
                data = read_bytes(file, SETTINGS_BYTES).lower()
                if len(data) >= SETTINGS_BYTES or any(head in data for head in heads):
                    return True
    except (OSError, InvalidError):
        return True
    return False
