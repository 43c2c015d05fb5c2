"""The documentation is true: its names exist, its links lead somewhere, nothing is left out.

tests/test_pages.py runs its code.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import arguments
from dibs.dibs import operations
from dibs.records import Record
from dibs.storage.queries import Query
from dibs.storage.sqlite import SqliteConnection
from dibs.surfaces.cli.help import GLOBALS, about, sections
from tests.pages import PAGES, ROOT, anchors, blocks_of, links, parsed
from tools.reference import all_errors, render

REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
DECISIONS = sorted(ROOT.glob("docs/decisions/[0-9]*.md"))


def test_the_tutorial_has_code_for_every_noun() -> None:
    found = blocks_of(ROOT / "docs/tutorial.md")
    code = "\n".join(block.code for block in found if block.language == "python")
    used = {found[1] for found in re.finditer(r"\.(\w+)\.\w+\(", code)}
    assert {entry.noun for entry in operations().values()} <= used
    assert "aio.call" in code
    assert "next_task" in code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    check_links(page, page.read_text(encoding="utf-8"))


def check_links(page: Path, text: str) -> None:
    for link in links(text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert not file or target.exists(), f"{page.name} links to {link}"
        assert target.is_relative_to(ROOT), f"{page.name} links to {link}"
        if anchor:
            there = target.read_text(encoding="utf-8") if file else text
            assert anchor in anchors(there), f"{page.name} links to {link}"


@pytest.mark.parametrize(
    "text",
    [
        "[a](nothing.md)",
        "![a](images/nothing.png)",
        "[a](setup.md#nothing)",
        "# A\n\n[a](#b)",
        "| a |\n|---|\n| [a](nothing.md) |",
        "[`a`][b]\n\n[b]: nothing.md",
        "[a](../../outside.md)",
    ],
)
def test_a_link_that_leads_nowhere_is_noticed(text: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md links to"):
        check_links(ROOT / "docs/page.md", text)


def test_a_heading_is_found_by_its_anchor() -> None:
    headings = "# `dibs` and more!\n\n## A\n\n## A\n\n"
    check_links(ROOT / "docs/page.md", f"{headings}[a](#dibs-and-more) [b](#a) [c](#a-1)")


def test_nothing_says_to_install_what_is_not_published() -> None:
    """How to install dibs is in the README alone, until it is on an index."""
    files = [*PAGES, *ROOT.glob("plugins/**/*.md"), *ROOT.glob("src/**/*.py")]
    files += [*ROOT.glob("action/*"), *ROOT.glob("devcontainer/dibs/*")]
    told = re.compile(
        r"(?:(?:uv tool|pipx|pip) install[^\n]*|default\"?: \"?|package\": \"|:-)"
        r"\bagent-dibs\b(?!/)"
    )
    assert [str(file) for file in files if told.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    |^\$ )make (?:[A-Z]+=\S+ )?([a-z]+)", text, re.MULTILINE))
    assert named <= targets


def test_the_reference_is_what_the_source_says_now() -> None:
    assert render() == REFERENCE, "docs/reference.md is out of date: run make docs"


@pytest.mark.parametrize("name", dibs.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"\b{name}\b", REFERENCE)


def test_every_operation_is_in_the_reference() -> None:
    headings = set(re.findall(r"^#### (\S+)$", REFERENCE, re.MULTILINE))
    assert set(operations()) <= headings


def test_every_error_code_is_in_the_reference_and_used_once() -> None:
    codes = [error.code for error in all_errors()]
    assert len(codes) == len(set(codes))
    for code in codes:
        assert f"| `{code}` |" in REFERENCE


def test_every_record_is_in_the_reference_with_all_its_fields() -> None:
    for record in Record.__subclasses__():
        _, _, section = REFERENCE.partition(f"### {record.__name__}\n")
        fields = re.findall(r"^\| `(\w+)` \|", section.partition("\n#")[0], re.MULTILINE)
        assert tuple(fields) == record._fields


def test_every_limit_of_the_core_is_in_the_reference() -> None:
    limits = [name for name in vars(arguments) if re.search(r"_(LIMIT|MIN|MAX)(_S)?$", name)]
    assert len(limits) > 5
    for name in limits:
        assert f"| `{name}` | {getattr(arguments, name):,} |" in REFERENCE


def test_every_argument_of_an_operation_is_explained() -> None:
    for entry in operations().values():
        assert entry.summary.endswith("."), entry.name
        for argument in entry.arguments().values():
            assert argument.help, f"{entry.name} does not explain {argument.name}"


def functions_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (?=\d+\. )", text, flags=re.MULTILINE)[1:]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 13))
    for section in sections:
        title = section.partition("\n")[0]
        waiting: set[str] = set()
        named = re.findall(r"`(test_\w+|tests/[\w/]+\.py)`", section.partition("\n## ")[0])
        assert named, f"{title} names no test"
        for name in named:
            if name.startswith("test_"):
                waiting.add(name)
                continue
            # A file follows the names of the tests in it.
            missing = waiting - functions_in(name)
            assert not missing, f"{title} names {sorted(missing)}, not in {name}"
            waiting.clear()
        assert not waiting, f"{title} does not say where {sorted(waiting)} is"


def architecture(heading: str) -> str:
    """One section of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, found, section = text.partition(f"\n## {heading}\n")
    assert found
    return section.partition("\n## ")[0]


