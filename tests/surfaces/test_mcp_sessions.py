"""Who calls through `dibs mcp`, how long it lasts, and what is left when it ends: nothing."""

from __future__ import annotations

import array
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.space.scope import AGENTS
from tests.surfaces.mcp_client import HANDSHAKES, Client, Start, clients, look_into
from tests.surfaces.shell import DIBS, PATIENCE_S, Shell, finish, until

CLAUDE, CODEX = "claude-code", "codex-mcp-client"
STORE = ".dibs"


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    with clients(shell) as start:
        yield start


@pytest.fixture
def start_on_each(on_each: Shell) -> Iterator[Start]:
    with clients(on_each) as start:
        yield start


# How it ends.


def hang_up(client: Client) -> None:
    client.hang_up()


def stop(number: signal.Signals) -> Callable[[Client], None]:
    return lambda client: client.signal(number)


def go_away(client: Client) -> None:
    """Let go of both pipes at once, as a client does that was killed."""
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.hang_up()


def as_claude_does(client: Client) -> None:
    """An interrupt while the input stays open, then sterner ones."""
    client.signal(signal.SIGINT)
    time.sleep(0.1)
    client.signal(signal.SIGTERM)
    time.sleep(0.4)
    client.signal(signal.SIGKILL)


def as_codex_does(client: Client) -> None:
    """Hardly any time to say goodbye."""
    os.killpg(client.process.pid, signal.SIGTERM)
    client.hang_up()
    time.sleep(0.005)
    client.signal(signal.SIGKILL)


GENTLE = {
    "closed input": hang_up,
    "SIGTERM": stop(signal.SIGTERM),
    "SIGINT": stop(signal.SIGINT),
    "SIGHUP": stop(signal.SIGHUP),
    "closed pipes": go_away,
}
ROUGH = {
    "SIGKILL": stop(signal.SIGKILL),
    "as Claude does": as_claude_does,
    "as Codex does": as_codex_does,
}


def hold_and_end(start: Start, shell: Shell, end: Callable[[Client], None]) -> Client:
    """Somebody holds a file and a task and stands in line when it ends; others get all of it."""
    one = start(within=shell.as_("one"))
    two = start(within=shell.as_("two"))
    two.call("status")
    one.call("claim", resource="src/a.py")
    one.call("work_claim", id="task", resources=["src/b.py"])
    with look_into(shell) as store, store.join("three") as three:
        three.leases.claim("port:1")
        one.begin_call("claim", {"resource": "port:1", "wait_s": 600})
        one.begin_call("inbox", {"wait_s": 600})
        pages = {"resourceSubscriptions": ["dibs://work"]}
        one.begin("subscriptions/listen", {"notifications": pages})
        until(store.leases.waiting, "one in the queue")
        end(one)
        one.ended()
        # At once: nobody has to wait, and nobody has to notice first.
        first = two.call("claim", resources=["src/a.py", "src/b.py"])
        assert first["status"] == "claimed", first
        task = two.call("work_next")
        assert (task["status"], task["id"]) == ("claimed", "task")
        assert store.leases.waiting() == ()
    assert [agent["name"] for agent in two.call("status")["agents"]] == ["two"]
    return one


@pytest.mark.parametrize("way", GENTLE)
def test_when_a_client_is_done_everything_is_free(
    start_on_each: Start, on_each: Shell, way: str
) -> None:
    ended = hold_and_end(start_on_each, on_each, GENTLE[way])
    assert ended.process.returncode == 0


@pytest.mark.parametrize("way", ROUGH)
def test_when_a_server_is_killed_everything_is_free(start: Start, shell: Shell, way: str) -> None:
    """On one machine the kernel knows; across machines it takes the life of a session."""
    hold_and_end(start, shell, ROUGH[way])


