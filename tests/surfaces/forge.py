"""A small forge: issues behind the APIs of GitHub, Gitea and GitLab, over real HTTP.

It keeps issues and comments, pages, limits how many requests it takes, fails when it is told to,
and kills its client in the middle of a request, before it does what was asked or after.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PATIENCE_S = 30
TOKEN = "s3cret-t0ken"
PATH = re.compile(
    r"/(?:repos/o/r|projects/o/r)/issues(?:/(\d+))?(?:/(comments|notes|labels))?", re.ASCII
)


class Forge:
    """
    requests: method and path of each request
    failures: statuses and headers that the next requests are answered with, before all else
    page: how many issues are on a page, however many were asked for
    """

    def __init__(self) -> None:
        self.issues: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[str]] = {}
        self.requests: list[str] = []
        self.failures: list[tuple[int, dict[str, str]]] = []
        self.page = 100
        self.raw: bytes | None = None
        self._kill: tuple[int, str] | None = None
        self._victim: subprocess.Popen[str] | None = None
        self._there = threading.Event()
        self._lock = threading.Lock()
        self._clock = time.time()
        self.url = ""

    def add(self, title: str, **fields: Any) -> int:
        number = len(self.issues) + 1
        issue: dict[str, Any] = {
            "title": title,
            "state": "open",
            "reason": None,
            "labels": [],
            "assignees": [],
        }
        self.issues[number] = {**issue, "body": "", **fields}
        self.comments[number] = []
        self.touch(number)
        return number

    def change(self, number: int, **fields: Any) -> None:
        self.issues[number] |= fields
        self.touch(number)

    def touch(self, number: int) -> None:
        self.issues[number]["updated"] = time.time()

    def kill(self, victim: subprocess.Popen[str], request: int, when: str) -> None:
        """Kill a client at its nth request: before it is done, or after, but before the answer."""
        self._victim, self._kill = victim, (len(self.requests) + request, when)
        self._there.set()

    def hold(self) -> None:
        """Let nobody in until it is known whom to kill."""
        self._there.clear()

    def answer(self, method: str, target: str, body: Any) -> tuple[int, dict[str, str], Any]:
        assert self._there.wait(PATIENCE_S)
        with self._lock:
            self.requests.append(f"{method} {target}")
            if self._killed("before"):
                return 500, {}, None
            done = self.failures.pop(0) if self.failures else None
            answer = (*done, {"message": "no"}) if done else self._do(method, target, body)
            return (500, {}, None) if self._killed("after") else answer

    def _killed(self, when: str) -> bool:
        if self._kill != (len(self.requests), when):
            return False
        assert self._victim is not None
        os.kill(self._victim.pid, signal.SIGKILL)
        self._victim.wait()
        self._kill = None
        return True

    def _do(self, method: str, target: str, body: Any) -> tuple[int, dict[str, str], Any]:
        address = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        lab = address.path.startswith("/projects")
        if address.path == "/users":
            return 200, {}, [{"id": 7, "username": query["username"]}]
        match = PATH.fullmatch(unquote(address.path))
        if match is None or (match[1] and int(match[1]) not in self.issues):
            return 404, {}, {"message": "Not Found"}
        if match[1] is None:
            return self._list(query, lab)
        number = int(match[1])
        if match[2] == "labels":
            self.change(number, labels=body["labels"])
        elif match[2] and method == "GET":
            said = self.comments[number] if query.get("page", "1") == "1" else []
            return 200, {}, [{"id": at + 1, "body": text} for at, text in enumerate(said)]
        elif match[2]:
            self.comments[number].append(body["body"])
            self.touch(number)
            return 201, {}, {"id": len(self.comments[number]), "body": body["body"]}
        elif method in ("PATCH", "PUT"):
            self._edit(number, body)
        return 200, {}, self._shown(number, lab)

    def _edit(self, number: int, body: dict[str, Any]) -> None:
        events = {"close": "closed", "reopen": "open"}
        changes: dict[str, Any] = {}
        for name, value in body.items():
            if name == "labels":
                changes["labels"] = value.split(",") if isinstance(value, str) else value
            elif name == "state_event":
                changes["state"] = events[value]
            elif name == "state_reason":
                changes["reason"] = value
            elif name == "assignee_ids":
                changes["assignees"] = ["bot"] if value == [7] else []
            else:
                changes[name] = value
        self.change(number, **changes)

    def _list(self, query: dict[str, str], lab: bool) -> tuple[int, dict[str, str], Any]:
        since = query.get("updated_after" if lab else "since", "1970-01-01T00:00:00Z")
        after = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
        found = [one for one in self.issues if int(self.issues[one]["updated"]) >= after]
        start = (int(query.get("page", 1)) - 1) * self.page
        part = found[start : start + self.page]
        link = {"Link": '<https://elsewhere.invalid/next>; rel="next"'}
        shown = [self._shown(number, lab) for number in part]
        return 200, link if found[start + self.page :] else {}, shown

    def _shown(self, number: int, lab: bool) -> dict[str, Any]:
        issue = self.issues[number]
        updated = datetime.fromtimestamp(issue["updated"], UTC).isoformat().replace("+00:00", "Z")
        shown = {"id": 1000 + number, "title": issue["title"], "updated_at": updated}
        if lab:
            state = "opened" if issue["state"] == "open" else "closed"
            people = [{"username": name, "id": 7} for name in issue["assignees"]]
            more = {"iid": number, "labels": issue["labels"], "description": issue["body"]}
            return {**shown, **more, "state": state, "assignees": people}
        return {
            **shown,
            "number": number,
            "state": issue["state"],
            "state_reason": issue["reason"] if issue["state"] == "closed" else None,
            "labels": [{"name": name} for name in issue["labels"]],
            "assignees": [{"login": name} for name in issue["assignees"]],
            "body": issue["body"],
            "html_url": f"https://github.com/o/r/issues/{number}",
        }


@contextmanager
def running() -> Iterator[Forge]:
    forge = Forge()
    forge._there.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert TOKEN in str(self.headers)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, headers, answer = forge.answer(self.command, self.path, body)
            data = forge.raw if forge.raw is not None else json.dumps(answer).encode()
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # whoever asked is dead

        do_POST = do_PATCH = do_PUT = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    forge.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield forge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
