"""The documentation is true: its code runs, its output is what is shown, its names exist.

Every `python` block of a page is executed, in order and in one namespace, in a fresh repository. A
`text` block right after it is what it prints; a block that prints has one.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
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
from tools.reference import all_errors, render

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
DECISIONS = sorted(ROOT.glob("docs/decisions/[0-9]*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block:
    """A piece of code in a page, and the output that is shown beneath it."""

    def __init__(self, page: str, line: int, code: str, output: str) -> None:
        self.place = f"{page}:{line}"
        self.line = line
        self.code = code
        self.output = output

    def run(self, namespace: dict[str, Any]) -> str:
        # Line numbers in a traceback are those of the page.
        code = "\n" * self.line + self.code
        linecache.cache[self.place] = (len(code), None, code.splitlines(True), self.place)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, self.place, "exec"), namespace)
        return printed.getvalue()


def blocks(page: str, text: str) -> list[Block]:
    fences = list(FENCE.finditer(text))
    found = []
    for place, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        after = fences[place + 1] if place + 1 < len(fences) else None
        shown = ""
        if after and after[1] == "text" and not text[fence.end() : after.start()].strip():
            shown = after[2]
        found.append(Block(page, text.count("\n", 0, fence.start()) + 1, fence[2], shown))
    return found


def blocks_of(page: Path) -> list[Block]:
    return blocks(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))


def check(found: list[Block]) -> None:
    """Run the blocks of a page in order, in one namespace, and compare what they print."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in found:
        printed = block.run(namespace)
        assert steady(printed) == steady(block.output), f"{block.place} prints something else"


def steady(text: str) -> str:
    """Without the figures that depend on how fast the machine is."""
    text = re.sub(r"\b\d+ s left", "N s left", text)
    return re.sub(r"\bfor \d+ s\b", "for N s", text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who is in a fresh repository."""
    repository, home = tmp_path / "repository", tmp_path / "home"
    (repository / ".git").mkdir(parents=True)
    home.mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks_of(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page: Path, home: Path) -> None:
    check(blocks_of(page))
    # Besides the store in the repository, there are the notes that it is this user's, and of what
    # this machine is called.
    kept = {path.parent.name for path in home.rglob("*") if path.is_file()}
    assert kept <= {"stores", "machines"}


def test_the_tour_of_the_readme_is_the_same_on_postgresql(
    home: Path, postgres_url: str, space_name: str
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = "space = dibs.open()"
    assert text.count(first) == 1
    opened = f"space = dibs.open({postgres_url!r}, space={space_name!r})"
    check(blocks("README.md", text.replace(first, opened)))


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print(1 + 1)", "```text\n3\n```\n"),
        ("print(1 + 1)", ""),
        ("print(1 + 1)", "It prints:\n\n```text\n2\n```\n"),
        ("1 + 1", "```text\n2\n```\n"),
    ],
)
def test_output_that_is_not_what_is_shown_is_noticed(code: str, shown: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:3 prints something else"):
        check(blocks("page.md", f"Look:\n\n```python\n{code}\n```\n\n{shown}"))


def test_a_later_block_knows_what_an_earlier_one_said() -> None:
    text = "```python\na = 1\n```\n\n```python\nprint(a)\n```\n\n```text\n1\n```\n"
    check(blocks("page.md", text))


def test_an_error_in_a_page_is_reported_with_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        check(blocks("page.md", "Look:\n\n```python\na = 0\n1 / a\n```\n"))
    assert raised.traceback[-1].lineno == 5 - 1  # counted from 0


def test_the_readme_has_code_for_every_noun() -> None:
    code = "\n".join(block.code for block in blocks_of(ROOT / "README.md"))
    used = {found[1] for found in re.finditer(r"\.(\w+)\.\w+\(", code)}
    assert {entry.noun for entry in operations().values()} <= used
    assert "aio.call" in code
    assert "next_task" in code


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name} links to {link}"
        assert target.is_relative_to(ROOT), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    )make (?:[A-Z]+=\S+ )?([a-z]+)", text, re.MULTILINE))
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
