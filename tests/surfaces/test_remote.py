"""The library and the commands through a daemon: names, tokens, breaking off and going on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import aio, link
from tests.pages import OWNER, ROOT, Reader, blocks_of
from tests.surfaces.daemon import serving
from tests.surfaces.shell import PATIENCE_S, Shell, finish


def user_dir(shell: Shell) -> str:
    return f"{shell.environment['XDG_DATA_HOME']}/dibs"


@pytest.fixture
def space(shell: Shell, daemon_url: str) -> Iterator[dibs.Dibs]:
    with dibs.open(daemon_url, start=shell.folder, user_dir=user_dir(shell)) as opened:
        yield opened


@contextmanager
def cutting(url: str) -> Iterator[tuple[str, list[bytes]]]:
    """An address that passes requests on to a daemon, and breaks off before each first answer.

    It gives the address, and the requests whose answers it has kept to itself.
    """
    host, _, port = url.rpartition("//")[2].partition(":")
    kept: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, socket.create_connection((host, int(port))) as daemon:
                while request := client.recv(1 << 16):
                    daemon.sendall(request.replace(b"Host: 127.0.0.1:%d" % here, own))
                    answer = b""
                    while not is_whole(answer):
                        answer += daemon.recv(1 << 16)
                    key = request.partition(b"\r\n\r\n")[2]
                    if key and key not in kept:
                        kept.append(key)
                        break
                    client.sendall(answer)

    here = listening.getsockname()[1]
    own = b"Host: 127.0.0.1:" + port.encode()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{here}", kept
    finally:
        done.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(PATIENCE_S)


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and length is not None and len(body) == int(length[1])


# Names.


def test_a_name_is_read_where_the_caller_is(shell: Shell, space: dibs.Dibs, tmp_path: Path) -> None:
    """Not where the daemon is; and another clone, elsewhere, gives a file the same name."""
    clone = tmp_path / "container/work"
    subprocess.run(["git", "clone", "-q", str(shell.folder), str(clone)], check=True)
    (clone / "src").mkdir()
    (clone / "src/a.py").write_text("a = 2\n")
    url = str(space.scope.daemon)
    with (
        space.join("alice") as alice,
        dibs.open(url, start=clone / "src", user_dir=user_dir(shell)) as there,
        there.join("bob") as bob,
    ):
        with pytest.raises(dibs.HeldError) as refused, alice.lease("src/a.py"):
            bob.leases.claim("a.py")
        assert refused.value.blockers[0].resource == "src/a.py"
        (lease,) = bob.leases.claim("a.py").leases
        assert (lease.resource, lease.kind) == ("src/a.py", "file")
        assert lease.content_hash == hashlib.sha256(b"a = 2\n").hexdigest()
        assert [state.resource for state in bob.leases.status("..", "*.py", "port:1")] == [
            ".",
            "src/*.py",
            "port:1",
        ]
        bob.leases.release("a.py", outcome="moved", moved_to="b.py")
        assert alice.leases.outcomes("src")[0].moved_to == "src/b.py"
        task = bob.work.claim("task", leases=["a.py"])
        assert [lease.resource for lease in task.leases] == ["src/a.py"]


def test_a_link_to_a_file_is_that_file_through_a_daemon_too(shell: Shell, space: dibs.Dibs) -> None:
    os.link(shell.folder / "src/a.py", shell.folder / "hard")
    (shell.folder / "soft").symlink_to("src/a.py")
    with space.join("alice") as alice, space.join("bob") as bob:
        alice.leases.claim("src/a.py")
        for name in ("hard", "soft"):
            with pytest.raises(dibs.HeldError):
                bob.leases.claim(name)


def test_what_lies_elsewhere_is_refused_here(space: dibs.Dibs) -> None:
    with space.join("alice") as alice, pytest.raises(dibs.InvalidError, match="lies outside"):
        alice.leases.claim("/etc/passwd")


def test_a_name_that_is_sent_must_be_the_one_name_of_something(space: dibs.Dibs) -> None:
    """A program of another make could send anything; what is stored stays comparable."""
    link = getattr(space.scope, "link")  # noqa: B009
    with space.join("alice") as alice:
        for name in ("./a", "a/", "a//b", "a/../b", "/a", "path:a", "e\u0301", ".dibs/key", "../a"):
            given = {"resources": [name], "seen": {}}
            with pytest.raises(dibs.InvalidError):
                link.ask("/v1/leases/claim", {"Dibs-Session": alice.token}, given)
        assert alice.leases.list() == ()


# Who is let in.


def test_the_token_that_the_daemon_left_is_found_by_its_user_only(
    shell: Shell, daemon_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "BEGINNING_S", 0.0)
    for folder, token in ((str(tmp_path), None), (user_dir(shell), "wrong")):
        with (
            dibs.open(daemon_url, start=shell.folder, user_dir=folder, token=token) as space,
            pytest.raises(dibs.NotYoursError),
        ):
            space.leases.list()


def test_a_token_says_who_one_is(shell: Shell, space: dibs.Dibs, tmp_path: Path) -> None:
    secret = space.join("admin", shell=True).agents.add_token("ci").secret
    url = str(space.scope.daemon)
    with dibs.open(url, start=shell.folder, user_dir=tmp_path, token=secret) as mine:
        with mine.join("ci") as ci, ci.subagent("tests") as tests:
            assert tests.leases.claim("src").leases[0].agent == "ci/tests"
            with pytest.raises(dibs.NotYoursError):
                ci.events.prune()
        with pytest.raises(dibs.NotYoursError):
            mine.join("alice")
    ci_shell = shell.with_(DIBS_URL=url, DIBS_TOKEN=secret, XDG_DATA_HOME=str(tmp_path / "none"))
    ci_shell.as_("ci").ok("claim", "src/a.py")
    # Without a name, it is the token's.
    assert ci_shell.json("claim", "docs")["leases"][0]["agent"] == "ci"
    assert ci_shell.ok("run", "--", "sh", "-c", "echo $DIBS_AGENT").out == "ci\n"
    refused = ci_shell.as_("alice")("claim", "src/a.py")
    assert refused.code == 1 and "this token is ci's, not alice's" in refused.err
    assert "leave out --as and DIBS_AGENT" in refused.err and "Dibs-Agent" not in refused.err


def test_a_token_that_only_reads_is_told_of_commands(
    shell: Shell, space: dibs.Dibs, tmp_path: Path
) -> None:
    secret = space.join("admin", shell=True).agents.add_token("eve", scope="read").secret
    reader = shell.with_(
        DIBS_URL=str(space.scope.daemon), DIBS_TOKEN=secret, XDG_DATA_HOME=str(tmp_path / "none")
    )
    reader.ok("status")
    refused = reader("claim", "src/a.py")
    assert refused.code == 1 and "dibs token add NAME --scope" in refused.err


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://", {}),
        ("http://host:port", {}),
        ("http://user:secret@host:1", {}),
        ("http://127.0.0.1:1?token=secret", {}),
        ("http://127.0.0.1:1", {"token": "two words"}),
        ("http://127.0.0.1:1", {"token": ""}),
        ("http://127.0.0.1:1", {"key": b"k" * 32}),
        ("/tmp/dibs.db", {"token": "secret"}),
    ],
)
def test_a_wrong_address_is_refused_at_once(url: str, options: Any, tmp_path: Path) -> None:
    with pytest.raises(dibs.InvalidError):
        dibs.open(url, user_dir=tmp_path, **options)


def test_another_space_than_the_daemons_is_refused(shell: Shell, daemon_url: str) -> None:
    with pytest.raises(dibs.InvalidError, match="serves test-"):
        dibs.open(daemon_url, space="other", start=shell.folder, user_dir=user_dir(shell))


def test_what_needs_the_store_itself_says_where_to_do_it(shell: Shell, daemon_url: str) -> None:
    answer = shell.with_(DIBS_URL=daemon_url)("backup", "copy.db")
    assert answer.code == 75
    assert (
        "this needs the store itself, which the daemon" in answer.err
        and "without DIBS_URL" in answer.err
    )


# Breaking off, and going on.


def test_what_is_asked_again_is_done_once(shell: Shell, space: dibs.Dibs) -> None:
    space.join("bob", shell=True)
    token = space.join("admin", shell=True).agents.add_token("alice").secret
    with (
        cutting(str(space.scope.daemon)) as (url, kept),
        dibs.open(url, start=shell.folder, user_dir=user_dir(shell), token=token) as cut,
    ):
        alice = cut.join("alice", shell=True)
        for id in ("one", "two"):
            alice.work.add(id)
        assert alice.work.next().id == "one"
        alice.messages.send("hello", to="bob")
        grant = alice.leases.claim("src/a.py")
        assert grant.kept == ()
        assert alice.state.set("n", "k", 1).version == 1
        assert [lease.epoch for lease in alice.leases.release("src/a.py")] == [grant.epoch]
        assert len(kept) == 8
    assert [task.id for task in space.work.list(state="claimed")] == ["one"]
    bob = space.join("bob", shell=True)
    assert [message.body for message in bob.messages.inbox()] == ["hello"]


def test_a_daemon_that_is_killed_and_started_again_is_not_missed(shell: Shell) -> None:
    with serving(shell) as daemon:
        client = shell.with_(DIBS_URL=daemon.url)
        client.as_("alice").ok("claim", "src/a.py")
        waiting = client.as_("bob").start("claim", "src/a.py", "--wait", "60s")
        client.waits()
        daemon.kill()
        asked = client.as_("carol").start("claim", "docs")
        daemon.start()
        assert finish(asked).code == 0
        client.waits()
        client.as_("alice").ok("release", "src/a.py")
        assert finish(waiting).code == 0
        assert {lease["agent"] for lease in client.json("leases")} == {"bob", "carol"}


def test_a_daemon_that_stops_lets_nobody_down(shell: Shell) -> None:
    with serving(shell) as daemon:
        client = shell.with_(DIBS_URL=daemon.url)
        with dibs.open(daemon.url, start=shell.folder, user_dir=user_dir(shell)) as space:
            alice = space.join("alice")
            alice.leases.claim("src/a.py")
            waiting = client.as_("bob").start("claim", "src/a.py", "--wait", "60s")
            client.waits()
            daemon.stop()
            daemon.start()
            client.waits()
            alice.close()
            assert finish(waiting).code == 0


def test_without_a_daemon_one_is_told(
    shell: Shell, space: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        dibs.open(f"http://127.0.0.1:{port}", start=shell.folder, token="x") as nowhere,
        pytest.raises(dibs.DisconnectedError, match="does not answer"),
    ):
        nowhere.leases.list()


def test_what_answers_and_is_no_daemon_is_unfit(shell: Shell) -> None:
    """Also one whose answer comes in chunks, as from behind a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n")
                client.sendall(b"5;x=y\r\n<html\r\n1\r\n>\r\n0\r\nTrailer: 1\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with (
            dibs.open(url, start=shell.folder, token="x") as space,
            pytest.raises(dibs.UnfitError, match="not a dibs daemon"),
        ):
            space.leases.list()
        thread.join()


