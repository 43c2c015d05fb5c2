"""Figures for Prometheus: what the daemon did, and how the space stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.requests import Request

    from dibs.surfaces.http.app import Daemon

STATES = ("available", "blocked", "claimed", "failed", "dead")
COUNT_LIMIT = 1000


async def serve(request: Request) -> PlainTextResponse:
    daemon: Daemon = request.app.state.daemon
    await daemon.admit(dict(request.headers))
    standing = await daemon.reader.do(lambda: stands(daemon))
    return PlainTextResponse(
        "".join([*done(daemon), *standing]), media_type="text/plain; version=0.0.4"
    )


def done(daemon: Daemon) -> list[str]:
    """What this process has done since its start."""
    calls = [
        line(
            "dibs_calls_total",
            number,
            operation=path.removeprefix("/v1/").replace("/", ".") or "other",
            status=str(status),
        )
        for (path, status), number in sorted(daemon.calls.items())
    ]
    return [
        *told("dibs_calls_total", "counter", "calls by operation and status", *calls),
        *told("dibs_writes_total", "counter", "writes", line("dibs_writes_total", daemon.writes)),
        *told(
            "dibs_commits_total",
            "counter",
            "transactions that these writes shared",
            line("dibs_commits_total", daemon.commits),
        ),
        *told("dibs_waiting", "gauge", "calls that wait", line("dibs_waiting", daemon.waiting)),
    ]


def stands(daemon: Daemon) -> list[str]:
    """How the space stands now; lists are counted up to a thousand."""
    space = daemon.space
    tasks = [
        line("dibs_tasks", len(space.work.list(state=state, limit=COUNT_LIMIT)), state=state)
        for state in STATES
    ]
    gauges = {
        "dibs_agents": ("agents here", len(space.agents.list())),
        "dibs_leases": ("leases in force", len(space.leases.list(limit=COUNT_LIMIT))),
        "dibs_queued": ("waiting for a lease", len(space.leases.waiting(limit=COUNT_LIMIT))),
        "dibs_seq": ("where the journal is", space.events.last()),
    }
    lines = told("dibs_tasks", "gauge", "tasks by state", *tasks)
    for name, (says, value) in gauges.items():
        lines += told(name, "gauge", says, line(name, value))
    return lines


def told(name: str, kind: str, says: str, *lines: str) -> list[str]:
    return [f"# HELP {name} {says}\n", f"# TYPE {name} {kind}\n", *lines]


def line(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}\n" if labels else f"{name} {value}\n"
