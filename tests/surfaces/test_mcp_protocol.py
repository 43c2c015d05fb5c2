"""The wire of `dibs mcp`: both eras, all mistakes a client can make, a server that lives on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.surfaces.stdio import LINE_LIMIT
from tests.surfaces.mcp_client import (
    HANDSHAKES,
    MODERN,
    PREFIX,
    Client,
    Json,
    Start,
    clients,
    new_shell,
)
from tests.surfaces.shell import Shell

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOT_FOUND_THEN, UNSUPPORTED = -32002, -32022
LATEST = HANDSHAKES[-1]
PAGES = ["dibs://board", "dibs://leases", "dibs://work", "dibs://inbox"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Servers that outlive one test: each mistake must leave them able to serve the next."""
    with clients(new_shell(tmp_path_factory.mktemp("shared"))) as start:
        yield start


@pytest.fixture(scope="module")
def modern(shared: Start) -> Client:
    return shared()


@pytest.fixture(scope="module")
def legacy(shared: Start) -> Client:
    return shared(version=LATEST)


@pytest.fixture(params=[MODERN, LATEST])
def either(request: pytest.FixtureRequest, modern: Client, legacy: Client) -> Client:
    """A client of each era in turn."""
    return modern if request.param == MODERN else legacy


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    with clients(shell) as start:
        yield start


def request(id: Any, method: str, params: Any = None) -> Json:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def unasked(client: Client, line: bytes) -> Json:
    """What the server says to a line that is no request; then it still serves."""
    before = len(client.heard)
    client.write(line)
    message = client.answer(None, after=before)
    client.lives()
    error: Json = message["error"]
    return error


# The handshake eras.


@pytest.mark.parametrize("version", HANDSHAKES)
def test_each_handshake_version_is_echoed(start: Start, version: str) -> None:
    client = start(version=version)
    said = client.greeting
    assert said["protocolVersion"] == version
    assert said["serverInfo"].keys() >= {"name", "version"}
    assert said["capabilities"].keys() >= {"tools", "resources", "prompts"}
    assert said["capabilities"]["resources"]["subscribe"] is True
    assert "claim" in said["instructions"]
    assert client.result("ping") == {}
    assert client.call("claim", resource="src/a.py")["status"] == "claimed"


@pytest.mark.parametrize("version", [MODERN, "1999-01-01", "DRAFT", "", "2025-11-25 "])
def test_an_unknown_handshake_version_is_answered_with_the_latest(
    shared: Start, version: str
) -> None:
    client = shared(version=LATEST)
    assert client.handshake(version)["protocolVersion"] == LATEST
    client.end()


@pytest.mark.parametrize(
    "params", [None, {}, {"protocolVersion": None}, {"protocolVersion": 5}, {"protocolVersion": []}]
)
def test_a_handshake_that_names_no_version_is_refused(legacy: Client, params: Any) -> None:
    before = len(legacy.heard)
    legacy.send(request("greet", "initialize", params))
    assert legacy.answer("greet", after=before)["error"]["code"] == INVALID_PARAMS
    legacy.lives()


def test_a_client_may_greet_again_with_another_version(start: Start) -> None:
    client = start(version="2025-11-25")
    assert client.handshake("2024-11-05")["protocolVersion"] == "2024-11-05"
    assert client.call("status")["status"] == "ok"


@pytest.mark.parametrize("info", [None, [], "me", {}, {"name": 5}, {"name": None}])
def test_whoever_does_not_say_who_they_are_is_served_all_the_same(start: Start, info: Any) -> None:
    client = start()
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": info}
    client.send(request("greet", "initialize", params))
    client.version = LATEST
    assert client.answer("greet")["result"]["protocolVersion"] == LATEST
    assert client.call("claim", resource="src/a.py")["status"] == "claimed"


def test_before_a_handshake_only_a_ping_is_served(start: Start) -> None:
    client = start()
    client.version = LATEST
    assert client.error("tools/list")["code"] == INVALID_PARAMS
    assert client.error("tools/call", {"name": "status"})["code"] == INVALID_PARAMS
    assert client.result("ping") == {}


def test_a_request_of_a_handshake_era_needs_no_params(legacy: Client) -> None:
    for method in ("ping", "tools/list", "prompts/list", "resources/list"):
        before = len(legacy.heard)
        legacy.send(request("bare", method))
        assert "result" in legacy.answer("bare", after=before)


