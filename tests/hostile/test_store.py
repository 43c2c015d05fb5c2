"""A store that a stranger made, in a repository, an archive or a pull: refused, and left alone.

The stranger uses dibs at home, puts the store into git and keeps an admin token of it. The victim
has a home and a data folder of their own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

import dibs
from dibs.errors import UnfitError
from dibs.names.tracked import tracked
from dibs.storage.adoption import NOTES
from dibs.storage.folder import Note
from dibs.storage.sqlite import SqliteDriver
from tests.old_schemas import make_old
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Answer, Shell, finish, scrubbed

COMMANDS = (
    ("status",),
    ("claim", "src/a.py", "--as", "me"),
    ("agents",),
    ("token", "list"),
    ("serve", "--port", "0"),
    ("backup", "copy.db"),
    ("gc",),
)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def stranger(tmp_path: Path) -> Shell:
    """Somebody whose repository the victim is going to clone, with a store in it."""
    repository = tmp_path / "theirs"
    git(tmp_path, "init", "-q", str(repository))
    shell = Shell(repository, scrubbed(tmp_path / "their-home"))
    shell.ok("claim", "README", "--as", "mallory")
    shell.ok("token", "add", "mallory", "--scope", "admin")
    (repository / "README").write_text("hello\n")
    git(repository, "add", "README")
    git(repository, "commit", "-qm", "first")
    return shell


@pytest.fixture
def victim(tmp_path: Path, stranger: Shell) -> Shell:
    """Somebody with a clone of that repository."""
    clone = tmp_path / "mine"
    git(tmp_path, "clone", "-q", str(stranger.folder), str(clone))
    return Shell(clone, scrubbed(tmp_path / "my-home"))


def commit(shell: Shell, *names: str) -> None:
    """Put files of the store into git, which ignores them by itself."""
    git(shell.folder, "add", "-f", *(f".dibs/{name}" for name in names))
    git(shell.folder, "commit", "-qm", "a store")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, but for what git is told to ignore, and what SQLite makes beside a database."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", ".gitignore"))
        if path.stat().st_size or not path.name.endswith("-wal")
    }


def refused(victim: Shell, why: str) -> None:
    """Whatever the victim does, the store is not used and nothing is changed."""
    before = contents(victim.folder / ".dibs")
    home = Path(victim.environment["HOME"])
    for words in COMMANDS:
        answer: Answer = victim(*words)
        assert answer.code == 75, answer
        assert why in answer.err and "next: " in answer.err
    client = Client(victim, "s")
    tool = {"tool_name": "Write", "tool_input": {"file_path": "a.py", "content": "b"}}
    first, again = (client.raw("PreToolUse", **tool) for _ in range(2))
    client.kill()
    assert (first.code, first.out) == (1, "") and why in first.err
    assert (again.code, again.out, again.err) == (0, "", "")
    assert why in by_mcp(victim, "claim", {"resource": "src/a.py"})
    log = victim.folder / ".dibs/hooks/failures.log"  # dibs' own, and not of the store
    assert log.read_text().count("hook claude before: ") == 2
    shutil.rmtree(log.parent)
    assert contents(victim.folder / ".dibs") == before
    assert not home.exists() or not list(home.rglob("stores/*"))


def by_mcp(victim: Shell, tool: str, arguments: dict[str, Any]) -> str:
    """What a tool of `dibs mcp` answers."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }
    calls = [("initialize", hello), ("tools/call", {"name": tool, "arguments": arguments})]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": at, "method": method, "params": params})
        for at, (method, params) in enumerate(calls)
    ]
    process = victim.start("mcp", stdin=subprocess.PIPE)
    answers = finish(process, given="\n".join(lines) + "\n").out.splitlines()
    answer = json.loads(answers[-1])["result"]
    assert answer["isError"], answer
    return json.dumps(answer)


