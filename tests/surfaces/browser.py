"""A real Chromium that looks at a real dashboard, and agents in processes of their own.

The page is driven by Playwright, and any complaint of its makes the test fail.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.surfaces.daemon import Daemon
from tests.surfaces.shell import PATIENCE_S, Shell

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
HOW = "there is no Chromium here: tests/surfaces/get_browser says how to get one"

AGENT = """
import json, sys
import dibs
from dibs.records import plain
me = dibs.open().join(sys.argv[1])
print(me.session, flush=True)
for line in sys.stdin:
    name, words, named = json.loads(line)
    noun, verb = name.split(".")
    try:
        answer = plain(getattr(getattr(me, noun), verb)(*words, **named))
    except dibs.RefusedError as error:
        answer = error.to_json()
    print(json.dumps(answer), flush=True)
"""


def find_chromium() -> str | None:
    found = (shutil.which(name) for name in (*NAMES, *PLACES))
    return next((path for path in found if path), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's browser, without a window; where there is none, the test is skipped."""
    path = find_chromium()
    if path is None:
        assert os.environ.get("CI") != "true", HOW
        pytest.skip(HOW)
    # Chromium refuses to put root into its sandbox. The only page it sees is our own.
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        browser.new_page()  # it may end with its last window, and tests close theirs
        yield browser
        browser.close()


class Troubles:
    """What a page complains of: errors in the console, exceptions, what its policy forbids."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"exception: {error}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")


@contextmanager
def looking(
    browser: Browser, daemon: Daemon, person: str | None = None, **options: Any
) -> Iterator[Page]:
    """A page for somebody who has signed in; at its end it must not have complained."""
    with browser.new_context(base_url=daemon.url, **options) as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        troubles = Troubles(page)
        if person is not None:
            page.goto(sign_in(daemon, person))
        yield page
        assert troubles.found == []


def sign_in(daemon: Daemon, person: str) -> str:
    """The path that signs somebody in, as `dibs open` asks for it."""
    owner = daemon.client()
    path = owner.request("POST", "/sign-in", json.dumps({"name": person})).json["path"]
    owner.close()
    return str(path)


class Agent:
    """An agent in another process, who does what it is told."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.name = name
        self.process = shell.script(AGENT, name, stdin=subprocess.PIPE)
        self.session = int(self.hear())

    def hear(self) -> Any:
        """Its next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.name} has gone"
        return json.loads(line)

    def begin(self, operation: str, *words: Any, **named: Any) -> None:
        """Tell it to do something, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([operation, words, named]) + "\n")
        self.process.stdin.flush()

    def __call__(self, operation: str, *words: Any, **named: Any) -> Any:
        self.begin(operation, *words, **named)
        return self.hear()

    def die(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.die()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass  # it died with something unread