def test_requests_are_served_before_the_client_says_it_is_ready(start: Start) -> None:
    client = start()
    client.version = LATEST
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "eager"}}
    client.send(request("greet", "initialize", params))
    client.send(request("list", "tools/list"))
    assert client.answer("greet")["result"]["protocolVersion"] == LATEST
    assert client.answer("list")["result"]["tools"]


# The era without a handshake.


def test_a_modern_client_discovers_what_there_is(modern: Client) -> None:
    said = modern.result("server/discover")
    assert said["supportedVersions"] == [MODERN, *reversed(HANDSHAKES)]
    assert said["capabilities"].keys() >= {"tools", "resources", "prompts"}
    assert "claim" in said["instructions"]


@pytest.mark.parametrize(
    "method",
    ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"],
)
def test_what_a_modern_client_could_keep_says_that_it_must_not(modern: Client, method: str) -> None:
    said = modern.result(method)
    assert (said["ttlMs"], said["cacheScope"]) == (0, "private")


def test_a_tools_answer_says_nothing_about_keeping_it(modern: Client) -> None:
    said = modern.result("tools/call", {"name": "status"})
    assert not said.keys() & {"ttlMs", "cacheScope"}


@pytest.mark.parametrize("version", ["2025-11-25", "2024-11-05", "1900-01-01", "2099-01-01", ""])
def test_an_unsupported_version_is_refused_with_those_that_are(
    modern: Client, version: str
) -> None:
    said: Json = {PREFIX + "protocolVersion": version}
    error = modern.error("tools/list", **said)
    assert error["code"] == UNSUPPORTED
    assert error["data"] == {"supported": [MODERN, *reversed(HANDSHAKES)], "requested": version}


def test_the_version_is_judged_before_the_method(modern: Client) -> None:
    said: Json = {PREFIX + "protocolVersion": "1900-01-01"}
    assert modern.error("no/such", **said)["code"] == UNSUPPORTED


