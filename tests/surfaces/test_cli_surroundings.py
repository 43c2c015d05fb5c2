"""Where a command runs: pipes, terminals, locales, odd paths, broken stores, worktrees."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.shell import DIBS, Shell

FOX = "notes on the 🦊 and more.md"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


# Pipes and terminals.


def test_data_goes_to_output_and_words_go_to_error(shell: Shell) -> None:
    alice = shell.as_("alice")
    granted = alice("claim", "src/a.py")
    assert granted.out.startswith("src/a.py  ")
    assert granted.err == ""
    refused = shell.as_("bob")("claim", "src/a.py")
    assert refused.out == ""
    assert refused.err.startswith("dibs: src/a.py is held by alice")
    assert alice("inbox").out == ""


def test_a_refusal_says_who_since_when_what_for_how_long_and_what_next(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py", "--note", "fix the parser")
    said = shell.as_("bob")("claim", "src/").err
    assert re.search(r'alice holds src/a.py "fix the parser", \d+s so far, \d+m left', said)
    assert "\nnext: " in said


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("work", "add", "task", "--payload", f'"{"x" * 100_000}"')
    answer = shell.sh("set -o pipefail; dibs log | head -1; dibs work list --json | true")
    assert answer.code == 0, answer
    assert len(answer.out.splitlines()) == 1
    assert answer.err == ""


def test_a_refusal_whose_reader_has_gone_away_keeps_its_exit_code(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    script = "(sleep 0.1; dibs claim src/a.py --as bob; echo $? > code) 2>&1 | true; sleep 0.5"
    shell.sh(f"{script}; while [ ! -s code ]; do sleep 0.01; done")
    assert (shell.folder / "code").read_text() == "1\n"


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@FULL
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("line", ["claim src/a.py", "log --json", "work plan", "work export", "-h"])
def test_output_on_a_full_disk_is_said_in_plain_words(
    shell: Shell, line: str, unbuffered: str
) -> None:
    alice = shell.as_("alice").with_(PYTHONUNBUFFERED=unbuffered)
    alice.ok("work", "add", "task")
    answer = alice.sh(f"dibs {line} > /dev/full")
    assert answer.code == 74
    first, advice = answer.err.splitlines()
    assert first == "dibs: the output could not be written: No space left on device"
    assert advice.startswith("next: ")
    if line.startswith("claim"):
        assert "src/a.py" in alice.ok("leases").out


@FULL
def test_a_refusal_that_cannot_be_written_keeps_its_exit_code(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    assert shell.as_("bob").sh("dibs claim src/a.py 2> /dev/full").code == 1
    answer = shell.as_("bob").sh("dibs claim src/a.py --json > /dev/full")
    assert answer.code == 1 and "Traceback" not in answer.err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_does_not_matter(shell: Shell, closed: str) -> None:
    # The store must not get the number of the standard output, or words would end up in it.
    script = (
        f"dibs claim src/a.py --as alice {closed}; echo $? >> codes;"
        f"dibs claim src/a.py --as bob {closed}; echo $? >> codes;"
        f"dibs clam src/a.py --as bob {closed}; echo $? >> codes"
    )
    shell.sh(script)
    assert (shell.folder / "codes").read_text().split() == ["0", "1", "2"]
    assert shell("doctor").code == 0


def on_terminal(shell: Shell, *words: str, columns: int = 80) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    # The terminal of a test has no size of its own.
    subprocess.run(["stty", "cols", str(columns), "rows", "24"], stdin=theirs, check=True)
    process = shell.spawn([DIBS, *words], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b"".join(pieces(ours))
    os.close(ours)
    process.wait(30)
    return written.decode().replace("\r\n", "\n")


def pieces(handle: int) -> Iterator[bytes]:
    while select.select([handle], [], [], 30)[0]:
        try:
            yield os.read(handle, 65536)
        except OSError:
            return  # Linux says so when the other side has closed a terminal


def test_colour_is_for_terminals_only(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    for words in (("status",), ("status", "src/a.py"), ("claim", "src/a.py", "--as", "bob")):
        piped = shell(*words)
        assert not COLOUR.search(piped.out + piped.err)
        assert COLOUR.search(on_terminal(shell, *words)), words
        for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            assert "\x1b" not in on_terminal(shell.with_(**quiet), *words)


def test_tables_fit_the_terminal_and_are_whole_in_a_pipe(shell: Shell) -> None:
    alice, note = shell.as_("alice"), "a very long reason for all of this " * 5
    alice.ok("claim", "src/a.py", "deep/" * 20 + "file.py", "--note", note.strip())
    alice.ok("work", "add", "task-with-a-rather-long-id" * 3, "--title", note.strip())
    alice.ok("state", "set", "budget", "total", f'"{note}"')
    plain = shell.with_(NO_COLOR="1")
    for words in (("status",), ("leases",), ("work", "list"), ("state", "list", "budget")):
        written = on_terminal(plain, *words)
        lines = written.splitlines()
        assert max(map(len, lines)) <= 80, written
        assert any(line.endswith("…") for line in lines), written
        assert note.strip() in shell(*words).out.replace('"', "")
    # Who, since when and how long are never what is cut.
    leases = on_terminal(plain, "leases").splitlines()
    assert re.search(r'src/a.py .*alice  \d+s ago  \d+m +"a very long', leases[2]), leases


# Locales and odd paths.


@pytest.mark.parametrize("variables", [{"LANG": "C"}, {"LC_ALL": "POSIX"}], ids=str)
def test_the_c_locale_can_name_and_show_any_path(shell: Shell, variables: dict[str, str]) -> None:
    plain = shell.as_("alice").with_(**variables)
    assert plain.json("claim", FOX)["leases"][0]["resource"] == FOX
    assert FOX in plain.ok("status").out
    assert plain.json("leases")[0]["resource"] == FOX


def test_a_terminal_that_knows_only_ascii_gets_escapes(shell: Shell) -> None:
    shell.as_("alice").ok("claim", FOX, "--note", "für später")
    plain = shell.with_(**ASCII)
    answer = plain("leases")
    assert answer.code == 0
    assert r"\U0001f98a" in answer.out
    assert plain.json("leases")[0]["resource"] == FOX
    assert plain("--help").code == plain("claim", "--help").code == plain("top").code == 0
    refused = plain.as_("bob")("claim", "*.md")
    assert (refused.code, r"\U0001f98a" in refused.err) == (1, True)


def test_a_path_with_spaces_and_an_emoji_is_claimed_and_released(shell: Shell) -> None:
    (shell.folder / FOX).write_text("x")
    alice = shell.as_("alice")
    assert alice.json("claim", FOX)["leases"][0]["content_hash"]
    assert shell.as_("bob")("claim", FOX).code == 1
    assert alice.ok("release", FOX).out == f'"{FOX}"  released\n'


def test_a_path_that_begins_with_a_dash_comes_after_the_mark(shell: Shell) -> None:
    alice = shell.as_("alice")
    refused = alice("claim", "-note", "x")
    assert (refused.code, "did you mean --note?" in refused.err) == (2, True)
    assert alice.json("claim", "--", "-note")["leases"][0]["resource"] == "-note"
    assert alice.json("claim", "./--json")["leases"][0]["resource"] == "--json"


# Places.


def test_paths_are_relative_to_the_folder_one_is_in(shell: Shell) -> None:
    inside = shell.at(shell.folder / "src")
    assert inside.as_("alice").json("claim", "a.py")["leases"][0]["resource"] == "src/a.py"
    assert shell.as_("bob")("claim", "src/a.py").code == 1
    assert inside.as_("bob").json("claim", "../b.py")["leases"][0]["resource"] == "b.py"
    assert shell.as_("bob")("claim", str(shell.folder / "src" / "a.py")).code == 1


def test_two_worktrees_share_their_leases(shell: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    who = "-c user.name=a -c user.email=a@example.com"
    made = shell.sh(
        f"git add . && git {who} commit -qm first && git worktree add -q {other} && git status -s"
    )
    assert made.code == 0, made
    shell.as_("alice").ok("claim", "src/a.py")
    refused = shell.at(other / "src").as_("bob")("claim", "a.py")
    assert refused.code == 1
    assert "alice" in refused.err
    assert not (other / ".dibs").exists()
    assert shell.sh("git status --short").out == ""


def test_without_a_repository_the_store_is_the_users(shell: Shell, tmp_path: Path) -> None:
    outside = shell.at(tmp_path / "home").with_(XDG_DATA_HOME=str(tmp_path / "home/data"))
    outside.as_("alice").ok("claim", "port:3000")
    assert (tmp_path / "home/data/dibs").is_dir()
    assert outside.as_("bob")("claim", "port:3000").code == 1
    # Without the variable it is in the place that the system is used to.
    home = {name: text for name, text in shell.environment.items() if name != "XDG_DATA_HOME"}
    assert Shell(outside.folder, home).as_("bob")("claim", "port:3000").code == 0
    assert (tmp_path / "home/.local/share/dibs").is_dir()


def test_the_nearest_dibs_folder_upwards_is_used(shell: Shell, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "deep/er").mkdir(parents=True)
    (project / ".dibs").mkdir(mode=0o700)
    shell.at(project / "deep/er").as_("alice").ok("claim", "port:3000")
    assert shell.at(project).as_("bob")("claim", "port:3000").code == 1


def test_store_and_url_name_another_store(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "elsewhere" / "x.db")
    first = shell.as_("alice").ok("claim", "port:3000", "--store", file)
    assert first.err.startswith(f"made a new store: {file}\n")  # the name may be misspelt
    assert "new store" not in shell("status", "--store", file).err
    assert shell("status", "--store", f"{file}.1", "--json").err == ""
    assert shell.as_("bob")("claim", "port:3000").code == 0
    assert shell.with_(DIBS_URL=file).as_("bob")("claim", "port:3000").code == 1
    assert shell.with_(DIBS_URL=f"sqlite://{file}").as_("bob")("claim", "port:3000").code == 1
    # An option outranks the environment.
    assert shell.with_(DIBS_URL=file, DIBS_AGENT="x").json("agents", f"--store={file}.2")


def test_an_option_outranks_the_environment_for_who_one_is(shell: Shell) -> None:
    assert shell.as_("alice").json("claim", "a", "--as", "bob")["leases"][0]["agent"] == "bob"
    script = "dibs claim b --as carol --json"
    answer = shell("run", "--as", "ci", "--", "sh", "-c", script)
    assert answer.json["leases"][0]["agent"] == "carol"


def test_a_folder_that_is_gone_is_told(shell: Shell) -> None:
    answer = shell.sh("mkdir x && cd x && rmdir ../x && dibs status")
    assert (answer.code, "the current directory is gone" in answer.err) == (2, True)


# Stores that do not work.


@pytest.fixture
def read_only(shell: Shell) -> Iterator[Shell]:
    """The repository's store on a disk that cannot be written."""
    shell.as_("alice").ok("claim", "src/a.py")
    store = str(shell.folder / ".dibs")
    for step in (["mount", "--bind", store, store], ["mount", "-o", "remount,ro,bind", store]):
        if subprocess.run(step, capture_output=True, check=False).returncode:
            subprocess.run(["umount", store], capture_output=True, check=False)
            pytest.skip("mounting needs to be root with CAP_SYS_ADMIN")
    yield shell
    subprocess.run(["umount", store], check=True)


