"""Make the site from the pages, offline; whatever Sphinx warns of is an error.

    python -m tools.site    writes build/site, from copies of the pages in build/pages

On a forge the pages are read as they are, so all that only the site needs is added to the copies:
other names, links to files that are no pages, and the tree of pages that docs/README.md lists.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

from dibs import __version__
from tools.navigation import DECISIONS, LIST, ROOT, decisions, from_top, llms, parts
from tools.plugin import HOME

PAGES = ROOT / "build/pages"
SITE = ROOT / "build/site"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FILE_NAME = re.compile(r"\[([\w./-]+\.md)\]\(([^)#\s]+)")
LOADS = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//[^>]+>"""
    r"""|<link[^>]+rel=["']?(?:stylesheet|preconnect|preload|icon)[^>]+href=["']?(?:https?:)?//[^>]+>"""
    r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^)"']+"""
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SETTINGS = {
    "project": "dibs",
    "release": __version__,
    "html_title": "dibs",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 6,
    "html_theme": "furo",
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "html_copy_source": False,
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "pygments_style": "friendly",
    "smartquotes": False,  # it makes one dash of the two of an option in a heading
}
# Output is told apart from what is typed; a wide table scrolls by itself, also on a phone.
STYLE = """\
article h1 { font-size: 2em; }
article h2 { font-size: 1.5em; margin-top: 2em; }
article h3 { font-size: 1.2em; }
article img { height: auto; }
article table.docutils { display: block; overflow-x: auto; width: fit-content; max-width: 100%; }
article table.docutils td { min-width: 7em; vertical-align: top; }
article table.docutils td:first-child { min-width: 2em; }
article thead:not(:has(p:not(:empty))) { display: none; }
article .highlight-text { margin-top: -0.5em; }
article .highlight-text .highlight {
  background: none; border-left: 3px solid var(--color-background-border);
}
"""


def names() -> dict[str, str]:
    """Where each page is in the site, by its path from the top."""
    listed = [entry.path for part in parts() for entry in part.entries]
    found = {path: path.removeprefix("docs/") for path in [*listed, *decisions()]}
    for path in ("SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        found[path] = path.lower()
    found |= {LIST: "index.md", DECISIONS: "decisions/index.md", "README.md": "overview.md"}
    return found


def copied(page: str, where: dict[str, str]) -> str:
    """A page as the site needs it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code: list[str] = []
    titles = {entry.path: entry.title for part in parts() for entry in part.entries}

    def hidden(fence: re.Match[str]) -> str:
        code.append(fence[0])
        return f"\0{len(code) - 1}\0"

    def moved(link: re.Match[str]) -> str:
        return f"{link[1]}{led(page, link[2], where)}{link[3]}"

    def named(link: re.Match[str]) -> str:
        return f"[{titles.get(from_top(page, link[2]), link[1])}]({link[2]}"

    text = LINK.sub(moved, FILE_NAME.sub(named, FENCE.sub(hidden, text)))
    text = re.sub("\0(\\d+)\0", lambda place: code[int(place[1])], text)
    if page == LIST:
        for part in parts():
            entries = [(entry.title, entry.path) for entry in part.entries]
            text += tree(entries, page, where, part.title)
    if page == DECISIONS:
        text += tree([("", path) for path in decisions()], page, where, "")
    return text


def led(page: str, link: str, where: dict[str, str]) -> str:
    """Where a link of a page leads to in the site."""
    if "://" in link or link.startswith("#"):
        return link
    file, mark, anchor = link.partition("#")
    target = from_top(page, file)
    if target in where:
        target = where[target]
    elif target.startswith("docs/images/"):
        target = target.removeprefix("docs/")
    elif (ROOT / target).exists():
        return f"{HOME}/blob/main/{target}{mark}{anchor}"
    else:
        return link  # Sphinx says that it leads nowhere
    return posixpath.relpath(target, posixpath.dirname(where[page]) or ".") + mark + anchor


def tree(entries: list[tuple[str, str]], page: str, where: dict[str, str], caption: str) -> str:
    """The pages below a page, each with its title in the navigation if that is another."""
    text = "\n```{toctree}\n:hidden:\n:maxdepth: 1\n"
    text += f":caption: {caption}\n\n" if caption else "\n"
    for title, path in entries:
        link = led(page, posixpath.relpath(path, posixpath.dirname(page)), where)
        text += f"{title} <{link}>\n" if title else f"{link}\n"
    return f"{text}```\n"


def stage() -> None:
    """Put the copies of all pages into build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    where = names()
    for page, name in where.items():
        file = PAGES / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(copied(page, where), encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", PAGES / "images")
    (PAGES / "_static").mkdir()
    (PAGES / "_static/site.css").write_text(STYLE, encoding="utf-8")


def loaded_from_elsewhere() -> list[str]:
    """What a browser would get from another host: scripts, styles, fonts and pictures."""
    files = [file for kind in ("html", "css", "js") for file in SITE.rglob(f"*.{kind}")]
    return sorted({found[0] for file in files for found in LOADS.finditer(file.read_text("utf-8"))})


def main() -> int:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    app = Sphinx(
        PAGES, None, SITE, ROOT / "build/doctrees", "html", SETTINGS,
        status=None, freshenv=True, warningiserror=True,
    )  # fmt: skip
    app.build()
    if app.statuscode:
        return app.statuscode
    if elsewhere := loaded_from_elsewhere():
        print("the site loads from other hosts:", *elsewhere, sep="\n  ", file=sys.stderr)
        return 1
    where = names()
    for name in where.values():  # what llms.txt links to
        shutil.copyfile(PAGES / name, SITE / name)
    (SITE / "llms.txt").write_text(llms(where), encoding="utf-8")
    print(f"{len(where)} pages: {(SITE / 'index.html').relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
