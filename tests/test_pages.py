"""The pages are true: what they tell to type can be typed, and prints what they show.

tests/pages.py follows them; CONTRIBUTING.md says how they are written.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.pages import DATABASE, PAGES, ROOT, Block, Reader, blocks, blocks_of, matches
from tests.surfaces.shell import Shell, scrubbed

RUN = ("sh", "python", "before")
FILES = ("json", "toml", "yaml", "nginx", "dockerfile", "markdown", "text", "csv")
TWICE = ("README.md", "docs/tutorial.md")
FOLLOWED = [page for page in PAGES if any(block.language in RUN for block in blocks_of(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A user in a fresh repository with one commit, and with a fresh home."""
    repository, home = tmp_path / "repository", tmp_path / "home"
    home.mkdir()
    (repository / "src").mkdir(parents=True)
    for name in ("a", "b", "parser"):
        (repository / f"src/{name}.py").write_text(f"{name} = 1\n")
    (repository / "README.md").write_text("# Example\n")
    environment = scrubbed(home)
    del environment["GIT_CONFIG_GLOBAL"]
    (home / ".gitconfig").write_text("[user]\nname = You\nemail = you@example.com\n")
    for words in ("init -q -b main", "add .", "commit -q -m Begin"):
        subprocess.run(["git", *words.split()], cwd=repository, env=environment, check=True)
    # For blocks of Python, which run here.
    monkeypatch.chdir(repository)
    monkeypatch.setenv("HOME", str(home))
    for variable in [*filter(lambda name: name.startswith(("DIBS_", "XDG_")), os.environ)]:
        monkeypatch.delenv(variable)
    return Shell(repository, environment)


@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_page_can_be_followed_as_written(
    page: Path, shell: Shell, request: pytest.FixtureRequest
) -> None:
    named = DATABASE in page.read_text(encoding="utf-8")
    reader = Reader(shell, request.getfixturevalue("empty_postgres_url") if named else "")
    for again in (False, True)[: 2 if name_of(page) in TWICE else 1]:
        reader.follow(blocks_of(page), again)
    assert shell("stop").code == 1, "the page leaves a daemon running"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_says_whether_it_is_run(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in blocks_of(page):
        assert block.language != "text" or block.output is None, f"{block.place} has two outputs"
        if block.language == "console":
            said = next(line for line in reversed(lines[: block.line - 1]) if line)
            assert said.startswith("<!-- not run: "), f"{block.place} does not say why"
            assert block.code.startswith("$ "), block.place
        else:
            assert block.language in (*RUN, *FILES), f"{block.place} is {block.language!r}"


def test_every_page_that_has_to_run_twice_is_there() -> None:
    assert set(TWICE) <= {name_of(page) for page in FOLLOWED}


# The mechanism.


def page(*parts: tuple[str, str]) -> list[Block]:
    return blocks("page.md", "\n".join(f"```{info}\n{code}\n```\n" for info, code in parts))


def read(folder: Path, *parts: tuple[str, str], again: bool = False) -> Reader:
    (folder / "home").mkdir(exist_ok=True)
    reader = Reader(Shell(folder, scrubbed(folder / "home")))
    reader.follow(page(*parts), again)
    return reader


@pytest.mark.parametrize(
    "parts",
    [
        [("python", "print(1 + 1)"), ("text", "3")],
        [("python", "print(1 + 1)")],
        [("python", "1 + 1"), ("text", "2")],
        [("sh", "echo 2"), ("text", "3")],
        [("sh", "echo two"), ("text", "")],
        [("sh", "true"), ("text", "2")],
        [("sh", "echo one; echo two >&2"), ("text", "one")],
        [("sh", "echo one; echo two"), ("text", "one\n…\ntwo\nthree")],
    ],
)
def test_output_that_is_not_what_is_shown_is_noticed(
    parts: list[tuple[str, str]], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1 prints something else"):
        read(tmp_path, *parts)


def test_a_text_block_belongs_to_the_block_right_before_it() -> None:
    (block,) = blocks("page.md", "```sh\necho 2\n```\n\nIt prints:\n\n```text\n2\n```\n")[:1]
    assert block.output is None


def test_a_command_that_fails_is_noticed_where_no_output_is_shown(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:5 exits with 3"):
        read(tmp_path, ("sh", "true"), ("sh", "(exit 3)"))


def test_a_later_block_knows_what_an_earlier_one_said(tmp_path: Path) -> None:
    read(tmp_path, ("python", "a = 1"), ("python", "print(a)"), ("text", "1"))
    read(tmp_path / "home", ("sh", "a=1"), ("sh", "echo $a"), ("text", "1"))


def test_each_named_shell_is_one_of_its_own_and_stays_open(tmp_path: Path) -> None:
    hers, his = "# alice's shell\n", "# bob's shell\n"
    read(
        tmp_path,
        ("sh", f"{hers}a=1"),
        ("sh", f"{his}echo ${{a:-nothing}}"),
        ("text", "nothing"),
        ("sh", f"{hers}cat; echo $a"),  # and `cat` does not swallow what is typed later
        ("text", "1"),
        ("sh", f"{hers}echo $a"),
        ("text", "1"),
    )


def test_what_is_not_shown_is_typed_too_and_a_console_is_not(tmp_path: Path) -> None:
    hidden = blocks("page.md", "<!-- before: a=1 -->\n")
    seen = page(("console", "$ a=2"), ("sh", "echo $a"), ("text", "1"))
    (tmp_path / "home").mkdir()
    reader = Reader(Shell(tmp_path, scrubbed(tmp_path / "home")))
    reader.follow([*hidden, *seen])
    assert reader.compared == 1


def test_an_error_in_a_page_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        read(tmp_path, ("python", "a = 0\n1 / a"))
    assert raised.traceback[-1].lineno == 3 - 1  # counted from 0


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("src/a.py  29m left, epoch 7", "src/a.py  30m left, epoch 2", True),
        ("held by alice for 8 s, 1791 s left", "held by bob for 8 s, 1791 s left", False),
        ("4  bob → alice  1m 3s ago", "12  bob → alice  0s ago", True),
        ("2026-11-18 16:20:26 +01:00  x", "2025-01-02  x", True),
        ("3 tasks", "4 tasks", False),
        ("landed 0123abcdef01", "landed 9876543", True),
        ("landed 477c58b8205d", "landed 123456d", True),
        ("at /tmp/x/repository", "at /…/repository", True),
        ("one\ntwo\nthree", "one\n…\nthree", True),
        ("one\nthree", "one\n…\nthree", True),
        ("one\ntwo", "one\n…\nthree", False),
    ],
)
def test_what_varies_by_itself_may_differ_and_nothing_else(
    printed: str, shown: str, same: bool
) -> None:
    assert matches(printed, shown) is same


def test_figures_may_differ_the_second_time_but_not_exit_codes() -> None:
    assert matches("7 tasks\n1", "3 tasks\n1", again=True)
    assert not matches("7 tasks\n0", "3 tasks\n1", again=True)
