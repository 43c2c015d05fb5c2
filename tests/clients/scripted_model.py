"""A model that reads its lines from a script.

One HTTP server on loopback, which speaks the dialects of the four agent CLIs. A request that
offers tools is answered with the next step of the script. A conversation is answered by its
length: a client that repeats a request hears the same answer again, and no step is lost.
Requests without tools (for a title, a summary) hear "ok" and do not move the script.
A subagent is a conversation of its own, with a script of its own: the part it was told to play.

Whatever the model was shown goes into its transcript, each thing once.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.clients.dialects import Dialect, Json, Shown, Turn, dialect_for
from tests.clients.script import Step, part_to_play, say

PATIENCE_S = 60.0


class Transcript:
    """What a model was shown and what it did, in order. A record is a dictionary with a `kind`:

    tool     name, description          a tool that it may call
    context  role, text                 prompts, instructions, what hooks have added
    call     step, name, arguments, offered    what it called; some tools are not offered at once
    result   step, text                 what came back, also a hook's refusal
    say      step, text                 its last word
    problem  text                       the script or the client did something unexpected

    A step is its number in the script, or `part:number` in the script of a subagent.
    """

    def __init__(self) -> None:
        self._records: list[Json] = []
        self._known: set[str] = set()
        self._changed = threading.Condition()

    def record(self, kind: str, **fields: Any) -> None:
        entry = {"kind": kind, **fields}
        key = json.dumps(entry, sort_keys=True)
        with self._changed:
            if key not in self._known:
                self._known.add(key)
                self._records.append(entry)
                self._changed.notify_all()

    def of(self, kind: str) -> list[Json]:
        with self._changed:
            return [entry for entry in self._records if entry["kind"] == kind]

    def result(self, step: int | str) -> str | None:
        for entry in self.of("result"):
            if entry["step"] == step:
                return str(entry["text"])
        return None

    def wait(self, seconds: float) -> None:
        """Until something is added, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def __str__(self) -> str:
        """For a failed test: everything but the long descriptions."""
        with self._changed:
            return "\n".join(str(entry)[:500] for entry in self._records)


class Part:
    """One conversation with the model: that of the agent, or of a subagent."""

    def __init__(self, name: str, script: list[Step]) -> None:
        self.name = name
        self.script = script
        self.turns: dict[int, Turn] = {}  # length of the conversation -> the answer it got
        self.playing = threading.Lock()

    def is_played(self, shown: Shown) -> bool:
        told = part_to_play(self.name)
        return any(told in text for role, text in shown.context if role != "system")


class ScriptedModel:
    """Serves a script on a free port of loopback while the `with` block runs."""

    def __init__(
        self, script: list[Step], repository: Path, parts: dict[str, list[Step]] | None = None
    ) -> None:
        self.script = script
        self.repository = repository
        self.transcript = Transcript()
        self.parts = {name: Part(name, steps) for name, steps in (parts or {}).items()}
        self._main = Part("", script)
        self._steps: dict[str, int | str] = {}  # id of a call -> its step
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, dialect: Dialect, shown: Shown) -> Turn:
        self._note(shown)
        if not shown.tools:
            return Turn("ok")
        part = next((part for part in self.parts.values() if part.is_played(shown)), self._main)
        with part.playing:
            if shown.turns not in part.turns:
                part.turns[shown.turns] = self._play(part, dialect, shown)
            return part.turns[shown.turns]

    @property
    def turns(self) -> int:
        """How often the model was asked to go on, subagents left out."""
        return len(self._main.turns)

    def _play(self, part: Part, dialect: Dialect, shown: Shown) -> Turn:
        place = len(part.turns)
        step = part.script[place] if place < len(part.script) else say("end of script")
        number = f"{part.name}:{place}" if part.name else place
        self._hold_back(number, step)
        id_ = f"step_{number}".replace(":", "_")
        if step.kind == "say":
            self.transcript.record("say", step=number, text=step["text"])
            return Turn(step["text"], id=id_)
        name, arguments = dialect.call(step, self.repository, shown.tools)
        self._steps[id_] = number
        offered = name in shown.tools or name in shown.found
        self.transcript.record("call", step=number, name=name, arguments=arguments, offered=offered)
        return Turn(name=name, arguments=arguments, id=id_)

    def _hold_back(self, number: int | str, step: Step) -> None:
        end = time.monotonic() + PATIENCE_S
        while not step.condition() and not self._over.wait(0.02):
            if time.monotonic() > end:
                text = f"step {number} ({step.kind}) waited {PATIENCE_S:.0f} s for its condition"
                self.transcript.record("problem", text=text)
                return

    def _note(self, shown: Shown) -> None:
        for name, description in {**shown.tools, **shown.found}.items():
            self.transcript.record("tool", name=name, description=description)
        for role, text in shown.context:
            self.transcript.record("context", role=role, text=text)
        for call_id, text in shown.results:
            self.transcript.record("result", step=self._steps.get(call_id), text=text)


def handler_for(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that hung up has its reasons
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.reply(json.dumps({"data": [], "models": []}))

        do_HEAD = do_GET

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                self.reply(self.answer(raw))
            except (ValueError, LookupError, TypeError) as error:
                text = f"{self.path}: {type(error).__name__}: {error}"
                model.transcript.record("problem", text=text)
                self.reply(json.dumps({"error": {"message": text}}), status=400)

        def answer(self, raw: bytes) -> str:
            if "count_tokens" in self.path or "countTokens" in self.path:
                return json.dumps({"input_tokens": 1, "totalTokens": 1})
            dialect, body = dialect_for(self.path), json.loads(raw)
            return dialect.speak(model.answer(dialect, dialect.hear(body)), body, self.path)

        def reply(self, text: str, status: int = 200) -> None:
            data = text.encode()
            kind = "application/json" if text.startswith("{") else "text/event-stream"
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)

    return Handler
