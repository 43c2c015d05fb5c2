"""A store keeps itself in bounds: who prunes it, by which settings, and who never does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import dibs
from dibs.names.paths import find_place
from dibs.nouns.events import pruning
from dibs.surroundings.commands import kept
from dibs.surroundings.settings import load
from tests.stress.housekeeping import fill
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell, until

OLD = 511
"""So many old events, that the next write is a 256th."""


def grown_old(shell: Shell, number: int = OLD) -> None:
    """A repository whose store has an old journal of that length."""
    shell.ok("status")
    fill(str(shell.folder / ".dibs/dibs.db"), "main", shell.user_dir, number)


def first_seq(shell: Shell) -> int:
    events = [event["seq"] for event in shell.json("events", "latest")]
    return min(events)


def test_a_command_that_makes_a_256th_write_prunes(shell: Shell) -> None:
    grown_old(shell)
    shell.as_("alice").ok("claim", "src/a.py")
    assert first_seq(shell) > OLD


def test_a_hook_leaves_the_pruning_to_others(shell: Shell) -> None:
    grown_old(shell)
    event = '{"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}'
    hook = shell.spawn(
        [str(Path(sys.executable).parent / "dibs"), "hook", "claude"], stdin=subprocess.PIPE
    )
    hook.communicate(event)
    assert shell.json("events", "last") > OLD  # it has written
    assert first_seq(shell) == 1


def test_a_daemon_prunes_by_the_settings_of_its_repository(shell: Shell) -> None:
    grown_old(shell, 30_000)
    (shell.folder / ".dibs/config.toml").write_text('keep = "120d"\n')
    with serving(shell):
        alice = shell.as_("alice")
        for _ in range(2):
            alice.ok("claim", "src/a.py")
            alice.ok("release", "src/a.py")
        assert len(shell.json("events", "latest")) == 1000 and has_all(shell)
    (shell.folder / ".dibs/config.toml").write_text('keep = "2d"\n')
    with (
        serving(shell) as daemon,
        dibs.open(daemon.url, token=daemon.token, user_dir=shell.user_dir) as space,
    ):
        bob = space.join("bob")
        for turn in range(260):
            bob.state.set("n", "k", turn, force=True)
        until(lambda: not has_all(shell) and first_seq(shell) > 30_000, "the pruning")
        said = space.events.since(kind="space.pruned")
    assert {(event.agent, event.data["why"]) for event in said} == {(None, "age")}


def has_all(shell: Shell) -> bool:
    return shell("events", "watch", "0", "--limit", "1").code == 0


@pytest.mark.parametrize(
    ("text", "keep_s", "keep_bytes", "problems"),
    [
        ("", 30 * 86_400, 256 << 20, 0),
        ('keep = "90d"\nkeep_size = "1 GiB"', 90 * 86_400, 1 << 30, 0),
        ('keep = "1h"\nkeep_size = "16MiB"', 3_600, 16 << 20, 0),
        ('keep = "1m"\nkeep_size = "1 MiB"', 30 * 86_400, 256 << 20, 2),
        ('keep = []\nkeep_size = "many"', 30 * 86_400, 256 << 20, 2),
        ("keep_size = 300", 30 * 86_400, 256 << 20, 1),
    ],
)
def test_how_much_is_kept_is_a_setting(
    text: str, keep_s: float, keep_bytes: int, problems: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".dibs").mkdir(mode=0o700)
    (tmp_path / ".dibs/config.toml").write_text(text)
    config = load(find_place(str(tmp_path), str(tmp_path / "user")))
    assert (config.keep_s, config.keep_bytes) == (keep_s, keep_bytes)
    assert len(config.problems) == problems


@pytest.mark.parametrize(
    ("text", "ages", "exports", "problems"),
    [
        ('[retention]\njournal = "90d"\ntasks = "7d"', (90, 7, 30), False, 0),
        ('keep = "60d"\n[retention]\ntasks = "7d"\nexport = true', (60, 7, 60), True, 0),
        ('[retention]\njournal = "1m"\nmessages = 3', None, False, 2),
        ('[retention]\nexport = "/etc"\nnonsense = "1d"', None, False, 2),
        ("retention = 5", None, False, 1),
        ('keep = "90 dais"', None, False, 1),
        ("[retention\nexport = true", None, False, 1),
        ('policy = "opne"', (30, 30, 30), False, 1),
    ],
)
def test_how_long_each_kind_is_kept_is_a_setting(
    text: str, ages: tuple[int, ...] | None, exports: bool, problems: int, tmp_path: Path
) -> None:
    """If it cannot be understood, nothing is removed."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".dibs").mkdir(mode=0o700)
    (tmp_path / ".dibs/config.toml").write_text(text)
    place = find_place(str(tmp_path), str(tmp_path / "user"))
    config = load(place)
    assert len(config.problems) == problems
    if ages is None:
        with pytest.raises(dibs.InvalidError, match="nothing is removed"):
            kept(place)
        return
    retention = kept(place)
    found = [retention.before(kind, 0) for kind in ("journal", "tasks", "messages")]
    assert found == [-days * 86_400_000 for days in ages]
    assert retention.export == (str(tmp_path / ".dibs/export") if exports else None)


