"""What a shell command is going to change, read from its text before it runs.

`writes` names what can be recognised: redirections, the plain writers (`tee`, `sed -i`, `mv`,
`rm`), git, patches and formatters. Nothing is run and no file is read. What cannot be known from
the text (a script, a variable from elsewhere, what `xargs` is fed) is left out on purpose: the
hook finds it after the command has run. `only_reads` errs the other way: it says yes only if
every command is known to leave files alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.surroundings.occasion import Edit


def _unseen(_path: str) -> str:
    return ""


def writes(command: str, cwd: str, look: Callable[[str], str] = _unseen) -> list[Edit]:
    """Give what the command is going to change, with absolute paths, each once.

    look: says of a path whether it is now a "directory", a "file" or nothing (""); without it,
        `mv a b` is taken to write b itself and `git checkout x` is judged by how x is spelled
    """
    from dibs.surfaces.hooks.shell.walk import Walk

    walk = Walk(cwd, look)
    walk.text(command.replace("\0", ""))
    return list(walk.edits)


def only_reads(command: str) -> bool:
    """Say whether every command in the text is sure to leave all files as they are."""
    from dibs.surfaces.hooks.shell import harmless

    return harmless.is_harmless(command)
