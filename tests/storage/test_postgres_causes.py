"""Why a PostgreSQL server cannot be had: each cause has a name, an advice, and its exit code."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import dibs
from dibs import errors
from dibs.storage import postgres_connect
from tests.contract.waiting import eventually
from tests.hostile.standby import Failover, failover
from tests.silence import SilentProxy, silent_proxy

SECRET = "pa55-of-alice"


def refusal(url: str, folder: Path, act: Callable[[dibs.Dibs], object] | None = None) -> Any:
    """The error that opening, or acting in what was opened, ends with."""

    def run() -> None:
        with dibs.open(url, space="s", start=folder, user_dir=folder / "user") as space:
            assert act is not None, "it was opened"
            act(space)

    with pytest.raises(dibs.UnavailableError) as refused:
        run()
    error = refused.value
    shown = f"{error} {error.next} {error.to_json()} {error.__cause__} {error.__context__}"
    assert SECRET not in shown
    assert error.next
    return error


def summary(error: Any) -> tuple[str, str, int]:
    return error.code, error.details["cause"], error.exit_code


def test_a_database_that_is_not_there(proxy: SilentProxy, tmp_path: Path) -> None:
    url = f"postgresql://postgres:{SECRET}@127.0.0.1:{proxy.port}/nothing"
    error = refusal(url, tmp_path)
    assert summary(error) == ("unfit", "unknown_database", 2)
    assert error.details["sqlstate"] == "3D000"


def test_a_user_that_is_not_there(proxy: SilentProxy, tmp_path: Path) -> None:
    url = f"postgresql://nobody:{SECRET}@127.0.0.1:{proxy.port}/postgres"
    assert summary(refusal(url, tmp_path)) == ("unfit", "user", 2)


@contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A port where something says this to whoever comes; or says nothing, and hangs up."""
    server = socket.create_server(("127.0.0.1", 0))
    port: int = server.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                if answer:
                    client.recv(1024)
                    client.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield port
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"-ERR unknown\r\n"]
)
def test_what_is_no_postgresql(greeting: bytes, tmp_path: Path) -> None:
    with listening(greeting) as port:
        error = refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/d", tmp_path)
    assert summary(error) == ("unfit", "not_postgres", 2)


def test_what_hangs_up(tmp_path: Path) -> None:
    with listening(None) as port:
        error = refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/d", tmp_path)
    assert summary(error) == ("disconnected", "broken", 75)


def test_where_nobody_listens(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    for url in (
        f"postgresql://u:{SECRET}@127.0.0.1:{port}/d",
        f"postgresql://u:{SECRET}@/d?host={tmp_path}",
    ):
        error = refusal(url, tmp_path)
        assert summary(error) == ("disconnected", "nobody_listens", 75)
        assert error.retry_after_ms


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    error = refusal(f"postgresql://u:{SECRET}@no-such-host.invalid/d", tmp_path)
    # Without a name server it cannot be known whether it exists.
    assert summary(error) in (("unfit", "unknown_host", 2), ("disconnected", "name_server", 75))
    assert "no-such-host.invalid" in error.message


def test_a_server_without_tls(proxy: SilentProxy, tmp_path: Path) -> None:
    error = refusal(f"{proxy.url}?sslmode=require", tmp_path)
    assert summary(error) == ("unfit", "tls", 2)


def test_an_address_that_cannot_be_read_shows_no_password(
    proxy: SilentProxy, tmp_path: Path
) -> None:
    for url in (
        f"postgresql://u:{SECRET}@host:port:1/d",
        f"postgresql://u:{SECRET}%zz@host/d",
        f"postgresql://u@host/d?password={SECRET}&nonsense=1",
        f"postgresql://u:{SECRET}@a,b/d?port=1,2,3",
        f"postgresql://u:{SECRET}@127.0.0.1:{proxy.port}/d?sslmode=nonsense",
    ):
        with pytest.raises(dibs.InvalidError) as refused:
            dibs.open(url, space="s", user_dir=tmp_path / "user")
        error = refused.value
        chain = f"{error} {error.next} {error.details} {error.__cause__}"
        assert SECRET not in chain
        assert error.__suppress_context__ or SECRET not in f"{error.__context__}"


def test_a_password_in_the_query_is_not_shown(empty_postgres_url: str, tmp_path: Path) -> None:
    url = f"{empty_postgres_url}&password={SECRET}"
    with dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user") as space:
        shown = space.scope.store.driver.address
    assert SECRET not in shown and "host=" in shown


@pytest.fixture(scope="module")
def own_server() -> Iterator[Failover]:
    """A server of this module's own, whose settings it may change."""
    with failover() as server:
        yield server


class Admin:
    """Somebody who changes the settings of a server, as its files are changed."""

    def __init__(self, server: Failover) -> None:
        self.server = server
        self.url = server.url
        self.folder = Path(server.data)

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    def may_enter(self, lines: str) -> None:
        """Write who is let in."""
        (self.folder / "pg_hba.conf").write_text(lines)
        self.execute("SELECT pg_reload_conf()")


@pytest.fixture
def admin(own_server: Failover) -> Iterator[Admin]:
    admin = Admin(own_server)
    before = (admin.folder / "pg_hba.conf").read_text()
    yield admin
    admin.may_enter(before)


def as_user(admin: Admin, name: str, password: str = "") -> str:
    secret = f"&password={password}" if password else ""
    return admin.url.replace("user=postgres", f"user={name}{secret}")


def new_user(admin: Admin, *options: str) -> str:
    name = f"user_{uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}' {' '.join(options)}")
    return name