def signal_at_random(start: Start, rounds: int, seed: int) -> None:
    """Signals come while the server imports, joins, claims, begins to wait, and goes to sleep."""
    pick = random.Random(seed)
    for _ in range(rounds):
        client = start()
        client.begin_call("claim", {"resource": "src/a.py"})
        client.begin_call("work_next")
        client.begin_call("wait", {"resource": "src/a.py", "timeout_s": 600})
        client.begin_call("inbox", {"wait_s": 600})
        uris = {"resourceSubscriptions": ["dibs://work"]}
        client.begin("subscriptions/listen", {"notifications": uris})
        client.hear(lambda m: True, "anything")
        time.sleep(pick.random() * 0.03)
        client.signal(pick.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
        assert client.ended() == 0
        client.check_all()


def test_a_signal_is_heard_at_any_moment(start: Start) -> None:
    signal_at_random(start, rounds=12, seed=31)


@pytest.mark.stress
def test_five_hundred_signals_are_heard_at_any_moment(start: Start) -> None:
    signal_at_random(start, rounds=500, seed=32)


def test_a_server_that_did_nothing_leaves_nothing(start: Start, shell: Shell) -> None:
    """Clients start servers only to see what they offer."""
    modern, legacy = start(), start(version=HANDSHAKES[-1])
    modern.result("server/discover")
    for client in (modern, legacy):
        for method in ("tools/list", "prompts/list", "resources/list"):
            client.result(method)
    killed = start()
    killed.kill()
    modern.end()
    legacy.end()
    assert not (shell.folder / STORE).exists()


@contextmanager
def deaf(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """A server whose client writes and does not read."""
    process = shell.start("mcp", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        meta = (
            '{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            '"io.modelcontextprotocol/clientCapabilities":{}}'
        )
        call = (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claim",'
            '"arguments":{"resource":"src/a.py"},"_meta":%s}}\n'
        )
        process.stdin.write(call % meta)
        for _ in range(100):
            line = '{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":%s}}\n'
            process.stdin.write(line % meta)
        process.stdin.flush()
        with look_into(shell) as store:
            until(store.leases.list, "the claim")
        until(lambda: is_full(process.stdout), "a full pipe")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_full(pipe: Any) -> bool:
    """Whether so much waits in a pipe that nothing more is written to it."""

    def unread() -> int:
        number = array.array("i", [0])
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, number)
        return number[0]

    # A pipe has pages, which are not filled up to the last byte.
    before = unread()
    time.sleep(0.05)
    return before == unread() >= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2


def test_a_server_whose_client_does_not_read_can_be_stopped(shell: Shell, start: Start) -> None:
    with deaf(shell) as process:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert start().call("claim", resource="src/a.py")["status"] == "claimed"


def test_a_server_whose_client_goes_without_reading_ends(shell: Shell, start: Start) -> None:
    with deaf(shell) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        process.stdout = None
    assert start().call("claim", resource="src/a.py")["status"] == "claimed"


# Who calls.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (CLAUDE, "claude"),
        (CODEX, "codex"),
        ("gemini-cli-mcp-client", "gemini"),
        ("opencode", "opencode"),
        ("Some Editor", "some"),
        ("", "agent"),
        ("\N{GRINNING FACE}", "agent"),
        ("x" * 1_000, "x" * 20),
    ],
)
def test_an_agent_is_called_after_its_client(start: Start, name: str, kind: str) -> None:
    you = start(name=name).call("status")["you"]
    assert you.rpartition("-")[0] == kind


def test_names_that_nobody_chose_differ(start: Start) -> None:
    servers = [start(name=CLAUDE) for _ in range(6)]
    names = [server.call("status")["you"] for server in servers]
    assert len(set(names)) == 6
    assert sorted(agent["name"] for agent in servers[0].call("status")["agents"]) == sorted(names)
    servers[0].call("send", body="only for you", to=names[1])
    assert [m["body"] for m in servers[1].call("inbox")["messages"]] == ["only for you"]
    assert servers[2].call("inbox")["messages"] == []


def test_the_same_session_has_the_same_name_wherever_it_is_asked_for(
    start: Start, shell: Shell
) -> None:
    known = shell.with_(CLAUDE_CODE_SESSION_ID="4a6f")
    first = start(within=known, name=CLAUDE)
    name = first.call("status")["you"]
    first.end()
    assert start(within=known, name=CLAUDE).call("status")["you"] == name


def test_a_variable_counts_only_for_the_client_it_belongs_to(start: Start, shell: Shell) -> None:
    inherited = shell.with_(CLAUDE_CODE_SESSION_ID="4a6f", GEMINI_CLI="1", OPENCODE="1")
    claude = start(within=inherited, name=CLAUDE)
    claude.call("claim", resource="src/a.py")
    for other in (CODEX, "Some Editor", ""):
        client = start(within=inherited, name=other)
        assert client.call("claim", resource="src/a.py")["status"] == "busy"
    again = start(within=inherited, name=CLAUDE)
    assert again.call("claim", resource="src/a.py")["status"] == "already_claimed"


