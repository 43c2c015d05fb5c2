"""The files of a store: private whatever the umask, and never shared with a forked child."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import psycopg
import pytest

import dibs


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The mode of a folder and of everything below it."""
    return {
        str(item.relative_to(folder.parent)): oct(stat.S_IMODE(item.lstat().st_mode))
        for item in [folder, *folder.rglob("*")]
    }


def test_all_files_of_a_store_are_private_whatever_the_umask(umask, repository, tmp_path):
    with (
        dibs.open(start=str(repository), user_dir=str(tmp_path / "user")) as space,
        space.join("alice") as alice,
        space.join("bob") as bob,
    ):
        alice.leases.claim("port:1")
        with pytest.raises(dibs.TimeoutError):
            bob.leases.claim("port:1", wait_s=0.01)
        bob.messages.inbox(wait_s=0.01)
        found = modes(repository / ".dibs")
    files = {name: mode for name, mode in found.items() if not is_folder(repository, name)}
    folders = {name: mode for name, mode in found.items() if is_folder(repository, name)}
    assert set(files.values()) == {"0o600"}, files
    assert set(folders.values()) == {"0o700"}, folders
    assert {".dibs/dibs.db", ".dibs/dibs.db-wal", ".dibs/dibs.db-shm"} <= files.keys()
    assert any("/bells/" in name for name in files)
    assert any("/alive/" in name for name in files)


def is_folder(repository: Path, name: str) -> bool:
    return name in (".dibs", ".dibs/dibs.db.d") or name.endswith(("/bells", "/alive"))


def test_the_key_of_a_shared_space_is_private_whatever_the_umask(
    umask, postgres_url, space_name, tmp_path
):
    user = tmp_path / "user"
    dibs.open(postgres_url, space=space_name, user_dir=str(user)).close()
    found = modes(user / "keys")
    assert found.pop("keys") == "0o700"
    assert list(found.values()) == ["0o600"]


def test_git_does_not_see_the_store(repository, tmp_path):
    dibs.open(start=str(repository), user_dir=str(tmp_path / "user")).close()
    assert (repository / ".dibs" / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_somebody_wrote_is_left_alone(repository, tmp_path):
    (repository / ".dibs").mkdir(mode=0o700)
    (repository / ".dibs" / ".gitignore").write_text("# mine\n*\n")
    dibs.open(start=str(repository), user_dir=str(tmp_path / "user")).close()
    assert (repository / ".dibs" / ".gitignore").read_text() == "# mine\n*\n"


def work_a_little(space: dibs.Dibs) -> dibs.Agent:
    alice = space.join("alice", status="busy")
    alice.leases.claim("port:1", note="try it")
    alice.work.claim("t1")
    alice.messages.announce("hello")
    alice.state.set("plan", "step", {"at": 1})
    return alice


def test_the_key_is_never_in_the_database_file(sqlite_url, tmp_path):
    with dibs.open(sqlite_url, space="here", user_dir=str(tmp_path / "user")) as space:
        alice = work_a_little(space)
        agent_key = space.scope.keys.agent_key("alice")
        token = alice.token
    # Only now: closing a handle of a file that SQLite has open would drop its locks.
    key = Path(f"{sqlite_url}.d/key").read_bytes()
    assert len(key) == 32
    content = b"".join(path.read_bytes() for path in Path(sqlite_url).parent.glob("dibs.db*[!d]"))
    content += Path(sqlite_url).read_bytes()
    for secret in (key, key.hex().encode(), agent_key, agent_key.hex().encode(), token.encode()):
        assert secret not in content
    assert b"port:1" in content, "the search must be able to find something"


def test_the_key_is_never_in_the_server(empty_postgres_url, tmp_path):
    user = tmp_path / "user"
    with dibs.open(empty_postgres_url, space="here", user_dir=str(user)) as space:
        alice = work_a_little(space)
        (key_file,) = (user / "keys").iterdir()
        key = key_file.read_bytes()
        with psycopg.connect(empty_postgres_url) as look:
            names = look.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'dibs'"
            ).fetchall()
            rows = [
                row for (name,) in names for row in look.execute(f'SELECT * FROM dibs."{name}"')
            ]
        alice.close()
    content = repr(rows)
    assert key.hex() not in content
    assert space.scope.keys.agent_key("alice").hex() not in content
    assert alice.token not in content
    assert "port:1" in content, "the search must be able to find something"


