"""The start of a command: it loads what it needs, and nothing that costs milliseconds.

How long it takes is measured by `make bench`; a test that counts seconds fails on busy machines.
"""

from __future__ import annotations

import json
import sys

import pytest

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
CLAIM = ["claim", "src/a.py", "--as", "alice", "--note", "why"]


def loaded(shell: Shell, words: list[str]) -> tuple[int, set[str]]:
    """The exit code of a command, and the modules that a bare Python does not have."""
    answer = finish(shell.spawn([sys.executable, "-c", LOADED.format(words=words)]))
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
        (["work", "next", "--as", "bob"], 1),
        (["inbox", "--as", "bob"], 0),
        (["state", "get", "a", "b"], 0),
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
    assert not names & HEAVY


def test_a_claim_loads_only_its_own_noun(shell: Shell) -> None:
    _, names = loaded(shell, CLAIM)
    unused = {"work", "messages", "state", "events"}
    assert not names & {f"dibs.nouns.{noun}.operations" for noun in unused}
    assert not names & {f"dibs.surfaces.cli.{name}" for name in ("help", "views", "run", "doctor")}
    assert "dibs.storage.postgres" not in names


def test_the_look_at_what_is_loaded_sees_a_heavy_module(shell: Shell) -> None:
    assert "difflib" in loaded(shell, ["clam"])[1] & HEAVY