@pytest.mark.parametrize("key", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("value", [None, 5, [], True, "GONE"])
def test_an_envelope_without_its_keys_is_refused(modern: Client, key: str, value: Any) -> None:
    meta = modern.meta(**{PREFIX + key: value})
    if value == "GONE":
        del meta[PREFIX + key]
    before = len(modern.heard)
    modern.send(request("envelope", "tools/list", {"_meta": meta}))
    error = modern.answer("envelope", after=before)["error"]
    assert error["code"] == INVALID_PARAMS
    assert key in error["message"]


@pytest.mark.parametrize("meta", [None, [], "meta", 5, {}])
def test_an_envelope_that_is_none_is_refused(modern: Client, meta: Any) -> None:
    before = len(modern.heard)
    modern.send(request("envelope", "tools/list", {"_meta": meta}))
    assert modern.answer("envelope", after=before)["error"]["code"] == INVALID_PARAMS


def test_what_else_is_in_an_envelope_is_ignored(modern: Client) -> None:
    odd: Json = {PREFIX + "clientInfo": 5, "traceparent": [], "progressToken": {}, "x": {"y": None}}
    assert modern.result("tools/list", **odd)["tools"]
    assert modern.result("tools/call", {"name": "status", "requestState": 1}, **odd)["content"]


def test_each_message_is_judged_by_its_own_era(start: Start) -> None:
    client = start()
    assert client.result("tools/list")["resultType"] == "complete"
    client.version = LATEST
    client.handshake(LATEST)
    assert "resultType" not in client.result("tools/list")
    client.version = MODERN
    assert client.result("tools/list")["resultType"] == "complete"
    assert client.result("server/discover")["supportedVersions"]
    client.version = LATEST
    assert client.result("ping") == {}


def test_both_eras_of_one_process_are_one_agent(start: Start) -> None:
    client = start()
    assert client.call("claim", resource="src/a.py")["status"] == "claimed"
    client.version = LATEST
    client.handshake(LATEST)
    assert client.call("claim", resource="src/a.py")["status"] == "already_claimed"


# Methods.


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
def test_a_method_of_the_handshake_eras_is_unknown_to_a_modern_client(
    modern: Client, method: str
) -> None:
    assert modern.error(method, {"uri": PAGES[0], "level": "info"})["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_a_modern_method_is_not_served_without_an_envelope(legacy: Client, method: str) -> None:
    error = legacy.error(method, {"notifications": {}})
    assert error["code"] in (METHOD_NOT_FOUND, INVALID_PARAMS)


@pytest.mark.parametrize(
    "method",
    [
        *("", "nope", "tools", "tools/call/", "tools/Call", "rpc.discover", "__init__"),
        *("notifications/initialized", "notifications/cancelled"),
        *("\ud800", "\0", "m" * 100_000),
    ],
)
def test_an_unknown_method_is_refused(either: Client, method: str) -> None:
    assert either.error(method)["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("params", [[], [1], "x", 5, True, None])
def test_params_are_an_object_or_nothing(either: Client, params: Any) -> None:
    before = len(either.heard)
    either.send({"jsonrpc": "2.0", "id": "odd", "method": "tools/list", "params": params})
    assert either.answer("odd", after=before)["error"]["code"] == INVALID_PARAMS


@pytest.mark.parametrize("name", ["nope", "", "Claim", "claim ", "\ud800", "\0", "get", "n" * 9999])
def test_an_unknown_tool_is_refused_with_those_there_are(either: Client, name: str) -> None:
    error = either.error("tools/call", {"name": name, "arguments": {}})
    assert error["code"] == INVALID_PARAMS
    assert "work_next" in error["message"]


@pytest.mark.parametrize("name", [None, 5, [], {}, True])
def test_the_name_of_a_tool_is_text(either: Client, name: Any) -> None:
    assert either.error("tools/call", {"name": name})["code"] == INVALID_PARAMS


def test_a_tool_without_a_name_is_refused(either: Client) -> None:
    assert either.error("tools/call")["code"] == INVALID_PARAMS


@pytest.mark.parametrize("arguments", [[1], "x", 5, True, [{}]])
def test_arguments_that_are_no_object_are_misuse(either: Client, arguments: Any) -> None:
    result = either.result("tools/call", {"name": "claim", "arguments": arguments})
    assert result["isError"] is True
    assert result["structuredContent"]["status"] == "invalid"


def test_a_tool_may_be_called_without_arguments(either: Client) -> None:
    assert either.result("tools/call", {"name": "inbox"})["structuredContent"]["status"] == "ok"
    quiet = either.result("tools/call", {"name": "inbox", "arguments": None})
    assert quiet["structuredContent"]["status"] == "ok"


def test_the_prompt_is_listed_and_given(either: Client) -> None:
    (prompt,) = either.result("prompts/list")["prompts"]
    given = either.result("prompts/get", {"name": prompt["name"]})
    (message,) = given["messages"]
    assert (message["role"], message["content"]["type"]) == ("user", "text")
    assert "work_next" in message["content"]["text"]
    of_one = either.result("prompts/get", {"name": prompt["name"], "arguments": {"task": "fix{0}"}})
    assert "fix{0}" in of_one["messages"][0]["content"]["text"]


@pytest.mark.parametrize("name", [None, 5, [], "nope", "", "\ud800"])
def test_an_unknown_prompt_is_refused(either: Client, name: Any) -> None:
    assert either.error("prompts/get", {"name": name})["code"] == INVALID_PARAMS


@pytest.mark.parametrize("arguments", [5, "x", ["task"], {"task": 5}, {"task": None}, {"no": "x"}])
def test_odd_arguments_of_the_prompt_do_no_harm(either: Client, arguments: Any) -> None:
    asked = either.ask("prompts/get", {"name": "coordinate", "arguments": arguments})
    assert "result" in asked or asked["error"]["code"] == INVALID_PARAMS


def test_the_id_of_a_task_is_completed(start: Start) -> None:
    client = start()
    for id in ("fix-login", "fix-logout", "write-docs"):
        client.call("work_add", id=id)
    ref = {"type": "ref/prompt", "name": "coordinate"}

    def complete(**argument: str) -> Json:
        asked = client.result("completion/complete", {"ref": ref, "argument": argument})
        found: Json = asked["completion"]
        return found

    begun = complete(name="task", value="fix-")
    assert begun == {"values": ["fix-login", "fix-logout"], "total": 2, "hasMore": False}
    assert complete(name="task", value="")["total"] == 3
    assert complete(name="other", value="")["values"] == []
    for number in range(101):
        client.call("work_add", id=f"many-{number}")
    many = complete(name="task", value="many-")
    assert (len(many["values"]), many["total"], many["hasMore"]) == (100, 101, True)


@pytest.mark.parametrize("key", ["ref", "argument"])
@pytest.mark.parametrize("value", [None, 5, "x", []])
def test_a_completion_of_nothing_is_refused(either: Client, key: str, value: Any) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "coordinate"}, "argument": {"name": "task"}}
    assert either.error("completion/complete", {**params, key: value})["code"] == INVALID_PARAMS


def test_the_four_pages_are_listed_and_read(either: Client) -> None:
    listed = either.result("resources/list")["resources"]
    assert [page["uri"] for page in listed] == PAGES
    assert either.result("resources/templates/list")["resourceTemplates"] == []
    for page in listed:
        (content,) = either.result("resources/read", {"uri": page["uri"]})["contents"]
        assert (content["uri"], content["mimeType"]) == (page["uri"], "application/json")
        assert isinstance(json.loads(content["text"]), dict)


@pytest.mark.parametrize("uri", ["dibs://nope", "", "file:///etc/passwd", "DIBS://BOARD", "\ud800"])
def test_an_unknown_page_is_refused_as_the_era_wants_it(either: Client, uri: str) -> None:
    error = either.error("resources/read", {"uri": uri})
    assert error["code"] == (INVALID_PARAMS if either.version == MODERN else NOT_FOUND_THEN)
    assert error["data"] == {"uri": uri}


@pytest.mark.parametrize("uri", [None, 5, [], {}, True])
def test_the_address_of_a_page_is_text(either: Client, uri: Any) -> None:
    assert either.error("resources/read", {"uri": uri})["code"] == INVALID_PARAMS
    if either.version == LATEST:
        assert either.error("resources/subscribe", {"uri": uri})["code"] == INVALID_PARAMS
        assert either.error("resources/unsubscribe", {"uri": uri})["code"] == INVALID_PARAMS


@pytest.mark.parametrize(
    "params", [{}, {"notifications": None}, {"notifications": []}, {"notifications": "all"}]
    + [{"notifications": {"resourceSubscriptions": odd}} for odd in ("x", 5, {"a": 1}, True)],
)  # fmt: skip
def test_to_listen_to_nothing_that_can_be_understood_is_refused(
    modern: Client, params: Json
) -> None:
    assert modern.error("subscriptions/listen", params)["code"] == INVALID_PARAMS


# Lines that are no messages.

NO_JSON = {
    "half an object": b'{"jsonrpc":"2.0","id":1,',
    "a word": b"hello",
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":Infinity}}',
    "minus Infinity": b'{"jsonrpc":"2.0","id":-Infinity,"method":"ping"}',
    "single quotes": b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
    "a trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "two objects": b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
    "a hundred thousand brackets": b"[" * 100_000,
    "a hundred thousand objects": b'{"a":' * 100_000,
    "a number without end": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    "half a character": b'{"jsonrpc":"2.0","id":1,"method":"\xe2\x82"}',
    "an encoded surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16-le"),
    "a mark at the beginning": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "a NUL": b'{"jsonrpc":"2.0","id":1,"method":"ping"}\0',
    "a raw NUL in a text": b'{"jsonrpc":"2.0","id":1,"method":"pi\0ng"}',
    "NULs only": b"\0" * 1000,
    "an HTTP request": b"POST /mcp HTTP/1.1\r",
    "binary garbage": random.Random(4).randbytes(65_536).replace(b"\n", b"\0"),
}
NO_MESSAGE = {
    "a text": b'"ping"',
    "a number": b"5",
    "null": b"null",
    "true": b"true",
    "an empty object": b"{}",
    "no version": b'{"id":1,"method":"ping"}',
    "an old version": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "a number as version": b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
    "null as id": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "a fraction as id": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    "a truth value as id": b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
    "a list as id": b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
    "an object as id": b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "a number as method": b'{"jsonrpc":"2.0","id":1,"method":5}',
    "null as method": b'{"jsonrpc":"2.0","id":1,"method":null}',
    "a list as method": b'{"jsonrpc":"2.0","id":1,"method":["ping"]}',
    "a list as method of an answer": b'{"jsonrpc":"2.0","id":1,"method":["ping"],"result":{}}',
    "neither method nor id": b'{"jsonrpc":"2.0","params":{}}',
}


