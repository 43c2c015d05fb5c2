"""`dibs serve`, `dibs stop` and `dibs open` as processes: how they start, are found, and end."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.surfaces.http.access import Secrets, Signed
from dibs.surfaces.http.serve import GRACE_S
from tests.surfaces.daemon import Daemon, Refusal, Reply, serving
from tests.surfaces.shell import PATIENCE_S, Shell, alive, finish, until

MANY = 500


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as running:
        yield running


@pytest.fixture
def tidy(shell: Shell) -> Iterator[Shell]:
    """A shell whose detached daemons end with the test."""
    yield shell
    shell("stop")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def page(daemon: Daemon, path: str, **headers: str) -> Reply:
    """A GET without any token."""
    return daemon.stranger().request("GET", path, headers={**headers})


# Starting.


def test_it_says_where_it_is_when_it_is_ready(daemon: Daemon) -> None:
    assert daemon.url == f"http://127.0.0.1:{daemon.port}" and daemon.port > 0
    assert page(daemon, "/healthz").status == page(daemon, "/readyz").status == 200


def test_a_program_gets_the_address_as_json(shell: Shell) -> None:
    process = shell.start("--json", "serve", "--port", "0")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said.keys() == {"url", "space", "pid"} and said["pid"] == process.pid
    process.terminate()
    assert finish(process).code == 0


def test_a_taken_port_is_said_plainly(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = shell("serve", "--port", str(port))
    assert answer.code == 2
    assert f"port {port} is taken" in answer.err and "--port 0" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "65536"], ["--port", "x"], ["--port"], ["--wat"], ["extra"], ["--detach=yes"],
        ["--unix", "s", "--port", "1"], ["--tls-cert", "nothing.pem"],
        ["--tls-cert", "nothing.pem", "--tls-key", "nothing.pem"],
        ["--host", "not an address", "--behind-proxy"], ["--unix", "x" * 200],
        ["--unix", "missing/folder/socket"],
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(shell: Shell, words: list[str]) -> None:
    answer = shell("serve", *words)
    assert answer.code == 2 and answer.err.startswith("dibs: ") and not answer.out


def test_a_second_daemon_of_a_space_says_where_the_first_is(daemon: Daemon) -> None:
    answer = daemon.shell("serve", "--port", "0")
    assert answer.code == 1 and daemon.url in answer.err
    # Another space of the same store is another matter.
    with serving(daemon.shell.with_(DIBS_SPACE="other")) as other:
        other.client("alice")("leases.claim", resources=["port:1"])
        daemon.client("bob")("leases.claim", resources=["port:1"])


def test_several_may_serve_one_postgresql(shell: Shell, postgres_url: str, space_name: str) -> None:
    shell = shell.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name)
    with serving(shell) as one, serving(shell) as two:
        assert one.url != two.url and one.token == two.token
        one.client("alice")("leases.claim", resources=["port:1"])
        with pytest.raises(Refusal, match="held"):
            two.client("bob")("leases.claim", resources=["port:1"])
        stopped = shell.ok("stop").out
        assert one.url in stopped and two.url in stopped
        assert finish(one.process).code == finish(two.process).code == 0


def test_a_space_is_served_from_its_top(shell: Shell) -> None:
    """Callers are elsewhere: where the daemon was started from means nothing to them."""
    with serving(shell.at(shell.folder / "src")) as daemon:
        grant = daemon.client("alice")("leases.claim", resources=["src/a.py"])
        assert [lease["resource"] for lease in grant["leases"]] == ["src/a.py"]


def test_the_daemon_of_a_second_repository_takes_a_free_port(tidy: Shell, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "other")], check=True)
    other = tidy.at(tmp_path / "other")
    first, second = tidy.json("serve", "--detach"), other.json("serve", "--detach")
    try:
        assert first["url"] != second["url"]
        for shell, word in ((tidy, first), (other, second)):
            there = shell.with_(DIBS_URL=word["url"])
            there.as_("alice").ok("claim", "port:1")
            # A daemon is no agent.
            assert [agent["agent"] for agent in there.json("agents")] == ["alice"]
    finally:
        other.ok("stop")


def test_a_daemon_serves_no_other_daemon(daemon: Daemon) -> None:
    answer = daemon.shell.with_(DIBS_URL=daemon.url)("serve", "--port", "0")
    assert answer.code == 2 and "not another daemon" in answer.err


# Detached.


def test_detached_it_is_ready_when_the_command_returns(tidy: Shell) -> None:
    said = tidy.json("serve", "--detach", "--port", "0")
    assert alive(said["pid"])
    host, port = said["url"].removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    connection.request("GET", "/readyz")
    assert connection.getresponse().status == 200
    connection.close()
    log = tidy.folder / ".dibs/dibs.db.d/daemon.log"
    assert mode(log) == 0o600
    assert os.getsid(said["pid"]) == said["pid"]
    # Nothing of it is left to the terminal it was started from.
    assert {os.readlink(f"/proc/{said['pid']}/fd/{number}") for number in (1, 2)} == {str(log)}
    stopped = tidy.ok("stop")
    assert said["url"] in stopped.out
    until(lambda: not alive(said["pid"]), "its end")


def test_detached_it_says_why_it_did_not_start(tidy: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = tidy("serve", "--detach", "--port", str(port))
    assert answer.code == 2 and f"port {port} is taken" in answer.err


def test_detached_on_postgresql_it_logs_among_the_users_own_files(
    tidy: Shell, postgres_url: str, space_name: str
) -> None:
    shell = tidy.with_(DIBS_URL=postgres_url, DIBS_SPACE=space_name)
    said = shell.json("serve", "--detach", "--port", "0")
    log = Path(os.readlink(f"/proc/{said['pid']}/fd/2"))
    assert log.parent == Path(shell.environment["XDG_DATA_HOME"]) / "dibs/daemons"
    assert mode(log) == 0o600
    assert shell.json("stop") == [said]


def test_there_is_nothing_to_stop(shell: Shell) -> None:
    answer = shell("stop")
    assert answer.code == 1 and "no daemon of yours" in answer.err
    assert shell("stop", "now").code == 2


def test_a_killed_daemon_is_not_taken_for_a_living_one(daemon: Daemon) -> None:
    daemon.kill()
    assert list(daemon.home.glob("*.json")), "it had no time to take its word back"
    assert daemon.shell("stop").code == 1
    assert daemon.shell("open", "--print").code == 1
    daemon.start()
    assert daemon.client("alice")("events.last") > 0


def test_stop_by_address(daemon: Daemon) -> None:
    elsewhere = daemon.shell.at(daemon.shell.folder.parent).with_(DIBS_URL=daemon.url)
    assert daemon.url in elsewhere.ok("stop").out
    assert finish(daemon.process).code == 0


# Reached from elsewhere.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_an_address_for_others_needs_tls_or_a_proxy(shell: Shell, host: str) -> None:
    answer = shell("serve", f"--host={host}", "--public-host", "dibs.test")
    assert answer.code == 2 and "--tls-cert" in answer.err and "--behind-proxy" in answer.err


def test_every_address_needs_a_name(shell: Shell) -> None:
    answer = shell("serve", "--host", "0.0.0.0", "--behind-proxy")
    assert answer.code == 2 and "--public-host" in answer.err


def test_behind_a_proxy_it_goes_by_its_public_name_too(shell: Shell) -> None:
    with serving(shell, "--behind-proxy", "--public-host", "dibs.example.org") as daemon:
        alice = daemon.client("alice")
        for host in ("dibs.example.org", f"dibs.example.org:{daemon.port}", daemon.url[7:]):
            assert alice.ask("events.last", Host=host).status == 200
        assert alice.ask("events.last", Host="other.example.org").error == "host"
        own = alice.ask("events.last", Host="dibs.example.org", Origin="https://dibs.example.org")
        assert own.status == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=dibs.test", "-addext",
            "subjectAltName=DNS:dibs.test,IP:127.0.0.1", "-keyout", key, "-out", cert,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return cert, key


def test_with_a_certificate_it_serves_every_address(
    shell: Shell, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    words = ["--host", "0.0.0.0", "--public-host", "dibs.test", "--tls-cert", cert]
    with serving(shell, *words, "--tls-key", key) as daemon:
        assert daemon.url == f"https://dibs.test:{daemon.port}"
        context = ssl.create_default_context(cafile=cert)
        with (
            socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE_S) as bare,
            context.wrap_socket(bare, server_hostname="dibs.test") as secure,
        ):
            secure.sendall(
                f"GET /healthz HTTP/1.1\r\nHost: dibs.test:{daemon.port}\r\n\r\n".encode()
            )
            assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
        assert shell.ok("stop")


def test_open_trusts_the_certificate_of_its_own_daemon(
    shell: Shell, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    with serving(shell, "--tls-cert", cert, "--tls-key", key) as daemon:
        link = shell.ok("open", "--print").out.strip()
        assert link.startswith(f"https://127.0.0.1:{daemon.port}/sign-in?code=")
        secure = http.client.HTTPSConnection(
            "127.0.0.1",
            daemon.port,
            timeout=PATIENCE_S,
            context=ssl.create_default_context(cafile=cert),
        )
        secure.request("GET", link.partition(str(daemon.port))[2])
        reply = secure.getresponse()
        assert "Secure" in str(reply.getheader("set-cookie"))
        secure.close()


def test_a_unix_socket_is_for_its_owner_only(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "dibs.sock"
    process = shell.start("serve", "--unix", str(path))
    assert process.stdout is not None
    assert process.stdout.readline().strip().endswith(f"at unix:{path}")
    assert mode(path) == 0o600 and stat.S_ISSOCK(path.stat().st_mode)
    assert over_unix(path, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(
        b"HTTP/1.1 200 "
    )
    taken = shell.with_(DIBS_SPACE="other")("serve", "--unix", str(path))
    assert taken.code == 2 and "another process listens" in taken.err
    no_browser = shell("open", "--print")
    assert no_browser.code == 2 and "Unix socket" in no_browser.err
    process.kill()
    finish(process)
    assert path.exists(), "left over"
    again = shell.start("serve", "--unix", str(path))
    assert again.stdout is not None and again.stdout.readline()
    assert shell.ok("stop")
    assert finish(again).code == 0 and not path.exists()
    path.write_text("something else")
    assert "not a socket" in shell("serve", "--unix", str(path)).err
    assert path.read_text() == "something else"


def over_unix(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(path))
        client.sendall(request)
        return client.recv(65536)


def unit_text(path: Path) -> str:
    return str(path).replace("%", "%%").replace("$", "$$")


def test_the_unit_is_one_that_systemd_takes(shell: Shell, tmp_path: Path) -> None:
    odd = tmp_path / "a 50% odd $place"
    odd.mkdir()
    words = ["serve", "--print-unit", "--unix", "so cket"]
    printed = shell.at(odd).ok(*words, "--behind-proxy").out
    assert f"WorkingDirectory={str(odd).replace('%', '%%')}\n" in printed
    (command,) = [line for line in printed.splitlines() if line.startswith("ExecStart=")]
    assert command.endswith(f' -m dibs serve --unix "{unit_text(odd / "so cket")}" --behind-proxy')
    names = ["--public-host", "a.example", "--public-host", "b.example"]
    printed_again = shell.ok("serve", "--print-unit", *names, "--port=0", "--rate", "5").out
    assert f" serve --host 127.0.0.1 --port 0 --rate 5 {' '.join(names)}\n" in printed_again
    secret = shell("serve", "--print-unit", "--store", "postgresql://me:secret@host/db")
    assert secret.code == 2 and "secret" not in secret.out + secret.err
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not there to look at the unit")
    file = tmp_path / "dibs.service"
    file.write_text(printed)
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(file)],
        env={**shell.environment, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


# The end.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_answers_those_who_wait_and_ends_it_well(daemon: Daemon, number: int) -> None:
    holder, waiter = daemon.client("alice"), daemon.client("bob")
    holder("leases.claim", resources=["port:1"])
    replies: list[Reply] = []
    thread = threading.Thread(
        target=lambda: replies.append(
            waiter.ask("leases.claim", {"resources": ["port:1"], "wait_s": 600})
        )
    )
    thread.start()
    until(lambda: holder("leases.waiting"), "bob in the queue")
    ended = daemon.stop(number)
    thread.join(PATIENCE_S)
    assert (ended.code, ended.err) == (0, "")
    (reply,) = replies
    assert (reply.status, reply.error) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert not list(daemon.home.glob("*.json"))
    # He does not wait any more, also by the store itself.
    assert daemon.shell.json("leases", "waiting") == []


async def crowd(daemon: Daemon, number: int) -> tuple[list[int], int]:
    """So many long polls and as many streams; how they end when the daemon is asked to."""
    head = f"Host: {daemon.url[7:]}\r\nAuthorization: Bearer {daemon.token}\r\n"
    body = '{"seq": 1000000, "wait_s": 3600}'
    poll = (
        f"POST /v1/events/watch HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    stream = f"GET /v1/events HTTP/1.1\r\n{head}\r\n"

    async def send(request: str) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*daemon.address)
        writer.write(request.encode())
        open_.append(writer)
        return reader

    open_: list[asyncio.StreamWriter] = []
    streams = await asyncio.gather(*(send(stream) for _ in range(number)))
    for reader in streams:
        await reader.readuntil(b": dibs\n\n")
    polls = await asyncio.gather(*(send(poll) for _ in range(number)))
    client = daemon.client()
    metric = f"\ndibs_waiting {number}\n"

    def all_wait() -> bool:
        return metric in client.request("GET", "/metrics").body.decode()

    await asyncio.to_thread(until, all_wait, "all of them waiting")
    client.close()
    stopping = asyncio.create_task(asyncio.to_thread(daemon.stop))
    statuses = [int((await reader.readline()).split()[1]) for reader in polls]
    for reader in [*streams, *polls]:
        await reader.read()
    ended = await stopping
    for writer in open_:
        writer.close()
    assert ended.err == ""
    return statuses, ended.code


def test_a_thousand_who_wait_are_all_answered(daemon: Daemon) -> None:
    statuses, code = asyncio.run(crowd(daemon, MANY))
    assert (statuses, code) == ([503] * MANY, 0)


def test_everything_acknowledged_is_stored_when_it_ends(daemon: Daemon) -> None:
    done: list[str] = []

    def write(name: str) -> None:
        client = daemon.client(name)
        for number in range(1_000_000):
            key = f"{name}:{number}"
            try:
                reply = client.ask("state.set", {"namespace": "n", "key": key, "value": 1})
            except (OSError, http.client.HTTPException):
                return
            if reply.status != 200:
                assert reply.status == 503 and reply.error == "unavailable"
                return
            done.append(key)

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) > 400, "some writes")
    ended = daemon.stop()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (ended.code, ended.err) == (0, "")
    kept = {entry["key"] for entry in daemon.shell.json("state", "export", "n")["entries"]}
    assert set(done) <= kept


def test_a_client_that_reads_nothing_does_not_keep_it_from_ending(shell: Shell) -> None:
    """Its stream can never be finished; the daemon ends within its grace all the same."""
    # More than the kernel takes into its buffers.
    with dibs.open(
        shell.folder / ".dibs/dibs.db",
        space="main",
        durability="fast",
        start=shell.folder,
        user_dir=shell.user_dir,
    ) as space:
        alice = space.join("alice", shell=True)
        for number in range(4_000):
            alice.agents.beat(status=f"{number} ".ljust(2_000, "x"))
    with serving(shell) as daemon, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(PATIENCE_S)
        deaf.connect(daemon.address)
        head = f"Host: {daemon.url[7:]}\r\nAuthorization: Bearer {daemon.token}\r\n"
        deaf.sendall(f"GET /v1/events?since=0 HTTP/1.1\r\n{head}\r\n".encode())
        assert deaf.recv(12) == b"HTTP/1.1 200"
        os.kill(daemon.process.pid, signal.SIGTERM)
        assert finish(daemon.process, GRACE_S + 5).code == 0


def test_after_a_restart_clients_go_on_with_the_same_token(daemon: Daemon) -> None:
    token = daemon.token
    alice = daemon.client("alice", token=daemon.token_of("alice"))
    joined = alice("agents.join", status="here")
    session = daemon.client(token=token, agent="alice", session=joined["token"])
    epoch = session("leases.claim", resources=["port:1"])["leases"][0]["epoch"]
    for end in (daemon.stop, daemon.kill):
        end()
        daemon.start()
        assert daemon.token == token
        for client in (alice, session):
            client.close()
        (lease,) = session("leases.renew", resources=["port:1"])
        assert lease["epoch"] == epoch
        assert alice("agents.beat")["agent"] == "alice"


# The owner's token.


def test_the_owners_token_is_made_once_and_again_only_if_it_is_worth_nothing(
    daemon: Daemon,
) -> None:
    token = daemon.token
    owner = daemon.client()
    (mine,) = [entry for entry in owner("agents.tokens") if entry["name"] == "dibs"]
    daemon.stop()
    daemon.start()
    assert daemon.token == token and len(daemon.client()("agents.tokens")) == 1
    daemon.client()("agents.revoke_token", id=mine["id"])
    daemon.stop()
    daemon.start()
    assert daemon.token != token and daemon.client()("events.last") > 0
    # The store is deleted, and another one is made in its place.
    daemon.stop()
    shutil.rmtree(daemon.shell.folder / ".dibs")
    daemon.start()
    assert daemon.client()("events.last") > 0


# Signing in.


def sign_in(daemon: Daemon, *words: str) -> str:
    """The cookie that `dibs open` leads to."""
    link = daemon.shell.ok("open", "--print", *words).out.strip()
    reply = page(daemon, link.removeprefix(daemon.url))
    assert (reply.status, reply.headers["location"]) == (303, "/")
    return reply.headers["set-cookie"].partition(";")[0]


def test_an_agent_does_not_sign_in(daemon: Daemon) -> None:
    answer = daemon.shell.with_(CLAUDE_CODE_SESSION_ID="1")("open", "--print", "--as", "somebody")
    assert (answer.code, answer.out) == (1, "")
    assert "only people may do this (dibs open)" in answer.err


def test_open_leads_to_a_cookie_once(daemon: Daemon) -> None:
    link = daemon.shell.ok("open", "--print").out.strip()
    assert link.startswith(f"{daemon.url}/sign-in?code=")
    path = link.removeprefix(daemon.url)
    assert page(daemon, path[:-1]).error == "bad_code"
    assert page(daemon, "/sign-in").error == "bad_code"
    reply = page(daemon, path)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    flags = [part.strip() for part in reply.headers["set-cookie"].lower().split(";")]
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= set(flags)
    assert reply.headers["cache-control"] == "no-store"
    again = page(daemon, path)
    assert (again.status, again.error) == (403, "bad_code")


def test_a_code_and_a_cookie_are_over_after_their_time() -> None:
    alice = Signed("alice", 1)
    secrets = Secrets(0.0)
    secret = secrets.add(alice)
    assert secrets.who(secret) is None and secrets.take(secret) is None
    lasting = Secrets(60.0)
    first = lasting.add(alice)
    assert lasting.who(first) == alice
    for _ in range(1000):
        lasting.add(Signed("bob", 2))
    assert lasting.who(first) is None, "nobody can fill the memory with codes"


def test_open_starts_the_browser(daemon: Daemon, tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.draft && mv {seen}.draft {seen}\n')
    browser.chmod(0o700)
    answer = daemon.shell.with_(BROWSER=str(browser)).ok("open")
    assert answer.out == ""
    until(seen.exists, "the browser")
    assert seen.read_text().startswith(f"{daemon.url}/sign-in?code=")


def test_whoever_is_signed_in_acts_under_their_own_name(daemon: Daemon) -> None:
    cookie = sign_in(daemon, "--as", "erika")
    browser = daemon.stranger(Cookie=cookie, Origin=daemon.url)
    daemon.client("alice")("leases.claim", resources=["port:1"])
    browser("leases.revoke", resources=["port:1"], reason="I need it")
    (event,) = [
        event for event in browser("events.since", seq=0) if event["kind"] == "lease.revoked"
    ]
    assert event["agent"] == "erika" or event["data"].get("by") == "erika", event
    assert browser.ask("events.last", Dibs_Agent="alice").error == "not_yours"


def test_a_cookie_counts_only_on_our_own_page(daemon: Daemon) -> None:
    cookie = sign_in(daemon)
    browser = daemon.stranger(Cookie=cookie)

    def status(**headers: str) -> tuple[int, str]:
        reply = browser.ask("events.last", **headers)
        return reply.status, "" if reply.status == 200 else reply.error

    assert status(Origin=daemon.url) == (200, "")
    assert status(Sec_Fetch_Site="same-origin") == (200, "")
    assert status() == (403, "origin")
    assert status(Origin="null") == (403, "origin")
    assert status(Origin="http://127.0.0.1:1") == (403, "origin")
    assert status(Sec_Fetch_Site="same-site") == (403, "origin")
    assert status(Sec_Fetch_Site="cross-site", Origin=daemon.url) == (403, "origin")
    assert status(Cookie=f"{cookie}x", Origin=daemon.url) == (401, "no_token")
    assert status(Cookie=f"{cookie}; {cookie}", Origin=daemon.url) == (401, "no_token")
    assert status(Cookie=f"a=b; {cookie}; c=d", Origin=daemon.url) == (200, "")
    daemon.stop()
    daemon.start()
    browser.close()
    assert status(Origin=daemon.url) == (401, "no_token")


def test_only_an_admin_gets_a_link(daemon: Daemon) -> None:
    for scope in ("agent", "read"):
        shell = daemon.shell.with_(DIBS_TOKEN=daemon.token_of("alice", scope))
        answer = shell("open", "--print")
        assert answer.code == 1 and f"scope {scope}" in answer.err
    admin = daemon.shell.with_(DIBS_TOKEN=daemon.token_of("alice", "admin"))
    assert admin.ok("open", "--print").out.startswith(daemon.url)
    bad = daemon.client().request("POST", "/sign-in", '{"name": "a b"}')
    assert (bad.status, bad.error) == (400, "invalid")


def test_open_says_that_nothing_is_there(shell: Shell) -> None:
    answer = shell("open")
    assert answer.code == 1 and "dibs serve" in answer.err
    answer = shell.with_(DIBS_URL="http://127.0.0.1:1")("open")
    assert answer.code == 1 and "DIBS_TOKEN" in answer.err
    answer = shell.with_(DIBS_URL="http://127.0.0.1:1", DIBS_TOKEN="x")("open")
    assert answer.code == 75 and "does not answer" in answer.err


# The documentation.

DOCS = Path(__file__).parents[2] / "docs/daemon.md"


def test_every_option_is_documented(shell: Shell) -> None:
    text = DOCS.read_text(encoding="utf-8")
    said, _, _ = shell.ok("serve", "--help").out.partition("Everywhere:")
    options = set(re.findall(r"--[a-z-]+", said))
    assert len(options) > 8
    assert not {option for option in options if option not in text}
