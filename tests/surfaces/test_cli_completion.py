"""Completion in the real shells: what is typed, Tab, and what then stands on the command line.

bash and zsh run in a terminal and get keys; fish says itself what it would offer. A shell that is
not installed is a failure: `make test` installs them (tests/surfaces/get_shells).
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.dibs import operations
from dibs.surfaces.cli.completion import SCRIPTS
from dibs.surfaces.cli.main import BY_HAND
from tests.surfaces.shell import PATIENCE_S, Shell

TAB, SHOW = "\t", "\x18\x14"
"""The second writes the command line into a file."""
START = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'show() { printf "%s\\n" "$READLINE_LINE" > "$LINE.new"; mv "$LINE.new" "$LINE"; }\n'
        "bind -x '\"\\C-x\\C-t\": show'\n"
        'bind "set completion-query-items 0"\nbind "set page-completions off"\n',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit && compinit -u -d $HOME/.zcompdump\n"
        "setopt no_list_ambiguous\n"
        'show() { print -r -- "$BUFFER" > "$LINE.new"; mv "$LINE.new" "$LINE"; }\n'
        "zle -N show\nbindkey '^X^T' show\n",
    ),
}


class Typist:
    """Somebody who types into a shell in a terminal."""

    def __init__(self, shell: Shell, name: str) -> None:
        words, start = START[name]
        program = shutil.which(words[0])
        assert program, f"{name} is not installed: run tests/surfaces/get_shells"
        self.line = shell.folder.parent / f"{name}-line"
        environment = shell.environment | {
            "LINE": str(self.line),
            "TERM": "dumb" if name == "bash" else "xterm",
            "PS1": "$ ",
        }
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(shell.folder)
            os.execve(program, words, environment)
        script = shell.folder.parent / f"{name}-start"
        script.write_text(f'{start}eval "$(dibs completion {name})"\n: > "$LINE"\n')
        self.keys(f". {script}\r")
        self.wait()

    def keys(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def typed(self, keys: str) -> str:
        """What stands on the command line after some keys, without its last blanks."""
        self.line.unlink(missing_ok=True)
        self.keys(f"\x15{keys}{SHOW}")
        self.wait()
        return self.line.read_text().rstrip("\n")

    def wait(self) -> None:
        """Until the shell has written the file."""
        end, heard = time.monotonic() + PATIENCE_S, b""
        while not self.line.exists():
            if select.select([self.terminal], [], [], 0.05)[0]:
                heard += os.read(self.terminal, 65_536)
            assert time.monotonic() < end, heard.decode("utf-8", "replace")

    def leave(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """A repository in which something is going on."""
    (shell.folder / "docs").mkdir()
    (shell.folder / "docs/a file.md").touch()
    alice = shell.as_("alice")
    alice.ok("claim", "port:3000", "docs/guide.md")
    alice.ok("work", "add", "github:owner/repo#12")
    alice.ok("work", "claim", "fix-login")
    shell.as_("bob").ok("claim", "src/b.py")
    return shell


@pytest.fixture(params=["bash", "zsh"])
def typist(busy: Shell, request: pytest.FixtureRequest) -> Iterator[Typist]:
    typist = Typist(busy, request.param)
    yield typist
    typist.leave()


LINES = [
    ("dibs cl", "dibs claim "),
    ("dibs work nex", "dibs work next "),
    ("dibs claim src/a.py --no", "dibs claim src/a.py --note "),
    ("dibs send hi --to al", "dibs send hi --to alice "),
    ("dibs --as bo", "dibs --as bob "),
    ("dibs work complete fix", "dibs work complete fix-login "),
    ("dibs work claim git", "dibs work claim github:owner/repo#12 "),
    ("dibs work claim github:ow", "dibs work claim github:owner/repo#12 "),
    ("dibs --as alice release po", "dibs --as alice release port:3000 "),
    ("dibs --as alice release port:", "dibs --as alice release port:3000 "),
    ("dibs --as alice release port:30", "dibs --as alice release port:3000 "),
    ("dibs claim sr", "dibs claim src/"),
    ("dibs claim src/a", "dibs claim src/a.py "),
    ("dibs claim docs/a", "dibs claim docs/a\\ file.md "),
    ("dibs status docs/g", "dibs status docs/guide.md "),
    ("dibs state se", "dibs state set "),
    ("dibs config get poli", "dibs config get policy "),
    ("dibs status --format ya", "dibs status --format yaml "),
    ("dibs status --color nev", "dibs status --color never "),
    ("dibs work list --state comp", "dibs work list --state completed "),
    ("dibs completion f", "dibs completion fish "),
    ("dibs claim --ta", "dibs claim --take "),
    ("dibs run --claim sr", "dibs run --claim src/"),
    ("dibs run -- sr", "dibs run -- src/"),
]


def test_what_is_typed_is_completed(typist: Typist) -> None:
    for typed, wanted in LINES:
        found = typist.typed(f"{typed}{TAB}")
        # How a name is quoted is each shell's own; a folder is not finished, anything else is.
        assert shlex.split(found) == shlex.split(wanted), (typed, found)
        assert found.endswith(" ") is not wanted.endswith("/"), (typed, found)


def test_no_name_is_ever_evaluated(busy: Shell, typist: Typist) -> None:
    busy.as_("alice").ok("work", "add", "evil$(touch pwned)`touch pwned`;touch pwned")
    found = typist.typed(f"dibs work claim ev{TAB}")
    assert "touch" in found
    assert re.search(r"\\\$\\\(|'evil\$", found), found
    assert not (busy.folder / "pwned").exists()


def fish(shell: Shell, line: str) -> dict[str, str]:
    """What fish offers for a line, and what it says of each."""
    program = shutil.which("fish")
    assert program, "fish is not installed: run tests/surfaces/get_shells"
    answer = shell.sh(f"fish -N -c 'dibs completion fish | source; complete -C \"{line}\"'")
    assert answer.code == 0, answer
    pairs = [one.partition("\t") for one in answer.out.splitlines()]
    return {name: says for name, _, says in pairs}


def test_fish_offers_the_same(busy: Shell) -> None:
    for typed, wanted in LINES:
        assert shlex.split(wanted)[-1] in fish(busy, typed), typed
    assert fish(busy, "dibs clai")["claim"] == operations()["leases.claim"].summary


def test_a_tab_makes_no_store_and_says_nothing_where_there_is_none(shell: Shell) -> None:
    answer = shell.ok("candidates", "--", "send", "hi", "--to", "")
    assert (answer.out, answer.err) == ("", "")
    assert not (shell.folder / ".dibs").exists()


def test_every_command_and_every_option_is_a_candidate(shell: Shell) -> None:
    words = shell.ok("candidates", "--", "").out.splitlines()
    firsts = {one.partition("\t")[0] for one in words}
    assert {name.split()[0] for name in BY_HAND} <= firsts
    assert {one.cli.split()[0] for one in operations().values() if one.by} <= firsts
    said = shell.json("candidates", "--line", "dibs work add x --")["candidates"]
    assert {"--title", "--after", "--many", "--as", "--format", "--quiet", "--color"} <= set(said)


def test_a_word_that_is_not_finished_may_be_quoted(shell: Shell) -> None:
    for line in ("dibs claim 'sr", 'dibs claim "sr', "dibs claim --note 'a b' sr"):
        assert shell.json("candidates", "--line", line)["candidates"] == ["src/"], line


def test_names_that_cannot_be_seen_are_left_out(shell: Shell, tmp_path: Path) -> None:
    (shell.folder / "a\x1b[31m").touch()
    (shell.folder / "ab").touch()
    assert shell.json("candidates", "--", "claim", "a")["candidates"] == ["ab"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_what_its_shell_can_read(shell: Shell, name: str) -> None:
    script = shell.ok("completion", name).out
    (shell.folder / "script").write_text(script)
    assert shutil.which(name), f"{name} is not installed: run tests/surfaces/get_shells"
    assert shell.sh(f"{name} -n script").code == 0
