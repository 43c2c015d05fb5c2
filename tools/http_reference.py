"""Write docs/http.md from the source: every path of the daemon, and who may call it.

    python -m tools.http_reference            write it
    python -m tools.http_reference --check    fail if it is not what would be written

A test does the same check, so the page cannot fall behind the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dibs.dibs import operations
from dibs.operation import AGENT, NOUNS, PERSON, Operation
from dibs.surfaces.http import api, serve
from tools.reference import all_errors

PAGE = Path(__file__).parent.parent / "docs" / "http.md"

HEAD = """\
# HTTP

This page is made from the source by `make docs`; do not edit it. [The daemon](daemon.md) says how
to start it, who gets in and what its limits are. A running daemon describes itself at
`/openapi.json`, and for people at `/docs`.

Every operation is `POST /v1/<noun>/<operation>`. The body is a JSON object of the arguments that
[the reference](reference.md#operations) lists, and the answer is JSON.

| header | what it says |
|---|---|
| `Authorization: Bearer TOKEN` | who calls; always needed |
| `Content-Type: application/json` | always needed with a body |
| `Dibs-Session: TOKEN` | the session to act in, from `/v1/agents/join`; else the token's own |
| `Dibs-Agent: NAME` | as whom to act, if the token allows it: anybody, or `name/…` |
| `Dibs-Party: agent` | with an admin's token: act within the limits of agents |
| `Dibs-Repository: NAME` | when joining: the caller's repository; the first is the home |
| `Dibs-Call: ID` | a name for a call that waits, by which `/v1/cancel` ends it |
| `traceparent` | the trace to link what is claimed to ([telemetry.md](telemetry.md)) |

A refusal has one shape, on every path: `{"error": CODE, "message": …, "next": …, "details": …}`.
"""

STATUS_HEAD = """\
## Status codes

| status | errors |
|--:|---|
"""

GATE_HEAD = """\
Requests that are turned away before an operation is called have these:

| status | meaning |
|--:|---|
"""

PATHS = {
    "/": "the dashboard",
    "/agent": "the dashboard's page of an agent",
    "/task": "the dashboard's page of a task",
    "/path": "the dashboard's page of a path",
    "/assets/{name}": "the dashboard's scripts and styles",
    "/viewer": "what the dashboard may show to whoever is signed in",
    "/attempt-logs": "the end of the log of each attempt at a task (`?task=ID`), for admins",
    "/sign-in": "`POST` makes a link that signs a browser in; `GET` opens it, once",
    "/healthz": "200 if the daemon runs; needs no token",
    "/readyz": "200 if the store can be written, else 503 with the cause; needs no token",
    "/openapi.json": "this page for programs, with all schemas",
    "/docs": "the same for people",
    "/metrics": "for Prometheus",
    "/mcp": "the tools of `dibs mcp`, over Streamable HTTP ([agents.md](agents.md#over-http))",
    "/.well-known/agent-card.json": "the A2A agent card; needs no token",
    "/a2a": "A2A, as JSON-RPC ([a2a.md](a2a.md))",
    "/v1/events": "the journal as server-sent events; `Last-Event-ID` or `?since=SEQ` says where "
    "to begin, `kind`, `agent` and `subject` narrow it",
    "/v1/metrics": "`POST`: takes what Claude Code uses, over OTLP ([telemetry.md](telemetry.md))",
}
"""What each path is for that is not an operation; a new one fails here until it has a line."""


def render() -> str:
    """The whole page."""
    return "\n".join(page()).rstrip() + "\n"


def page() -> Iterator[str]:
    yield HEAD
    yield "## Operations\n"
    yield "| path | who | what it does |\n|---|---|---|"
    for path, (summary, _, _) in api.APART.items():
        yield f"| `{path}` | everybody | {summary}. |"
    for noun in NOUNS:
        for entry in operations().values():
            if entry.noun == noun and entry.by:
                link = f"[`/v1/{noun}/{entry.verb}`](reference.md#{noun}{entry.verb})"
                yield f"| {link} | {who(entry)} | {entry.summary} |"
    yield "\n## Other paths\n"
    yield "| path | what it is |\n|---|---|"
    for path in dict.fromkeys(route.path for route in serve.routes()):  # type: ignore[attr-defined]
        yield f"| `{path}` | {PATHS[path]} |"
    yield f"\n{STATUS_HEAD.rstrip()}"
    by_status: dict[int, list[str]] = {}
    for error in all_errors():
        by_status.setdefault(error.http_status, []).append(f"`{error.code}`")
    for status, codes in sorted(by_status.items()):
        yield f"| {status} | {', '.join(codes)} |"
    yield f"\n{GATE_HEAD.rstrip()}"
    for code, meaning in api.GATE.items():
        yield f"| {code} | {meaning} |"


def who(entry: Operation) -> str:
    if AGENT in entry.by:
        return "everybody"
    return "people and hooks" if len(entry.by) > 2 else "people" if PERSON in entry.by else "admins"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render():
            sys.exit("docs/http.md is out of date: run make docs")
    else:
        PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
