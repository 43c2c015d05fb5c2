"""The databases under test: a fresh SQLite file, and one real PostgreSQL per worker."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest

from tests import warm
from tests.daemons import Daemons, daemons, end
from tests.memory import use_memory
from tests.not_linux import deny_linux
from tests.pgbouncer import pgbouncer
from tests.postgres_server import new_database, running
from tests.silence import SilentProxy, silent_proxy
from tests.timing import keep_part

# How long one example takes depends on the database and the machine.
hypothesis.settings.register_profile("dibs", deadline=None, print_blob=True)
hypothesis.settings.load_profile("dibs")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pgbouncer",
        action="store_true",
        help="run the contract on PostgreSQL through PgBouncer in transaction mode, and only that",
    )
    parser.addoption(
        "--portable",
        action="store_true",
        help="deny /proc, inotify, prctl and eventfd to dibs, as on a system that is not Linux",
    )
    parser.addoption(
        "--cold",
        action="store_true",
        help="start every process from nothing, instead of forking what only has to be loaded",
    )
    parser.addoption(
        "--in-memory",
        action="store_true",
        help="keep the folders of tests in memory, where that can be done, not on a disk",
    )
    parser.addoption(
        "--part",
        choices=("quick", "slow"),
        help="run only the quick tests, or only those that tests/slow.txt lists",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores both for what it runs in the background, and commands would inherit that.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if config.getoption("--in-memory") and not hasattr(config, "workerinput"):
        use_memory(config)
    if config.getoption("--portable"):
        deny_linux(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a long table whose neighbours take the same way, leave most cases to `make stress`."""
    if part := config.getoption("--part"):
        keep_part(part, config, items)
    counted: Counter[tuple[str, str]] = Counter()
    for item in items:
        if short := item.get_closest_marker("short"):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            case = item.nodeid.partition("[")[0], str(params.get("url", params.get("fresh")))
            if counted[case] % short.args[0]:
                item.add_marker(pytest.mark.stress)
            counted[case] += 1


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of the tests' own: which stores are theirs is noted there."""
    before, os.environ["HOME"] = os.environ.get("HOME", ""), str(tmp_path_factory.mktemp("home"))
    yield
    os.environ["HOME"] = before


@pytest.fixture(scope="session", autouse=True)
def forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork commands and scripts from a process that has loaded dibs, where that is the same."""
    if not request.config.getoption("--cold") and not request.config.getoption("--portable"):
        warm.allow()
    yield
    warm.cool()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL that runs until this worker ends; its own database is `postgres`."""
    with running() as server_url:
        yield server_url


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The one PostgreSQL database that the tests of this worker share, a space each."""
    with new_database(postgres_server) as database_url:
        yield database_url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    """The same database by way of PgBouncer in transaction mode."""
    with pgbouncer(postgres_url) as through:
        yield through


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A PostgreSQL database of this test's own, without any table."""
    with new_database(postgres_server) as database_url:
        yield database_url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The path of a database file that does not exist yet, in a private folder that does."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    return str(folder / "dibs.db")


@pytest.fixture(scope="session")
def new_daemon() -> Iterator[Daemons]:
    """Starts daemons for the tests of this worker."""
    with daemons() as start:
        yield start


@pytest.fixture
def daemon_clock() -> str:
    """The file of a clock that a test and its daemon share; nothing for the machine's clock."""
    return ""


@pytest.fixture
def http_url(
    new_daemon: Daemons, sqlite_url: str, space_name: str, tmp_path: Path, daemon_clock: str
) -> Iterator[str]:
    """The address of a daemon of this test's own, on a SQLite file."""
    word = new_daemon(sqlite_url, space_name, str(tmp_path / "user"), daemon_clock)
    yield word["url"]
    end(word)


@pytest.fixture
def http_postgres_url(
    new_daemon: Daemons, postgres_url: str, space_name: str, tmp_path: Path, daemon_clock: str
) -> Iterator[str]:
    """The address of a daemon of this test's own, on PostgreSQL."""
    word = new_daemon(postgres_url, space_name, str(tmp_path / "user"), daemon_clock)
    yield word["url"]
    end(word)


@pytest.fixture
def http_pgbouncer_url(
    new_daemon: Daemons, pgbouncer_url: str, space_name: str, tmp_path: Path, daemon_clock: str
) -> Iterator[str]:
    """The address of a daemon of this test's own, on PostgreSQL by way of PgBouncer."""
    word = new_daemon(pgbouncer_url, space_name, str(tmp_path / "user"), daemon_clock)
    yield word["url"]
    end(word)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Each database in turn: what a contract test gives to `dibs.open`."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


@pytest.fixture
def space_name() -> str:
    """A space that no other test uses."""
    return f"test-{uuid4().hex}"


@pytest.fixture
def proxy(empty_postgres_url: str) -> Iterator[SilentProxy]:
    """A way to PostgreSQL that falls silent when it is told to."""
    with silent_proxy(empty_postgres_url) as proxy:
        yield proxy
