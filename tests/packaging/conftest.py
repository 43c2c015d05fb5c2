"""What the tests of the distributions need: uv, the wheel and the sdist, and fresh environments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program as a user who has never seen dibs; its output must not be needed on failure."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    environment = kept | {"HOME": str(home), "XDG_DATA_HOME": str(home / "share")}

    def run(
        *words: str | Path, check: bool = True, **more: str
    ) -> subprocess.CompletedProcess[str]:
        folder = more.pop("cwd", str(home))
        done = subprocess.run(
            [str(word) for word in words], cwd=folder, env=environment | more, text=True,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def uv() -> Path:
    found = Path(sys.executable).with_name("uv")
    assert found.exists(), "uv is one of the development dependencies: run make"
    return found


@pytest.fixture(scope="session")
def distributions(run: Run, uv: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from it, as a release has them."""
    folder = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--quiet", "--out-dir", folder, ROOT)
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}