@pytest.mark.parametrize(("name", "variable"), [("gemini-cli-x", "GEMINI_CLI"),
                                                ("opencode", "OPENCODE")])  # fmt: skip
def test_a_client_without_sessions_is_known_by_its_process(
    start: Start, shell: Shell, name: str, variable: str
) -> None:
    within = shell.with_(**{variable: "1"})
    one, two = start(within=within, name=name), start(within=within, name=name)
    one.call("claim", resource="src/a.py")
    assert two.call("claim", resource="src/a.py")["status"] == "already_claimed"
    # Another process above the server is another client.
    command = ("bash", "-c", f"{DIBS} mcp; exit $?")
    other = start(within=within, name=name, command=command)
    assert other.call("claim", resource="src/a.py")["status"] == "busy"
    bare = start(name=name)
    assert bare.call("claim", resource="src/a.py")["status"] == "busy"


def test_two_sessions_in_one_process_are_two_agents(start_on_each: Start) -> None:
    server = start_on_each(name=CODEX)
    one, two = server.of("0199-one"), server.of("0199-two")
    names = {one.call("status")["you"], two.call("status")["you"]}
    assert len(names) == 2
    assert one.call("claim", resource="src/a.py", note="mine")["status"] == "claimed"
    busy = two.call("claim", resource="src/a.py")
    assert (busy["status"], busy["note"]) == ("busy", "mine")
    assert busy["held_by"] in names
    waiting = two.begin_call("claim", {"resource": "src/a.py", "wait_s": 600})
    until(lambda: one.call("status")["attention"], "two in the queue")
    one.call("send", body="yours in a minute", to=two.call("status")["you"])
    assert one.call("inbox")["messages"] == []
    assert [m["body"] for m in two.call("inbox")["messages"]] == ["yours in a minute"]
    one.call("release", resource="src/a.py")
    assert server.outcome(waiting)["status"] == "claimed"
    # A call that names no session is a third: the process itself.
    assert server.call("claim", resource="src/a.py")["status"] == "busy"


def test_all_sessions_of_a_process_end_with_it(start_on_each: Start) -> None:
    server, other = start_on_each(name=CODEX), start_on_each()
    for number in range(5):
        server.of(f"s{number}").call("claim", resource=f"src/{number}.py")
    server.end()
    assert other.call("claim", resource="src/")["status"] == "claimed"


def test_one_session_in_two_processes_is_one_session(start_on_each: Start, on_each: Shell) -> None:
    known = on_each.with_(CLAUDE_CODE_SESSION_ID="4a6f")
    keeper, guest = (
        start_on_each(within=known, name=CLAUDE),
        start_on_each(within=known, name=CLAUDE),
    )
    other = start_on_each()
    assert keeper.call("claim", resource="src/a.py")["status"] == "claimed"
    assert guest.call("claim", resource="src/a.py")["status"] == "already_claimed"
    assert guest.call("status")["you"] == keeper.call("status")["you"]
    assert len(other.call("status")["agents"]) == 2
    # Who came second may go; who came first keeps it.
    guest.end()
    assert other.call("claim", resource="src/a.py")["status"] == "busy"
    assert keeper.call("release", resource="src/a.py")["status"] == "released"


def test_when_the_process_that_keeps_a_session_ends_the_other_is_told_and_goes_on(
    start: Start, shell: Shell
) -> None:
    known = shell.with_(CLAUDE_CODE_SESSION_ID="4a6f")
    keeper, guest = start(within=known, name=CLAUDE), start(within=known, name=CLAUDE)
    keeper.call("claim", resource="src/a.py")
    assert guest.call("claim", resource="src/b.py")["status"] == "claimed"
    keeper.end()
    told = guest.call("claim", resource="src/b.py")
    assert told["status"] == "not_yours"
    assert "session has ended" in told["hint"]
    assert guest.call("claim", resource="src/b.py")["status"] == "claimed"
    assert guest.call("status", resource="src/a.py")["status"] == "available"


