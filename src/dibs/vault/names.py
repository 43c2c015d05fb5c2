"""The file name of a note, from the name of what it is about.

The same name always gives the same file name, and two names never give the same one, even on a disk
that does not distinguish case or Unicode forms. A plain name is its own file name, except for `/`,
`:` and `#`, which become `+`, `=` and `,`. Any other name gets a digest of its exact characters
after a `~`, which no plain one has. The exact name is in the front matter of its note.
"""

from __future__ import annotations

import re
from base64 import b32encode
from functools import lru_cache
from typing import NamedTuple

from dibs.digest import sha256

TASKS, AGENTS, FILES, DAYS = "tasks", "agents", "files", "days"
FOLDERS = (TASKS, AGENTS, FILES, DAYS)

PLAIN = re.compile(r"[a-z0-9_][a-z0-9._/:#-]{0,99}")
SIGNS = str.maketrans("/:#", "+=,")
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")
"""Names that Windows treats as devices, whatever follows the first dot."""
DIGEST = 20
"""How many characters a digest has, of five bits each."""
HEAD = 60
"""How many characters of a name come before its digest."""


class Ref(NamedTuple):
    """What a note is about: its folder and its name."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        """The path of the note in the vault, without its extension, as links spell it."""
        return f"{self.folder}/{stem(self.name)}" if self.folder else self.name


INDEX = Ref("", "README")


@lru_cache(100_000)
def stem(name: str) -> str:
    """The file name for a name, without the extension."""
    plain = name.translate(SIGNS)
    # `[[x.md]]` would be resolved as x.md, not as x.md.md.
    if PLAIN.fullmatch(name) and not DEVICE.match(plain) and not plain.endswith(".md"):
        return plain
    digest = b32encode(sha256(name.encode("utf-8", "surrogatepass")).digest()).decode().lower()
    head = re.sub(r"[^a-z0-9._]+", "-", name[: 4 * HEAD].lower())[:HEAD].strip("-.")
    return f"{'_' if DEVICE.match(head) else ''}{head or '_'}~{digest[:DIGEST]}"
