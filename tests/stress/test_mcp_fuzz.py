"""Whatever comes in, an MCP server neither crashes nor hangs.

Bytes, JSON that was a message before something was changed in it, and calls made up from the
schemas of the tools. After each batch the server must answer a probe; what it says must be
messages only, its answers must fit their schemas, none may call itself a bug of dibs, and in
the end it must end well.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tests.surfaces.mcp_client import (
    HANDSHAKES,
    MODERN,
    TOOLS,
    Client,
    Json,
    Start,
    check_tool_answer,
    clients,
    new_shell,
)

BATCH = 20
# What would end the session, or throw away what a later call is about, is asked for less often.
RARE = {"agents_leave", "clear_namespace"}

# Text that is right, text that is nearly right, and text that is neither.
NAMES = ["a", "b", "src/a.py", "src/", "src/*.py", "port:1", "task", "other", "n", "k", "news"]
ODD = [
    "",
    " ",
    "\0",
    "\ud800",
    "../..",
    "/etc/passwd",
    "**/*",
    "[",
    "x" * 5_000,
    "ä\n",
    "{0}",
    "%s",
]
NUMBERS = [0, 1, -1, 0.5, 2, 1e-9, 2**31, 2**63, 10**400, 1e300, -0.0]
WAITS = ("wait_s", "timeout_s")
CONSTANTS: list[Any] = [None, True, False, "", [], {}, [[]], {"": None}, *NUMBERS]


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(NAMES) | st.sampled_from(ODD) | st.text(max_size=20)


def values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.sampled_from(NUMBERS) | texts()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )


def fitting(schema: Json) -> st.SearchStrategy[Any]:
    """A value as the schema wants it, mostly."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return texts()
        case "integer":
            return st.integers(-1, 50) | st.sampled_from([2**62, 2**63, 10**400])
        case "number":
            return st.sampled_from([0, 0.01, 0.05, 1, 5, 60, -1, 10**400, 1e300])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(fitting(schema["items"]), max_size=4)
        case "object":
            return st.dictionaries(st.text(max_size=5), values(), max_size=3)
    return values()


def arguments_of(tool: str) -> st.SearchStrategy[Json]:
    schema = TOOLS[tool]["inputSchema"]
    required = set(schema.get("required", ()))
    named = {
        # Mostly right: a call with one wrong argument goes no further than that.
        name: st.one_of(*[short(name, inner)] * 8, wrong(name))
        for name, inner in schema["properties"].items()
    }
    right = st.fixed_dictionaries(
        {name: named[name] for name in required},
        optional={name: named[name] for name in named if name not in required},
    )
    anything = st.dictionaries(st.sampled_from([*named, "no"]), values(), max_size=4)
    return st.one_of(*[right] * 8, anything)


def short(name: str, schema: Json) -> st.SearchStrategy[Any]:
    """What fits; a wait must be short, or there would be nothing but waiting."""
    return st.sampled_from([0, 0.01, 0.05]) if name in WAITS else fitting(schema)