def start(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python of its own, since a fork of the test process would copy its threads."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def run(script: str, *arguments: str) -> list[str]:
    done = start(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FORK = """
    import os, sys
    import dibs

    url, space_name, user_dir = sys.argv[1:]
    space = dibs.open(url, space=space_name, user_dir=user_dir)
    alice = space.join("alice")
    alice.leases.claim("port:1")

    child = os.fork()
    if child == 0:
        for call in (
            lambda: alice.leases.claim("port:2"),
            lambda: alice.leases.list(),
            lambda: space.join("bob"),
            lambda: alice.events.watch(0, wait_s=1),
        ):
            try:
                call()
                print("done", flush=True)
            except dibs.DibsError as error:
                print(error.code, flush=True)
        space.close()
        # What the child opens for itself works.
        with dibs.open(url, space=space_name, user_dir=user_dir) as own:
            with own.join("carol") as carol:
                print(carol.leases.claim("port:3").leases[0].agent, flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status), flush=True)
    print(alice.leases.claim("port:2").leases[0].agent, flush=True)
    print(alice.leases.renew("port:1")[0].agent, flush=True)
    print(len(alice.agents.verify()), flush=True)
    alice.close()
    space.close()
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on(url, space_name, tmp_path):
    said = run(FORK, url, space_name, str(tmp_path / "user"))
    assert said == ["forked"] * 4 + ["carol", "child 0", "alice", "alice", "0"]


ORPHAN = """
    import os, sys
    import dibs

    url, space_name, user_dir = sys.argv[1:]
    space = dibs.open(url, space=space_name, user_dir=user_dir)
    alice = space.join("alice")
    alice.leases.claim("port:1", ttl_s=3600)
    told, tell = os.pipe()

    if os.fork() == 0:
        # The child outlives its parent, with all that it inherited.
        os.close(tell)
        os.read(told, 1)
        try:
            with dibs.open(url, space=space_name, user_dir=user_dir) as own:
                with own.join("bob") as bob:
                    print(bob.leases.claim("port:1").leases[0].agent, flush=True)
        except dibs.DibsError as error:
            print(error, flush=True)
        os._exit(0)
    os.kill(os.getpid(), 9)
"""


def test_a_forked_child_does_not_keep_its_dead_parent_alive(sqlite_url, space_name, tmp_path):
    done = start(ORPHAN, sqlite_url, space_name, str(tmp_path / "user"))
    assert done.returncode == -9, done.stderr
    # The child holds our end of the pipe, so its word is in before the run counts as over.
    assert done.stdout.splitlines() == ["bob"], done.stderr


EXECUTED = """
    import subprocess, sys
    import dibs

    url, space_name, user_dir = sys.argv[1:]
    space = dibs.open(url, space=space_name, user_dir=user_dir)
    alice = space.join("alice")
    alice.leases.claim("port:1", ttl_s=3600)
    # close_fds=False: the child inherits whatever is not marked to be closed.
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    )
    child.stdout.readline()  # Popen returns while the kernel is still closing what is marked
    space.close()
    with dibs.open(url, space=space_name, user_dir=user_dir) as own:
        with own.join("bob") as bob:
            print(bob.leases.claim("port:1").leases[0].agent)
    child.communicate()
"""


def test_a_program_that_was_started_does_not_keep_the_session_alive(
    sqlite_url, space_name, tmp_path
):
    assert run(EXECUTED, sqlite_url, space_name, str(tmp_path / "user")) == ["bob"]
