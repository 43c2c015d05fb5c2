"""An idle agent is woken: real clients, from somebody's `dibs send` to the model's request."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.clients.client import BINARIES, PROMPT, Running, start, surroundings
from tests.clients.script import Step, edit, say
from tests.clients.terminal import at_terminal
from tests.surfaces.shell import Shell, alive, until

pytestmark = pytest.mark.clients


class Asked:
    """When the model was asked to go on."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self) -> bool:
        self.at.append(perf_counter())
        return True


def script(asked: Asked) -> list[Step]:
    return [edit("c.py", "c = 1\n"), say("one"), say("two").when(asked), say("three")]


def wake(
    shell: Shell, repository: Path, asked: Asked, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write to the agent once it is idle, and say how long it took."""
    until(lambda: waits(repository), "somebody who waits beside it")
    (holder,) = {lease["agent"] for lease in shell.json("leases")}
    before = perf_counter()
    shell.as_("bob").ok("send", "please leave c.py to me", "--to", holder)
    sent = perf_counter()
    until(lambda: asked.at, "the model's request")
    with capsys.disabled():
        took = [(asked.at[0] - at) * 1000 for at in (before, sent)]
        print(f"\n{client} woken {took[0]:.0f} ms after `dibs send` began, {took[1]:.0f} ms after")


def waits(repository: Path) -> bool:
    notes = (repository / ".dibs/hooks").glob("idle-*")
    numbers = [text for note in notes if (text := note.read_text().strip())]
    return any(alive(int(number)) for number in numbers)


def was_told(said: list[dict[str, Any]]) -> bool:
    text = " ".join(entry["text"] for entry in said)
    return bool(re.search(r'from (\\?"|&quot;)bob.*please leave c.py to me', text))


def test_claude_code_is_woken_and_what_waits_ends_with_it(
    repository: Path, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.ok("init", "--client", "claude")
    asked = Asked()
    with at_terminal("claude", repository, script(asked)) as client:
        client.result(0)
        wake(shell, repository, asked, "claude", capsys)
        assert was_told(client.transcript.of("context")), client.story("was not told")
        until(lambda: len(client.transcript.of("say")) == 2, "the end of that turn")
        until(lambda: len(waiting(client)) == 1, "one who waits again")
        client.kill()
        until(lambda: not waiting(client), "the end of what waits")


def waiting(client: Running) -> list[str]:
    return [command for command in client.children().values() if "claude wake" in command]


def test_codex_is_woken_in_the_server_that_its_windows_share(
    repository: Path, shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.ok("init", "--client", "codex")
    asked = Asked()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/codex").symlink_to(BINARIES / "codex")  # as a user has it on the PATH
    path = surroundings(tmp_path / "other", repository)["PATH"]
    variables = {"PATH": f"{tmp_path}/bin{os.pathsep}{path}"}
    with at_terminal("codex", repository, script(asked), variables=variables) as client:
        client.shows("2. Trust all and continue")
        client.presses("2", "2. Trust all and continue", 2)
        client.presses("\r", "Trusting hooks")
        wake(shell, repository, asked, "codex", capsys)
        until(lambda: was_told(client.transcript.of("context")), "what bob wrote")
        prompts = [one["text"] for one in client.transcript.of("context") if one["role"] == "user"]
        assert not any("leave c.py to me" in text for text in prompts), "that is for its user"
        until(lambda: len(client.transcript.of("say")) == 2, "the end of that turn")
        until(lambda: waits(repository), "one who waits again")


def test_opencode_is_woken(
    repository: Path, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.ok("init", "--client", "opencode")
    asked = Asked()
    words = ["serve", "--port", "0", "--print-logs"]
    with start("opencode", repository, script(asked), words=words) as running:
        post = serving(running)
        session = post("/session", {})["id"]
        parts = [{"type": "text", "text": PROMPT}]
        chosen = {"providerID": "scripted", "modelID": "model"}
        post(f"/session/{session}/prompt_async", {"model": chosen, "parts": parts})
        running.result(0)
        wake(shell, repository, asked, "opencode", capsys)
        assert was_told(running.transcript.of("context")), running.story("was not told")
        running.kill()
        until(lambda: not waits(repository), "the end of what waits")


def serving(running: Running) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """Wait for the address that a server prints; what asks it."""

    def address() -> re.Match[str] | None:
        return re.search(r"listening on (http://\S+)", running.output())

    until(address, "the server's address")
    found = address()
    assert found is not None
    base = found[1]

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            base + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        said: dict[str, Any] = json.loads(text) if text.strip() else {}
        return said

    return post
