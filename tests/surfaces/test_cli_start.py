"""The start of a command: it loads what it needs, and nothing that costs milliseconds.

And its way: through how few modules of dibs it goes, since each of them is one more to read for
whoever wants to know what happens.

How long it takes is measured by `make bench`; a test that counts seconds fails on busy machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell, finish

# Each costs every command a millisecond or more, up to fifty.
HEAVY = {
    "_hashlib",
    "argparse",
    "asyncio",
    "contextlib",
    "copy",
    "ctypes",
    "dataclasses",
    "datetime",
    "difflib",
    "email",
    "enum",
    "gettext",
    "hashlib",
    "hmac",
    "importlib.metadata",
    "importlib.resources",
    "inspect",
    "locale",
    "logging",
    "optparse",
    "pathlib",
    "platform",
    "psycopg",
    "psycopg_pool",
    "random",
    "re",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "string",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "tokenize",
    "traceback",
    "typing",
    "urllib",
    "uuid",
    "weakref",
    "zipfile",
}
JSON = {"enum", "re"}
"""What `json` loads."""
LOADED = """
import sys
before = set(sys.modules)
from dibs.surfaces.cli.main import main
code = main({words!r})
loaded = sorted(set(sys.modules) - before)
import json
print()
print(json.dumps([code, loaded]))
"""
# Functions only: the body of a module or of a class runs when it is loaded, wherever that is.
PASSED = """
import os, sys
from dibs.surfaces.cli.main import main
passed, function = set(), 1  # CO_OPTIMIZED
def profile(frame, event, _):
    code = frame.f_code
    named = code.co_name == "<lambda>" or code.co_name[0] != "<"
    if event == "call" and code.co_flags & function and named:
        passed.add(frame.f_globals.get("__name__", ""))
