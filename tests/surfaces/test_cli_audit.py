"""`dibs audit` and `dibs verify` as somebody types them: exit codes, files, tags and notes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

import dibs
from dibs.errors import CorruptError
from tests.surfaces.daemon import serving
from tests.surfaces.shell import Shell, finish


def test_a_seal_is_a_line_that_can_be_kept_anywhere(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    alice.ok("claim", "port:1")
    line = alice.ok("audit", "seal").out
    assert line.startswith("dibs-seal ") and line.count("\n") == 1
    alice.sh(f"echo '{line.strip()}' > seal.txt")
    alice.ok("release", "port:1")
    for seal in (line.strip(), "@seal.txt"):
        assert "matches the seal" in alice.ok("audit", "check", seal).out
    assert alice.sh("dibs audit check - < seal.txt").code == 0
    assert alice.json("audit", "check", "@seal.txt")["holds"] is True


def test_another_hash_is_exit_code_1(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    alice.ok("claim", "port:1")
    mark, seq, hash, *rest = alice.ok("audit", "seal").out.strip().split(" ", 4)
    other = ("0" if hash[0] != "0" else "1") + hash[1:]
    answer = alice("audit", "check", " ".join([mark, seq, other, *rest]))
    assert (answer.code, answer.out) == (1, "")
    assert "rewritten" in answer.err
    answer = alice("audit", "check", " ".join([mark, "999999", hash, *rest]))
    assert answer.code == 1 and "no event 999999" in answer.err
    assert alice("audit", "check", "@missing").code == 2
    assert alice("audit", "check", "no-such-tag").code == 1


def test_a_seal_is_kept_by_git(shell: Shell) -> None:
    alice = shell.as_("alice").with_(
        GIT_AUTHOR_NAME="x",
        GIT_AUTHOR_EMAIL="x@example.org",
        GIT_COMMITTER_NAME="x",
        GIT_COMMITTER_EMAIL="x@example.org",
    )
    assert alice.sh("git init -q; git commit -q --allow-empty -m first").code == 0
    alice.ok("claim", "port:1")
    line = alice.ok("audit", "seal", "--git-tag", "audit/one", "--git-note").out
    assert alice.sh("git tag -l --format='%(objecttype) %(contents:subject)'").out == f"tag {line}"
    assert alice.sh("git notes --ref dibs show").out == line
    alice.ok("audit", "check", "audit/one")
    for other in ("", "audit", "audit/", "audit/*", "audit/on"):
        assert alice("audit", "check", other).code == 1, f"{other!r} names no tag"
    for name, why in (("audit/one", "already"), ("x y", "allows no tag"), ("-d", ""), ("", "")):
        answer = alice("audit", "seal", "--git-tag", name)
        assert answer.code == 2 and why in answer.err, "a seal is not overwritten"


def test_verify_says_what_has_happened_to_which_row(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "port:1", "--note", "mine")
    assert alice.json("verify") == []
    script = "import apsw; apsw.Connection('.dibs/dibs.db').execute('UPDATE lease SET ttl_ms = 1')"
    assert finish(alice.spawn([sys.executable, "-c", script])).code == 0
    answer = alice("--json", "verify")
    assert answer.code == 1, "a script can test it"
    [found] = answer.json
    assert (found["noun"], found["subject"], found["what"]) == ("lease", "port:1", "changed")
    answer = alice("verify")
    assert answer.code == 1 and "port:1" in answer.out


def changed(shell: Shell, *statements: str) -> None:
    """Change the store without dibs."""
    script = f"import apsw; apsw.Connection('.dibs/dibs.db').execute({'; '.join(statements)!r})"
    assert finish(shell.spawn([sys.executable, "-c", script])).code == 0


def test_verify_says_if_the_damage_keeps_it_from_comparing_other_rows(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("state", "set", "n", "k", "1")
    changed(shell, "UPDATE entry SET value = '2'")
    answer = alice("verify")
    assert "n/k" in answer.out and "not compared" not in answer.err
    changed(shell, "UPDATE event SET agent = 'eve' WHERE seq = 1")
    answer = alice("verify")
    assert "event" in answer.out and "not compared" in answer.err
    assert "such as event 1 (changed)" in alice("doctor").out


def test_verify_says_that_the_store_went_back_in_time(shell: Shell) -> None:
    """Whoever removes the last events with all they wrote leaves no row that could be found."""
    alice = shell.as_("alice")
    alice.ok("state", "set", "n", "k", "1")
    last = alice.json("log", "--last", "1")["seq"]
    alice.ok("state", "set", "n", "other", "1")
    changed(
        shell,
        f"DELETE FROM event WHERE seq > {last}",
        "DELETE FROM entry WHERE key = 'other'",
        "DELETE FROM entry_version WHERE key = 'other'",
    )
    answer = alice.ok("verify")
    assert "had gone back in time" in answer.err and f"after event {last} was lost" in answer.err
    assert alice.json("verify") == []


READERS = (
    "log", "log --since 1h", "report", "contention", "replay --at now", "audit seal",
    "vault ../notes", "overview", "work list", "verify",
)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("event", "subject", "x'00'"),
        ("event", "data", "x'00'"),
        ("event", "data", "printf('%.*c', 100000, '[')"),
        ("event", "at", "x'00'"),
        ("event", "seq", "9e999"),
        ("task", "state", "x'00'"),
    ],
    ids=["subject", "data", "deep", "time", "infinite", "state"],
)
def test_a_value_that_dibs_never_writes_ends_no_command_in_a_traceback(
    shell: Shell, table: str, column: str, value: str
) -> None:
    alice = shell.as_("alice")
    alice.ok("work", "add", "t1")
    alice.ok("claim", "port:1", "--note", "mine")
    name = "subject" if table == "event" else "id"
    script = (
        "import apsw; apsw.Connection('.dibs/dibs.db').execute("
        f"\"UPDATE {table} SET {column} = {value} WHERE {name} = 't1'\")"
    )
    assert finish(alice.spawn([sys.executable, "-c", script])).code == 0
    for command in READERS:
        for form in ("text", "json"):
            answer = alice("--format", form, *command.split())
            assert "Traceback" not in answer.err, command
            assert answer.code in (0, 1, 75), command
            if answer.code == 75:
                assert "something other than dibs has changed" in answer.out + answer.err


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("space", "boot = '', wall_time"),  # as after the machine was started again
        ("space", "boot = '', store_time"),
        ("event", "seq"),
    ],
)
def test_a_store_that_cannot_be_opened_is_refused_by_every_command(
    shell: Shell, table: str, change: str
) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "port:1")
    script = (
        "import apsw; db = apsw.Connection('.dibs/dibs.db')\n"
        f"db.execute(\"UPDATE OR IGNORE {table} SET {change} = x'ff'\")"
    )
    assert finish(alice.spawn([sys.executable, "-c", script])).code == 0
    writers = ("claim a.py", "work next", "work add t", "send hello", "state set n k 1", "gc")
    for command in (
        *READERS,
        *writers,
        "backup ../copy.db",
        "doctor",
        "telemetry export --to http://[::1]:9",
    ):
        answer = alice(*command.split())
        assert "Traceback" not in answer.err and answer.code in (1, 75), (command, answer)


@pytest.mark.parametrize(
    "change",
    ["UPDATE space SET id = 77", "DELETE FROM space", "UPDATE session SET deadline = x'ff'"],
)
def test_whoever_joins_a_store_that_was_changed_is_told_so(shell: Shell, change: str) -> None:
    with (
        serving(shell) as daemon,
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space,
    ):
        alice = space.join("alice")
        script = f"import apsw; apsw.Connection('.dibs/dibs.db').execute(\"{change}\")"
        assert finish(shell.spawn([sys.executable, "-c", script])).code == 0
        calls: list[Callable[[], object]] = [
            lambda: space.join("bob"),
            lambda: alice.leases.claim("a.py"),
            alice.work.next,
            lambda: alice.messages.send("hello"),
            lambda: alice.state.set("n", "k", 1),
        ]
        for call in calls:
            with pytest.raises(CorruptError, match="something other than dibs"):
                call()
        reply = daemon.client("carol").ask("leases.claim", {"resources": ["a.py"]})
        assert (reply.status, reply.error) == (503, "corrupt"), reply


def test_a_daemon_answers_with_nothing_that_it_cannot_write(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "a.py")
    script = (
        "import apsw; apsw.Connection('.dibs/dibs.db').execute(\"UPDATE event SET agent = x'ff'\")"
    )
    assert finish(shell.spawn([sys.executable, "-c", script])).code == 0
    with serving(shell) as daemon:
        reply = daemon.client("carol").ask("events.latest", {})
        assert (reply.status, reply.error) == (503, "corrupt"), reply
        assert daemon.client("carol").ask("leases.claim", {"resources": ["b.py"]}).status == 200
