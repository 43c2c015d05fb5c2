"""The protocol's own tools, as `make conformance` has installed them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.surfaces.shell import Answer

PACKAGES = Path(__file__).resolve().parents[2] / ".conformance/node_modules"
PATIENCE_S = 120


def package(name: str) -> dict[str, Any]:
    """What an installed package says of itself."""
    found: dict[str, Any] = json.loads((PACKAGES / name / "package.json").read_text())
    return found


def run(name: str, script: str, words: Sequence[str], environment: Mapping[str, str]) -> Answer:
    """Run a script of a package to its end, with the Node.js that came along."""
    done = subprocess.run(
        [PACKAGES / "node/bin/node", PACKAGES / name / package(name)["bin"][script], *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=PATIENCE_S,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
