"""A change to a leased file is its holder's own formatting only if its holder's tool made it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell

MADE = "def f(a, b):\n    if a > b:\n        return 1\n    return a + b\n"
CHANGES = {
    "another sign": MADE.replace("a + b", "a - b"),
    "another comparison": MADE.replace(">", "<"),
    "lines reversed": "".join(reversed(MADE.splitlines(keepends=True))),
}
IMPORTS = "import sys\nimport os\n\nprint(os, sys)\n"


@pytest.fixture
def a(shell: Shell) -> Iterator[Client]:
    client = Client(shell, "a")
    yield client
    client.kill()


@pytest.fixture
def b(shell: Shell) -> Iterator[Client]:
    client = Client(shell, "b")
    client.start()
    yield client
    client.kill()


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_what_a_strangers_script_changes_is_told(a: Client, b: Client, changed: str) -> None:
    (a.folder / "change.py").write_text(f"open('yp.a/crs'[::-1], 'w').write({changed!r})")
    a.write("src/a.py", MADE)
    assert '"src/a.py" is held by' in b.bash("python3 change.py").context
    assert "was changed by" in a.prompt().context
    a.shell.ok("recover", "src/a.py")
    assert (a.folder / "src/a.py").read_text() == MADE


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_what_a_person_changes_in_an_editor_is_told(a: Client, b: Client, changed: str) -> None:
    a.write("src/a.py", MADE)
    (a.folder / "src/a.py").write_text(changed)
    said = a.bash("make something").context
    assert "was changed by somebody unknown to dibs" in said


def test_a_formatter_that_is_hung_on_an_edit_is_told_to_nobody(a: Client, b: Client) -> None:
    file = a.folder / "src/a.py"
    formats(a)
    a.write("src/a.py", "a=f( 'x',\n 1 )\n")
    b.before("Bash", command="make test")
    assert a.shell.sh("ruff format src/a.py").code == 0
    assert file.read_text() == 'a = f("x", 1)\n'
    assert b.after("Bash", command="make test").quiet
    assert a.bash("make something").quiet
    assert a.write("src/a.py", "a = 2\n").denied == ""


def formats(a: Client) -> None:
    """A formatter of the user's follows an edit, while nobody else has a tool under way."""
    a.write("src/other.py", "b=1\n")
    (a.folder / "src/other.py").write_text("b = 1\n")
    assert a.bash("make something").quiet


def test_a_stranger_who_changes_only_the_layout_is_told_of(a: Client, b: Client) -> None:
    a.write("src/a.py", "a=1\n")
    unreadable = "python3 -c \"open('yp.a/crs'[::-1], 'w').write('a = 1\\n')\""
    assert '"src/a.py" is held by' in b.bash(unreadable).context
    assert "was changed by" in a.prompt().context
    a.shell.ok("recover", "src/a.py")
    assert (a.folder / "src/a.py").read_text() == "a=1\n"


def test_a_formatter_that_others_were_taken_for_twice_is_known_then(a: Client, b: Client) -> None:
    for number in (1, 2, 3):
        a.write("src/a.py", f"a={number}\n")
        b.before("Bash", command="make test")
        (a.folder / "src/a.py").write_text(f"a = {number}\n")
        told = b.after("Bash", command="make test").context
        assert ("src/a.py" in told) == (number < 3)
        a.prompt()
        a.read("src/a.py")


def test_imports_that_a_formatter_sorts_are_told_to_nobody(a: Client, b: Client) -> None:
    a.write("src/a.py", IMPORTS)
    assert a.shell.sh("ruff check --quiet --select I --fix src/a.py").code == 0
    assert (a.folder / "src/a.py").read_text() != IMPORTS
    assert a.bash("make something").quiet


def test_imports_that_change_places_while_others_work_are_told(a: Client, b: Client) -> None:
    a.write("src/a.py", IMPORTS)
    (a.folder / "sort").write_text("ruff check --quiet --select I --fix src/a.py\n")
    assert '"src/a.py" is held by' in b.bash("rev sort | rev | sh").context


def test_a_layout_that_changes_long_after_the_edit_is_told(a: Client, b: Client) -> None:
    file = a.folder / "src/a.py"
    a.write("src/a.py", MADE)
    file.write_text(MADE.replace("    ", "  "))
    late = file.stat().st_mtime + 3600
    os.utime(file, (late, late))
    assert "was changed by" in a.bash("make something").context