def test_what_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80, "it fits a page"
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert (ROOT / picture).exists()
    folder = ROOT / "src/dibs"
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert named
    missing = {
        name
        for name in named
        if not (folder / name).exists()
        and not (ROOT / name).exists()
        and not list(folder.rglob(name))
    }
    assert missing == set()


def test_every_folder_is_in_the_picture() -> None:
    picture = (ROOT / "docs/images/architecture.svg").read_text(encoding="utf-8")
    folder = ROOT / "src/dibs"
    packages = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    surfaces = {path.stem for path in (folder / "surfaces").iterdir() if path.stem.isalpha()}
    assert {name for name in packages | surfaces if name not in picture} == set()


def test_no_two_modules_share_a_name_unless_they_are_the_same_contract() -> None:
    """The nouns have an `operations` each; whoever sees any other name knows which file it is."""
    modules = (ROOT / "src/dibs").rglob("*.py")
    names = [path.stem for path in modules if path.stem not in ("__init__", "operations")]
    assert sorted(names) == sorted(set(names))


def test_the_path_of_a_claim_is_as_the_architecture_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = architecture("The path of one write")
    told = re.findall(r"^\| `([\w.]+|BEGIN IMMEDIATE|COMMIT)` \|", section, re.MULTILINE)
    seen: list[str] = []
    rows, run, control = SqliteConnection.rows, SqliteConnection.run, SqliteConnection._control

    def note_rows(self: SqliteConnection, query: Query, parameters: dict[str, Any]) -> Any:
        seen.append(query.name)
        return rows(self, query, parameters)

    def note_run(self: SqliteConnection, query: Query, parameters: dict[str, Any]) -> None:
        seen.append(query.name)
        run(self, query, parameters)

    def note_control(self: SqliteConnection, text: str) -> None:
        seen.append(text)
        control(self, text)

    with dibs.open(str(tmp_path / "dibs.db"), space="s") as space, space.join("alice") as alice:
        monkeypatch.setattr(SqliteConnection, "rows", note_rows)
        monkeypatch.setattr(SqliteConnection, "run", note_run)
        monkeypatch.setattr(SqliteConnection, "_control", note_control)
        alice.leases.claim("port:3000")
        monkeypatch.undo()
    assert [name.rpartition(".")[2] for name in told] == seen


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_says_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(rf"# {int(page.name[:4])}\. .+\n", text)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences"]
    index = (page.parent / "README.md").read_text(encoding="utf-8")
    assert f"({page.name})" in index


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


# What pages name without running it.

HISTORY = [page for page in PAGES if page.name == "CHANGELOG.md" or page.parent.name == "decisions"]


def commands_of(text: str) -> list[str]:
    """The commands of dibs that a page shows or names, besides those that are typed."""
    found = []
    for token in parsed(text):
        if token.type == "fence" and token.info == "console":
            code = token.content.replace("\\\n", " ")
            found += re.findall(r"^\$ (?:\w+=\S+ )*(dibs [^|;&#\n]*)", code, re.MULTILINE)
        spans = [child.content for child in token.children or () if child.type == "code_inline"]
        found += [re.split(r"[|;&]| > | < ", span)[0] for span in spans if span.startswith("dibs ")]
    return found


def wrong_words(command: str) -> list[str]:
    """The words of a command that dibs does not know: its name, or options."""
    words = command.partition(" -- ")[0].split()[1:]
    words = [word.rstrip(",.") for word in words]
    known = {one.words: about(one) for _, every in sections() for one in every}
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    plain: list[str] = []
    for place, word in enumerate(words):
        follows_global = place and words[place - 1] in ("--as", "--store", "--space", "--format")
        if re.fullmatch(r"[a-z]+", word) and not follows_global:
            plain.append(word)
        elif not (word.startswith("--") or follows_global):
            break
    name = next((" ".join(plain[:n]) for n in (2, 1) if " ".join(plain[:n]) in known), None)
    if name is None:
        groups = {one.split()[0] for one in known}
        return [word for word in plain[:1] if word not in groups]
    variants = [help for words, help in known.items() if words.split(" --")[0] == name]
    helps = "\n".join([*variants, GLOBALS])
    return sorted(option for option in options if option not in helps)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in HISTORY], ids=lambda page: page.name
)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    for command in commands_of(page.read_text(encoding="utf-8")):
        assert wrong_words(command) == [], f"{page.name} names {command!r}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`dibs frobnicate x`", ["frobnicate"]),
        ("`dibs claim x --frobnicate`", ["--frobnicate"]),
        ("`dibs --as ann token add ci --nothing 3`", ["--nothing"]),
        ("```console\n$ dibs claim x \\\n  --nothing\n```", ["--nothing"]),
        ("`dibs --as ann token add ci --scope read`", []),
        ("`dibs run -- make --nothing`", []),
        ("`dibs work` and `dibs TASK`", []),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(text: str, wrong: list[str]) -> None:
    assert [word for command in commands_of(text) for word in wrong_words(command)] == wrong
