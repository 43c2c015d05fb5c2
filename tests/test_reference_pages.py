"""The reference pages that are written by hand name everything that the source has, and no more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dibs
from dibs.nouns.events.kinds import kinds
from dibs.operation import OPERATIONS
from dibs.surfaces.cli import main
from dibs.surroundings import running
from dibs.surroundings.settings import SETTINGS
from tools import http_reference
from tools.reference import all_errors

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src/dibs"
TABLES = {"land", "retention", "swarm"}
VARIABLE = re.compile(
    r"(DIBS|CLAUDE|CODEX|GEMINI|OTEL|GITHUB|GITLAB|GITEA|GH|XDG|SUDO)(_[A-Z]+)+|TRACEPARENT|NO_COLOR"
)
GITS_OR_THE_SYSTEMS = re.compile(r"GIT_\w+|HOME|PATH|TERM")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(name: str) -> Iterator[list[str]]:
    """The cells of every row of every table of a page, without their headings."""
    for table in re.findall(r"(?:^\|.*\n)+", page(name), re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def calls(file: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def settings_read_in(file: Path) -> set[str]:
    """What is taken out of a table of settings with `pop`."""
    return {
        str(call.args[0].value)
        for call in calls(file)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "pop"
        and isinstance(call.args[0], ast.Constant)
    }


def test_every_setting_is_on_its_page() -> None:
    known = {name.rpartition(".")[2] for name in SETTINGS} | settings_read_in(
        SRC / "landing/bar.py"
    )
    assert {"policy", "journal", "export", "include", "verify", "batch"} <= known
    assert {cells[0].strip("`") for cells in rows("settings.md")} == known
    assert all(f"`[{table}]`" in page("settings.md") for table in TABLES)


def test_every_kind_of_event_is_on_its_page_with_the_operations_that_write_it() -> None:
    told = {
        cells[0].strip("`"): set(re.findall(r"`([\w.]+)`", cells[2])) for cells in rows("events.md")
    }
    written = {
        kind: {entry.name for entry in OPERATIONS.values() if kind in entry.events}
        for kind in kinds()
    }
    assert told == written


def test_every_exit_code_is_on_its_page() -> None:
    used = {error.exit_code for error in all_errors()} | {0, main.BUG, main.INTERRUPTED}
    used |= {main.UNWRITTEN, running.NOT_FOUND, running.NOT_EXECUTABLE}
    assert [int(cells[0]) for cells in rows("exit-codes.md")] == sorted(used)


def variables() -> set[str]:
    """The names in the source that are, or look like, those of environment variables."""
    found = set()
    for file in SRC.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if VARIABLE.fullmatch(node.value):
                    found.add(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if node.func.attr == "get" and owner in ("os.environ", "environment"):
                    found |= {str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant)}
    return found - {"DIBS_LINES"}  # the end of a here-document


def test_every_environment_variable_is_on_its_page() -> None:
    told = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)(?:=\w+)?`", page("environment.md")))
    # These are described as a family.
    family = re.compile(r"OTEL_EXPORTER_OTLP_METRICS_\w+")
    read = {name for name in variables() if not GITS_OR_THE_SYSTEMS.fullmatch(name)}
    assert {"DIBS_URL", "XDG_DATA_HOME", "OTEL_SDK_DISABLED"} <= read
    assert {name for name in read if not family.fullmatch(name)} - told == set()


def test_no_variable_of_dibs_is_on_the_page_that_the_source_does_not_have(tmp_path: Path) -> None:
    with dibs.open(str(tmp_path / "dibs.db"), space="s") as space, space.join("alice") as alice:
        of_a_task = set(running.environment(alice.work.claim("fix-login")))
    assert "DIBS_TASK_EPOCH" in of_a_task
    told = set(re.findall(r"DIBS_[A-Z_]+[A-Z]", page("environment.md")))
    assert of_a_task <= told
    assert told - of_a_task <= variables()


def test_the_page_of_http_is_what_the_source_says_now() -> None:
    assert page("http.md") == http_reference.render(), "docs/http.md is out of date: run make docs"
    served = {f"`{path}`" for path in http_reference.PATHS}
    assert served <= {cells[0] for cells in rows("http.md")}
