"""What a program reads in its log, under the logger `dibs`."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from urllib.parse import urlsplit

import pytest

import dibs
from dibs.errors import BusyError
from dibs.keeping import Beating
from tests.contract.waiting import eventually
from tests.daemons import end
from tests.test_architecture import loaded_by


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="dibs")


@pytest.fixture
def space(sqlite_url, tmp_path):
    with dibs.open(sqlite_url, space="s", user_dir=tmp_path / "user") as opened:
        yield opened


def said(caplog: pytest.LogCaptureFixture, name: str, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelno) == (f"dibs.{name}", level)
    ]


def test_a_lease_that_is_taken_away_is_a_warning(space, caplog):
    alice = space.join("alice")
    with pytest.raises(dibs.StaleError), alice.lease("a", ttl_s=1) as lease:
        space.join("boss").leases.revoke("a", reason="now")
        eventually(lambda: lease.lost)
    (line,) = said(caplog, "keeping", logging.WARNING)
    assert line.startswith("lost your lease on a: ")
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert record.filename == "keeping.py"


def test_a_renewal_that_comes_late_is_a_warning(caplog):
    now = [100.0]
    beating = Beating("your lease on a", lambda: 60.0, 60.0, lambda: now[0])
    beating.start(now[0], 60.0)
    now[0] += 25
    beating.beat()
    assert said(caplog, "keeping", logging.WARNING) == []
    now[0] += 50
    beating.beat()
    beating.stop()
    assert said(caplog, "keeping", logging.WARNING) == ["renewed your lease on a 30.0 s late"]


def test_a_renewal_that_is_tried_again_is_logged_and_the_loss_once(caplog):
    now = [100.0]
    tries = threading.Semaphore(0)

    def renew() -> float:
        tries.release()
        raise BusyError("another process has the turn")

    beating = Beating("your lease on a", renew, 0.03, lambda: now[0])
    beating.start(now[0], 60.0)
    assert tries.acquire(timeout=10) and tries.acquire(timeout=10)
    eventually(lambda: said(caplog, "keeping", logging.INFO))
    assert said(caplog, "keeping", logging.WARNING) == []
    now[0] += 60
    eventually(lambda: said(caplog, "keeping", logging.WARNING))
    assert beating.refusal is not None
    beating.stop()
    line = said(caplog, "keeping", logging.INFO)[0]
    assert line == "could not renew your lease on a (busy); trying again in 0.0 s"
    (lost,) = said(caplog, "keeping", logging.WARNING)
    assert lost.startswith("lost your lease on a: ")


class Relay:
    """A way to a daemon on which the first connection breaks."""

    def __init__(self, url: str) -> None:
        self._daemon = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._name = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"http://{self._name}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._listener.accept()[0].close()
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            daemon = socket.create_connection((self._daemon.hostname, self._daemon.port))
            for source, target in ((client, daemon), (daemon, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other direction may have ended first
            while data := source.recv(65536):
                # The daemon answers only to its own name.
                target.sendall(data.replace(self._name.encode(), self._daemon.netloc.encode()))
        source.close()
        target.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_daemon_that_is_away_for_a_moment_is_logged(new_daemon, sqlite_url, tmp_path, caplog):
    word = new_daemon(sqlite_url, "s", str(tmp_path / "user"))
    relay = Relay(word["url"])
    with dibs.open(relay.url, token=word["token"], user_dir=tmp_path / "user") as space:
        assert space.space == "s"
    relay.close()
    end(word)
    away, back = said(caplog, "link", logging.INFO)
    assert away.startswith(f"the daemon at {relay.url} does not answer (")
    assert back == f"the daemon at {relay.url} answers again"
    assert word["token"] not in caplog.text


def test_a_connection_to_postgresql_that_is_made_again_is_logged(proxy, tmp_path, caplog):
    url = proxy.url.replace("postgres@", "postgres:hunter2@")
    with dibs.open(url, space="s", user_dir=tmp_path / "user") as space:
        assert said(caplog, "postgres", logging.INFO) == []
        proxy.speak()  # which cuts all connections, a moment later

        def reconnected() -> bool:
            try:
                space.leases.list()
            except dibs.DisconnectedError:
                return False
            return bool(said(caplog, "postgres", logging.INFO))

        eventually(reconnected)
    lines = said(caplog, "postgres", logging.INFO)
    address = f"postgresql://127.0.0.1:{proxy.port}/{proxy.database}"
    assert lines[0].startswith(f"no connection to {address} (")
    assert lines[-1] == f"connected to {address} again"
    assert "hunter2" not in caplog.text


def test_pruning_is_logged(space, caplog):
    alice = space.join("alice")
    alice.messages.announce("hello")
    while not alice.events.prune(keep_s=0).events:
        pass  # the same millisecond: nothing is older yet
    line = said(caplog, "pruning", logging.INFO)[-1]
    assert line.startswith("pruned the space s (gc): removed ")
    assert " events" in line


def test_no_secret_and_no_body_is_logged(space, caplog):
    alice = space.join("alice")
    secret = alice.agents.add_token("ci").secret
    alice.messages.send("the body of a message", to="alice")
    alice.state.set("n", "k", "a value")
    with pytest.raises(dibs.StaleError), alice.lease("a", ttl_s=1) as lease:
        space.join("boss").leases.revoke("a")
        eventually(lambda: lease.lost)
    alice.events.prune(keep_s=0)
    assert caplog.records
    for private in (secret, alice.token, "the body", "a value"):
        assert private not in caplog.text


def test_no_handler_is_installed(space):
    space.join("alice").events.prune(keep_s=0)
    for name in ("dibs", "dibs.pruning", "dibs.keeping"):
        assert logging.getLogger(name).handlers == []
    assert logging.getLogger("dibs.pruning").level == logging.NOTSET


def test_a_handler_that_fails_does_not_stop_the_renewal(caplog):
    now = [100.0]
    beating = Beating("your lease on a", lambda: 60.0, 60.0, lambda: now[0])
    beating.start(now[0], 60.0)
    asked: list[logging.LogRecord] = []

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            asked.append(record)
            raise ZeroDivisionError

    handler = Broken()
    logging.getLogger("dibs").addHandler(handler)
    try:
        now[0] += 50
        beating.beat()
    finally:
        logging.getLogger("dibs").removeHandler(handler)
        beating.stop()
    assert len(asked) == 1
    assert beating.refusal is None


def test_logging_is_never_loaded_by_dibs(tmp_path):
    """It would cost each command more than its work."""
    loaded = loaded_by(
        f"import dibs; space = dibs.open({str(tmp_path / 'dibs.db')!r}, space='s'); "
        "alice = space.join('alice'); alice.lease('a').__enter__(); "
        "alice.events.prune(keep_s=0); space.close()"
    )
    assert {"dibs.logger", "dibs.keeping", "dibs.nouns.events.pruning"} <= loaded
    assert "logging" not in loaded
