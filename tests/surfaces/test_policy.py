"""Who may do what: each operation, called by each party through its own door.

Everything is made from the registry, so a new operation is tried as well. What a call answers is
what its marker says: done, or refused for any other reason than who calls.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.arguments import Flag, Hex, Json, Kind, SealLine, Seconds, When, Whole
from dibs.dibs import operations
from dibs.mcp.more import more
from dibs.mcp.standard import STANDARD
from dibs.nouns.leases.operations import Leases
from dibs.operation import (
    ADMIN,
    AGENT,
    EVERYBODY,
    HOOK,
    OPERATIONS,
    PEOPLE,
    PERSON,
    SCOPES,
    Items,
    Operation,
    operation,
)
from dibs.surfaces.cli import main as cli
from dibs.surroundings.commands import Command
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.mcp_client import Client, Start, clients
from tests.surfaces.shell import Shell

EVERY = sorted(operations().values(), key=lambda entry: entry.name)
PEOPLES = {entry.name for entry in EVERY if AGENT not in entry.by and HOOK not in entry.by}
POLICY = (
    "only people may do this",
    "only the hooks of an agent's client may do this",
    "a token with the scope",
)
"""What a refusal says that is about who calls."""
HOOKS = Path(cli.__file__).parent.parent / "hooks"


def some(kind: Kind) -> Any:
    """A value that an argument of a kind takes."""
    if isinstance(kind, (Seconds, Whole)):
        return max(1, kind.low)
    if isinstance(kind, Flag):
        return False
    if isinstance(kind, Items):
        return []
    if isinstance(kind, Hex):
        return "a" * kind.lengths[-1]
    if isinstance(kind, SealLine):
        return f"dibs-seal 1 {'a' * 32} 2026-11-18T14:00:00Z another"
    return 1 if isinstance(kind, (Json, When)) else "alice"


def least(entry: Operation) -> dict[str, Any]:
    """The least that a call needs; whatever comes of it, it is not refused as misuse."""
    given = {
        name: some(argument.kind)
        for name, argument in entry.arguments().items()
        if argument.required
    }
    if "wait_s" in entry.arguments():
        given["wait_s"] = 0
    return given | ({entry.many.name: [some(entry.many.kind)]} if entry.many else {})


def typed(entry: Operation) -> list[str]:
    """The same as somebody would type it."""
    words, placed = [], []
    for option in Command.of(entry).options:
        value = least(entry).get(option.argument.name)
        if option.placed and value is not None:
            placed += value if isinstance(value, list) else [value]
        elif value is not None:
            words += [f"--{option.name}", str(value)]
    return [*entry.cli.split(), *words, *map(str, placed)]


def is_about_who(answer: Any) -> bool:
    if not isinstance(answer, dict) or answer.get("error") != "not_yours":
        return False
    return any(word in answer["message"] for word in POLICY)


# The markers.


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_every_operation_says_who_may_call_it(entry: Operation) -> None:
    assert entry.by, f"{entry.name} has no `by` and is offered to nobody"
    assert set(entry.by) <= set(EVERYBODY)
    assert ADMIN in entry.by and PERSON in entry.by
    assert entry.scope in SCOPES


def test_deciding_for_others_is_never_an_agents() -> None:
    assert {
        "agents.add_token", "agents.revoke_token", "agents.tokens", "events.prune",
        "leases.revoke", "leases.take", "work.ack", "work.revoke",
    } <= PEOPLES  # fmt: skip


def test_what_has_limits_for_agents_has_none_for_people() -> None:
    limited = {entry.name: entry.freely for entry in EVERY if entry.freely}
    assert limited == dict.fromkeys(
        (
            "leases.claim",
            "leases.renew",
            "work.cancel",
            "work.claim",
            "work.edit",
            "work.land",
            "work.put",
            "work.put_many",
            "work.remove",
            "work.renew",
        ),
        PEOPLE,
    )


# The command line.


def answer_of(shell: Shell, entry: Operation, *chosen: str) -> Any:
    said = shell("--json", *chosen, *typed(entry))
    assert said.code != 2, f"{typed(entry)}: {said}"
    lines = said.out.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}


SHELLS = {
    "a client's": {"CLAUDE_CODE_SESSION_ID": "5e55"},
    "of Claude without a session": {"CLAUDECODE": "1"},
    "of Codex": {"CODEX_THREAD_ID": "1"},
    "of Cursor": {"CURSOR_AGENT": "1"},
    "of dibs run": {"DIBS_AGENT": "bob", "DIBS_SESSION": "1.ab"},
}


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_an_agents_shell(entry: Operation, place: Shell) -> None:
    answer = answer_of(place.with_(CLAUDE_CODE_SESSION_ID="5e55"), entry)
    assert is_about_who(answer) == (AGENT not in entry.by), answer


@pytest.mark.parametrize("kind", SHELLS)
@pytest.mark.parametrize("name", sorted(PEOPLES))
def test_no_agents_shell_decides_for_others_whatever_name_it_gives(
    name: str, kind: str, place: Shell
) -> None:
    for chosen in ((), ("--as", "me")):
        answer = answer_of(place.with_(**SHELLS[kind]), OPERATIONS[name], *chosen)
        assert is_about_who(answer), answer


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_a_persons_shell(entry: Operation, place: Shell) -> None:
    answer = answer_of(place, entry, "--as", "ann")
    assert is_about_who(answer) == (PERSON not in entry.by), answer


# Tokens.


@pytest.fixture(scope="module")
def daemon(place: Shell) -> Iterator[Daemon]:
    with serving(place) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def tokens(daemon: Daemon) -> dict[str, str]:
    return {scope: daemon.token_of(f"t-{scope}", scope) for scope in SCOPES}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_a_token(entry: Operation, scope: str, daemon: Daemon, tokens: dict[str, str]) -> None:
    reply = daemon.client(token=tokens[scope]).ask(entry.name, least(entry))
    assert reply.status not in (400, 500), reply
    answer = reply.json if reply.status != 200 else {}
    allowed = {
        "read": AGENT in entry.by and not entry.mutates,
        # A hook over HTTP has the token of its agent.
        "agent": AGENT in entry.by or HOOK in entry.by,
        "admin": ADMIN in entry.by,
    }[scope]
    if entry.name == "agents.rename":
        allowed = scope == "admin"  # a token is for one name
    assert is_about_who(answer) == (not allowed), reply


@pytest.mark.parametrize("scope", SCOPES)
def test_an_admins_token_alone_has_no_limits(
    scope: str, daemon: Daemon, tokens: dict[str, str]
) -> None:
    daemon.client("t-owner").ask("work.claim", {"id": f"{scope}-claimed"})
    reply = daemon.client(token=tokens[scope]).ask("work.cancel", {"id": f"{scope}-claimed"})
    assert reply.status == (200 if scope == "admin" else 403), reply


# Who calls, as each door says.


def test_the_library_is_an_agents_unless_somebody_says_otherwise(place: Shell) -> None:
    with dibs.open(start=place.folder, user_dir=place.user_dir) as space:
        assert space.scope.party == space.join("alice").scope.party == AGENT
        door = space.scope.door.to(PERSON)
        assert space.scope.through(door).party == PERSON
        assert space.scope.through(door).at(space.scope.place).party == PERSON


# MCP.


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    with clients(shell) as start:
        yield start


def test_an_mcp_client_is_offered_what_is_an_agents_and_nothing_else(start: Start) -> None:
    offered = {tool.name for tool in [*STANDARD, *more()]}
    done = {name for tool in [*STANDARD, *more()] for name in tool.does}
    client: Client = start("--tools", "all")
    listed = {tool["name"] for tool in client.result("tools/list")["tools"]}
    assert listed == offered
    for entry in EVERY:
        tool = f"{entry.noun}_{entry.verb}"
        assert (tool in listed or entry.name in done) == (AGENT in entry.by), entry.name
        if AGENT not in entry.by:
            refused = client.error("tools/call", {"name": tool, "arguments": least(entry)})
            assert "there is no tool" in refused["message"]


# Hooks.


def calls_in(tree: ast.AST) -> Iterator[str]:
    """The operations that a source calls, by noun and verb."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=verb, value=ast.Attribute(attr=noun))):
                yield f"{noun}.{verb}"