def test_a_hook_acts_in_the_session_of_its_client(start_on_each: Start, on_each: Shell) -> None:
    server = start_on_each(name=CODEX)
    server.of("0199-one").call("claim", resource="src/a.py")
    with look_into(on_each) as space, space.join("whatever", client="codex:0199-one") as hook:
        assert hook.name == server.of("0199-one").call("status")["you"]
        assert hook.leases.status("src/a.py")[0].free
        hook.leases.claim("src/b.py")
    assert server.of("0199-one").call("claim", resource="src/b.py")["status"] == "already_claimed"


# What the environment says.


def test_the_environment_and_the_command_line_name_the_agent(start: Start, shell: Shell) -> None:
    assert start(within=shell.as_("alice")).call("status")["you"] == "alice"
    assert start("--as", "bob", within=shell.as_("alice")).call("status")["you"] == "bob"
    assert start("--as=carol").call("status")["you"] == "carol"


def test_a_name_from_outside_is_kept(start: Start, shell: Shell) -> None:
    client = start(within=shell.as_("alice"))
    answer = client.call("status", name="somebody")
    assert (answer["status"], answer["you"]) == ("named_already", "alice")
    assert client.call("status")["you"] == "alice"


def test_an_impossible_name_from_outside_is_told_at_the_first_call(
    start: Start, shell: Shell
) -> None:
    client = start(within=shell.as_("two words"))
    assert client.result("tools/list")["tools"]
    assert client.misuse("status")["status"] == "invalid"


def test_a_server_can_act_in_a_session_that_somebody_else_keeps(
    start_on_each: Start, on_each: Shell
) -> None:
    with look_into(on_each) as space, space.join("alice") as alice:
        within = on_each.with_(DIBS_SESSION=alice.token, DIBS_AGENT="mallory")
        client = start_on_each(within=within)
        assert client.call("status")["you"] == "alice"
        assert client.call("claim", resource="src/a.py")["status"] == "claimed"
        assert [lease.session for lease in alice.leases.list()] == [alice.session]
        client.end()
        assert len(alice.leases.list(session=alice.session)) == 1
        named = start_on_each("--as", "bob", within=within)
        assert named.call("claim", resource="src/a.py")["held_by"] == "alice"


def test_a_token_of_nobody_is_refused_at_each_call(start: Start, shell: Shell) -> None:
    client = start(within=shell.with_(DIBS_SESSION="17.0000"))
    for _ in range(2):
        refused = client.misuse("claim", resource="src/a.py")
        assert refused["status"] == "unfit"
        assert "DIBS_SESSION" in refused["message"]
    assert client.result("tools/list")["tools"]


# Naming oneself.


def test_an_agent_names_itself_once(start_on_each: Start) -> None:
    client, other = start_on_each(), start_on_each()
    assert client.call("status", name="alice")["you"] == "alice"
    assert client.call("status", name="alice")["you"] == "alice"
    again = client.call("status", name="bob")
    assert (again["status"], again["you"]) == ("named_already", "alice")
    assert client.call("claim", resource="src/a.py")["status"] == "claimed"
    assert other.call("claim", resource="src/a.py")["held_by"] == "alice"
    other.call("send", body="hello", to="alice")
    assert [m["body"] for m in client.call("inbox")["messages"]] == ["hello"]


def test_an_agent_can_name_itself_after_it_has_looked_around(start: Start) -> None:
    client = start()
    was = client.call("status")["you"]
    assert client.call("status", name="alice")["you"] == "alice"
    names = [agent["name"] for agent in start().call("status")["agents"]]
    assert was not in names and "alice" in names


@pytest.mark.parametrize("looked", [False, True])
def test_a_name_that_somebody_alive_uses_is_refused(start_on_each: Start, looked: bool) -> None:
    first, second = start_on_each(), start_on_each()
    first.call("status", name="alice")
    was = second.call("status")["you"] if looked else None
    refused = second.call("status", name="alice")
    assert refused["status"] == "exists"
    assert was in (None, refused["you"])
    assert second.call("status")["you"] == refused["you"] != "alice"
    first.end()
    assert second.call("status", name="alice")["you"] == "alice"


