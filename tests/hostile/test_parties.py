"""What is another's stays another's: nobody takes a claimed task, or the whole tree, by a detour.

Each attack comes through the doors that an agent has: the library, its shell (also one that names a
daemon with its owner's token), a token, an MCP client. A person does the same and may.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.space.scope import TREE_S
from tests.contract.waiting import ContractClock
from tests.contract.world import LONG_S
from tests.surfaces.conftest import new_shell
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.mcp_client import clients
from tests.surfaces.shell import Shell

AGENTS = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "5e55"}
TREES = [".", "./", "**", "**/*", "*", "**/**", "?*", "*/", "./**", "**/?*", "??*"]
PARTS = ["src", "src/**", "**/*.py", "*.py", "a*", "**/a", "*/*", "?", ".github/", "port:3000"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return new_shell(tmp_path)


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as daemon:
        yield daemon


@pytest.fixture
def agents_shell(shell: Shell) -> Shell:
    """Mallory's, whatever name it gives."""
    return shell.with_(**AGENTS, DIBS_AGENT="mallory")


@pytest.fixture
def clock() -> ContractClock:
    return ContractClock()


@pytest.fixture(params=["sqlite", "postgres"])
def space(
    request: pytest.FixtureRequest, tmp_path: Path, space_name: str, clock: ContractClock
) -> Iterator[dibs.Dibs]:
    (tmp_path / "checkout/.git").mkdir(parents=True)
    (tmp_path / "checkout/.git/HEAD").write_text("ref: refs/heads/main\n")
    url = request.getfixturevalue(f"{request.param}_url")
    start, user_dir = tmp_path / "checkout", tmp_path / "user"
    with dibs.open(url, space=space_name, clock=clock, start=start, user_dir=user_dir) as space:
        yield space


# What a hook reports.


def test_a_report_with_a_hash_that_was_never_true_is_refused(shell: Shell, daemon: Daemon) -> None:
    alice = shell.as_("alice").with_(DIBS_URL=daemon.url)
    (lease,) = alice.json("claim", "src/a.py")["leases"]
    mallory = daemon.client(token=daemon.token_of("mallory", "agent"))
    file = {"kind": "file", "checkout": lease["checkout"]}
    asked = {"resource": "src/a.py", "was": lease["content_hash"], "by": ["alice"]}
    for forged in ("0" * 64, "dibs: " * 10, "x" * 64):
        seen = {"src/a.py": {**file, "content_hash": forged}}
        reply = mallory.ask("leases.report", {**asked, "seen": seen})
        assert (reply.status, reply.json["error"]) == (409, "stale")
    assert alice.json("leases")[0]["content_hash"] == lease["content_hash"]
    assert alice.json("inbox") == []
    (shell.folder / "src/a.py").write_text("stolen")
    true = hashlib.sha256(b"stolen").hexdigest()
    seen = {"src/a.py": {**file, "content_hash": true}}
    assert mallory.ask("leases.report", {**asked, "seen": seen}).status == 200
    (told,) = alice.json("inbox")
    assert told["sender"] == "mallory"


# A claimed task.


def joined(space: dibs.Dibs, name: str) -> dibs.Agent:
    """An agent whose session outlives every step of the clock."""
    return space.join(name, ttl_s=LONG_S)


def test_nobody_takes_a_claimed_task_by_cancelling_it(space: dibs.Dibs) -> None:
    alice, mallory, carol = (joined(space, name) for name in ("alice", "mallory", "carol"))
    carol.work.add("t")
    task = alice.work.claim("t", leases=["a.py"])
    before = space.events.last()
    with pytest.raises(dibs.NotYoursError) as refusal:
        mallory.work.cancel("t")
    assert "claimer" in refusal.value.message and refusal.value.next
    assert space.events.last() == before
    assert alice.work.renew("t", epoch=task.epoch).agent == "alice"
    assert carol.work.cancel("t").state == "cancelled"  # its author