def test_a_read_only_store_is_told_with_75(read_only: Shell) -> None:
    for words in (("claim", "src/b.py", "--as", "bob"), ("status",), ("status", "src/a.py")):
        answer = read_only(*words)
        assert answer.code == 75, answer
        assert "read-only" in answer.err.lower() or "cannot be" in answer.err, answer
        told = read_only(*words, "--json")
        assert (told.code, told.json["error"]) == (75, "read_only")


def test_a_database_of_another_program_is_left_alone_with_75(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    file.write_bytes(b"this is my diary, not a database" * 100)
    answer = shell.with_(DIBS_URL=str(file)).as_("alice")("claim", "a")
    assert answer.code == 75
    assert file.read_bytes() == b"this is my diary, not a database" * 100


def test_a_server_that_does_not_answer_is_told_with_75(shell: Shell) -> None:
    nobody = shell.with_(DIBS_URL="postgresql://localhost:1/none?connect_timeout=2")
    answer = nobody.as_("alice")("claim", "a", "--json")
    assert answer.code == 75
    assert answer.json["error"] == "disconnected"


def test_a_bug_is_confessed_with_70(shell: Shell, tmp_path: Path) -> None:
    # A library that cannot be loaded: no refusal of ours fits that.
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/apsw.py").write_text("import no_such_module_at_all\n")
    broken = shell.with_(PYTHONPATH=str(tmp_path / "broken")).as_("alice")
    answer = broken("claim", "src/a.py")
    assert answer.code == 70
    assert answer.err.startswith("Traceback")
    assert "this is a bug; please report it" in answer.err
    told = broken("claim", "src/a.py", "--json")
    assert (told.code, told.json["error"]) == (70, "bug")
    assert sorted(told.json) == ["details", "error", "message", "next"]


# Who acts.


def test_a_person_needs_a_name_for_what_agents_do_too_and_none_for_what_people_do(
    shell: Shell,
) -> None:
    login = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    for words in (["claim", "x:1"], ["send", "hello"], ["work", "next"], ["run", "--", "true"]):
        refused = shell(*words)
        assert refused.code == 2 and "who are you?" in refused.err, words
    shell.ok("token", "add", "ci")
    (shell.folder / "tasks.jsonl").write_text('{"id": "t1"}\n')
    shell.ok("work", "import", "tasks.jsonl")
    assert {agent["agent"] for agent in shell.json("agents")} == {login}
    assert shell.ok("work", "run", "--", "sh", "-c", "echo $DIBS_AGENT").out.startswith(f"{login}/")