def test_a_command_prunes_by_the_settings_and_exports_before(shell: Shell, tmp_path: Path) -> None:
    alice = shell.person("alice")
    alice.ok("work", "claim", "done")
    alice.ok("work", "complete", "done")
    config = shell.folder / ".dibs/config.toml"
    config.write_text("[retention]\nexport = true\n")
    assert "export" in shell.ok("doctor").out
    alice.ok("gc")
    assert [task["id"] for task in shell.json("work", "list")] == ["done"]
    assert not (shell.folder / ".dibs/export").exists()
    alice.ok("gc", "--keep", "0")
    [file] = (shell.folder / ".dibs/export").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["table"] for line in lines} == {"event", "task"}
    elsewhere = tmp_path / "elsewhere"
    alice.ok("work", "claim", "other")
    alice.ok("work", "complete", "other")
    alice.with_(DIBS_EXPORT=str(elsewhere)).ok("gc", "--keep", "0")
    assert any("other" in one.read_text() for one in elsewhere.iterdir())
    (tmp_path / "file").write_text("")
    lost = alice.with_(DIBS_EXPORT=str(tmp_path / "file"))
    assert lost("gc", "--keep", "0").code != 0
    doctor = lost("doctor")
    assert doctor.code == 1 and "export" in doctor.out


def test_nothing_is_removed_under_settings_that_nobody_understands(shell: Shell) -> None:
    alice = shell.person("alice")
    alice.ok("work", "claim", "done")
    alice.ok("work", "complete", "done")
    config = shell.folder / ".dibs/config.toml"
    config.write_text("[retention]\nexport = yes\n")
    for words in (["gc"], ["gc", "--keep", "0"]):
        refused = alice(*words)
        assert refused.code == 2
        assert "nothing is removed" in refused.err
    assert "nothing is removed" in alice("doctor").out
    assert [task["id"] for task in shell.json("work", "list")] == ["done"]
    config.write_text("[retention]\nexport = true\n")
    alice.ok("gc", "--keep", "0")
    assert list((shell.folder / ".dibs/export").iterdir())


def test_the_library_leaves_pruning_to_those_who_read_the_settings(tmp_path: Path) -> None:
    """It would remove what the settings keep, or export."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    start, user_dir = str(tmp_path), str(tmp_path / "user")
    with dibs.open(start=start, user_dir=user_dir) as space:
        assert space.scope.store.tidy is not None
    (tmp_path / ".dibs/config.toml").write_text('keep = "90d"\n')
    with dibs.open(start=start, user_dir=user_dir) as space:
        assert space.scope.store.tidy is None


def test_who_waits_at_a_daemon_is_woken_by_what_was_pruned_before_the_daemon_saw_it(
    shell: Shell,
) -> None:
    alice = shell.person("alice")
    alice.ok("state", "set", "n", "k", "1")
    with serving(shell) as daemon:
        with_daemon = alice.with_(DIBS_URL=daemon.url, DIBS_TOKEN=daemon.token)
        waiter = with_daemon.start("state", "watch", "n", "k", "--after-version", "1", "--wait=60s")
        until(lambda: "dibs_waiting 1" in figures(daemon), "the waiter")
        os.kill(daemon.process.pid, signal.SIGSTOP)
        alice.ok("state", "set", "n", "k", "2", "--force")
        alice.ok("gc", "--keep", "0")
        os.kill(daemon.process.pid, signal.SIGCONT)
        out, _ = waiter.communicate(timeout=15)
        assert waiter.returncode == 0 and "2" in out


def figures(daemon: Daemon) -> str:
    asked = Request(f"{daemon.url}/metrics", headers={"Authorization": f"Bearer {daemon.token}"})
    with urlopen(asked) as answer:
        return str(answer.read().decode())


# Files of the dead


def test_files_of_nobody_are_removed_and_those_of_the_living_stay(
    sqlite_url: str, tmp_path: Path
) -> None:
    alive = Path(f"{sqlite_url}.d/alive")
    with dibs.open(sqlite_url, space="s", user_dir=str(tmp_path / "user")) as space:
        alice = space.join("alice")
        mine = {path.name for path in alive.iterdir()}
        for name in ("1-99", "1-4711", "2-99", "1-strange"):
            (alive / name).touch(mode=0o600)
        alice.events.prune()
        assert {path.name for path in alive.iterdir()} == mine | {"2-99", "1-strange"}
        assert alice.leases.claim("a")


def test_nobody_who_joins_loses_the_file_that_proves_its_life(
    sqlite_url: str, tmp_path: Path
) -> None:
    user = str(tmp_path / "user")
    joining = subprocess.Popen(
        [sys.executable, "-c", JOIN_AGAIN_AND_AGAIN, sqlite_url, user], stdout=subprocess.PIPE
    )
    alive = Path(f"{sqlite_url}.d/alive")
    with dibs.open(sqlite_url, space="s", user_dir=user) as space:
        store, rounds = space.scope.store, 0
        while joining.poll() is None:
            (alive / "1-999999").touch(mode=0o600)
            with store.read() as tx:
                numbers = pruning.orphans(tx)
            with store.write(None) as tx:
                pruning.remove_files(tx, numbers)
                tx.discard()
            rounds += 1
    assert (joining.communicate()[0], joining.returncode) == (b"never lost\n", 0)
    assert rounds > 10


JOIN_AGAIN_AND_AGAIN = """
import os, sys, dibs
with dibs.open(sys.argv[1], space="s", user_dir=sys.argv[2]) as space:
    for turn in range(60):
        with space.join("alice") as alice:
            assert os.path.exists(space.scope.store.liveness.path(alice.session)), turn
            alice.leases.claim("a", ttl_s=60)
print("never lost")
"""


def test_ages_are_never_negative() -> None:
    from dibs.records import Blocker, in_the_way, span

    blocker = Blocker(
        resource="a",
        mode="exclusive",
        agent="alice",
        session=1,
        epoch=1,
        waiting=False,
        note="",
        since_at=86_400_000,
        expires_in_ms=5_000,
    )
    assert "for 0 s" in in_the_way([blocker], 0)
    assert span(-86_400_000) == "0s"