sys.setprofile(profile)
code = main({words!r})
sys.setprofile(None)
ours = sorted(name for name in passed if name.split(".")[0] == "dibs")
print(code, *ours, sep="\\n", file=open({target!r}, "w"))
"""
CLAIM = ["claim", "src/a.py", "--as", "alice", "--note", "why"]


def loaded(shell: Shell, words: list[str], given: str = "") -> tuple[int, set[str]]:
    """The exit code of a command, and the modules that a bare Python does not have."""
    code = LOADED.format(words=words)
    answer = finish(shell.spawn([sys.executable, "-c", code], stdin=subprocess.PIPE), given=given)
    code, names = json.loads(answer.out.splitlines()[-1])
    return code, set(names)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (CLAIM, 0),
        (["release", "src/a.py", "--as", "bob"], 0),
        (["status"], 0),
        (["status", "src/a.py"], 0),
        (["status", "src/a.py", "--json"], 0),
        (["status", "--as", "alice"], 0),
        (["claim", "held.py", "--as", "bob"], 1),
        (["work", "next", "--as", "bob"], 3),
        (["inbox", "--as", "bob"], 0),
        (["state", "get", "a", "b"], 1),
    ],
    ids=str,
)
def test_no_heavy_module_is_loaded(shell: Shell, words: list[str], code: int) -> None:
    shell.as_("alice").ok("claim", "held.py")
    shell.as_("bob").ok("claim", "src/a.py")
    if words == CLAIM:
        shell.as_("bob").ok("release", "src/a.py")
    ended, names = loaded(shell, words)
    assert ended == code
    assert not names & (HEAVY - JSON if "--json" in words else HEAVY)


def test_a_claim_loads_only_its_own_noun(shell: Shell) -> None:
    _, names = loaded(shell, CLAIM)
    unused = {"work", "messages", "state", "events"}
    assert not names & {f"dibs.nouns.{noun}.operations" for noun in unused}
    assert not names & {f"dibs.surfaces.cli.{name}" for name in ("help", "views", "run", "doctor")}
    assert "dibs.storage.postgres" not in names


@pytest.mark.parametrize("words", [CLAIM, ["status"], ["release", "src/a.py"]], ids=str)
def test_what_most_commands_do_not_need_is_loaded_late(shell: Shell, words: list[str]) -> None:
    shell.as_("alice").ok("status")
    if words != CLAIM:
        shell.as_("alice").ok("claim", "src/a.py")
    code, names = loaded(shell.as_("alice"), words)
    assert code == 0
    assert not names & {"contextvars", "fcntl", "select"}
    assert not names & {f"dibs.storage.{name}" for name in ("waiting", "group")}
    assert "dibs.names.globs" not in names


def test_a_store_is_opened_and_written_without_the_slow_ones(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from dibs.names.paths import find_place\n"
        "from dibs.space.signing import Keyring\n"
        "from dibs.storage.sqlite import SqliteDriver\n"
        "from dibs.storage.store import Store\n"
        "from dibs.storage.folder import Note\n"
        f"note = Note({str(tmp_path / 'user')!r}, {str(tmp_path / 'dibs.db')!r})\n"
        "driver = SqliteDriver(note, 'full', None, 1 << 30)\n"
        "keys = Keyring(driver.key(), 'main')\n"
        "with Store(driver, 'main', keys.check(), str, keys.ledger()).write(None) as tx:\n"
        f"    tx.event('a.b', find_place({str(tmp_path)!r}, '/').root, {{'c': 1, 'd': 'e'}})\n"
        "print(*sys.modules)"
    )
    bare = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(bare, capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert "dibs.storage.store" in names
    assert not names & {"contextvars", "enum", "fcntl", "functools", "json", "re", "select"}


def test_the_look_at_what_is_loaded_sees_a_heavy_module(shell: Shell) -> None:
    assert "difflib" in loaded(shell, ["clam"])[1] & HEAVY


@pytest.fixture
def client(shell: Shell) -> Iterator[Client]:
    """A client that has begun to work in a repository where others are, too."""
    shell.ok("claim", "src/b.py", "--as", "alice")
    one = Client(shell, "s")
    one.start()
    yield one
    one.kill()


def passed(shell: Shell, words: list[str], given: str | None = None) -> list[str]:
    """The modules of dibs in which a function runs during a command that succeeds."""
    target = shell.folder.parent / "passed"
    code = PASSED.format(words=words, target=str(target))
    process = shell.spawn([sys.executable, "-c", code], stdin=subprocess.PIPE)
    answer = finish(process, given=given or "")
    assert answer.code == 0, answer
    ended, *names = target.read_text().splitlines()
    assert ended == "0", answer
    assert "dibs.surfaces.cli.main" in names
    return names


def passed_by_hook(client: Client, tool: str, **tool_input: str) -> list[str]:
    """The same for the hook that runs before a tool."""
    payload = client.payload(
        "PreToolUse", tool_name=tool, tool_input=tool_input, tool_use_id="call"
    )
    return passed(client.shell, ["hook", "claude"], json.dumps(payload))


def few(names: list[str], limit: int) -> None:
    assert len(names) <= limit, f"{len(names)} modules, {limit} at most:\n" + "\n".join(names)


def test_a_claim_passes_few_modules(client: Client) -> None:
    few(passed(client.shell, ["claim", "NAME", "--as", "bob"]), 26)


def test_the_hook_of_an_edit_passes_few_modules(client: Client) -> None:
    file = str(client.folder / "src/a.py")
    names = passed_by_hook(client, "Edit", file_path=file, old_string="1", new_string="2")
    (lease,) = client.shell.json("leases", "--agent", client.shell.json("agents", "beat")["agent"])
    assert lease["resource"] == "src/a.py"
    few(names, 36)


@pytest.mark.parametrize(("event", "limit"), [("PreToolUse", 54), ("PostToolUse", 56)])
def test_the_hook_of_an_edit_loads_few_modules(client: Client, event: str, limit: int) -> None:
    edit = {"file_path": str(client.folder / "src/a.py"), "old_string": "1", "new_string": "2"}
    client.before("Edit", **edit)
    said = client.payload(event, tool_name="Edit", tool_input=edit, tool_use_id="call-1")
    code, names = loaded(client.shell, ["hook", "claude"], json.dumps(said))
    assert code == 0
    assert not names & HEAVY
    few(sorted(name for name in names if name.split(".")[0] == "dibs"), limit)


def test_the_hook_of_a_shell_command_passes_few_modules(client: Client) -> None:
    names = passed_by_hook(client, "Bash", command="sed -i s/1/2/ src/a.py")
    assert any(name.startswith("dibs.surfaces.hooks.shell") for name in names)
    few(names, 57)


def test_the_count_sees_a_function_wherever_it_runs(client: Client) -> None:
    names = passed(client.shell, ["status"])
    assert {"dibs.dibs", "dibs.records", "dibs.surfaces.cli.views"} <= set(names)
    assert not {"dibs.surfaces.hooks.hook"} & set(names)


TURNS = """
import sys
from dibs.surfaces.cli.main import main
turns = []
def profile(frame, event, _):
    if event == "call" and frame.f_code.co_name in ("begin_write", "begin_read"):
        turns.append(frame.f_code.co_name)
sys.setprofile(profile)
code = main({words!r})
sys.setprofile(None)
print()
print(code, *turns)
"""


def turns(shell: Shell, *words: str) -> list[str]:
    """The transactions of a command that succeeds, in their order."""
    answer = finish(shell.spawn([sys.executable, "-c", TURNS.format(words=list(words))]))
    code, *found = answer.out.splitlines()[-1].split()
    assert code == "0", answer
    return found


def test_a_command_takes_the_turn_to_write_only_to_write(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/b.py")
    assert turns(alice, "claim", "src/a.py").count("begin_write") == 1
    assert turns(alice, "release", "src/a.py") == ["begin_read", "begin_write"]
    assert turns(alice, "leases") == ["begin_read"] * 2
    # Whose session it is, and then everything from one snapshot.
    assert turns(alice, "status") == ["begin_read"] * 2
    assert turns(shell, "status") == ["begin_read"]
    assert turns(shell.as_("nobody-yet"), "status").count("begin_write") == 0