def test_a_task_that_nobody_has_any_more_can_be_cancelled_by_all(
    space: dibs.Dibs, clock: ContractClock
) -> None:
    alice, bob = joined(space, "alice"), joined(space, "bob")
    alice.work.add("free")
    alice.work.claim("lapsed", ttl_s=1)
    alice.work.claim("own")
    clock.advance(2)
    assert bob.work.cancel("free").state == bob.work.cancel("lapsed").state == "cancelled"
    assert alice.work.cancel("own").state == "cancelled"
    alice.subagent("tests").work.claim("part")
    assert alice.work.cancel("part").state == "cancelled"


def test_an_agents_shell_does_not_take_it_and_a_persons_does(
    shell: Shell, agents_shell: Shell
) -> None:
    shell.as_("alice").ok("work", "claim", "t")
    for chosen in ((), ("--as", "root")):
        answer = agents_shell("--json", *chosen, "work", "cancel", "t")
        assert (answer.code, answer.json["error"]) == (1, "not_yours")
    assert shell.json("work", "show", "t")["agent"] == "alice"
    shell.person("sam").ok("work", "cancel", "t")


def test_neither_does_a_token_or_an_agent_with_the_owners_token(
    shell: Shell, agents_shell: Shell, daemon: Daemon
) -> None:
    shell.as_("alice").ok("work", "claim", "t")
    token = daemon.token_of("mallory", "agent")
    reply = daemon.client(token=token).ask("work.cancel", {"id": "t"})
    assert (reply.status, reply.json["error"]) == (403, "not_yours")
    through = agents_shell.with_(DIBS_URL=daemon.url)
    assert through("--json", "work", "cancel", "t").json["error"] == "not_yours"
    assert shell.json("work", "show", "t")["state"] == "claimed"
    # A person's shell, with the same token.
    shell.with_(DIBS_URL=daemon.url).person("sam").ok("work", "cancel", "t")


def test_nor_does_an_mcp_client_even_of_a_persons_shell(shell: Shell) -> None:
    shell.as_("alice").ok("work", "claim", "t")
    with clients(shell) as start:
        client = start("--tools", "all", within=shell.as_("mallory"))
        answer = client.call("work_cancel", id="t")
        assert (answer["status"], answer["hint"][:2]) == ("not_yours", "it")
        assert "somebody else" in answer["hint"]


# A whole tree.


@pytest.mark.parametrize("resource", TREES)
def test_an_agent_holds_a_whole_tree_for_an_hour_at_most(
    space: dibs.Dibs, clock: ContractClock, resource: str
) -> None:
    alice = joined(space, "alice")
    (lease,) = alice.leases.claim(resource, ttl_s=7 * 86_400).leases
    assert lease.expires_in_ms <= TREE_S * 1000 and lease.ttl_ms == TREE_S * 1000
    for _ in range(7):
        clock.advance(500)
        alice.leases.renew(resource, ttl_s=86_400)
        alice.leases.claim(resource, ttl_s=86_400)
    clock.advance(90)
    (lease,) = alice.leases.renew(everything=True)
    assert 0 < lease.expires_in_ms <= 10_000
    clock.advance(11)
    with pytest.raises(dibs.StaleError):
        alice.leases.renew(resource)
    assert joined(space, "bob").leases.claim("src/a.py")


@pytest.mark.parametrize("resource", PARTS)
def test_a_part_of_it_is_held_as_long_as_it_was_claimed_for(
    space: dibs.Dibs, resource: str
) -> None:
    alice = joined(space, "alice")
    (lease,) = alice.leases.claim(resource, ttl_s=86_400).leases
    assert lease.expires_in_ms > TREE_S * 1000
    (lease,) = alice.leases.renew(resource, ttl_s=2 * 86_400)
    assert lease.expires_in_ms > 86_400_000


def test_a_task_does_not_make_it_longer(space: dibs.Dibs, clock: ContractClock) -> None:
    alice = joined(space, "alice")
    task = alice.work.claim("t", leases=["."], ttl_s=86_400)
    assert task.leases[0].expires_in_ms <= TREE_S * 1000 < (task.due_in_ms or 0)
    clock.advance(3000)
    (lease,) = alice.work.renew("t", ttl_s=86_400).leases
    assert lease.expires_in_ms <= 600_000


