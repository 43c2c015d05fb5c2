"""Our server, and beside its own tools those that the conformance suite asks for by name.

The suite cannot look at how a server sends an image or a template if the server has none. These
fixtures send one of each, through the same protocol code as everything else. What dibs never
does in the handshake eras, asking the client something, is not here either.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from typing import Any

from dibs.mcp.callers import Callers
from dibs.mcp.calls import Call
from dibs.mcp.protocol import INVALID_PARAMS, PREFIX, ProtocolError
from dibs.mcp.server import Server
from dibs.mcp.tool import Tool

Result = dict[str, Any]

MISSING_CAPABILITY = -32021
"""What a server says that needs more of its client; ours never does."""

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5Er"
    "kJggg=="
)
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
STATE_KEY = b"the suite sees whether we notice a forged state"


def text(words: str) -> Result:
    return {"type": "text", "text": words}


def embedded(uri: str, kind: str, words: str) -> Result:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
SAID: dict[str, list[Result]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ],
    "test_streaming_elicitation": [text("asking nothing on the way")],
    "test_logging_tool": [text("logging nothing that was not asked for")],
    "json_schema_2020_12_tool": [text("ok")],
}
"""The tools that always say the same."""

ADDRESS = {"street": {"type": "string"}, "city": {"type": "string"}}
RICH_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": ADDRESS}},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

Ask = dict[str, Any]


def elicit(message: str, **properties: str) -> Ask:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": schema},
    }


def sample(question: str) -> Ask:
    messages = [{"role": "user", "content": text(question)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


ROOTS: Ask = {"method": "roots/list", "params": {}}
NEEDS = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
CONFIRM = elicit("Please confirm", ok="boolean")
ASKED: dict[str, list[dict[str, Ask]]] = {
    "elicitation": [{"user_name": elicit("What is your name?", name="string")}],
    "sampling": [{"capital_question": sample("What is the capital of France?")}],
    "list_roots": [{"client_roots": ROOTS}],
    "request_state": [{"confirm": CONFIRM}],
    "tampered_state": [{"confirm": CONFIRM}],
    "multiple_inputs": [
        {
            "user_name": elicit("What is your name?", name="string"),
            "greeting": sample("Generate a greeting"),
            "client_roots": ROOTS,
        }
    ],
    "multi_round": [
        {"step1": elicit("Step 1: What is your name?", name="string")},
        {"step2": elicit("Step 2: What is your favorite color?", color="string")},
    ],
    "capabilities": [{"question": sample("Anything?"), "confirm": CONFIRM}],
    "prompt": [{"user_context": elicit("What context should the prompt use?", context="string")}],
}
"""What the tools of that name ask the client before they answer, round by round."""
ASKING = "test_input_required_result_"


def asked(call: Call, topic: str) -> Result | None:
    """What to ask the client next; None if it has answered everything."""
    params = call.request.params
    state = params.get("requestState")
    done = 0 if state is None else read_state(topic, state)
    given = params.get("inputResponses")
    rounds = ASKED[topic]
    if isinstance(given, dict) and all(isinstance(given.get(key), dict) for key in rounds[done]):
        done += 1
    if done == len(rounds):
        return None
    able = call.request.meta.get(PREFIX + "clientCapabilities", {})
    return {
        "resultType": "input_required",
        "inputRequests": {
            key: ask for key, ask in rounds[done].items() if NEEDS[ask["method"]] in able
        },
        "requestState": signed(topic, done),
    }


def signed(topic: str, done: int) -> str:
    mark = hmac.new(STATE_KEY, f"{topic}:{done}".encode(), hashlib.sha256).hexdigest()
    return f"{done}:{mark}"


def read_state(topic: str, state: object) -> int:
    for done in range(len(ASKED[topic])):
        if state == signed(topic, done):
            return done
    raise ProtocolError(INVALID_PARAMS, "this requestState is not ours")


def with_progress(call: Call) -> Result:
    for share in (0, 50, 100):
        if (token := call.request.token) is not None:
            told = {"progressToken": token, "progress": share, "total": 100}
            call.report("notifications/progress", told)
    return {"content": [text("done")]}


def with_logging(call: Call) -> Result:
    for what in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.report("notifications/message", {"level": "info", "data": what})
    return {"content": [text("done")]}


def with_capability(call: Call) -> Result:
    if "sampling" not in call.request.meta.get(PREFIX + "clientCapabilities", {}):
        needed: Result = {"requiredCapabilities": {"sampling": {}}}
        raise ProtocolError(MISSING_CAPABILITY, "Missing required client capability", needed)
    return {"content": [text("ok")]}


def with_error(call: Call) -> Result:
    words = "This tool intentionally returns an error for testing"
    return {"content": [text(words)], "isError": True}


DONE: dict[str, Callable[[Call], Result]] = {
    "test_tool_with_progress": with_progress,
    "test_tool_with_logging": with_logging,
    "test_missing_capability": with_capability,
    "test_error_handling": with_error,
}
TOOLS = [*SAID, *DONE, *(ASKING + topic for topic in ASKED if topic != "prompt")]

PAGES: dict[str, Result] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
TEMPLATE = "test://template/{id}/data"

PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    ASKING + "prompt": (),
}


def prompted(name: str, given: dict[str, str]) -> list[Result]:
    if name == "test_prompt_with_arguments":
        return [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
    if name == "test_prompt_with_embedded_resource":
        words = "Embedded resource content for testing."
        return [
            embedded(given["resourceUri"], "text/plain", words),
            text("Please process the embedded resource above."),
        ]
    if name == "test_prompt_with_image":
        return [IMAGE, text("Please analyze the image above.")]
    return [text("This is a simple prompt for testing.")]


class FixtureServer(Server):
    capabilities = {**Server.capabilities, "logging": {}}

    def __init__(self, callers: Callers, tools: list[Tool]) -> None:
        super().__init__(callers, tools)
        self._plain = dict(self.methods)
        self.methods |= {
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "prompts/list": self.list_prompts,
            "logging/setLevel": lambda _: {},
        }

    def list_tools(self, call: Call) -> Result:
        schemas = {"json_schema_2020_12_tool": RICH_SCHEMA}
        added = [
            {
                "name": name,
                "description": "a fixture of the conformance suite",
                "inputSchema": schemas.get(name, {"type": "object"}),
            }
            for name in TOOLS
        ]
        return {"tools": [*super().list_tools(call)["tools"], *added]}

    def call_tool(self, call: Call) -> Result:
        name = call.request.text("name")
        if name in SAID:
            return {"content": SAID[name]}
        if name in DONE:
            return DONE[name](call)
        if name not in TOOLS:
            return super().call_tool(call)
        return asked(call, name.removeprefix(ASKING)) or {"content": [text("state-ok")]}

    def list_resources(self, call: Call) -> Result:
        added = [
            {"uri": uri, "name": uri, "mimeType": page["mimeType"]} for uri, page in PAGES.items()
        ]
        return {"resources": [*self._plain["resources/list"](call)["resources"], *added]}

    def list_templates(self, call: Call) -> Result:
        return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "template"}]}

    def read_resource(self, call: Call) -> Result:
        uri = call.request.text("uri")
        page = PAGES.get(uri)
        if match := re.fullmatch(TEMPLATE.replace("{id}", "([^/]+)"), uri):
            id = match[1]
            words = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
            page = {"mimeType": "application/json", "text": words}
        return {"contents": [{"uri": uri, **page}]} if page else super().read_resource(call)

    def subscribe(self, call: Call) -> Result:
        # Nothing ever changes there, so there is nothing to follow.
        return {} if call.request.text("uri") in PAGES else super().subscribe(call)

    def list_prompts(self, call: Call) -> Result:
        added = [
            {
                "name": name,
                "description": "a fixture of the conformance suite",
                "arguments": [{"name": argument, "required": True} for argument in arguments],
            }
            for name, arguments in PROMPTS.items()
        ]
        return {"prompts": [*self._plain["prompts/list"](call)["prompts"], *added]}

    def get_prompt(self, call: Call) -> Result:
        name = call.request.text("name")
        if name not in PROMPTS:
            return super().get_prompt(call)
        if name.startswith(ASKING) and (ask := asked(call, name.removeprefix(ASKING))):
            return ask
        parts = prompted(name, call.request.params.get("arguments") or {})
        return {"messages": [{"role": "user", "content": part} for part in parts]}
