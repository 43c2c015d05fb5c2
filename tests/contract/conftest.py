"""What every contract test starts from: one space, opened twice, and three agents in it.

Alice works through one opening of the store, bob and carol through another, as two processes
would. Both share one clock, which only the test or somebody who waits moves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from tests.contract.waiting import Background, ContractClock, SharedClock
from tests.contract.world import LONG_S, Opener


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test run on both databases, and through a daemon unless it says why not."""
    if "url" in metafunc.fixturenames:
        direct = hasattr(metafunc.function, "direct")
        if metafunc.config.getoption("--pgbouncer"):
            ways = ["pgbouncer", *([] if direct else ["http_pgbouncer"])]
        else:
            ways = ["sqlite", "postgres", *([] if direct else ["http"])]
            if metafunc.module.__name__.endswith("test_idempotency"):
                # To a daemon, one database is like the other; and every mutation is here.
                ways += ["pgbouncer", *([] if direct else ["http_postgres"])]
        metafunc.parametrize("url", ways, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Through a daemon, run a test with the first of its cases: the others take the same way.

    Wrong arguments are the exception, since it is the daemon's client that writes them down.
    """
    known: set[tuple[str, str]] = set()
    left_out = []
    for item in items:
        kind = item.callspec.params.get("url", "") if hasattr(item, "callspec") else ""
        if str(kind).startswith("http") and item.path.name != "test_bad_input.py":
            case = (kind, item.nodeid.partition("[")[0])
            if case in known:
                left_out.append(item)
            known.add(case)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Each way to a store in turn: what a contract test gives to `dibs.open`."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


@pytest.fixture
def store(request: pytest.FixtureRequest, url: str) -> str:
    """The database beneath, also where a daemon is before it."""
    kind: str = request.node.callspec.params["url"]
    beneath = "sqlite_url" if kind in ("sqlite", "http") else "postgres_url"
    found: str = request.getfixturevalue(beneath)
    return found


@pytest.fixture
def daemon_clock(tmp_path: Path) -> str:
    return str(tmp_path / "clock")


@pytest.fixture
def clock(url: str, daemon_clock: str) -> ContractClock:
    return SharedClock(daemon_clock) if url.startswith("http") else ContractClock()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, and the directory the agents work in."""
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def linked(checkout: Path, tmp_path: Path) -> Path:
    """A linked worktree of the checkout."""

    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(checkout), *identity, *words], check=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(tmp_path / "linked"))
    return tmp_path / "linked"


@pytest.fixture
def opener(
    url: str, store: str, space_name: str, tmp_path: Path, checkout: Path, clock: ContractClock
) -> Iterator[Opener]:
    """Opens the space, as often as a test wants; all is closed at the end."""
    opener = Opener(url, space_name, str(tmp_path / "user"), clock, store)
    yield opener
    opener.close()


@pytest.fixture
def space(opener: Opener) -> dibs.Dibs:
    return opener.open()


@pytest.fixture
def elsewhere(opener: Opener) -> dibs.Dibs:
    """The same space through another opening of the store."""
    return opener.open()


@pytest.fixture
def alice(opener: Opener, space: dibs.Dibs) -> dibs.Agent:
    return opener.join(space, "alice", ttl_s=LONG_S)


@pytest.fixture
def bob(opener: Opener, elsewhere: dibs.Dibs) -> dibs.Agent:
    return opener.join(elsewhere, "bob", ttl_s=LONG_S)


@pytest.fixture
def carol(opener: Opener, elsewhere: dibs.Dibs) -> dibs.Agent:
    return opener.join(elsewhere, "carol", ttl_s=LONG_S)


@pytest.fixture
def background(opener: Opener, clock: ContractClock) -> Iterator[Background]:
    """Runs calls that wait in threads; depends on `opener` so that it ends before the store."""
    background = Background(clock)
    yield background
    background.close()
