"""What an MCP server costs: until its first answer, in memory, and per call.

Beside it runs a server of the official SDK with one tool that does nothing, in an environment
of its own, since dibs does not need the SDK.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import dibs
from bench.measure import in_turns
from bench.start import DIBS

HERE = os.path.dirname(os.path.abspath(__file__))
SDK = os.path.join(os.path.dirname(HERE), ".conformance", "python")
"""`make bench` sees to it that the SDK is there."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Client:
    """As little of a client as can be: a line out, a line in."""

    def __init__(self, command: list[str], folder: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method}
        line = json.dumps({**request, "params": {**params, "_meta": META}}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        result: dict[str, Any] = json.loads(self.process.stdout.readline())["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def resident_mib(self) -> float:
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as source:
            line = next(line for line in source if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Servers:
    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "servers")
        os.makedirs(os.path.join(self.folder, ".git"))
        names = ("PATH", "LANG", "HOME")
        self.environment = {name: os.environ[name] for name in names if name in os.environ}
        self.environment["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "pycache")
        self.commands = {
            "dibs": [DIBS, "mcp"],
            "sdk": [sys.executable, os.path.join(HERE, "sdk_server.py")],
        }

    def start(self, side: str) -> Client:
        environment = self.environment | ({"PYTHONPATH": SDK} if side == "sdk" else {})
        return Client(self.commands[side], self.folder, environment)

    def starts(self, rounds: int, calls: int) -> dict[str, list[float]]:
        """Seconds from the start to the first answer, beside a Python that does nothing."""

        def first(side: str) -> Callable[[], None]:
            def run() -> None:
                client = self.start(side)
                client.ask("server/discover")
                taken.append(time.perf_counter())
                client.close()

            return run

        taken: list[float] = []
        figures: dict[str, list[float]] = {"bare": [], "dibs": [], "sdk": []}
        sides = {side: first(side) for side in self.commands}
        for run in sides.values():
            run()  # compile once
        for _ in range(rounds):
            figures["bare"] += in_turns({"bare": self._bare}, 1, calls)["bare"]
            for side, run in sides.items():
                seconds = []
                for _ in range(calls):
                    began = time.perf_counter()
                    run()
                    seconds.append(taken[-1] - began)
                figures[side].append(sorted(seconds)[len(seconds) // 2])
        return figures

    def _bare(self) -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True, env=self.environment)

    def calls(self, rounds: int, calls: int) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Seconds per claim through the library and the server, per call of the SDK's; memory."""
        space = dibs.open(start=self.folder, user_dir=os.path.join(self.folder, "user"))
        agent = space.join("library")
        served, sdk = self.start("dibs"), self.start("sdk")
        figures: dict[str, list[float]] = {"library": [], "dibs": [], "sdk": []}
        sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "library": (
                lambda: agent.leases.claim("port:1", note="bench"),
                lambda: agent.leases.release("port:1"),
            ),
            "dibs": (
                lambda: served.call("claim", resource="port:2", note="bench"),
                lambda: served.call("release", resource="port:2"),
            ),
            "sdk": (lambda: sdk.call("nothing"), lambda: None),
        }
        for _ in range(rounds):
            for side, (claim, release) in sides.items():
                seconds = []
                for _ in range(calls):
                    began = time.perf_counter()
                    claim()
                    seconds.append(time.perf_counter() - began)
                    release()
                figures[side].append(sorted(seconds)[calls // 2])
        memory = {"dibs": served.resident_mib(), "sdk": sdk.resident_mib()}
        for client in (served, sdk):
            client.close()
        space.close()
        return figures, memory
