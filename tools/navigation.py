"""The pages in their order: docs/README.md is the only list, and llms.txt says the same to models.

python -m tools.navigation    writes llms.txt
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIST = "docs/README.md"
DECISIONS = "docs/decisions/README.md"
ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$")


class Entry(NamedTuple):
    """A page: what it is called in the list, its path from the top, and what it is about."""

    title: str
    path: str
    about: str


class Part(NamedTuple):
    """One of the parts of the documentation."""

    title: str
    entries: list[Entry]


def parts() -> list[Part]:
    found: list[Part] = []
    for line in (ROOT / LIST).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found.append(Part(line[3:], []))
        elif line.startswith("- "):
            entry = ENTRY.match(line)
            assert entry, f"{LIST} has a line that is no entry: {line}"
            found[-1].entries.append(Entry(entry[1], from_top(LIST, entry[2]), entry[3]))
    return found


def decisions() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/decisions/[0-9]*.md"))


def from_top(page: str, link: str) -> str:
    """The path that a link in a page leads to, from the top of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def llms(address: dict[str, str] | None = None) -> str:
    """The list in the form of llmstxt.org.

    address: where each page is, if not at its path
    """
    lines = (ROOT / LIST).read_text(encoding="utf-8").splitlines()
    summary = next(line for line in lines[1:] if line)
    text = f"# dibs\n\n> {summary}\n"
    for part in parts():
        text += f"\n## {part.title}\n\n"
        for title, path, about in part.entries:
            text += f"- [{title}]({(address or {}).get(path, path)}): {about}\n"
    return text


def main() -> None:
    (ROOT / "llms.txt").write_text(llms(), encoding="utf-8")


if __name__ == "__main__":
    main()
