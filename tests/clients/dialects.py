"""The model APIs, as far as the agent CLIs use them. Pure translation: no sockets, no files.

A dialect hears the body of a request (what is the model shown?), names the client's own tool for
a step of the script, and speaks a turn as the body of the answer that the client expects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.script import Kind, Step

Json = dict[str, Any]
Call = tuple[str, Json]  # the client's own name of a tool, and its arguments
TITLE = "Generate a concise, single-line task title"


@dataclass
class Shown:
    """What one request shows the model."""

    tools: dict[str, str]  # name -> description
    context: list[tuple[str, str]] = field(default_factory=list)  # role, text
    results: list[tuple[str, str]] = field(default_factory=list)  # id of the call, text
    found: dict[str, str] = field(default_factory=dict)  # tools that a search brought up
    turns: int = 0  # how often the model has spoken in this conversation


@dataclass(frozen=True)
class Turn:
    """What the model answers: a text, or one tool call."""

    text: str = ""
    name: str = ""
    arguments: Json = field(default_factory=dict)
    id: str = "aside"


def blocks(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [content] if content else []


def text_of(content: Any) -> str:
    """Flatten message content, however nested, to the text that the model reads."""
    if isinstance(content, dict):
        for key in ("text", "content", "output"):
            if key in content:
                return text_of(content[key])
        return json.dumps(content)
    if isinstance(content, str):
        return content
    return "\n".join(text_of(block) for block in blocks(content))


def named_events(*events: Json) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def plain_events(*events: Json) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


class Dialect:
    mcp: str  # how a tool of an MCP server is named
    tools: dict[Kind, tuple[str, dict[str, str]]]  # kind -> tool, its arguments -> our fields

    def call(self, step: Step, repository: Path, offered: dict[str, str]) -> Call:
        """Name the client's own tool for this step, and its arguments."""
        if step.kind == "mcp":
            return self.mcp.format(**step.fields), step["arguments"]
        if step.kind == "call":
            return step["name"], step["arguments"]
        if step.kind not in self.tools:
            raise LookupError(f"{type(self).__name__} has no tool for {step}")
        name, arguments = self.tools[step.kind]
        fields = {**step.fields, "kind": step.kind}
        if "path" in fields:
            fields["path"] = str(repository / fields["path"])
        return name, {argument: fields[source] for argument, source in arguments.items()}

    def hear(self, body: Json) -> Shown:
        raise NotImplementedError

    def speak(self, turn: Turn, body: Json, path: str) -> str:
        raise NotImplementedError


