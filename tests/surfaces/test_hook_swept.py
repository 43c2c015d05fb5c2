"""Beside many leases of others, a hook reads only what has changed, and misses nothing by that."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.surfaces.hooks.swept import FEW, SETTLED_NS
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell

FILES = FEW + 5
ADD = 'open(path, "a").write("y")'
CHANGE = (
    'then = os.stat(path); open(path, "w").write("x = 5\\n")\n'
    "os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))"
)


@pytest.fixture
def a(shell: Shell) -> Iterator[Client]:
    """A client beside an agent with hooks that holds many files, all of which are noted."""
    for number in range(FILES):
        (shell.folder / f"src/f{number}.py").write_text(f"x = {number}\n")
    time.sleep(SETTLED_NS / 1e9 + 0.1)  # no program can set the time of a change back
    b, client = Client(shell, "b"), Client(shell, "a")
    b.start()
    b.shell.ok("claim", *(f"src/f{number}.py" for number in range(FILES)))
    for _ in range(3):
        assert client.bash("echo a = 2 > src/a.py").denied == ""
    yield client
    client.kill()
    b.kill()


def noted(client: Client) -> dict[str, object]:
    (note,) = (client.folder / ".dibs/hooks/swept").iterdir()
    found: dict[str, object] = json.loads(note.read_text())
    return found


def intruded(client: Client) -> list[str]:
    lines = client.shell.ok("log", "--kind", "lease.intruded", "--json").out.splitlines()
    return [json.loads(line)["subject"] for line in lines]


def run(client: Client, script: str, file: str) -> None:
    """Run a program that changes a file, which nobody can tell by reading it."""
    path = f'path = bytes.fromhex("{file.encode().hex()}").decode()'
    tool = client.folder / "tool"
    tool.write_text(f"#!{sys.executable}\nimport os\n{path}\n{script}\n")
    tool.chmod(0o755)
    assert client.bash("./tool").denied == ""


def test_files_that_were_as_their_leases_say_are_noted(a: Client) -> None:
    found = noted(a)
    files = found["files"]
    assert isinstance(files, dict)
    assert len(files) == FILES
    assert isinstance(found["seq"], int)
    assert intruded(a) == []


def test_a_noted_file_that_is_changed_is_told(a: Client) -> None:
    assert a.bash("echo >> src/f3.py").denied  # dibs knows that it would
    run(a, ADD, "src/f3.py")
    assert intruded(a) == ["src/f3.py"]


def test_a_change_that_keeps_size_and_time_is_told(a: Client) -> None:
    run(a, CHANGE, "src/f4.py")
    assert intruded(a) == ["src/f4.py"]


def test_a_file_that_was_claimed_since_is_looked_at(a: Client, shell: Shell) -> None:
    late = shell.folder / "src/late.py"
    late.write_text("x = 1\n")
    c = Client(shell, "c")
    c.start()
    c.shell.ok("claim", "src/late.py")
    run(a, ADD, "src/late.py")
    c.kill()
    assert intruded(a) == ["src/late.py"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 1, "seq": 2}', '{"files": {"a": 1}}'])
def test_a_note_of_any_kind_is_read_as_none(a: Client, text: str) -> None:
    (note,) = (a.folder / ".dibs/hooks/swept").iterdir()
    note.write_text(text)
    assert a.bash("echo a = 3 > src/a.py").denied == ""
    assert not Path(a.folder / ".dibs/failures.log").exists()


def test_beside_an_edit_only_files_of_ones_own_are_compared(a: Client) -> None:
    before = noted(a)
    (a.folder / "src/f3.py").write_text("by a person\n")
    assert a.write("src/a.py", "a = 4\n").denied == ""
    assert intruded(a) == []
    assert noted(a) == before


def test_a_command_whose_end_was_not_told_is_looked_at_with_the_next_edit(a: Client) -> None:
    assert a.before("Bash", command="./tool").denied == ""
    (a.folder / "src/f3.py").write_text("by the tool\n")
    a.write("src/a.py", "a = 5\n")
    assert intruded(a) == ["src/f3.py"]