def test_hooks_call_what_is_a_hooks() -> None:
    found = {
        name
        for source in HOOKS.rglob("*.py")
        for name in calls_in(ast.parse(source.read_text()))
        if name in OPERATIONS
    }
    assert {"leases.claim", "leases.see", "leases.report", "messages.inbox"} <= found
    assert {name for name in found if HOOK not in OPERATIONS[name].by} == set()


# A new operation.


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operation]:
    """An operation that is added for the length of a test, as one method."""
    operations()

    def echo(self: Leases, id: str, *, note: str = "hello", limit: int = 3) -> tuple[str, ...]:
        """Say something several times.

        id: whom to say it to
        note: what to say
        limit: how often
        """
        return (f"{note} {id}",) * limit

    echo.__qualname__ = "Leases.echo"
    monkeypatch.setattr(Leases, "echo", operation(by=EVERYBODY, example="bob")(echo), raising=False)
    yield OPERATIONS["leases.echo"]
    del OPERATIONS["leases.echo"]


def test_a_new_operation_is_on_every_surface(
    toy: Operation,
    place: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dibs.surfaces.http.api import document, routes

    monkeypatch.chdir(place.folder)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["leases", "echo", "bob", "--note", "hi", "--limit", "2"]) == 0
    assert capsys.readouterr().out == '"hi bob"\n"hi bob"\n'
    assert cli.main(["leases", "echo", "--help"]) == 0
    assert "--note" in capsys.readouterr().out
    route = routes()["/v1/leases/echo"]
    assert route.read(b'{"id": "bob", "limit": 1.0}') == {"id": "bob", "limit": 1}
    described = document(routes())["paths"]["/v1/leases/echo"]["post"]
    assert described["summary"] == "Say something several times."
    body = described["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["id"]
    assert body["properties"]["limit"]["maximum"] == 1000
    [tool] = [tool for tool in more() if tool.name == "leases_echo"]
    assert tool.definition["inputSchema"]["properties"]["note"]["description"] == "what to say"
    assert tool.definition["annotations"]["readOnlyHint"]


def test_an_operation_without_a_policy_is_on_none(
    toy: Operation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dibs.surfaces.http.api import routes

    monkeypatch.setattr(toy, "by", ())
    assert cli.main(["leases", "echo", "bob"]) == 2
    assert "there is no command leases echo" in capsys.readouterr().err
    assert "/v1/leases/echo" not in routes()
    assert "leases_echo" not in {tool.name for tool in more()}


def test_a_toy_for_people_is_no_tool(toy: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "by", PEOPLE)
    assert "leases_echo" not in {tool.name for tool in more()}
    assert toy.scope == "admin"