def test_whoever_holds_something_keeps_its_name(start: Start) -> None:
    client = start()
    client.call("claim", resource="src/a.py")
    refused = client.call("status", name="alice")
    assert refused["status"] == "wrong_state"
    client.call("release", everything=True)
    assert client.call("status", name="alice")["you"] == "alice"


def test_no_tool_takes_the_caller_as_an_argument(start: Start) -> None:
    client = start("--tools", "all")
    for word in ("agent", "as", "session", "caller", "from", "sender", "owner"):
        arguments: dict[str, Any] = {word: "alice"}
        assert client.misuse("claim", resource="src/a.py", **arguments)["status"] == "invalid"
        assert client.misuse("send", body="hello", **arguments)["status"] == "invalid"


# What can happen to a session or a store meanwhile.


@pytest.fixture
def beneath(on_each: Shell, sqlite_url: str, space_name: str) -> Iterator[dibs.Dibs]:
    """The space itself, also where the clients reach it through a daemon."""
    if not on_each.through_daemon:
        with look_into(on_each) as space:
            yield space
        return
    with dibs.open(
        sqlite_url, space=space_name, start=on_each.folder, user_dir=on_each.user_dir
    ) as space:
        yield space


def leave(space: dibs.Dibs, name: str) -> None:
    """End somebody's session from outside, as the user may."""
    (presence,) = [one for one in space.agents.list() if one.agent == name]
    for session in presence.sessions:
        with space.scope.store.read() as tx:
            nonce = tx.rows(AGENTS.one, session=session.id)[0]["nonce"]
        token = space.scope.keys.session_token(session.id, nonce)
        space.resume(token).agents.leave()


def test_a_session_that_somebody_else_has_ended_is_told_and_begins_again(
    start_on_each: Start, on_each: Shell, beneath: dibs.Dibs
) -> None:
    client = start_on_each("--tools", "all", within=on_each.as_("alice"))
    writes: list[tuple[str, dict[str, Any], str]] = [
        ("claim", {"resource": "src/b.py"}, "claimed"),
        ("work_claim", {"id": "task"}, "claimed"),
        ("send", {"body": "hello"}, "sent"),
        ("set", {"namespace": "n", "key": "k", "value": 1}, "ok"),
        ("claim", {"resource": "src/a.py", "wait_s": 5}, "claimed"),
    ]
    for tool, arguments, status in writes:
        assert client.call("claim", resource="src/a.py")["status"] == "claimed"
        client.call("release", everything=True)
        leave(beneath, "alice")
        told = client.call(tool, **arguments)
        assert told["status"] == "not_yours", told
        assert "session has ended" in told["hint"]
        assert client.call(tool, **arguments)["status"] == status
        client.call("release", everything=True)


def test_a_session_that_ends_while_it_waits_is_answered(
    start_on_each: Start, on_each: Shell, beneath: dibs.Dibs
) -> None:
    holder = start_on_each()
    holder.call("claim", resource="src/a.py")
    client = start_on_each(within=on_each.as_("alice"))
    waiting = client.begin_call("claim", {"resource": "src/a.py", "wait_s": 600})
    until(beneath.leases.waiting, "alice in the queue")
    leave(beneath, "alice")
    assert client.outcome(waiting)["status"] in ("stale", "not_yours")
    assert beneath.leases.waiting() == ()
    client.call("claim", resource="src/b.py")
    assert client.call("claim", resource="src/b.py")["status"] in ("claimed", "already_claimed")


def test_a_store_that_is_deleted_is_told_and_begins_afresh(start: Start, shell: Shell) -> None:
    server = start(name=CODEX)
    one, two = server.of("one"), server.of("two")
    one.call("claim", resource="src/a.py")
    two.call("claim", resource="src/b.py")
    idle = start()
    idle.call("status")
    for _ in range(2):
        shutil.rmtree(shell.folder / STORE)
        gone = server.begin_call("claim", {"resource": "src/c.py"}, sessionId="one")
        assert server.outcome(gone)["status"] == "store_gone"
        assert server.answer(gone)["result"]["isError"] is True
        assert two.call("claim", resource="src/a.py")["status"] == "claimed"
        assert one.call("claim", resource="src/b.py")["status"] == "claimed"
        assert one.call("claim", resource="src/a.py")["status"] == "busy"
    idle.end()  # it never looked again, and ends well all the same