def test_a_wrong_password_and_none_at_all(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_user(admin)
    admin.may_enter(f"local all postgres trust\nlocal all {name} scram-sha-256\n")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    error = refusal(as_user(admin, name, "wrong"), tmp_path)
    assert summary(error) == ("unfit", "password", 2)
    assert error.details["sqlstate"] == "28P01"
    assert summary(refusal(as_user(admin, name), tmp_path)) == ("unfit", "password", 2)
    # It is let in, and may not make the schema.
    error = refusal(as_user(admin, name, SECRET), tmp_path)
    assert summary(error) == ("unfit", "permission", 2)
    assert error.details["sqlstate"] == "42501"


def test_a_user_whom_the_server_does_not_let_in(admin: Admin, tmp_path: Path) -> None:
    name = new_user(admin)
    admin.may_enter("local all postgres trust\n")
    error = refusal(as_user(admin, name, SECRET), tmp_path)
    assert summary(error) == ("unfit", "user", 2)


def test_too_many_clients(admin: Admin, tmp_path: Path) -> None:
    name = new_user(admin, "CONNECTION LIMIT 1")
    with psycopg.connect(as_user(admin, name)):
        error = refusal(as_user(admin, name, SECRET), tmp_path)
    assert summary(error) == ("disconnected", "too_many_clients", 75)


def granted(admin: Admin) -> str:
    name = new_user(admin)
    admin.execute(
        f"GRANT CREATE ON DATABASE postgres TO {name}", "DROP SCHEMA IF EXISTS dibs CASCADE"
    )
    return name


def test_a_statement_timeout(admin: Admin, tmp_path: Path) -> None:
    name = granted(admin)
    url = as_user(admin, name, SECRET)
    with dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user") as space:
        space.events.last()
    admin.execute(f"ALTER ROLE {name} SET statement_timeout = 50")
    with psycopg.connect(admin.url) as other:
        other.execute("LOCK TABLE dibs.event IN ACCESS EXCLUSIVE MODE")
        error = refusal(url, tmp_path, lambda space: space.events.last())
    assert summary(error) == ("busy", "statement_timeout", 75)
    assert error.retry_after_ms


def test_a_turn_that_another_keeps(admin: Admin, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dibs.storage.postgres_transaction.LOCK_MS", 100)
    url = as_user(admin, granted(admin), SECRET)
    with dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user") as space:
        number = space.scope.store.space
    with psycopg.connect(admin.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", (0x64696273, number))
        error = refusal(url, tmp_path, lambda space: space.join("alice"))
    assert summary(error) == ("busy", "turn", 75)


def test_a_server_that_is_read_only(admin: Admin, tmp_path: Path) -> None:
    name = granted(admin)
    url = as_user(admin, name, SECRET)
    dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user").close()
    admin.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    error = refusal(url, tmp_path, lambda space: space.join("alice"))
    assert summary(error) == ("read_only", "read_only", 75)
    # Of several hosts, the next connection would be made to another.
    several = url.replace("host=", f"host={tmp_path},")
    error = refusal(several, tmp_path)
    assert summary(error) == ("disconnected", "no_host", 75)
    assert "read-only" in error.message and "nothing listens" in error.message


def test_a_leader_that_is_demoted_is_left_and_found_again(admin: Admin, tmp_path: Path) -> None:
    url = as_user(admin, granted(admin), SECRET).replace("host=", f"host={tmp_path},")
    with dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user") as space:
        alice = space.join("alice")
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        try:
            eventually(lambda: is_read_only(admin))
            with pytest.raises(dibs.DisconnectedError) as refused:
                alice.messages.send("one")
            assert refused.value.details["cause"] == "read_only"
            with pytest.raises(dibs.DisconnectedError) as refused:
                alice.messages.send("two")
            assert refused.value.details["cause"] == "no_host"
        finally:
            off = "SET default_transaction_read_only = off"
            admin.execute(off, "ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
        eventually(lambda: not is_read_only(admin))
        alice.messages.send("three")
        assert [message.body for message in alice.messages.history()] == ["three"]
        alice.close()


def is_read_only(admin: Admin) -> bool:
    with psycopg.connect(admin.url) as db:
        return db.execute("SHOW transaction_read_only").fetchone() == ("on",)


def test_a_server_that_ends_the_connection(admin: Admin, tmp_path: Path) -> None:
    url = as_user(admin, granted(admin), SECRET)

    def cut_off(space: dibs.Dibs) -> None:
        with space.scope.store.read() as tx:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'dibs'"
            )
            tx.rows(postgres_version())

    assert summary(refusal(url, tmp_path, cut_off)) == ("disconnected", "shutting_down", 75)


def postgres_version() -> Any:
    from dibs.storage.queries import Query

    return Query("version", "SELECT version() AS version")


def test_a_server_that_is_shutting_down(tmp_path: Path) -> None:
    with failover() as server:
        with psycopg.connect(server.url) as last:  # whom it waits for
            last.execute("SELECT 1")
            server.end_when_idle()
            error = refusal(server.url, tmp_path)
        assert summary(error) == ("disconnected", "starting_up", 75)
        assert error.details["sqlstate"] == "57P03"


def test_a_disk_that_is_full(admin: Admin, tmp_path: Path) -> None:
    """By a quota of the server's own: a function of the database's owner says its code."""
    url = as_user(admin, "postgres")
    admin.execute("DROP SCHEMA IF EXISTS dibs CASCADE")
    dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user").close()
    admin.execute(
        "CREATE FUNCTION dibs.full() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON dibs.event EXECUTE FUNCTION dibs.full()",
    )
    error = refusal(url, tmp_path, lambda space: space.join("alice"))
    assert summary(error) == ("disk_full", "disk_full", 75)
    admin.execute("DROP SCHEMA dibs CASCADE")


def test_every_code_has_an_error_and_an_advice() -> None:
    lines = Path(postgres_connect.CODES).read_text().splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        code, kind, cause, says, advice = (part.strip() for part in line.split(" | "))
        assert len(code) in (2, 3, 5) and code.isalnum()
        found = postgres_connect.by_code(code.ljust(5, "9"))
        assert type(found) is getattr(errors, kind)
        assert found.details["cause"] == cause
        assert found.message == says and found.next and advice
    assert postgres_connect.by_code("42601").next == "report this"


def test_the_first_host_that_takes_writes_is_found(
    admin: Admin, proxy: SilentProxy, tmp_path: Path
) -> None:
    with silent_proxy(proxy.server_url) as silent, listening(None) as broken:
        silent.silent = True
        hosts = f"127.0.0.1:{silent.port},127.0.0.1:{broken},127.0.0.1:{proxy.port}"
        url = f"postgresql://postgres@{hosts}/{proxy.database}"
        with dibs.open(url, space="s", start=tmp_path, user_dir=tmp_path / "user") as space:
            alice = space.join("alice")
            tried = silent.connections
            assert tried == 1
            # It is remembered: the next connection does not begin with the one that is silent.
            driver: Any = space.scope.store.driver
            driver.forsake()
            alice.leases.claim("port:1")
            assert silent.connections == tried
            # The good one falls silent, and the first one speaks: that one is taken.
            silent.speak()
            proxy.silent = True
            driver.forsake()
            alice.leases.claim("port:2")
            assert silent.connections > tried
            alice.close()
