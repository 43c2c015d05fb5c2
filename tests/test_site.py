"""The site has every page, leads nowhere else than the pages do, and llms.txt lists the same."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from sphinx.application import Sphinx

from tests.pages import PAGES, ROOT, links
from tools.navigation import DECISIONS, LIST, decisions, llms, parts
from tools.plugin import HOME
from tools.site import LOADS, SETTINGS, copied, led, names


def test_the_parts_are_those_that_readers_look_for() -> None:
    assert [part.title for part in parts()] == ["Tutorial", "How-to", "Reference", "Explanation"]


def test_every_page_is_listed_once() -> None:
    listed = [entry.path for part in parts() for entry in part.entries]
    assert len(listed) == len(set(listed))
    every = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {*listed, *decisions(), LIST} == every
    assert DECISIONS in listed


def test_llms_txt_is_what_the_list_says_now() -> None:
    now = (ROOT / "llms.txt").read_text(encoding="utf-8")
    assert now == llms(), "llms.txt is out of date: run make docs"
    for link in links(now):
        assert (ROOT / link).exists()


def test_no_two_pages_have_one_name_in_the_site() -> None:
    where = names()
    assert len(set(where.values())) == len(where)


@pytest.mark.parametrize("page", names())
def test_a_link_of_a_copy_leads_to_a_page_a_picture_or_the_forge(page: str) -> None:
    where = names()
    text = copied(page, where)
    there = {*where.values(), *(f"images/{file.name}" for file in ROOT.glob("docs/images/*"))}
    for link in links(text):
        if link.startswith((f"{HOME}/blob/main/", "#")):
            continue
        if "://" in link:
            assert link in links((ROOT / page).read_text(encoding="utf-8"))
            continue
        file = posixpath.join(posixpath.dirname(where[page]), link.partition("#")[0])
        assert posixpath.normpath(file) in there, f"{page} leads to {link}"


def test_a_copy_has_the_code_of_its_page_as_it_is() -> None:
    code = re.findall(r"^```.*?^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    text = copied("README.md", names())
    assert code and all(one in text for one in code)


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.com/css">',
        '<link rel="preconnect" href="https://fonts.example.com" />',
        "@import 'https://example.com/a.css'",
        "src: url(https://example.com/a.woff2)",
        '<img alt="x" src="https://example.com/a.png">',
    ],
)
def test_what_is_loaded_from_another_host_is_found(text: str) -> None:
    assert LOADS.search(text)


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://example.com">x</a>',
        '<script src="_static/a.js"></script>',
        '<link rel="stylesheet" href="_static/a.css">',
        "background: url(data:image/svg+xml;base64,x)",
    ],
)
def test_what_is_loaded_from_here_or_only_linked_is_not(text: str) -> None:
    assert not LOADS.search(text)


def test_a_link_to_a_file_that_is_no_page_leads_to_the_forge_if_it_exists() -> None:
    where = names()
    assert led("docs/setup.md", "../LICENSE", where) == f"{HOME}/blob/main/LICENSE"
    assert led("docs/setup.md", "../nothing.md", where) == "../nothing.md"
    assert led("docs/decisions/README.md", "../setup.md#a", where) == "../setup.md#a"
    assert led("README.md", "docs/setup.md", where) == "setup.md"


def test_an_option_keeps_both_its_dashes(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text('# dibs claim --take\n\nSay "--take" when...\n')
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/site.css").touch()
    Sphinx(
        tmp_path, None, tmp_path / "site", tmp_path / "trees", "html", SETTINGS,
        status=None, warningiserror=True,
    ).build()  # fmt: skip
    page = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert "dibs claim --take" in page and "“" not in page and "–" not in page
