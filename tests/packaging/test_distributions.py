"""The distributions, installed as a user would, in environments that have nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Run

pytestmark = pytest.mark.packaging

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
WORKS = """
import dibs
with dibs.open("store/dibs.db", space="x") as space, space.join("alice") as alice:
    with alice.lease("port:3000") as lease:
        assert lease.epoch > 0
"""


def pythons() -> Iterator[Path]:
    """The interpreters of the versions that dibs names which this machine has."""
    managed = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    for version in PYTHONS:
        named = shutil.which(f"python{version}")
        # A shim of pyenv is there for each version that any of its users has.
        if named and subprocess.call([named, "--version"], stdout=-3, stderr=-3):
            named = None
        found = [path for path in managed if path.parts[-3].startswith(f"{version}.")]
        if found or named:
            yield found[-1] if found else Path(str(named))


def requirements(wheel: Path) -> list[str]:
    """What the wheel depends on, with its extra for PostgreSQL."""
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith("METADATA"))
        lines = files.read(name).decode().partition("\n\n")[0].splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if "Requires-Dist" in line]
    wanted = [line for line in found if "extra ==" not in line or "'postgres'" in line]
    return [line.partition(";")[0].strip() for line in wanted]


def check(run: Run, bin: Path, folder: Path) -> None:
    """Try the command, the library, the daemon's modules and a claim from two shells."""
    folder.mkdir()
    run("git", "init", "-q", folder)
    for command in ("dibs", "agent-dibs"):
        assert run(bin / command, "--version").stdout.startswith("dibs ")
    run(bin / "python", "-c", WORKS, cwd=str(folder))
    run(bin / "python", "-c", "import psycopg, dibs.surfaces.http.app", cwd=str(folder))
    run(bin / "dibs", "claim", "src/a.py", "--as", "alice", cwd=str(folder))
    refused = run(bin / "dibs", "claim", "src/a.py", "--as", "bob", cwd=str(folder), check=False)
    assert refused.returncode == 1 and "held by alice" in refused.stderr
    assert run(bin / "dibs", "doctor", cwd=str(folder), check=False).returncode in (0, 1)


def installed(run: Run, uv: Path, python: Path, where: Path, *wanted: str) -> Path:
    run(uv, "venv", "--quiet", "--no-managed-python", "--python", python, where)
    run(uv, "pip", "install", "--quiet", "--python", where / "bin/python", *wanted)
    return where / "bin"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_distribution_works_in_a_fresh_environment(
    kind: str, run: Run, uv: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    wanted = f"{distributions[kind]}[postgres]"
    bin = installed(run, uv, Path(sys.executable), tmp_path / "venv", wanted)
    check(run, bin, tmp_path / "repository")
    assert (bin.parent / "share/man/man1/dibs.1").read_text().startswith('.\\"')


@pytest.mark.parametrize("python", list(pythons()), ids=str)
def test_it_works_with_each_python_that_is_here(
    python: Path, run: Run, uv: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    wanted = f"{distributions['wheel']}[postgres]"
    check(run, installed(run, uv, python, tmp_path / "venv", wanted), tmp_path / "repository")


def test_it_works_with_the_oldest_dependencies_that_it_allows(
    run: Run, uv: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    wheel = distributions["wheel"]
    # Named one by one, they are direct requirements: each is taken at its lower bound.
    lowest = ("--resolution", "lowest-direct", *requirements(wheel))
    bin = installed(run, uv, Path(sys.executable), tmp_path / "venv", *lowest, f"{wheel}[postgres]")
    frozen = run(uv, "pip", "freeze", "--python", bin / "python").stdout
    assert "starlette==1.0" in frozen and "uvicorn==0.54.0" in frozen, frozen
    check(run, bin, tmp_path / "repository")


def test_uvx_runs_it_without_an_installation(
    run: Run, uv: Path, distributions: dict[str, Path]
) -> None:
    wheel = distributions["wheel"]
    assert run(uv, "tool", "run", "--from", wheel, "dibs", "--version").stdout.startswith("dibs ")


def test_the_distributions_have_what_they_need_and_nothing_else(
    distributions: dict[str, Path],
) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as files:
        names = set(files.namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= names
    info = next(name for name in names if name.endswith("METADATA")).partition("/")[0]
    manual = f"{info.removesuffix('.dist-info')}.data/data/share/man/man1/dibs.1"
    assert manual in names
    assert {name.partition("/")[0] for name in names - source - {manual}} == {info}
    with tarfile.open(distributions["sdist"]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "src/dibs/__init__.py"} <= inside
    assert not [name for name in inside if name.startswith((".venv", ".git/", ".ci"))]