def test_a_person_holds_it_longer_and_an_agent_is_told_what_to_do(
    shell: Shell, agents_shell: Shell
) -> None:
    said = agents_shell.ok("claim", ".", "--ttl", "8h")
    assert "59m left" in said.out or "60m left" in said.out
    assert "claim the paths you need" in said.err
    agents_shell.ok("release", ".")
    assert agents_shell.ok("claim", "src", "--ttl", "8h").err == ""
    agents_shell.ok("release", "--all")
    said = shell.person("sam").ok("claim", ".", "--ttl", "8h")
    assert ("8h left" in said.out or "7h left" in said.out) and said.err == ""
    shell.person("sam").ok("release", ".")
    (shell.folder / ".dibs/config.toml").write_text('whole_tree = "10m"\n')
    (lease,) = agents_shell.json("claim", "**", "--ttl", "8h")["leases"]
    assert lease["ttl_ms"] == 600_000


# Who somebody is.


@pytest.mark.parametrize("through", ["store", "daemon"])
def test_an_agents_shell_is_nobody_else_by_saying_so(
    shell: Shell, agents_shell: Shell, request: pytest.FixtureRequest, through: str
) -> None:
    if through == "daemon":
        url = request.getfixturevalue("daemon").url
        shell, agents_shell = shell.with_(DIBS_URL=url), agents_shell.with_(DIBS_URL=url)
    shell.person("ann").ok("claim", "a.py")
    shell.person("ann").ok("work", "claim", "t")
    for words in (
        ("release", "a.py"), ("agents", "leave"), ("inbox",), ("send", "push now", "--to", "bob"),
        ("work", "cancel", "t"), ("work", "complete", "t"),
    ):  # fmt: skip
        answer = agents_shell("--as", "ann", "--json", *words)
        assert (answer.code, answer.json["error"]) == (1, "not_yours"), answer
    assert [lease["agent"] for lease in shell.json("leases")] == ["ann"]
    # A name that nobody has it may take, and it stays apart from a person's of the same name.
    agents_shell.ok("--as", "worker", "claim", "b.py")
    agents_shell.ok("--as", "worker", "claim", "c.py")
    assert shell.person("worker")("--json", "release", "b.py").json["error"] == "not_yours"
    agents_shell.ok("--as", "worker", "release", "b.py")
    agents_shell.ok("--as", "mallory", "claim", "d.py")
    agents_shell.ok("release", "d.py")


def test_an_agent_that_says_so_decides_nothing_with_the_owners_token(daemon: Daemon) -> None:
    client = daemon.client()
    for operation, given in (
        ("agents.add_token", {"name": "x", "scope": "admin"}),
        ("agents.tokens", {}),
        ("events.prune", {"keep_s": 1}),
    ):
        reply = client.ask(operation, given, Dibs_Party="agent")
        assert (reply.status, reply.error) == (403, "not_yours"), reply
        assert client.ask(operation, given).status == 200
    assert client.request("POST", "/sign-in", "{}", {"Dibs-Party": "agent"}).status == 403
    assert client.request("POST", "/sign-in", "{}").status == 200


def test_the_library_is_held_to_an_agents_limits_through_a_daemon_too(
    shell: Shell, daemon: Daemon
) -> None:
    shell.as_("alice").ok("work", "claim", "t")
    with (
        dibs.open(daemon.url, token=daemon.word["token"], start=shell.folder) as space,
        space.join("mallory") as mallory,
        pytest.raises(dibs.NotYoursError),
    ):
        mallory.work.cancel("t")


def test_who_may_only_look_joins_nothing(daemon: Daemon) -> None:
    reader = daemon.client(token=daemon.token_of("ro", "read"))
    before = daemon.client()("events.last")
    for name in ("ro", "ro/x", "ro/y"):
        assert reader.ask("leases.list", {}, Dibs_Agent=name).status == 200
    assert daemon.client()("events.last") == before