def test_a_store_that_came_with_a_clone_is_refused(stranger: Shell, victim: Shell) -> None:
    commit(stranger, "dibs.db", "dibs.db.d/key")
    git(victim.folder, "pull", "-q")
    refused(victim, "git tracks .dibs/dibs.db")


def test_a_store_that_came_in_an_archive_is_refused(stranger: Shell, victim: Shell) -> None:
    shutil.copytree(stranger.folder / ".dibs", victim.folder / ".dibs")
    refused(victim, "you did not make the store")


def test_who_has_another_home_now_is_told_so(victim: Shell, tmp_path: Path) -> None:
    victim.ok("claim", "src/a.py", "--as", "alice")
    home = tmp_path / "another"
    home.mkdir()
    answer = victim.with_(HOME=str(home))("status")
    assert answer.code == 75
    assert f"as far as {home}/.local/share/dibs records" in answer.err
    assert "another HOME" in answer.err


@pytest.mark.parametrize("by_git", [True, False])
def test_a_key_alone_is_refused(stranger: Shell, victim: Shell, by_git: bool) -> None:
    if by_git:
        commit(stranger, "dibs.db.d/key")
        git(victim.folder, "pull", "-q")
    else:
        key = victim.folder / ".dibs/dibs.db.d/key"
        key.parent.mkdir(parents=True)
        shutil.copy(stranger.folder / ".dibs/dibs.db.d/key", key)
    refused(victim, "git tracks" if by_git else "you did not make the store")


@pytest.mark.parametrize("name", ["dibs.db", "dibs.db-wal"])
def test_what_a_pull_puts_over_the_victims_own_store_is_refused(
    stranger: Shell, victim: Shell, name: str
) -> None:
    victim.ok("claim", "src/a.py", "--as", "me")
    (stranger.folder / ".dibs" / name).touch()
    if name.endswith("-wal"):
        (stranger.folder / ".dibs" / name).write_bytes(b"not a log")
    commit(stranger, name)
    (victim.folder / ".dibs" / name).unlink(missing_ok=True)  # as git does with ignored files
    git(victim.folder, "pull", "-q")
    assert (victim.folder / ".dibs" / name).exists()
    for words in COMMANDS:
        answer = victim(*words)
        assert answer.code == 75 and f"git tracks .dibs/{name}" in answer.err


def test_a_database_that_a_stranger_put_over_the_victims_own_is_refused(
    stranger: Shell, victim: Shell
) -> None:
    victim.ok("claim", "src/a.py", "--as", "me")
    for end in ("", "-wal", "-shm"):
        (victim.folder / f".dibs/dibs.db{end}").unlink(missing_ok=True)
    shutil.copy(stranger.folder / ".dibs/dibs.db", victim.folder / ".dibs/dibs.db")
    for words in COMMANDS:
        answer = victim(*words)
        assert answer.code == 75 and "is not the key of the space" in answer.err


def test_the_strangers_token_opens_nothing(stranger: Shell, victim: Shell) -> None:
    shutil.copytree(stranger.folder / ".dibs", victim.folder / ".dibs")
    secret = stranger.json("token", "add", "eve", "--scope", "admin")["secret"]
    shutil.copy(stranger.folder / ".dibs/dibs.db", victim.folder / ".dibs/dibs.db")
    assert "you did not make the store" in victim("serve", "--port", "0").err
    assert secret not in victim("adopt").out