def test_calls_that_wait_are_answered_when_the_store_is_deleted(start: Start, shell: Shell) -> None:
    client, holder = start("--tools", "all"), start()
    holder.call("claim", resource="src/a.py")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("claim", {"resource": "src/a.py", "wait_s": 600}),
        ("wait", {"resource": "src/a.py", "timeout_s": 600}),
        ("work_next", {"wait_s": 600}),
        ("inbox", {"wait_s": 600}),
        ("watch", {"namespace": "n", "key": "k", "timeout_s": 600}),
    ]
    client.call("status")
    waiting = [client.begin_call(*call) for call in calls]
    uris = ["dibs://leases"]
    listen = client.begin(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    client.hear(lambda m: "subscriptions" in m.get("method", ""), "acknowledgement")
    with look_into(shell) as space:
        until(space.leases.waiting, "the client in the queue")
    for _ in range(5):
        client.call("status")  # by the time that later calls are answered, these have begun to wait
    shutil.rmtree(shell.folder / STORE)
    for id in waiting:
        assert client.outcome(id)["status"] in ("store_gone", "closed", "storage")
        assert client.answer(id)["result"]["isError"] is True
    until(lambda: "isError" not in client.answer(client.begin_call("status"))["result"], "a store")
    assert client.call("claim", resource="src/b.py")["status"] == "claimed"
    # Who listens goes on to be told, of the new store now.
    client.hear(lambda m: m.get("params", {}).get("uri") == uris[0], "the leases announced")
    assert not client.answered(listen)
    holder.misuse("status")
    assert holder.call("claim", resource="src/b.py")["status"] == "busy"


def test_a_repository_that_disappears_is_told(start: Start, shell: Shell) -> None:
    client = start()
    client.call("claim", resource="src/a.py")
    shutil.rmtree(shell.folder)
    for _ in range(3):
        assert client.misuse("claim", resource="src/a.py")["status"]
    assert client.result("tools/list")["tools"]


# Root may write anywhere, unless it gives that up.
WITHOUT_PRIVILEGES = (
    sys.executable,
    "-c",
    "import ctypes, os, sys\n"
    "for capability in (1, 2, 3): ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])",
    DIBS,
    "mcp",
)


def test_a_repository_that_cannot_be_written_is_told_until_it_can(
    start: Start, shell: Shell
) -> None:
    client = start(command=WITHOUT_PRIVILEGES)
    shell.folder.chmod(0o555)
    try:
        for _ in range(2):
            answer = client.misuse("claim", resource="src/a.py")
            assert answer["status"] == "unfit"
            assert STORE in answer["message"] and "hint" in answer
        assert client.result("tools/list")["tools"]
        assert "error" in client.ask("resources/read", {"uri": "dibs://board"})
        assert not (shell.folder / STORE).exists()
    finally:
        shell.folder.chmod(0o755)
    assert client.call("claim", resource="src/a.py")["status"] == "claimed"


def test_a_store_that_cannot_be_written_is_told(start: Start, shell: Shell) -> None:
    start().call("status")
    folder = shell.folder / STORE
    files = [path for path in folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in [folder, *files]}
    client = start(command=WITHOUT_PRIVILEGES)
    try:
        for path in modes:
            path.chmod(0o555 if path.is_dir() else 0o444)
        answer = client.misuse("claim", resource="src/a.py")
        assert answer["status"] in ("unfit", "read_only", "storage")
        assert client.result("tools/list")["tools"]
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_outside_a_repository_a_server_uses_the_store_of_the_user(
    start: Start, shell: Shell, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    one, two = (start(within=shell.at(nowhere)) for _ in range(2))
    assert one.call("claim", resource="port:3000")["status"] == "claimed"
    assert two.call("claim", resource="port:3000")["status"] == "busy"
    assert not (nowhere / STORE).exists()


def test_the_command_line_sees_what_an_agent_holds(start_on_each: Start, on_each: Shell) -> None:
    client = start_on_each(within=on_each.as_("alice"))
    client.call("claim", resource="src/a.py", note="fix the parser")
    (lease,) = on_each.json("leases")
    assert (lease["agent"], lease["note"]) == ("alice", "fix the parser")
    answer = finish(on_each.as_("bob").start("claim", "src/a.py"))
    assert answer.code == 1 and "alice" in answer.err
