"""The client of the official Python SDK uses `dibs mcp`, the same in each of its modes."""

# The SDK is not there when types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager as Connected
from importlib import metadata
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.shared.exceptions import MCPError

from dibs import __version__
from dibs.mcp.server import INSTRUCTIONS
from tests.conformance.sdk import MODES, PATIENCE_S, Peer, connected
from tests.surfaces.shell import Shell

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.anyio,
    # The old way to follow a page; the SDK warns even those who have no other.
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

TOOLS = "status claim release wait work_next work_claim work_add work_done send inbox".split()
STATE = "get set list history delete clear_namespace export watch".split()
HINTS = {"read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"}
COORDINATE = types.PromptReference(type="ref/prompt", name="coordinate")

Connect = Callable[..., Connected[Peer]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    record_property("part", f"SDK client {metadata.version('mcp')}, mode {request.param}")
    return str(request.param)


@pytest.fixture
def connect(shell: Shell, mode: str) -> Connect:
    """Connect one more client to a server of its own, all in one repository."""
    return lambda *options: connected(shell, mode, *options)


async def named(peer: Peer, name: str) -> Peer:
    await peer.ask("status", name=name)
    return peer


async def refused(doing: Any) -> MCPError:
    """The error that a request is answered with."""
    with pytest.raises(MCPError) as caught, anyio.fail_after(PATIENCE_S):
        await doing
    return caught.value


# What a server says before any call


async def test_the_mode_decides_the_version(connect: Connect, mode: str) -> None:
    async with connect() as peer:
        assert peer.client.protocol_version == MODES[mode]


async def test_the_server_introduces_itself(connect: Connect) -> None:
    async with connect() as peer:
        server, abilities, instructions = await peer.introduction()
    assert (server.name, server.version) == ("dibs", __version__)
    assert instructions == INSTRUCTIONS
    assert abilities.model_dump(exclude_none=True, by_alias=True) == {
        "tools": {},
        "resources": {"subscribe": True},
        "prompts": {},
        "completions": {},
    }


async def test_the_tools_are_listed_in_a_fixed_order(connect: Connect) -> None:
    async with connect() as peer, connect() as other:
        listed = await peer.client.list_tools()
        assert [tool.name for tool in listed.tools] == TOOLS
        assert listed.next_cursor is None
        assert (await peer.client.list_tools()).tools == listed.tools
        assert (await other.client.list_tools()).tools == listed.tools


async def test_all_tools_begin_with_the_standard_ones_and_are_unique(connect: Connect) -> None:
    async with connect("--tools", "all") as peer:
        names = [tool.name for tool in (await peer.client.list_tools()).tools]
    assert names[: len(TOOLS) + len(STATE)] == [*TOOLS, *STATE]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("choice", ["standard", "all"])
async def test_every_tool_is_described_hinted_and_has_valid_schemas(
    connect: Connect, choice: str
) -> None:
    async with connect("--tools", choice) as peer:
        tools = (await peer.client.list_tools()).tools
    for tool in tools:
        assert tool.description
        hints = tool.annotations.model_dump(exclude_none=True)
        assert set(hints) == HINTS, tool.name
        for schema in (tool.input_schema, tool.output_schema):
            assert schema["type"] == "object", tool.name
            Draft202012Validator.check_schema(schema)


# Leases


async def test_a_claim_is_granted_and_asked_again_is_kept(connect: Connect) -> None:
    async with connect() as peer:
        granted = await peer.ask("claim", resource="a.py", note="rename a")
        assert granted.keys() == {"status", "resource", "epoch", "expires_in_s"}
        assert (granted["status"], granted["resource"]) == ("claimed", "a.py")
        assert granted["epoch"] > 0
        assert 0 < granted["expires_in_s"] <= 1800
        again = await peer.ask("claim", resource="a.py")
        assert again["status"] == "already_claimed"
        assert again["epoch"] == granted["epoch"]


async def test_a_second_client_is_told_who_holds_it_which_is_no_error(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await named(first, "alice")
        await first.ask("claim", resource="a.py", note="rename a")
        busy = await second.ask("claim", resource="a.py")
    assert busy["status"] == "busy"
    assert busy["resource"] == "a.py"
    assert busy["held_by"] == "alice"
    assert busy["note"] == "rename a"
    assert busy["claimed_at"].endswith("Z")
    assert 0 < busy["expires_in_s"] <= 1800
    assert busy["hint"]
    assert busy["untrusted"] == ["note"]


async def test_several_are_claimed_together_or_not_at_all(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.ask("claim", resource="b.py")
        assert (await second.ask("claim", resources=["a.py", "b.py"]))["status"] == "busy"
        assert (await first.ask("status", resource="a.py"))["status"] == "available"
        await first.ask("release", everything=True)
        both = await second.ask("claim", resources=["a.py", "b.py"])
        assert both["status"] == "claimed"
        assert both["resources"] == ["a.py", "b.py"]


@pytest.mark.parametrize("outcome", ["released", "modified", "created", "deleted"])
async def test_the_next_claimant_is_shown_the_outcome(connect: Connect, outcome: str) -> None:
    async with connect() as first, connect() as second:
        await named(first, "alice")
        await first.ask("claim", resource="a.py")
        released = await first.ask("release", resource="a.py", outcome=outcome)
        assert released == {"status": "released", "resources": ["a.py"]}
        (said,) = (await second.ask("claim", resource="a.py"))["outcomes"]
    assert said.pop("at").endswith("Z")
    assert said == {"resource": "a.py", "outcome": outcome, "by": "alice"}


async def test_the_next_claimant_is_shown_where_it_was_moved(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.ask("claim", resource="a.py")
        await first.ask("release", resource="a.py", outcome="moved", moved_to="b.py")
        (said,) = (await second.ask("claim", resource="a.py"))["outcomes"]
    assert (said["outcome"], said["moved_to"]) == ("moved", "b.py")


async def test_the_status_of_a_resource_is_available_or_claimed(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        free = await second.ask("status", resource="a.py")
        assert (free["status"], free["resource"]) == ("available", "a.py")
        await named(first, "alice")
        await first.ask("claim", resource="a.py")
        taken = await second.ask("status", resource="a.py")
        assert (taken["status"], taken["held_by"]) == ("claimed", "alice")


async def test_the_board_shows_who_is_here_and_what_is_held(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await named(first, "alice")
        await first.ask("claim", resource="a.py", note="rename a")
        await named(second, "bob")
        board = await second.ask("status")
        mine = await first.ask("status")
    assert board["you"] == "bob"
    assert {agent["name"] for agent in board["agents"]} == {"alice", "bob"}
    (held,) = board["held_by_others"]
    assert (held["resource"], held["held_by"]) == ("a.py", "alice")
    assert [lease["resource"] for lease in mine["leases"]] == ["a.py"]


# Work and messages


async def test_work_goes_from_one_client_to_another(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        added = await first.ask("work_add", id="t1", title="rename a", payload={"file": "a.py"})
        assert (added["status"], added["id"]) == ("added", "t1")
        taken = await second.ask("work_next")
        assert (taken["status"], taken["id"]) == ("claimed", "t1")
        assert taken["payload"] == {"file": "a.py"}
        assert taken["epoch"] > 0
        assert (await first.ask("work_next"))["status"] == "later"
        assert (await first.ask("work_claim", id="t1"))["status"] == "busy"
        done = await second.ask("work_done", id="t1", result={"ok": True})
        assert (done["status"], done["id"]) == ("completed", "t1")


async def test_a_task_is_taken_with_the_files_it_needs(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        taken = await first.ask("work_claim", id="t1", resources=["a.py"])
        assert (taken["status"], taken["resources"]) == ("claimed", ["a.py"])
        assert (await second.ask("claim", resource="a.py"))["status"] == "busy"
        await first.ask("work_done", id="t1", outcome="abandoned", reason="not now")
        assert (await second.ask("claim", resource="a.py"))["status"] == "claimed"


async def test_a_message_is_read_once(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await named(first, "alice")
        await named(second, "bob")
        sent = await first.ask("send", to="bob", body="a.py is yours")
        assert (sent["status"], sent["to"]) == ("sent", "bob")
        inbox = await second.ask("inbox")
        (message,) = inbox["messages"]
        assert (message["from"], message["body"]) == ("alice", "a.py is yours")
        assert inbox["untrusted"] == ["messages[].body"]
        assert (await second.ask("inbox"))["messages"] == []


# Mistakes


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("claim", {}),
        ("claim", {"resource": 7}),
        ("claim", {"resource": "a.py", "colour": "red"}),
        ("claim", {"resource": "a.py", "mode": "greedy"}),
        ("wait", {}),
    ],
)
async def test_misuse_is_an_error_that_says_what_is_wrong(
    connect: Connect, tool: str, arguments: dict[str, Any]
) -> None:
    async with connect() as peer:
        result = await peer.client.call_tool(tool, arguments)
        assert result.is_error
        assert result.structured_content["status"] == "invalid"
        assert result.structured_content["message"]
        assert (await peer.ask("claim", resource="a.py"))["status"] == "claimed"


async def test_an_unknown_tool_is_invalid_params(connect: Connect) -> None:
    async with connect() as peer:
        assert (await refused(peer.client.call_tool("steal"))).code == types.INVALID_PARAMS
        # One of the others, which this server does not offer.
        assert (await refused(peer.client.call_tool("get"))).code == types.INVALID_PARAMS


async def test_a_method_of_the_other_era_is_not_found(connect: Connect) -> None:
    async with connect() as peer:
        session = peer.client.session
        other = session.send_ping() if peer.modern else session.send_discover("2025-11-25")
        error = await refused(other)
        expected = types.METHOD_NOT_FOUND if peer.modern else types.UNSUPPORTED_PROTOCOL_VERSION
        assert error.code == expected


# Pages, the prompt, completion


async def test_the_pages_can_be_read(connect: Connect) -> None:
    async with connect() as peer:
        await peer.ask("claim", resource="a.py")
        pages = (await peer.client.list_resources()).resources
        assert [page.uri for page in pages] == [
            "dibs://board", "dibs://leases", "dibs://work", "dibs://inbox",
        ]  # fmt: skip
        assert (await peer.client.list_resource_templates()).resource_templates == []
        for page in pages:
            (content,) = (await peer.client.read_resource(page.uri)).contents
            assert (content.uri, content.mime_type) == (page.uri, page.mime_type)
            shows = page.uri in ("dibs://board", "dibs://leases")
            assert ("a.py" in content.text) == shows


async def test_an_unknown_page_is_not_found_by_the_code_of_the_era(connect: Connect) -> None:
    async with connect() as peer:
        error = await refused(peer.client.read_resource("dibs://nowhere"))
        assert error.code == (types.INVALID_PARAMS if peer.modern else -32002)
        assert error.data == {"uri": "dibs://nowhere"}


async def test_who_follows_a_page_is_told_of_changes(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.ask("status")
        async with second.following("dibs://leases") as next_news:
            await first.ask("claim", resource="a.py")
            await next_news()
            (content,) = (await second.client.read_resource("dibs://leases")).contents
            assert "a.py" in content.text
            await first.ask("release", resource="a.py")
            await next_news()


async def test_who_follows_no_longer_is_told_nothing(connect: Connect) -> None:
    def news(peer: Peer) -> int:
        return sum(message.get("method") == UPDATED for message in peer.heard)

    async with connect() as first, connect() as second, connect() as third:
        async with second.following("dibs://leases") as next_news:
            await first.ask("claim", resource="a.py")
            await next_news()
        before = news(second)
        async with third.following("dibs://leases") as next_news:
            await first.ask("claim", resource="b.py")
            await next_news()
        await second.ask("status")
        assert news(second) == before


UPDATED = "notifications/resources/updated"


async def test_the_prompt_names_the_task(connect: Connect) -> None:
    async with connect() as peer:
        (prompt,) = (await peer.client.list_prompts()).prompts
        assert prompt.name == "coordinate"
        (message,) = (await peer.client.get_prompt("coordinate", {"task": "t1"})).messages
        assert message.role == "user"
        assert "t1" in message.content.text
        (message,) = (await peer.client.get_prompt("coordinate")).messages
        assert "work_next" in message.content.text
        assert (await refused(peer.client.get_prompt("dance"))).code == types.INVALID_PARAMS


async def test_the_id_of_a_task_is_completed(connect: Connect) -> None:
    async def completed(client: Client, begun: str) -> Any:
        answer = await client.complete(COORDINATE, {"name": "task", "value": begun})
        return answer.completion

    async with connect() as peer:
        for id in ("rename-a", "rename-b", "delete-c"):
            await peer.ask("work_add", id=id)
        found = await completed(peer.client, "ren")
        assert sorted(found.values) == ["rename-a", "rename-b"]
        assert (found.total, found.has_more) == (2, False)
        assert (await completed(peer.client, "x")).values == []


# Waiting


async def test_a_wait_ends_when_it_is_free(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.ask("claim", resource="a.py")
        async with anyio.create_task_group() as group:

            async def free() -> None:
                await anyio.wait_all_tasks_blocked()
                await first.ask("release", resource="a.py")

            group.start_soon(free)
            answer = await second.ask("wait", resource="a.py", timeout_s=PATIENCE_S)
    assert (answer["status"], answer["resource"]) == ("available", "a.py")
    assert answer["elapsed_seconds"] >= 0


async def test_a_wait_that_is_over_says_who_holds_it(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await named(first, "alice")
        await first.ask("claim", resource="a.py")
        answer = await second.ask("wait", resource="a.py", timeout_s=0.2)
    assert (answer["status"], answer["held_by"]) == ("timeout", "alice")
    assert answer["elapsed_seconds"] >= 0.2


async def test_a_waiting_call_tells_its_progress(connect: Connect) -> None:
    told: list[tuple[float, float | None]] = []
    async with connect() as first, connect() as second:
        await first.ask("claim", resource="a.py")

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            assert message
            told.append((progress, total))
            if len(told) == 2:
                await first.ask("release", resource="a.py")

        with anyio.fail_after(PATIENCE_S):
            result = await second.client.call_tool(
                "claim", {"resource": "a.py", "wait_s": PATIENCE_S}, progress_callback=tell
            )
    assert result.structured_content["status"] == "claimed"
    (early, total), (late, _) = told
    assert 0 < early < late < PATIENCE_S
    assert total == PATIENCE_S


async def test_a_call_that_waits_does_not_hold_up_another(connect: Connect) -> None:
    answers: list[str] = []
    async with connect() as first, connect() as second:
        await first.ask("claim", resource="a.py")

        async def wait() -> None:
            waited = await second.ask("wait", resource="a.py", timeout_s=PATIENCE_S)
            answers.append(waited["status"])

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert (await second.ask("claim", resource="b.py"))["status"] == "claimed"
            assert answers == []
            await first.ask("release", resource="a.py")
    assert answers == ["available"]


async def test_a_cancelled_claim_leaves_the_queue_and_is_not_answered(
    connect: Connect, shell: Shell
) -> None:
    async with connect() as first, connect() as second, connect() as third:
        await first.ask("claim", resource="a.py")
        async with anyio.create_task_group() as group:
            group.start_soon(queue, second, "a.py")
            await anyio.to_thread.run_sync(shell.waits, 1)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(shell.waits, 0)
        await first.ask("release", resource="a.py")
        assert (await third.ask("claim", resource="a.py"))["status"] == "claimed"
        assert (await second.ask("status"))["leases"] == []
    assert answered(second, "a.py") == []


async def queue(peer: Peer, resource: str) -> None:
    await peer.ask("claim", resource=resource, wait_s=PATIENCE_S)


def answered(peer: Peer, resource: str) -> list[dict[str, Any]]:
    """The answers to claims of it that reached the client, whether it still wanted them or not."""
    results = [message["result"] for message in peer.heard if "result" in message]
    answers = [result.get("structuredContent", {}) for result in results]
    return [answer for answer in answers if answer.get("resource") == resource]


async def test_what_a_cancelled_claim_was_granted_is_given_back_unless_it_was_answered(
    connect: Connect, shell: Shell
) -> None:
    async with connect() as first, connect() as second:
        for resource in (f"{number}.py" for number in range(10)):
            await first.ask("claim", resource=resource)
            async with anyio.create_task_group() as group:
                group.start_soon(queue, second, resource)
                await anyio.to_thread.run_sync(shell.waits, 1)
                with second.frozen():
                    await first.ask("release", resource=resource)
                    assert await held(first, resource)  # by the second, which does not know yet
                    group.cancel_scope.cancel()
                    # Once round, so that the client can say so.
                    await anyio.lowlevel.cancel_shielded_checkpoint()
            with anyio.fail_after(PATIENCE_S):
                while (await held(first, resource)) != bool(answered(second, resource)):
                    await anyio.sleep(0.01)


async def held(peer: Peer, resource: str) -> bool:
    return (await peer.ask("status", resource=resource))["status"] == "claimed"


async def test_what_a_client_held_is_free_when_it_closes(connect: Connect) -> None:
    async with connect() as second:
        async with connect() as first:
            await first.ask("claim", resource="a.py")
            await first.ask("work_claim", id="t1")
            assert (await second.ask("claim", resource="a.py"))["status"] == "busy"
        assert (await second.ask("claim", resource="a.py"))["status"] == "claimed"
        assert (await second.ask("work_claim", id="t1"))["status"] == "claimed"


async def test_a_client_that_closes_while_it_waits_leaves_the_queue(
    connect: Connect, shell: Shell
) -> None:
    async with connect() as first:
        await first.ask("claim", resource="a.py")
        async with anyio.create_task_group() as group, connect() as second:
            group.start_soon(refused, queue(second, "a.py"))
            await anyio.to_thread.run_sync(shell.waits, 1)
        await anyio.to_thread.run_sync(shell.waits, 0)


# Versioned state, which only `--tools all` offers


async def test_an_entry_is_set_by_the_version_that_was_seen(connect: Connect) -> None:
    async with connect("--tools", "all") as first, connect("--tools", "all") as second:
        await named(first, "alice")
        place = {"namespace": "plan", "key": "step"}
        assert (await first.ask("get", **place))["status"] == "not_found"
        created = await first.ask("set", **place, value={"n": 1}, expected_version=0)
        assert created == {"status": "ok", "version": created["version"], "previous_version": 0}
        conflict = await second.ask("set", **place, value={"n": 2}, expected_version=0)
        assert conflict["status"] == "conflict"
        assert conflict["expected_version"] == 0
        assert conflict["actual_version"] == created["version"]
        assert conflict["actual_updated_by"] == "alice"
        assert conflict["actual_updated_at"].endswith("Z")
        assert conflict["hint"]
        changed = await second.ask(
            "set", **place, value={"n": 2}, expected_version=created["version"]
        )
        assert changed["status"] == "ok"
        assert changed["version"] > created["version"]
        assert changed["previous_version"] == created["version"]
        assert (await first.ask("get", **place))["value"] == {"n": 2}


async def test_an_export_has_records_by_key_and_their_history_newest_first(
    connect: Connect,
) -> None:
    async with connect("--tools", "all") as peer:
        for key, value in [("b", 1), ("a", 2), ("b", 3)]:
            await peer.ask("set", namespace="plan", key=key, value=value, force=True)
        export = await peer.ask("export", namespace="plan")
    assert [record["key"] for record in export["records"]] == ["a", "b"]
    assert [entry["value"] for entry in export["records"][1]["history"]] == [3, 1]
    assert export["record_count"] == 2
    assert export["history_count"] == 3


async def test_a_watch_gives_the_new_value_or_times_out(connect: Connect) -> None:
    async with connect("--tools", "all") as first, connect("--tools", "all") as second:
        place = {"namespace": "plan", "key": "step"}
        before = await first.ask("set", **place, value=1, force=True)
        over = await second.ask("watch", **place, after_version=before["version"], timeout_s=0.1)
        assert over["status"] == "timeout"
        seen: list[Any] = []

        async def watch() -> None:
            waited = await second.ask(
                "watch", **place, after_version=before["version"], timeout_s=PATIENCE_S
            )
            seen.append(waited["value"])

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            await first.ask("set", **place, value=2, force=True)
    assert seen == [2]


async def test_the_rest_of_the_state_tools_answer(connect: Connect) -> None:
    async with connect("--tools", "all") as peer:
        for value in (1, 2):
            await peer.ask("set", namespace="plan", key="step", value=value, force=True)
        listed = await peer.ask("list", namespace="plan")
        assert [entry["key"] for entry in listed["entries"]] == ["step"]
        history = await peer.ask("history", namespace="plan", key="step")
        assert [entry["value"] for entry in history["history"]] == [2, 1]
        assert (await peer.ask("delete", namespace="plan", key="step"))["status"] == "deleted"
        assert (await peer.ask("get", namespace="plan", key="step"))["status"] == "not_found"
        await peer.ask("set", namespace="plan", key="other", value=3, force=True)
        assert (await peer.ask("clear_namespace", namespace="plan"))["status"] == "ok"
        assert (await peer.ask("list", namespace="plan"))["entries"] == []