HOLD = """
import sys, dibs
url, folder, user_dir = sys.argv[1:]
agent = dibs.open(url, start=folder, user_dir=user_dir).join("victim", ttl_s=1.5)
agent.leases.claim("src/a.py", ttl_s=3600)
print("held", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_held_is_free_when_its_beats_are_missed(
    shell: Shell, space: dibs.Dibs
) -> None:
    arguments = [str(space.scope.daemon), str(shell.folder), user_dir(shell)]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with space.join("alice") as alice:
        with pytest.raises(dibs.TimeoutError):
            # For longer than it would live without a beat.
            alice.leases.claim("src/a.py", wait_s=2.5)
        holder.kill()
        holder.communicate()
        assert alice.leases.claim("src/a.py", wait_s=PATIENCE_S).kept == ()


def test_a_cancelled_wait_is_over_at_the_daemon_too(space: dibs.Dibs) -> None:
    alice, bob = space.join("alice"), space.join("bob")
    alice.leases.claim("src")

    async def main() -> None:
        async def hold() -> None:
            async with aio.using(bob.lease("src", wait_s=60)):
                raise AssertionError("never granted")

        waits = [
            hold(),
            aio.call(bob.messages.inbox, wait_s=60),
            aio.call(space.leases.wait, "src"),
        ]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        while not space.leases.waiting():
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in ended] == [asyncio.CancelledError] * 3

    asyncio.run(main())
    assert space.leases.waiting() == ()
    # What it had not read yet is not lost with the wait.
    alice.messages.send("hello", to="bob")
    assert [message.body for message in bob.messages.inbox()] == ["hello"]
    bob.close()
    alice.close()


def test_ctrl_c_at_a_waiting_command_leaves_the_queue(shell: Shell, daemon_url: str) -> None:
    client = shell.with_(DIBS_URL=daemon_url)
    client.as_("alice").ok("claim", "src/a.py")
    waiting = client.as_("bob").start("claim", "src/a.py", "--wait", "60s")
    client.waits()
    os.killpg(waiting.pid, signal.SIGINT)
    assert finish(waiting).code == 130
    client.waits(0)


def test_a_child_must_open_its_own(shell: Shell, space: dibs.Dibs) -> None:
    alice = space.join("alice")
    child = os.fork()
    if child == 0:
        try:
            alice.leases.claim("src")
        except dibs.ForkedError:
            alice.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    alice.leases.claim("src")
    alice.close()
    space.close()
    with pytest.raises(dibs.ClosedError):
        space.leases.list()


# The whole of it.


def test_the_walk_through_of_the_readme_works_through_a_daemon(
    shell: Shell, daemon_url: str
) -> None:
    reader = Reader(shell.with_(DIBS_URL=daemon_url))
    reader.follow([block for block in blocks_of(ROOT / "README.md") if OWNER.match(block.code)])
    assert reader.compared == 4


@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_a_daemon_is_reached_at_a_socket_and_over_tls(
    shell: Shell, kind: str, tmp_path: Path
) -> None:
    options = ["--unix", str(tmp_path / "dibs.sock")]
    if kind == "tls":
        cert, key = str(tmp_path / "cert"), str(tmp_path / "key")
        command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2"]
        command += ["-keyout", key, "-out", cert, "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True)
        options = ["--tls-cert", cert, "--tls-key", key]
    with open_daemon(shell, *options) as url:
        client = shell.with_(DIBS_URL=url)
        client.as_("alice").ok("claim", "src/a.py")
        waiting = client.as_("bob").start("claim", "src/a.py", "--wait", "60s")
        client.waits()
        client.as_("alice").ok("release", "src/a.py")
        assert finish(waiting).code == 0
        with dibs.open(url, start=shell.folder, user_dir=user_dir(shell)) as space:

            async def give_up() -> None:
                alice = space.join("alice", shell=True)
                task = asyncio.ensure_future(aio.call(alice.leases.claim, "src/a.py", wait_s=60))
                while not space.leases.waiting():
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            asyncio.run(give_up())
            assert space.leases.waiting() == ()


@contextmanager
def open_daemon(shell: Shell, *options: str) -> Iterator[str]:
    """A daemon at an address that `Daemon` does not know how to take apart."""
    port = [] if "--unix" in options else ["--port", "0"]
    process = shell.start("serve", *port, *options)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        assert finish(process).code == 0
