"""The client of the official A2A SDK has work done by a daemon."""

# The SDK is not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as types
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.surfaces.daemon import Client as Worker
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import PATIENCE_S, Shell

pytestmark = [pytest.mark.conformance, pytest.mark.anyio]

State = types.TaskState


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def daemon(shell: Shell, record_property: Callable[[str, object], None]) -> Iterator[Daemon]:
    record_property("part", f"A2A SDK client {metadata.version('a2a-sdk')}")
    with serving(shell) as daemon:
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


@pytest.fixture
def worker(daemon: Daemon) -> Worker:
    return daemon.client("worker")


@asynccontextmanager
async def connected(daemon: Daemon, streaming: bool) -> AsyncIterator[Client]:
    """A client with a token and with the timeouts it has by itself, made from the card alone."""
    headers = {"Authorization": f"Bearer {daemon.token_of('ann')}"}
    async with httpx.AsyncClient(headers=headers) as http:
        card = await A2ACardResolver(http, daemon.url).get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=streaming, polling=not streaming)
        yield ClientFactory(config).create(card)


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[Client]:
    async with connected(daemon, streaming=True) as client:
        yield client


@pytest.fixture(params=["streaming", "polling"])
async def either(request: pytest.FixtureRequest, daemon: Daemon) -> AsyncIterator[Client]:
    async with connected(daemon, request.param == "streaming") as client:
        yield client


def sending(text: str, **fields: Any) -> types.SendMessageRequest:
    message = types.Message(
        message_id=fields.pop("message_id", uuid4().hex),
        role=types.ROLE_USER,
        parts=[types.Part(text=text)],
        **fields,
    )
    return types.SendMessageRequest(message=message)


async def first(client: Client, request: types.SendMessageRequest) -> types.Task:
    """The task that a message became."""
    with anyio.fail_after(PATIENCE_S):
        async for response in client.send_message(request):
            return response.task
    raise AssertionError("nothing came back")


async def test_the_client_reads_the_card(daemon: Daemon) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, daemon.url).get_agent_card()
    (interface,) = card.supported_interfaces
    assert (interface.protocol_binding, interface.protocol_version) == ("JSONRPC", "1.0")
    assert interface.url == f"{daemon.url}/a2a"
    assert card.capabilities.streaming
    assert not card.capabilities.push_notifications
    assert card.security_schemes["token"].http_auth_security_scheme.scheme == "Bearer"
    assert "token" in card.security_requirements[0].schemes
    assert [skill.id for skill in card.skills] == ["work"]


async def test_a_message_becomes_a_task_once(either: Client, worker: Worker) -> None:
    client = either
    request = sending("Fix the login\n\nIt fails.", message_id="m1", context_id="c1")
    task = await first(client, request)
    assert task.status.state == State.TASK_STATE_SUBMITTED
    assert task.context_id == "c1"
    assert task.history[0].message_id == "m1"
    assert (await first(client, request)).id == task.id
    found = worker("work.next")
    assert (found["id"], found["title"]) == (task.id, "Fix the login")


async def test_a_task_is_read_listed_and_cancelled(either: Client, worker: Worker) -> None:
    client = either
    tasks = [await first(client, sending(f"task {number}")) for number in range(3)]
    worker("work.claim", id=tasks[0].id)
    read = await client.get_task(types.GetTaskRequest(id=tasks[0].id))
    assert read.status.state == State.TASK_STATE_WORKING
    page = await client.list_tasks(types.ListTasksRequest(page_size=2))
    assert [task.id for task in page.tasks] == [tasks[0].id, tasks[2].id]
    assert (page.total_size, page.page_size) == (3, 2)
    rest = types.ListTasksRequest(page_size=2, page_token=page.next_page_token)
    page = await client.list_tasks(rest)
    assert ([task.id for task in page.tasks], page.next_page_token) == ([tasks[1].id], "")
    working = types.ListTasksRequest(status=State.TASK_STATE_WORKING)
    assert [task.id for task in (await client.list_tasks(working)).tasks] == [tasks[0].id]
    over = await client.cancel_task(types.CancelTaskRequest(id=tasks[0].id))
    assert over.status.state == State.TASK_STATE_CANCELED


async def test_a_task_is_followed_to_its_end(client: Client, worker: Worker) -> None:
    task = await first(client, sending("Fix the login"))
    with anyio.fail_after(PATIENCE_S):
        updates = aiter(client.subscribe(types.SubscribeToTaskRequest(id=task.id)))
        assert (await anext(updates)).task.id == task.id
        worker("work.claim", id=task.id)
        update = (await anext(updates)).status_update
        assert (update.task_id, update.status.state) == (task.id, State.TASK_STATE_WORKING)
        worker("work.complete", id=task.id, result={"pr": 12})
        artifact = (await anext(updates)).artifact_update.artifact
        assert artifact.parts[0].data.struct_value["pr"] == 12
        assert (await anext(updates)).status_update.status.state == State.TASK_STATE_COMPLETED
        with pytest.raises(StopAsyncIteration):
            await anext(updates)
    done = await client.get_task(types.GetTaskRequest(id=task.id))
    assert done.artifacts[0].parts[0].data.struct_value["pr"] == 12


async def test_a_message_is_followed_to_the_end_of_its_task(client: Client, worker: Worker) -> None:
    async def work(id: str) -> None:
        await anyio.sleep(6)  # such a client gives up a stream that is silent for 5 s
        worker("work.claim", id=id)
        worker("work.complete", id=id, result="done")

    seen = []
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            async for response in client.send_message(sending("Fix the login")):
                seen.append(response.WhichOneof("payload"))
                if seen == ["task"]:
                    group.start_soon(work, response.task.id)
    assert seen == ["task", "status_update", "artifact_update", "status_update"]


async def test_what_cannot_be_done_is_the_error_that_the_client_knows(client: Client) -> None:
    with pytest.raises(TaskNotFoundError):
        await client.get_task(types.GetTaskRequest(id="nothing"))
    task = await first(client, sending("Fix the login"))
    await client.cancel_task(types.CancelTaskRequest(id=task.id))
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(types.CancelTaskRequest(id=task.id))
    with pytest.raises(UnsupportedOperationError):
        await anext(aiter(client.subscribe(types.SubscribeToTaskRequest(id=task.id))))
    with pytest.raises(UnsupportedOperationError):
        await first(client, sending("and the logout", task_id=task.id))
    file = sending("")
    file.message.parts[0].url = "http://example.org/file"
    with pytest.raises(ContentTypeNotSupportedError):
        await first(client, file)
    hook = types.TaskPushNotificationConfig(task_id=task.id, url="http://example.org/hook")
    with pytest.raises(PushNotificationNotSupportedError):
        await client.create_task_push_notification_config(hook)
