"""`dibs backup`, `restore` and `reset`: the whole store, and never by mistake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dibs
from dibs.errors import DibsError, StoreGoneError
from tests.surfaces.shell import Shell

COPY = "../copy.db"


def idle(shell: Shell, *agents: str) -> None:
    """Let everybody leave, so that nothing is in use."""
    for agent in agents:
        shell.as_(agent).ok("agents", "leave")


def test_a_backup_comes_back_and_epochs_keep_rising(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("state", "set", "budget", "total", "10")
    held = alice.json("claim", "src/a.py")["epoch"]
    idle(shell, "alice")
    shell.ok("backup", COPY)
    alice.ok("state", "set", "budget", "total", "5", "--force")
    lost = alice.json("claim", "src/a.py")["epoch"]
    idle(shell, "alice")
    assert held < lost
    answer = shell.ok("restore", COPY)
    assert answer.err.startswith(f"restored {shell.folder}/.dibs/dibs.db from {COPY}")
    assert shell.json("state", "get", "budget", "total")["value"] == 10
    assert bob.json("claim", "src/a.py")["epoch"] > lost
    assert (
        bob.json("state", "set", "budget", "total", "7", "--expected-version", "1")["version"] > 2
    )
    assert "space.restored" in shell.ok("log").out
    said = shell.ok("verify").err
    assert said.startswith("no tampering found\n") and "a backup was restored" in said
    assert shell.ok("doctor").code == 0
    # And the same copy again, as often as one likes.
    idle(shell, "bob")
    assert shell.json("restore", COPY)["seq"] > lost
    assert shell.json("state", "get", "budget", "total")["value"] == 10


def test_a_store_that_is_gone_comes_back(shell: Shell) -> None:
    last = shell.as_("alice").json("claim", "src/a.py")["epoch"]
    shell.as_("alice").ok("state", "set", "n", "k", "1")
    shell.ok("backup", COPY)
    shutil.rmtree(shell.folder / ".dibs")
    shell.ok("restore", COPY)
    assert shell.json("state", "get", "n", "k")["value"] == 1
    assert shell.as_("bob").json("claim", "src/a.py")["epoch"] > last


@pytest.mark.parametrize("command", [("restore", COPY), ("reset",)], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("use", "said"),
    [
        (("agents", "beat"), "a live session"),
        (("claim", "src/a.py"), "a held lease"),
        (("work", "add", "fix-login"), "an open task"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_store_in_use_is_not_replaced_unless_its_name_is_typed(
    shell: Shell, command: tuple[str, ...], use: tuple[str, ...], said: str
) -> None:
    shell.ok("status")
    shell.ok("backup", COPY)
    shell.as_("alice").ok(*use)
    if use[0] == "work":
        idle(shell, "alice")
    last = shell.json("events", "last")
    name = shell.folder.name
    for words in (command, (*command, "--discard", "another"), (*command, "--discard", "main")):
        answer = shell(*words)
        assert answer.code == 1, answer
        assert f"the space {name} is in use: " in answer.err and said in answer.err, answer
        assert f"--discard {name}" in answer.err
        assert shell.json("events", "last") == last
    shell.ok(*command, "--discard", name)
    assert shell.json("agents") == shell.json("leases") == shell.json("work", "list") == []


def test_every_space_of_a_file_counts(shell: Shell, tmp_path: Path) -> None:
    shared = shell.with_(DIBS_URL=str(tmp_path / "shared.db"))
    shared.with_(DIBS_SPACE="one").ok("status")
    shared.with_(DIBS_SPACE="two", DIBS_AGENT="alice").ok("work", "add", "fix-login")
    answer = shared.with_(DIBS_SPACE="one")("reset")
    assert (answer.code, "the space two is in use" in answer.err) == (1, True), answer
    shared.with_(DIBS_SPACE="one").ok("reset", "--discard", "two")
    assert shared.with_(DIBS_SPACE="two").json("work", "list") == []


def test_a_reset_leaves_an_empty_store_whose_epochs_keep_rising(shell: Shell) -> None:
    last = shell.as_("alice").json("claim", "src/a.py")["epoch"]
    shell.as_("alice").ok("work", "claim", "one")
    shell.as_("alice").ok("work", "complete", "one")
    idle(shell, "alice")
    assert shell.ok("reset").err == f"{shell.folder}/.dibs/dibs.db is empty now\n"
    assert shell.json("work", "list") == shell.json("agents", "--everybody") == []
    assert shell.as_("bob").json("claim", "src/a.py")["epoch"] > last
    # The journal is gone, and dibs does not hide that until a person removes the file it names.
    answer = shell("--json", "verify")
    assert [(one["noun"], one["what"]) for one in answer.json] == [("chain", "removed")]
    [file] = (Path(shell.user_dir) / "chains").iterdir()
    assert f"a person who knows why there is a new one removes {file}" in answer.err
    file.unlink()
    assert shell.json("verify") == []


def test_whoever_has_the_store_open_is_told(shell: Shell) -> None:
    with dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space:
        alice = space.join("alice")
        epoch = alice.leases.claim("src/a.py").epoch
        shell.ok("reset", "--discard", shell.folder.name)
        with pytest.raises(StoreGoneError):
            alice.leases.claim("src/b.py")
        assert shell.as_("bob").json("claim", "src/a.py")["epoch"] > epoch
        with pytest.raises(DibsError, match="has no session"):
            alice.leases.renew("src/a.py")


def test_only_people_replace_a_store(shell: Shell) -> None:
    shell.ok("status")
    shell.ok("backup", COPY)
    agent = shell.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s")
    for words in (("reset",), ("restore", COPY)):
        answer = agent(*words)
        assert (answer.code, "only people may do this" in answer.err) == (1, True), answer


def test_what_is_no_backup_of_this_store_is_refused(shell: Shell, tmp_path: Path) -> None:
    shell.ok("status")
    shell.ok("backup", COPY)
    copy = shell.folder.parent / "copy.db"
    for words, said in (
        (("restore", "../nothing.db"), "there is no file"),
        (("restore", "src/a.py"), "has no key beside it"),
    ):
        answer = shell(*words)
        assert (answer.code, said in answer.err) == (1, True), answer
    another = shell.with_(DIBS_URL=str(tmp_path / "another.db"))
    another.ok("status")
    answer = another("restore", COPY)
    assert (answer.code, "a backup of another store" in answer.err) == (75, True), answer
    data = bytearray(copy.read_bytes())
    data[3 * 1024 : 40 * 1024] = b"\xff" * 37 * 1024
    copy.write_bytes(data)
    answer = shell("restore", COPY)
    assert answer.code == 75, answer
    assert shell.ok("doctor").code == 0


def test_a_store_on_a_server_says_how_it_is_restored(
    shell: Shell, postgres_url: str, space_name: str
) -> None:
    shared = shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name)
    for words in (("reset",), ("restore", COPY)):
        answer = shared(*words)
        assert (answer.code, "use pg_restore" in answer.err) == (2, True), answer