class Anthropic(Dialect):
    """Claude Code: POST /v1/messages, streamed or not."""

    mcp = "mcp__{server}__{name}"
    tools = {
        "edit": ("Write", {"file_path": "path", "content": "content"}),
        "replace": ("Edit", {"file_path": "path", "old_string": "old", "new_string": "new"}),
        "read": ("Read", {"file_path": "path"}),
        "shell": ("Bash", {"command": "command"}),
    }

    def hear(self, body: Json) -> Shown:
        tools = body.get("tools", [])
        shown = Shown({tool["name"]: tool.get("description", "") for tool in tools})
        shown.context = [("system", text_of(block)) for block in blocks(body.get("system"))]
        for message in body["messages"]:
            if message["role"] == "assistant":
                shown.turns += 1
                continue
            for block in blocks(message["content"]):
                if isinstance(block, dict) and block["type"] == "tool_result":
                    shown.results.append((block["tool_use_id"], text_of(block.get("content"))))
                else:
                    shown.context.append((message["role"], text_of(block)))
        return shown

    def speak(self, turn: Turn, body: Json, path: str) -> str:
        block: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": turn.text}
        whole: Json = {**block, "text": turn.text}
        if turn.name:
            block = {"type": "tool_use", "id": turn.id, "name": turn.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
            whole = {**block, "input": turn.arguments}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{turn.id}", "type": "message", "role": "assistant"}
        message |= {"model": body["model"]}
        stop = {"stop_reason": "tool_use" if turn.name else "end_turn", "stop_sequence": None}
        if not body.get("stream"):
            return json.dumps({**message, **stop, "content": [whole], "usage": usage})
        begun: Json = {**message, "content": [], "stop_reason": None, "usage": usage}
        return named_events(
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        )


class Responses(Dialect):
    """Codex: POST /v1/responses, streamed.

    Edits are patches. The tools of an MCP server share a namespace, and are not offered until
    the model has searched for them; they answer a direct call all the same.
    """

    mcp = "mcp__{server}.{name}"
    tools = {"find": ("tool_search", {"query": "query", "limit": "limit"})}

    def call(self, step: Step, repository: Path, offered: dict[str, str]) -> Call:
        if step.kind in ("edit", "replace"):
            if "apply_patch" in offered:
                return "apply_patch", {"input": self.patch(step)}
            return self.shell(f"apply_patch <<'EOF'\n{self.patch(step)}EOF\n", offered)
        if step.kind == "read":
            return self.shell(f"cat '{step['path']}'", offered)
        if step.kind == "shell":
            return self.shell(step["command"], offered)
        return super().call(step, repository, offered)

    def shell(self, command: str, offered: dict[str, str]) -> Call:
        if "exec_command" in offered:
            return "exec_command", {"cmd": command}
        return "shell_command", {"command": command}

    def patch(self, step: Step) -> str:
        if step.kind == "edit":
            lines = [f"*** Add File: {step['path']}"]
            added = step["content"]
        else:
            lines = [f"*** Update File: {step['path']}", "@@"]
            lines += ["-" + line for line in step["old"].splitlines()]
            added = step["new"]
        lines += ["+" + line for line in added.splitlines()]
        return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])

    def hear(self, body: Json) -> Shown:
        shown = Shown(listed(body.get("tools", [])))
        shown.context = [("system", body.get("instructions") or "")]
        for item in body["input"]:
            if item["type"] == "tool_search_output":
                shown.found |= listed(item["tools"])
                shown.results.append((item["call_id"], json.dumps(item["tools"])))
            elif item["type"].endswith("_output"):
                shown.results.append((item["call_id"], text_of(item.get("output"))))
            elif item["type"] == "message" and item["role"] != "assistant":
                shown.context += [(item["role"], text_of(block)) for block in item["content"]]
            else:
                shown.turns += 1
        if any(TITLE in text for _, text in shown.context):
            shown.tools = {}  # at a terminal it asks for a title, and offers all tools for that
        return shown

    def speak(self, turn: Turn, body: Json, path: str) -> str:
        item: Json = {"id": f"item_{turn.id}", "status": "completed"}
        if turn.name:
            item |= {"call_id": turn.id, **self.item(turn, body)}
        else:
            content = [{"type": "output_text", "text": turn.text}]
            item |= {"type": "message", "role": "assistant", "content": content}
        response = {"id": f"resp_{turn.id}"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return named_events(
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {
                "type": "response.completed",
                "response": {**response, "output": [item], "usage": usage},
            },
        )

    def item(self, turn: Turn, body: Json) -> Json:
        namespace, _, name = turn.name.rpartition(".")
        if name == "tool_search":
            return {"type": "tool_search_call", "execution": "client", "arguments": turn.arguments}
        if any(tool["type"] == "custom" and tool["name"] == name for tool in body["tools"]):
            return {"type": "custom_tool_call", "name": name, "input": turn.arguments["input"]}
        function = {"type": "function_call", "name": name, "arguments": json.dumps(turn.arguments)}
        return {**function, "namespace": namespace} if namespace else function


def listed(tools: list[Json]) -> dict[str, str]:
    """The tools of Codex, those in a namespace by both names."""
    found = {}
    for tool in tools:
        prefix = tool["name"] + "." if tool["type"] == "namespace" else ""
        for inner in tool.get("tools", [tool]):
            found[prefix + inner.get("name", inner["type"])] = inner.get("description", "")
    return found


class Gemini(Dialect):
    """Gemini CLI: POST …:generateContent and …:streamGenerateContent."""

    mcp = "mcp_{server}_{name}"
    tools = {
        "edit": ("write_file", {"file_path": "path", "content": "content"}),
        "replace": (
            "replace",
            {"file_path": "path", "old_string": "old", "new_string": "new", "instruction": "kind"},
        ),
        "read": ("read_file", {"file_path": "path"}),
        "shell": ("run_shell_command", {"command": "command"}),
    }

    def hear(self, body: Json) -> Shown:
        groups = [group.get("functionDeclarations", []) for group in body.get("tools", [])]
        declared = [tool for group in groups for tool in group]
        shown = Shown({tool["name"]: tool.get("description", "") for tool in declared})
        system = body.get("systemInstruction", {}).get("parts", [])
        shown.context = [("system", text_of(part)) for part in system]
        for content in body["contents"]:
            if content["role"] == "model":
                shown.turns += 1
                continue
            for part in content["parts"]:
                if "functionResponse" in part:
                    result = part["functionResponse"]
                    text = text_of(list(result["response"].values()))
                    shown.results.append((result.get("id", ""), text))
                else:
                    shown.context.append((content["role"], text_of(part)))
        return shown

    def speak(self, turn: Turn, body: Json, path: str) -> str:
        call = {"functionCall": {"id": turn.id, "name": turn.name, "args": turn.arguments}}
        content = {"role": "model", "parts": [call if turn.name else {"text": turn.text}]}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": usage}
        return plain_events(answer) if "stream" in path else json.dumps(answer)


class Chat(Dialect):
    """OpenCode: POST /v1/chat/completions, streamed."""

    mcp = "{server}_{name}"
    tools = {
        "edit": ("write", {"filePath": "path", "content": "content"}),
        "replace": ("edit", {"filePath": "path", "oldString": "old", "newString": "new"}),
        "read": ("read", {"filePath": "path"}),
        "shell": ("bash", {"command": "command", "description": "kind"}),
    }

    def hear(self, body: Json) -> Shown:
        functions = [tool["function"] for tool in body.get("tools", [])]
        shown = Shown({tool["name"]: tool.get("description", "") for tool in functions})
        for message in body["messages"]:
            role, content = message["role"], message.get("content")
            if role == "assistant":
                shown.turns += 1
            elif role == "tool":
                shown.results.append((message["tool_call_id"], text_of(content)))
            else:
                shown.context += [(role, text_of(block)) for block in blocks(content)]
        return shown

    def speak(self, turn: Turn, body: Json, path: str) -> str:
        function = {"name": turn.name, "arguments": json.dumps(turn.arguments)}
        call = {"index": 0, "id": turn.id, "type": "function", "function": function}
        said = {"tool_calls": [call]} if turn.name else {"content": turn.text}
        first = {"index": 0, "delta": {"role": "assistant", **said}, "finish_reason": None}
        stop = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if turn.name else "stop"}
        chunk = {"id": turn.id, "object": "chat.completion.chunk", "created": 1}
        chunk |= {"model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = plain_events(
            {**chunk, "choices": [first]}, {**chunk, "choices": [stop], "usage": usage}
        )
        return chunks + "data: [DONE]\n\n"


class CopilotChat(Chat):
    """Copilot CLI: the same with other tools; `create` refuses to write over a file."""

    mcp = "{server}-{name}"
    tools = {
        "edit": ("create", {"path": "path", "file_text": "content"}),
        "replace": ("edit", {"path": "path", "old_str": "old", "new_str": "new"}),
        "read": ("view", {"path": "path"}),
        "shell": ("bash", {"command": "command", "description": "kind"}),
    }


BY_CLIENT = {
    "claude": Anthropic(),
    "codex": Responses(),
    "gemini": Gemini(),
    "opencode": Chat(),
    "copilot": CopilotChat(),
}
BY_PATH = {
    "/copilot/": BY_CLIENT["copilot"],
    "/messages": BY_CLIENT["claude"],
    "/responses": BY_CLIENT["codex"],
    "enerateContent": BY_CLIENT["gemini"],
    "/completions": BY_CLIENT["opencode"],
}


def dialect_for(path: str) -> Dialect:
    for part, dialect in BY_PATH.items():
        if part in path:
            return dialect
    raise LookupError(f"no dialect is spoken at {path}")