# What git tracks, whatever the form of its index.


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ((), ()),
        ((), ("update-index", "--index-version", "4")),
        ((), ("update-index", "--split-index")),
        (("--object-format=sha256",), ()),
        (("--object-format=sha256",), ("update-index", "--index-version", "4")),
        ((), ("update-index", "--skip-worktree", ".dibs/dibs.db.d/key")),
    ],
    ids=str,
)
def test_every_form_of_an_index_is_read(
    tmp_path: Path, options: tuple[str, ...], after: tuple[str, ...]
) -> None:
    git(tmp_path, "init", "-q", *options)
    names = [".d", ".dibs/config.toml", "a/.dibs/dibs.db", ".dibsy/dibs.db", *map(str, range(300))]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(".dibs/dibs.db\0.dibs/dibs.db")
    git(tmp_path, "add", "-f", *names)
    index = str(tmp_path / ".git/index")
    assert tracked(index, ".dibs/dibs.db") is None
    key = tmp_path / ".dibs/dibs.db.d/key"
    key.parent.mkdir()
    key.write_text("key")
    git(tmp_path, "add", "-f", str(key))
    if after:
        git(tmp_path, *after)
    assert tracked(index, ".dibs/dibs.db") == ".dibs/dibs.db.d/key"
    git(tmp_path, "update-index", "--force-remove", ".dibs/dibs.db.d/key")
    assert tracked(index, ".dibs/dibs.db") is None or "--split-index" in after


def test_a_repository_that_tracks_only_the_settings_is_used(victim: Shell) -> None:
    (victim.folder / ".dibs").mkdir()
    (victim.folder / ".dibs/config.toml").write_text('policy = "open"\n')
    git(victim.folder, "add", "-f", ".dibs/config.toml")
    victim.ok("claim", "src/a.py", "--as", "me")
    git(victim.folder, "commit", "-qm", "settings")
    victim.ok("claim", "src/a.py", "--as", "me")


# One's own store.


def opened(path: Path, tmp_path: Path) -> dibs.Dibs:
    return dibs.open(str(path), space="s", user_dir=str(tmp_path / "user"))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (
            "CREATE TRIGGER odd AFTER INSERT ON token BEGIN UPDATE token SET scope = 'admin'; END",
            "trigger odd",
        ),
        ("CREATE VIEW odd AS SELECT * FROM token", "view odd"),
        ("CREATE TABLE odd (a)", "table odd"),
        ("CREATE INDEX odd ON token (name)", "index odd"),
        ("ALTER TABLE token ADD COLUMN odd TEXT DEFAULT 'x'", "table token"),
        ("DROP INDEX token_digest", "index token_digest"),
    ],
)
def test_a_schema_that_dibs_did_not_make_is_refused(
    sqlite_url: str, tmp_path: Path, statement: str, named: str
) -> None:
    path = Path(sqlite_url)
    opened(path, tmp_path).close()
    opened(path, tmp_path).close()
    other = apsw.Connection(sqlite_url)
    other.execute(statement)
    other.close()
    for _ in range(2):
        with pytest.raises(UnfitError, match=f"was changed without dibs: .*{named}"):
            opened(path, tmp_path)


def test_a_trigger_does_not_run_even_if_nobody_has_noticed_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    with opened(Path(sqlite_url), tmp_path) as space, space.join("me") as me:
        other = apsw.Connection(sqlite_url)
        other.execute(
            "CREATE TRIGGER odd AFTER INSERT ON token BEGIN UPDATE token SET scope = 'admin'; END"
        )
        other.close()
        me.agents.add_token("reader", scope="read")
        assert [token.scope for token in me.agents.tokens()] == ["read"]


def test_a_store_that_is_known_is_opened_without_a_write(sqlite_url: str, tmp_path: Path) -> None:
    for _ in range(2):
        opened(Path(sqlite_url), tmp_path).close()
    notes = tmp_path / "user/stores"
    before = {path: path.stat().st_mtime_ns for path in (notes, *notes.iterdir())}
    with opened(Path(sqlite_url), tmp_path) as space, space.join("me") as me:
        me.leases.claim("port:1")
    assert {path: path.stat().st_mtime_ns for path in (notes, *notes.iterdir())} == before


def test_a_store_is_not_made_where_it_cannot_be_noted(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "user").write_text("a file in the way")
    with pytest.raises(UnfitError, match="user is not a folder"):
        opened(Path(sqlite_url), tmp_path)
    assert not Path(sqlite_url).exists() and not Path(f"{sqlite_url}.d/key").exists()


