"""What a shell command is going to change, read from its text before it runs.

`read` returns a verdict. Nothing is run. It recognises redirections, the plain writers (`tee`,
`sed -i`, `mv`, `rm`), git, patches, formatters, package managers, archives, the literal paths in
Python, JavaScript, Perl or Ruby, and all of that in the project's scripts and recipes that the
command runs. What cannot be known (a variable from elsewhere, a program) is left out on purpose:
the hook finds it after the command has run. The verdict that a command only reads is given only if
every command in the text is known to leave files alone (`reading`).
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import Disk
from dibs.surfaces.hooks.shell.reading import Reading
from dibs.surfaces.hooks.shell.syntax import Texts
from dibs.surroundings.occasion import Edit

READS, WRITES, UNKNOWN = "reads", "writes", "unknown"


class Verdict:
    """What is known about a command before it runs.

    says: READS if it certainly changes no file; WRITES if it is going to make the edits, and
        perhaps others; UNKNOWN if it may write anything
    edits: with absolute paths, each once
    """

    def __init__(self, says: str, edits: list[Edit]) -> None:
        self.says = says
        self.edits = edits


def read(command: str, cwd: str, disk: Disk | None = None) -> Verdict:
    """Say what the command is going to change.

    disk: how existing files are examined; without it, `mv a b` is assumed to write b itself,
        `git checkout x` is judged by the spelling of x, and no script is read
    """
    text = command.replace("\0", "")
    texts = Texts()
    # A NUL cannot reach a shell, and other programs may treat such a text in any way.
    try:
        if text == command and Reading(texts, text).text(text):
            return Verdict(READS, [])
    except RecursionError:
        pass  # Walk finds the same
    from dibs.surfaces.hooks.shell.walk import Walk

    walk = Walk(texts, cwd, disk or Disk())
    try:
        walk.text(text)
    except RecursionError:
        pass  # nested deeper than anybody writes: what was seen before that counts
    edits = list(walk.scene.edits)
    return Verdict(WRITES if edits else UNKNOWN, edits)