@pytest.mark.parametrize("line", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_answered_with_a_parse_error(either: Client, line: bytes) -> None:
    assert unasked(either, line + b"\n")["code"] == PARSE_ERROR


@pytest.mark.parametrize("line", NO_MESSAGE.values(), ids=NO_MESSAGE)
def test_what_is_no_message_is_answered_as_invalid(either: Client, line: bytes) -> None:
    assert unasked(either, line + b"\n")["code"] == INVALID_REQUEST


def test_a_line_over_the_limit_is_refused_and_left_out(modern: Client) -> None:
    whole = json.dumps(request(1, "tools/list", {"_meta": modern.meta()})).encode()
    error = unasked(modern, whole.ljust(LINE_LIMIT + 1) + b"\n")
    assert error["code"] == INVALID_REQUEST
    assert f"{LINE_LIMIT:,}" in error["message"]
    assert unasked(modern, b"x" * (2 * LINE_LIMIT + 77) + b"\n")["code"] == INVALID_REQUEST


def test_a_line_just_within_the_limit_is_served(modern: Client) -> None:
    before = len(modern.heard)
    whole = json.dumps(request("long", "tools/list", {"_meta": modern.meta()})).encode()
    modern.write(whole.ljust(LINE_LIMIT - 1) + b"\n")
    assert modern.answer("long", after=before)["result"]["tools"]


def test_a_line_over_the_limit_that_never_ends_ends_with_the_input(start: Start) -> None:
    client = start()
    client.write(b"{" * (LINE_LIMIT + 1000))
    client.end()
    assert client.heard[-1]["error"]["code"] == INVALID_REQUEST


def test_the_largest_value_the_store_takes_fits_into_a_line(start: Start) -> None:
    client = start("--tools", "all")
    value = "\N{GRINNING FACE}" * (1_000_000 // 4)  # twelve signs each, escaped
    assert client.call("set", namespace="big", key="one", value=value)["status"] == "ok"
    assert client.call("get", namespace="big", key="one")["value"] == value


# Framing.


def test_empty_lines_are_passed_over(modern: Client) -> None:
    before = len(modern.heard)
    modern.write(b"\n\n\r\n   \n\t\n")
    modern.lives()
    assert len(modern.heard) == before + 1


def test_lines_may_end_as_on_windows(modern: Client) -> None:
    before = len(modern.heard)
    line = json.dumps(request("windows", "tools/list", {"_meta": modern.meta()})).encode()
    modern.write(line + b"\r\n" + b"  " + line.replace(b"windows", b"indented") + b"  \r\n")
    assert modern.answer("windows", after=before)["result"]["tools"]
    assert modern.answer("indented", after=before)["result"]["tools"]


def test_a_last_line_without_an_end_is_served(start: Start) -> None:
    client = start()
    claim = {"name": "status", "_meta": client.meta()}
    client.write(json.dumps(request("last", "tools/call", claim)).encode())
    client.end()
    assert client.answer("last")["result"]["structuredContent"]["status"] == "ok"


def test_a_request_may_come_in_pieces_and_several_at_once(modern: Client) -> None:
    before = len(modern.heard)
    lines = b"".join(
        json.dumps(request(f"piece-{n}", "prompts/list", {"_meta": modern.meta()})).encode() + b"\n"
        for n in range(50)
    )
    for at in range(0, len(lines), 777):
        modern.write(lines[at : at + 777])
    for n in range(50):
        modern.answer(f"piece-{n}", after=before)
    ids = [message["id"] for message in modern.heard[before:]]
    assert ids == [f"piece-{n}" for n in range(50)]  # what does not wait is answered in order


def test_text_beyond_ascii_comes_back_as_it_was(start: Start) -> None:
    client = start(version=LATEST)
    note = "größer → \N{GRINNING FACE} \u2028 中文"
    params = {"name": "claim", "arguments": {"resource": "src/ä.py", "note": note}}
    client.write(json.dumps(request("raw", "tools/call", params), ensure_ascii=False).encode())
    client.write(b"\n")
    assert client.answer("raw")["result"]["structuredContent"]["resource"] == "src/ä.py"
    other = start()
    busy = other.call("claim", resource="src/ä.py")
    assert (busy["status"], busy["note"]) == ("busy", note)


def test_a_server_says_nothing_until_it_is_asked(start: Start) -> None:
    client = start()
    client.end()
    assert client.heard == []


@pytest.mark.parametrize("words", [("--tools", "some"), ("--tools",), ("--nope",), ("extra",)])
def test_a_server_that_is_started_wrongly_says_so_and_ends(
    shell: Shell, words: tuple[str, ...]
) -> None:
    answer = shell("mcp", *words)
    assert (answer.code, answer.out) == (2, "")
    assert "dibs mcp --help" in answer.err


# Odd text in the right places.

ODD_TEXT = ["\ud800", "\udfff\ud800", "a\0b", "\x1b[2J", "\x7f", "\u0085", "\n", "a\nb", "\ufffe"]


@pytest.mark.parametrize("text", ODD_TEXT)
def test_odd_text_in_arguments_is_taken_or_refused_with_a_reason(either: Client, text: str) -> None:
    calls: dict[str, Json] = {
        "claim": {"resource": text, "note": text},
        "status": {"resource": text},
        "release": {"resource": text},
        "wait": {"resource": text, "timeout_s": 0},
        "work_claim": {"id": text, "note": text},
        "work_add": {"id": text, "title": text, "payload": {text: text}},
        "work_done": {"id": text, "reason": text},
        "send": {"body": text, "to": text},
        "inbox": {"channel": text},
    }
    for tool, arguments in calls.items():
        id = either.begin_call(tool, arguments)
        answer = either.outcome(id)
        if text != "\ufffe":
            assert either.answer(id)["result"]["isError"] is True, (tool, answer)
            assert answer["status"] == "invalid"
    either.call("release", everything=True)


@pytest.mark.parametrize("text", ODD_TEXT)
def test_odd_text_in_the_envelope_does_no_harm(modern: Client, text: str) -> None:
    info = {PREFIX + "clientInfo": {"name": text, "version": text}}
    for meta in (info, {"sessionId": text}, {"progressToken": text}, {text: text}):
        id = modern.begin_call("status", {}, **meta)
        assert modern.outcome(id)["status"] == "ok"


@pytest.mark.parametrize("session", ["", " ", 5, [], {}, None, True, "s" * 101, "s" * 100_000])
def test_a_session_that_cannot_be_one_is_not_taken_for_one(modern: Client, session: Any) -> None:
    mine = modern.call("status")["you"]
    assert modern.call_in({"sessionId": session}, "status")["you"] == mine


# Ids.


@pytest.mark.parametrize("id", [0, "", "0", -1, 2**53, 10**300, "\ud800", "ä\n", "x" * 10_000])
def test_an_id_comes_back_as_it_was_sent(either: Client, id: int | str) -> None:
    before = len(either.heard)
    either.begin("prompts/list", id=id)
    assert "result" in either.answer(id, after=before)


@pytest.mark.parametrize("version", [MODERN, LATEST])
def test_an_id_that_is_in_use_is_refused_and_the_first_goes_on(start: Start, version: str) -> None:
    holder, client = start(), start(version=version)
    holder.call("claim", resource="src/a.py")
    client.begin_call("wait", {"resource": "src/a.py", "timeout_s": 60}, id="same")
    client.begin("prompts/list", id="same")
    refused = client.answer("same")
    assert refused["error"]["code"] == INVALID_REQUEST
    # A text and a number are different ids, although they look alike.
    client.begin_call("wait", {"resource": "src/a.py", "timeout_s": 60}, id=77)
    client.begin("prompts/list", id="77")
    assert "result" in client.answer("77")
    before = len(client.heard)
    holder.call("release", resource="src/a.py")
    first = client.answer("same", after=before)["result"]["structuredContent"]
    assert first["status"] == "available"
    assert client.answer(77)["result"]["structuredContent"]["status"] == "available"
    # Once answered, it may be used again.
    before = len(client.heard)
    client.begin("prompts/list", id="same")
    assert client.answer("same", after=before)


# Notifications and answers.

ODD_IDS: list[Any] = ["never", 10**9, None, [], {}, True, 1.5, "\ud800"]
SILENT: list[Json] = [
    {"method": "notifications/initialized"},
    {"method": "notifications/roots/list_changed", "params": {}},
    {"method": "notifications/no/such", "params": 5},
    {"method": "no/such"},
    {"method": "tools/list"},
    {"method": "notifications/cancelled"},
    {"method": "notifications/cancelled", "params": None},
    {"method": "notifications/cancelled", "params": [1]},
    {"method": "notifications/cancelled", "params": {}},
    *({"method": "notifications/cancelled", "params": {"requestId": id}} for id in ODD_IDS),
    {"id": 5, "result": {}},
    {"id": "never", "error": {"code": 1, "message": "no"}},
    {"id": 5, "result": None},
]


@pytest.mark.parametrize("message", SILENT, ids=lambda message: json.dumps(message)[:60])
def test_notifications_and_answers_of_the_client_are_not_answered(
    either: Client, message: Json
) -> None:
    before = len(either.heard)
    either.send({"jsonrpc": "2.0", **message})
    either.lives()
    assert len(either.heard) == before + 1


def test_a_tool_is_not_called_by_a_notification(start: Start) -> None:
    client, other = start(), start()
    params = {"name": "claim", "arguments": {"resource": "src/a.py"}, "_meta": client.meta()}
    client.send({"jsonrpc": "2.0", "method": "tools/call", "params": params})
    client.lives()
    assert other.call("claim", resource="src/a.py")["status"] == "claimed"


def test_a_truth_value_does_not_cancel_the_first_request(start: Start) -> None:
    holder, client = start(), start()
    holder.call("claim", resource="src/a.py")
    client.begin_call("wait", {"resource": "src/a.py", "timeout_s": 60}, id=1)
    client.cancel(True)
    client.cancel(1.0)
    client.cancel("1")
    client.lives()
    holder.call("release", resource="src/a.py")
    assert client.answer(1)["result"]["structuredContent"]["status"] == "available"


def test_what_was_answered_already_cannot_be_cancelled(either: Client) -> None:
    id = either.begin_call("status")
    assert either.outcome(id)["status"] == "ok"
    before = len(either.heard)
    either.cancel(id)
    either.lives()
    assert len(either.heard) == before + 1


# Several messages in one line.


@pytest.mark.parametrize("version", [v for v in (*HANDSHAKES, MODERN) if v != "2025-03-26"])
def test_several_messages_in_one_line_are_served_in_one_version_only(
    start: Start, version: str
) -> None:
    client = start(version=version)
    params = {"_meta": client.meta()}
    line = json.dumps([request(1, "prompts/list", params), request(2, "prompts/list", params)])
    assert unasked(client, line.encode() + b"\n")["code"] == INVALID_REQUEST
    assert client.batches == []


def test_several_messages_in_one_line_are_answered_in_one_line(start: Start) -> None:
    client = start(version="2025-03-26")
    client.send(
        [
            request("one", "tools/list"),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            request("two", "no/such"),
            5,
            request("four", "tools/call", {"name": "status"}),
            [request("five", "ping")],
            {"jsonrpc": "2.0", "id": 9, "result": {}},
        ]
    )
    client.answer("four")
    (batch,) = client.batches
    said = {message["id"]: message for message in batch}
    assert said.keys() == {"one", "two", "four", None}
    assert len(batch) == 5
    assert said["two"]["error"]["code"] == METHOD_NOT_FOUND
    assert said[None]["error"]["code"] == INVALID_REQUEST
    assert said["four"]["result"]["structuredContent"]["status"] == "ok"


def test_no_message_in_a_line_is_invalid_and_notifications_alone_are_not_answered(
    start: Start,
) -> None:
    client = start(version="2025-03-26")
    assert unasked(client, b"[]\n")["code"] == INVALID_REQUEST
    before = len(client.heard)
    client.send([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 3)
    client.lives()
    assert len(client.heard) == before + 1


def test_a_wait_among_several_messages_holds_up_only_these(start: Start) -> None:
    holder, client = start(), start(version="2025-03-26")
    holder.call("claim", resource="src/a.py")
    wait = {"name": "wait", "arguments": {"resource": "src/a.py", "timeout_s": 60}}
    client.send([request("wait", "tools/call", wait), request("ping", "ping")])
    assert client.call("status")["status"] == "ok"
    assert not client.answered("ping")
    holder.call("release", resource="src/a.py")
    assert client.answer("wait")["result"]["structuredContent"]["status"] == "available"
    assert [message["id"] for message in client.batches[0]] == ["wait", "ping"]
