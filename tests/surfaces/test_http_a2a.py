"""`/a2a` of a real daemon: a message is a task, and its life is told as it goes on."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from tests.surfaces.daemon import Client, Daemon, serving
from tests.surfaces.shell import PATIENCE_S, Shell

VERSION: dict[str, str | None] = {"A2A-Version": "1.0"}


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as daemon:
        yield daemon
        ended = daemon.stop()
        assert (ended.code, ended.err) == (0, ""), ended


class Caller:
    """An agent elsewhere, with a token."""

    def __init__(self, daemon: Daemon, name: str, scope: str = "agent") -> None:
        self.client: Client = daemon.client(token=daemon.token_of(name, scope))

    def ask(self, method: str, headers: dict[str, str | None] = VERSION, **params: Any) -> Any:
        """The whole answer to a request."""
        reply = self.client.request("POST", "/a2a", body_of(method, params), headers)
        assert reply.status == 200, reply
        answer = reply.json
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
        return answer

    def __call__(self, method: str, **params: Any) -> Any:
        return self.ask(method, **params)["result"]

    def refused(self, method: str, **params: Any) -> int:
        return int(self.ask(method, **params)["error"]["code"])

    def send(self, text: str, **message: Any) -> Any:
        """Add a task, and do not wait for its end."""
        sent = said(text, **message)
        return self("SendMessage", message=sent, configuration={"returnImmediately": True})["task"]

    @contextmanager
    def follow(self, method: str, **params: Any) -> Iterator[Iterator[Any]]:
        """The results that come as events, until the end of the stream."""
        line = http.client.HTTPConnection(*self.client.address, timeout=PATIENCE_S)
        headers = {name: value or "" for name, value in {**self.client.headers, **VERSION}.items()}
        try:
            line.request("POST", "/a2a", body_of(method, params), headers)
            answer = line.getresponse()
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            yield (json.loads(text[6:])["result"] for text in answer if text.startswith(b"data: "))
        finally:
            line.close()


def body_of(method: str, params: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def said(text: str, **message: Any) -> dict[str, Any]:
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **message}


@pytest.fixture
def ann(daemon: Daemon) -> Caller:
    return Caller(daemon, "ann")


@pytest.fixture(scope="module")
def anybody(place: Shell) -> Iterator[Caller]:
    """Somebody at a daemon of their own, for what changes nothing."""
    with serving(place) as daemon:
        yield Caller(daemon, "anybody")


@pytest.fixture
def worker(daemon: Daemon) -> Client:
    return daemon.client("worker")


def test_the_card_says_where_the_agent_is_and_needs_no_token(daemon: Daemon) -> None:
    reply = daemon.client().request(
        "GET", "/.well-known/agent-card.json", headers={"Authorization": None}
    )
    assert reply.status == 200
    (interface,) = reply.json["supportedInterfaces"]
    assert interface["url"] == f"{daemon.url}/a2a"
    assert daemon.shell.folder.name not in reply.body.decode()


def test_all_else_needs_a_token(daemon: Daemon) -> None:
    reply = daemon.client().request("POST", "/a2a", "{}", {"Authorization": None})
    assert (reply.status, reply.error) == (401, "no_token")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_message_is_a_task_that_a_worker_finds(ann: Caller, worker: Client) -> None:
    options = {"kind": "fix", "priority": 5.0, "tags": ["python"]}
    sent = {"messageId": "m1", "metadata": {"dibs": options}, "contextId": "c1"}
    told = ann.send("Fix the login\n\nIt fails for\tnames with a space.", **sent)
    assert told["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert told["contextId"] == "c1"
    assert told["history"][0]["messageId"] == "m1"
    task = worker("work.next", kind="fix", tags=["python"])
    assert (task["id"], task["title"], task["author"]) == (told["id"], "Fix the login", "ann")
    assert task["priority"] == 5
    assert task["payload"]["text"] == "Fix the login\n\nIt fails for\tnames with a space."


def test_a_message_sent_twice_is_one_task(ann: Caller, daemon: Daemon) -> None:
    first = ann.send("Fix the login", messageId="m1")
    assert ann.send("Fix the login", messageId="m1") == first
    assert ann.refused("SendMessage", message=said("Drop the login", messageId="m1")) == -32602
    # Another sender's messages have ids of their own.
    assert Caller(daemon, "bob").send("Fix the login", messageId="m1")["id"] != first["id"]
    assert ann("ListTasks")["totalSize"] == 2


def test_a_task_goes_through_the_states_of_the_protocol(ann: Caller, worker: Client) -> None:
    id = ann.send("Fix the login")["id"]

    def state() -> str:
        return str(ann("GetTask", id=id)["status"]["state"])

    worker("work.claim", id=id)
    assert state() == "TASK_STATE_WORKING"
    worker("work.fail", id=id, reason="the tests hang")
    failed = ann("GetTask", id=id)
    # It is tried again, so it is not over.
    assert failed["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert failed["status"]["message"]["parts"] == [{"text": "the tests hang"}]
    worker("work.reopen", id=id)
    worker("work.claim", id=id)
    worker("work.complete", id=id, result={"pr": 12})
    done = ann("GetTask", id=id)
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done["artifacts"][0]["parts"] == [{"data": {"pr": 12}}]
    worker("work.reopen", id=id)
    worker("work.claim", id=id)
    worker("work.fail", id=id, retry=False)
    assert state() == "TASK_STATE_FAILED"


def test_a_task_can_be_cancelled_until_it_is_over(ann: Caller, worker: Client) -> None:
    id = ann.send("Fix the login")["id"]
    worker("work.claim", id=id)
    assert ann("CancelTask", id=id)["status"]["state"] == "TASK_STATE_CANCELED"
    assert ann.refused("CancelTask", id=id) == -32002
    assert ann.refused("SubscribeToTask", id=id) == -32004
    assert ann.refused("CancelTask", id="nothing") == -32001


def test_who_sends_a_message_can_wait_for_the_end(ann: Caller, worker: Client) -> None:
    id = ann.send("Fix the login", messageId="m1")["id"]
    worker("work.claim", id=id)
    # The same message again, but this time it waits.
    body = body_of("SendMessage", {"message": said("Fix the login", messageId="m1")})
    line = http.client.HTTPConnection(*ann.client.address, timeout=PATIENCE_S)
    line.request("POST", "/a2a", body, {**ann.client.headers, "A2A-Version": "1.0"})
    worker("work.complete", id=id, result="done")
    task = json.loads(line.getresponse().read())["result"]["task"]
    line.close()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "done"}]


def test_a_task_is_followed_from_its_message_to_its_end(ann: Caller, worker: Client) -> None:
    with ann.follow("SendStreamingMessage", message=said("Fix the login")) as updates:
        id = next(updates)["task"]["id"]
        worker("work.claim", id=id)
        working = next(updates)["statusUpdate"]
        assert working["status"]["state"] == "TASK_STATE_WORKING"
        assert working["metadata"]["dibs"]["agent"] == "worker"
        worker("work.abandon", id=id, reason="not my field")
        given_back = next(updates)["statusUpdate"]["status"]
        assert given_back["state"] == "TASK_STATE_SUBMITTED"
        assert given_back["message"]["parts"] == [{"text": "not my field"}]
        with ann.follow("SubscribeToTask", id=id) as others:
            assert next(others)["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
            worker("work.claim", id=id)
            worker("work.renew", id=id)
            worker("work.complete", id=id, result="done")
            for stream in (updates, others):
                assert next(stream)["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
                artifact = next(stream)["artifactUpdate"]["artifact"]
                assert artifact["parts"] == [{"text": "done"}]
                assert next(stream)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
                assert list(stream) == []


def test_tasks_are_listed_in_pages_those_changed_last_first(ann: Caller, worker: Client) -> None:
    ids = [ann.send(f"task {number}", contextId=f"c{number % 2}")["id"] for number in range(5)]
    worker("work.claim", id=ids[1])
    pages: list[dict[str, Any]] = []
    token = ""
    while True:
        page = ann("ListTasks", pageSize=2, pageToken=token)
        assert (page["pageSize"], page["totalSize"]) == (2, 5)
        assert all("artifacts" not in task for task in page["tasks"])
        pages += page["tasks"]
        token = page["nextPageToken"]
        if not token:
            break
    # What changed in one millisecond is listed in the order in which it was added, backwards.
    changed = {task["id"]: task["status"]["timestamp"] for task in pages}
    assert len(pages) == 5 and changed[ids[1]] == max(changed.values())
    assert [task["id"] for task in pages] == sorted(
        ids, key=lambda id: (changed[id], ids.index(id)), reverse=True
    )

    def listed(**filters: Any) -> set[str]:
        return {task["id"] for task in ann("ListTasks", **filters)["tasks"]}

    assert listed(contextId="c1") == {ids[1], ids[3]}
    assert listed(status="TASK_STATE_WORKING") == {ids[1]}
    assert listed(status="TASK_STATE_REJECTED") == set()
    assert listed(statusTimestampAfter="2020-01-01T00:00:00Z") == set(ids)
    assert listed(statusTimestampAfter="2120-01-01T00:00:00Z") == set()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("message/send", {}, -32601),
        ("GetTask", {}, -32602),
        ("GetTask", {"id": "nothing"}, -32001),
        ("GetTask", {"id": "nothing", "historyLength": -1}, -32602),
        ("ListTasks", {"pageSize": 101}, -32602),
        ("ListTasks", {"pageToken": "x"}, -32602),
        ("ListTasks", {"status": "TASK_STATE_BUSY"}, -32602),
        ("ListTasks", {"statusTimestampAfter": "yesterday"}, -32602),
        ("SendMessage", {}, -32602),
        ("SendMessage", {"message": {"messageId": "m", "parts": []}}, -32602),
        ("SendMessage", {"message": said("", parts=[{"url": "http://example.org"}])}, -32005),
        ("SendMessage", {"message": said("", parts=[{"raw": "aGk="}])}, -32005),
        ("SendMessage", {"message": said("x", metadata={"dibs": {"id": "x"}})}, -32602),
        ("SendMessage", {"message": said("x", messageId="m" * 300)}, -32602),
        ("SendMessage", {"message": said("x", taskId="nothing")}, -32001),
        ("CreateTaskPushNotificationConfig", {}, -32003),
        ("GetExtendedAgentCard", {}, -32004),
    ],
)
def test_what_canybodyot_be_done_is_refused_with_the_codes_of_the_protocol(
    anybody: Caller, method: str, params: dict[str, Any], code: int
) -> None:
    assert anybody.refused(method, **params) == code


@pytest.mark.parametrize("version", [None, "0.3", "1.1", "2.0", "one"])
def test_another_version_of_the_protocol_is_not_served(
    anybody: Caller, version: str | None
) -> None:
    error = anybody.ask("ListTasks", {"A2A-Version": version})["error"]
    assert (error["code"], error["data"][0]["reason"]) == (-32009, "VERSION_NOT_SUPPORTED")


def test_a_patch_of_the_version_makes_no_difference(anybody: Caller) -> None:
    assert anybody.ask("ListTasks", {"A2A-Version": "1.0.3"})["result"]["totalSize"] == 0


def test_a_token_that_may_only_read_adds_nothing(daemon: Daemon, ann: Caller) -> None:
    id, reader = ann.send("Fix the login")["id"], Caller(daemon, "reader", "read")
    assert reader("GetTask", id=id)["id"] == id
    body = body_of("SendMessage", {"message": said("Drop the login")})
    assert reader.client.request("POST", "/a2a", body, VERSION).error == "not_yours"
    body = body_of("CancelTask", {"id": id})
    assert reader.client.request("POST", "/a2a", body, VERSION).error == "not_yours"


def test_a_task_that_came_another_way_is_shown_too(ann: Caller, worker: Client) -> None:
    worker("work.add", id="fix-login", title="Fix the login", payload=["a list"])
    task = ann("GetTask", id="fix-login")
    assert "history" not in task
    assert task["metadata"]["dibs"]["title"] == "Fix the login"


def test_a_daemon_that_stops_waits_for_no_stream(ann: Caller, daemon: Daemon) -> None:
    with ann.follow("SendStreamingMessage", message=said("Fix the login")) as updates:
        next(updates)
        daemon.stop()
        assert list(updates) == []
    daemon.start()