def wrong(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([-1, 10**400, "1", True, 1e300, None]) if name in WAITS else values()


def calls() -> st.SearchStrategy[tuple[str, Json]]:
    made = {tool: st.tuples(st.just(tool), arguments_of(tool)) for tool in TOOLS}
    often = [made[tool] for tool in TOOLS if tool not in RARE] * 10
    return st.one_of(*often, *(made[tool] for tool in RARE))


BATCHES = st.lists(calls(), min_size=BATCH // 2, max_size=BATCH)


def is_sound(message: Any) -> bool:
    return not isinstance(message, dict) or "bug in dibs" not in json.dumps(message)


class Fuzz:
    """One server under attack, and how to make up the next thing that is thrown at it."""

    def __init__(self, start: Start, version: str, seed: int) -> None:
        self.pick = random.Random(seed)
        self.client: Client = start("--tools", "all", version=version)
        self.thrown: Counter[str] = Counter()
        self._looked = 0

    def probe(self) -> None:
        """The server lives, in time, and has said nothing that it should not."""
        self.client.lives()
        fresh = self.client.heard[self._looked :]
        self._looked += len(fresh)
        for message in fresh:
            assert is_sound(message), message
            assert message.get("jsonrpc") == "2.0"
            assert ("error" in message) + ("result" in message) + ("method" in message) == 1

    def throw_bytes(self) -> None:
        pick = self.pick
        for _ in range(BATCH):
            kind = pick.randrange(4)
            if kind == 0:
                data = pick.randbytes(pick.choice((1, 10, 100, 5_000)))
            elif kind == 1:
                data = bytes(
                    pick.choices(b'{}[]":,0123456789truefalsnl\\ \n\r\t', k=pick.randrange(200))
                )
            else:
                whole = bytearray(json.dumps(self.message()).encode())
                for _ in range(pick.choice((1, 1, 2, 10))):
                    at = pick.randrange(len(whole))
                    match pick.randrange(3):
                        case 0:
                            whole[at] = pick.randrange(256)
                        case 1:
                            del whole[at : at + pick.randrange(1, 9)]
                        case _:
                            whole[at:at] = whole[: pick.randrange(20)]
                    whole = whole or bytearray(b"{")
                data = bytes(whole)
            self.client.write(data + b"\n")
            self.thrown["bytes"] += 1
        self.probe()

    def message(self) -> Json:
        """A request that would be served."""
        method = self.pick.choice(
            "tools/list tools/call tools/call prompts/list prompts/get resources/list "
            "resources/read resources/subscribe resources/unsubscribe resources/templates/list "
            "completion/complete server/discover ping initialize subscriptions/listen "
            "notifications/cancelled notifications/initialized".split()
        )
        params: Json = {
            "name": self.pick.choice([*TOOLS, "coordinate"]),
            "arguments": {"resource": "src/a.py", "id": "task", "namespace": "n", "key": "k"},
            "uri": "dibs://" + self.pick.choice(("board", "leases", "work", "inbox", "x")),
            "ref": {"type": "ref/prompt", "name": "coordinate"},
            "argument": {"name": "task", "value": "t"},
            "notifications": {"resourceSubscriptions": ["dibs://leases"]},
            "requestId": self.pick.randrange(100),
            "protocolVersion": self.pick.choice(HANDSHAKES),
            "_meta": self.client.meta(progressToken=self.pick.randrange(5)),
        }
        if method == "tools/call" and self.pick.random() < 0.5:
            params["name"] = self.pick.choice(("claim", "status", "work_next", "inbox", "send"))
            params["arguments"] = {"resource": "src/a.py"} if params["name"] == "claim" else {}
        id = self.pick.choice((f"m-{self.pick.getrandbits(40)}", self.pick.getrandbits(30) + 10**6))
        made: Json = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        if method.startswith("notifications/"):
            del made["id"]
        return made

    def throw_changed_json(self) -> None:
        """Messages in which one thing or a few are another, gone, or somewhere else."""
        for _ in range(BATCH):
            message: Any = self.message()
            for _ in range(self.pick.choice((1, 1, 1, 2, 3))):
                message = self.change(message)
            if self.pick.random() < 0.05:
                message = [message, self.message()]
            self.client.send(message)
            self.thrown["JSON"] += 1
        self.probe()

    def change(self, value: Any) -> Any:
        pick = self.pick
        if isinstance(value, dict) and value and pick.random() < 0.9:
            name = pick.choice(sorted(value))
            inner = dict(value)
            match pick.randrange(8):
                case 0:
                    del inner[name]
                case 1:
                    inner[pick.choice(ODD + NAMES)] = inner.pop(name)
                case 2:
                    inner[name] = pick.choice(CONSTANTS)
                case _:
                    inner[name] = self.change(inner[name])
            return inner
        if isinstance(value, list) and value and pick.random() < 0.5:
            return [self.change(item) for item in value] * pick.choice((1, 1, 50))
        if isinstance(value, str) and pick.random() < 0.5:
            return value + pick.choice(ODD)
        return pick.choice([*CONSTANTS, *ODD, value, [value], {"x": value}])

    def throw_calls(self, made_up: list[tuple[str, Json]]) -> None:
        """Calls of tools with arguments made up from their schemas, all at once."""
        asked = {}
        for tool, arguments in made_up:
            session = self.pick.choice(({}, {}, {"sessionId": f"s{self.pick.randrange(3)}"}))
            asked[self.client.begin_call(tool, arguments, **session)] = tool, arguments
            self.thrown["calls"] += 1
        for id, (tool, arguments) in asked.items():
            if waits(tool, arguments):
                self.client.cancel(id)
                continue
            message = self.client.answer(id)
            assert "result" in message, (tool, arguments, message)
            answer = check_tool_answer(tool, message["result"])
            self.thrown[f"status {answer['status']}"] += 1
        self.probe()


def waits(tool: str, arguments: Json) -> bool:
    """Whether nothing that this test does would end the call soon."""
    names = {"wait": "timeout_s", "watch": "timeout_s"}
    name = names.get(tool, "wait_s" if tool in ("events_watch", "work_wait") else None)
    return name is not None and arguments.get(name) is None


def examples(number: int, seed: int) -> list[list[tuple[str, Json]]]:
    """Lists of calls, as Hypothesis makes them up; the same for the same seed."""
    made: list[list[tuple[str, Json]]] = []

    def keep(batch: list[tuple[str, Json]]) -> bool:
        made.append(batch)
        return False

    try:
        find(
            BATCHES,
            keep,
            random=random.Random(seed),
            settings=settings(
                max_examples=number,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    except NoSuchExample:
        return made
    raise AssertionError("nothing was looked for, and it was found")


def fuzz(folder: Path, seconds: float, seed: int) -> str:
    began, pick = time.monotonic(), random.Random(seed)
    thrown: Counter[str] = Counter()
    made_up: Iterator[list[tuple[str, Json]]] = iter(())
    versions = [MODERN, "2025-03-26", HANDSHAKES[-1]]
    with clients(new_shell(folder)) as start:
        attacks = [Fuzz(start, version, pick.getrandbits(32)) for version in versions]
        while time.monotonic() - began < seconds:
            attack = pick.choice(attacks)
            attack.throw_bytes()
            attack.throw_changed_json()
            batch = next(made_up, None)
            if batch is None:
                made_up = iter(examples(20, pick.getrandbits(32)))
                continue
            attack.throw_calls(batch)
        for attack in attacks:
            attack.probe()
            thrown.update(attack.thrown)
    statuses = sorted(name.split()[1] for name in thrown if name.startswith("status"))
    return (
        f"{thrown['bytes']:,} lines of bytes, {thrown['JSON']:,} changed messages, "
        f"{thrown['calls']:,} calls from the schemas in {time.monotonic() - began:.0f} s: "
        f"no crash, no hang; answers: {', '.join(statuses)}"
    )


def test_a_server_survives_some_seconds_of_nonsense(tmp_path: Path) -> None:
    print("\n" + fuzz(tmp_path, seconds=5, seed=41))


@pytest.mark.stress
def test_a_server_survives_a_minute_of_nonsense(tmp_path: Path) -> None:
    seed = int(time.time())
    print(f"\nMCP fuzz, seed {seed}:")
    print(fuzz(tmp_path, seconds=60, seed=seed))