def test_a_server_that_is_told_nothing_but_the_home_knows_the_store(victim: Shell) -> None:
    """MCP clients hide the rest of the environment from their servers."""
    elsewhere = victim.with_(XDG_DATA_HOME=f"{victim.environment['HOME']}/elsewhere")
    elsewhere.ok("claim", "src/a.py", "--as", "me")
    plain = {name: text for name, text in victim.environment.items() if name != "XDG_DATA_HOME"}
    Shell(victim.folder, plain).ok("release", "src/a.py", "--as", "me")


def test_the_notes_of_stores_that_are_gone_are_bounded(tmp_path: Path) -> None:
    kept = tmp_path / "kept.db"
    opened(kept, tmp_path).close()
    notes = tmp_path / "user/stores"
    for number in range(NOTES // 2):
        place = f"{number:032x}"
        (notes / f"{number:031x}f").write_text(f"new\n{place} - - - {tmp_path}/gone-{number}\n")
        (notes / f"at-{place}").touch()
    for file in notes.iterdir():
        file.chmod(0o600)
    opened(tmp_path / "new.db", tmp_path).close()
    assert len(list(notes.iterdir())) == 4
    opened(kept, tmp_path).close()


def test_a_repository_that_is_moved_keeps_its_store(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first, user = tmp_path / "a/dibs.db", str(tmp_path / "user")
    with dibs.open(str(first), space="s", user_dir=user) as space, space.join("me") as me:
        me.state.set("n", "k", 1)
        epoch = me.leases.claim("port:1").epoch
    (tmp_path / "a").rename(tmp_path / "b")
    moved = tmp_path / "b/dibs.db"
    with dibs.open(str(moved), space="s", user_dir=user) as space, space.join("me") as me:
        assert me.leases.claim("port:1").epoch > epoch
        assert space.state.get("n", "k").value == 1  # type: ignore[union-attr]
        last = space.events.last()
    for _ in range(3):
        with dibs.open(str(moved), space="s", user_dir=user) as space:
            assert space.events.last() == last + 2  # the lease and the session that ended


def test_a_backup_is_known_by_its_key(sqlite_url: str, tmp_path: Path) -> None:
    with opened(Path(sqlite_url), tmp_path) as space:
        space.backup(str(tmp_path / "copy.db"))
    opened(tmp_path / "copy.db", tmp_path).close()


@pytest.mark.parametrize("here", [True, False])
def test_a_store_of_an_earlier_release_is_taken_over_if_it_was_used_in_this_boot(
    sqlite_url: str, tmp_path: Path, here: bool
) -> None:
    note = Note(str(tmp_path / "earlier"), sqlite_url)
    driver = SqliteDriver(note, "full", None, 1 << 30)
    from dibs.space.signing import Keyring

    make_old(driver, "s", Keyring(driver.key(), "s").check(), 9)
    boot = driver.boot if here else "some other boot"
    driver.close()
    other = apsw.Connection(sqlite_url)
    other.execute("UPDATE space SET boot = ?, time_namespace = ?", (boot, _namespace()))
    other.close()
    if not here:
        with pytest.raises(UnfitError, match="you did not make"):
            opened(Path(sqlite_url), tmp_path)
        return
    for _ in range(2):
        opened(Path(sqlite_url), tmp_path).close()


def _namespace() -> str:
    from dibs.system import time_namespace

    return time_namespace()


# Adopting.


def test_a_person_adopts_a_store_after_a_look(stranger: Shell, victim: Shell) -> None:
    shutil.copytree(stranger.folder / ".dibs", victim.folder / ".dibs")
    before = contents(victim.folder / ".dibs")
    look = victim.ok("adopt")
    assert "tokens  'mallory' ('admin')" in look.out and "'mallory'" in look.out.split("agents")[1]
    assert contents(victim.folder / ".dibs") == before
    assert victim("status").code == 75
    victim.ok("adopt", "--yes")
    assert [one["revoked_at"] is not None for one in victim.json("token", "list")] == [True]
    assert victim.json("agents") == []
    assert "is yours already" in victim.ok("adopt").out
    claimed = victim.json("claim", "README", "--as", "me")
    theirs = stranger.json("claim", "OTHER", "--as", "mallory")
    assert claimed["epoch"] > theirs["epoch"]


def test_an_agent_adopts_nothing(stranger: Shell, victim: Shell) -> None:
    shutil.copytree(stranger.folder / ".dibs", victim.folder / ".dibs")
    answer = victim.with_(CLAUDECODE="1")("adopt", "--yes")
    assert answer.code == 1 and "only people may do this" in answer.err
    assert victim("status").code == 75


def test_a_store_that_git_tracks_is_not_adopted(stranger: Shell, victim: Shell) -> None:
    commit(stranger, "dibs.db", "dibs.db.d/key")
    git(victim.folder, "pull", "-q")
    answer = victim("adopt", "--yes")
    assert answer.code == 75 and "git tracks" in answer.err


def test_a_store_with_a_trigger_is_not_adopted(stranger: Shell, victim: Shell) -> None:
    shutil.copytree(stranger.folder / ".dibs", victim.folder / ".dibs")
    other = apsw.Connection(str(victim.folder / ".dibs/dibs.db"))
    other.execute("CREATE TRIGGER odd AFTER UPDATE ON token BEGIN DELETE FROM lease; END")
    other.close()
    for words in (("adopt",), ("adopt", "--yes")):
        answer = victim(*words)
        assert answer.code == 75 and "trigger odd" in answer.err


@pytest.mark.parametrize("many", [0, 1, 25])
@pytest.mark.parametrize("what", ["spaces", "agents", "tokens"])
def test_a_store_with_any_number_of_anything_is_adopted(
    sqlite_url: str, tmp_path: Path, what: str, many: int
) -> None:
    folder = Path(sqlite_url).parent
    user = str(tmp_path / "their-home/.local/share/dibs")
    theirs = [f"s{number}" for number in range(many)] if what == "spaces" else ["s"]
    for name in theirs or ["s"]:
        with dibs.open(sqlite_url, space=name, user_dir=user) as space:
            for number in range(many if what != "spaces" else 0):
                me = space.join(f"a{number if what == 'agents' else 0}", shell=True)
                if what == "tokens":
                    me.agents.add_token(f"t{number}", scope="admin")
    if not theirs:
        other = apsw.Connection(sqlite_url)
        other.execute("DELETE FROM space")
        other.close()
    victim = Shell(folder, scrubbed(tmp_path / "my-home"))
    look = victim.json("--store", sqlite_url, "adopt")
    assert len(look[what]) == min(many, 20) and look["damage"] == []
    victim.ok("--store", sqlite_url, "adopt")
    victim.ok("--store", sqlite_url, "adopt", "--yes")
    assert "is yours already" in victim.ok("--store", sqlite_url, "adopt").out
    for name in theirs:
        tokens = victim.json("--store", sqlite_url, "--space", name, "token", "list")
        assert all(one["revoked_at"] for one in tokens)


def test_doctor_says_that_a_revoked_token_may_be_good_again(victim: Shell) -> None:
    victim = victim.person("ann")
    id = victim.json("token", "add", "ci")["id"]
    assert "before a backup" not in victim("doctor").out
    copy = victim.folder.parent / "copy.db"
    victim.ok("backup", str(copy))
    victim.ok("token", "revoke", str(id))
    for end in ("", "-wal", "-shm"):
        (victim.folder / f".dibs/dibs.db{end}").unlink(missing_ok=True)
    shutil.copy(copy, victim.folder / ".dibs/dibs.db")
    assert [one["revoked_at"] for one in victim.json("token", "list")] == [None]
    look = victim.ok("doctor").out
    assert "made before a backup of this store was restored" in look and "dibs token list" in look
    victim.ok("token", "revoke", str(id))
    assert "before a backup" not in victim.ok("doctor").out
