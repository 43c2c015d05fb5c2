"""The import rules of src/dibs, read from the source: each offence is reported with its line.

Layers, left to right: records, errors | operation | storage | nouns | dibs | surfaces. A
module imports from its own layer and from those to its left, also when only a type checker
would follow the import. The folders of surfaces are side by side: none imports another.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
SOURCES = sorted((SRC / "dibs").rglob("*.py"))

LAYERS = [
    {"dibs.records", "dibs.errors", "dibs.digest", "dibs.logger", "dibs.system"},
    {"dibs.arguments", "dibs.moments", "dibs.operation"},
    {"dibs.storage"},
    {"dibs.names"},
    {"dibs.space", "dibs.nouns"},
    {
        "dibs.dibs",
        "dibs.aio",
        "dibs.aio_nouns",
        "dibs.answers",
        "dibs.decorating",
        "dibs.keeping",
        "dibs.link",
        "dibs.remote",
        "dibs.wire",
    },
    {"dibs"},  # the package itself: public names of all to the left
    {
        "dibs.clients",
        "dibs.landing",
        "dibs.setup",
        "dibs.surroundings",
        "dibs.telemetry",
        "dibs.trackers",
        "dibs.vault",
    },
    {"dibs.mcp", "dibs.swarm"},
    {"dibs.surfaces", "dibs.__main__"},
]

SQLITE_DRIVER = "dibs/storage/sqlite*.py"
POSTGRES_DRIVER = "dibs/storage/postgres*.py"
SURFACES = "dibs/surfaces/*"
TALKING = (SURFACES, "dibs/surroundings/*", "dibs/clients/*", "dibs/mcp/*")
"""Where the environment may be read and something printed."""
USER_DIR = "dibs/storage/user_dir.py"
"""Reads the environment too: it says where a user's data are. `expandvars` would load `re`."""

# A module of others, and the only files that may import it.
CONFINED = {
    "apsw": [SQLITE_DRIVER],
    "psycopg": [POSTGRES_DRIVER],
    "asyncio": [SURFACES, "dibs/aio.py"],
    "anyio": [SURFACES, "dibs/aio.py"],
    "starlette": [SURFACES],
    "uvicorn": [SURFACES],
}

# Statements live in .sql files. Drivers spell out only what controls their connection.
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|ALTER|DROP|WITH)\s")
CONTROL = re.compile(
    r"\s*(PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|LISTEN|UNLISTEN|NOTIFY|VACUUM)(\s|;|$)"
)

# A sentence that everybody says is written once, beside the record that it is about.
SENTENCES = {" is held by ": "dibs/records.py", " has been waiting for ": "dibs/records.py"}

# What `import dibs` must not load: each costs milliseconds at the start of every command.
HEAVY = {
    "argparse",
    "asyncio",
    "dataclasses",
    "inspect",
    "logging",
    "pathlib",
    "psycopg",
    "subprocess",
    "typing",
    "uuid",
}


def offences(path: str, source: str) -> list[str]:
    """Every broken rule in one file; `path` is relative to src."""
    tree = ast.parse(source, path)
    found = [
        *layer_offences(path, tree),
        *sibling_offences(path, tree),
        *confinement_offences(path, tree),
        *sql_offences(path, tree),
        *sentence_offences(path, tree),
        *surface_offences(path, tree),
        *record_offences(path, tree),
    ]
    return [f"{path}:{line}: {why}" for line, why in sorted(found)]


def layer_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    mine = layer_of(module_name(path))
    if mine is None:
        yield 1, "belongs to no layer"
        return
    for line, module in imports(path, tree):
        if module.split(".")[0] != "dibs":
            continue
        theirs = layer_of(module)
        if theirs is None:
            yield line, f"imports {module}, which belongs to no layer"
        elif theirs > mine:
            yield line, f"imports {module}, which is to the right of it"


def sibling_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """No surface imports another: what both need is beneath them."""
    mine = surface_of(module_name(path))
    for line, module in imports(path, tree):
        theirs = surface_of(module)
        if mine and theirs and mine != theirs:
            yield line, f"imports {theirs}, which is another surface"


def surface_of(module: str) -> str:
    """The folder of surfaces that a module is in, "" for one that is in none."""
    return f"{module}..".split(".")[2] if module.startswith("dibs.surfaces.") else ""


def confinement_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, module in imports(path, tree):
        homes = CONFINED.get(module.split(".")[0])
        if homes is not None and not is_in(path, *homes):
            yield line, f"imports {module}, which only {' and '.join(homes)} may"


def sql_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if STATEMENT.match(node.value):
            yield node.lineno, f"holds SQL: {node.value.strip()[:40]!r}"
        elif CONTROL.match(node.value) and not is_in(path, SQLITE_DRIVER, POSTGRES_DRIVER):
            yield node.lineno, f"controls a connection: {node.value.strip()[:40]!r}"


def sentence_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for sentence, home in SENTENCES.items():
                if sentence in node.value and path != home:
                    yield node.lineno, f"says {sentence.strip()!r}, which {home} has words for"


def surface_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    if is_in(path, *TALKING, USER_DIR):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
                yield node.lineno, f"reads the environment: os.{node.attr}"
            case ast.ImportFrom(module="os", names=names):
                for name in names:
                    if name.name in {"environ", "environb", "getenv"}:
                        yield node.lineno, f"reads the environment: os.{name.name}"
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno, "prints"


def record_offences(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """A record elsewhere would be in the API and its reference once its module is imported."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=[ast.Name(id="Record")]) if path != "dibs/records.py":
                yield node.lineno, f"defines a record, which only dibs/records.py may: {node.name}"


def imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in the file, by its full name."""
    package = list(Path(path).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module.split(".") if node.module else [])])
            if base == "dibs.surfaces":
                yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)
            elif base == "dibs":
                # `from dibs import records` names a module, `from dibs import open` does not.
                for name in node.names:
                    full = f"dibs.{name.name}"
                    yield node.lineno, base if layer_of(full) is None else full
            else:
                yield node.lineno, base


def module_name(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> int | None:
    """The layer's place from the left; None for a module that no layer knows."""
    ancestor = ".".join(module.split(".")[:2])
    return next((place for place, names in enumerate(LAYERS) if ancestor in names), None)


def is_in(path: str, *patterns: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_module_keeps_the_rules(source: Path) -> None:
    path = source.relative_to(SRC).as_posix()
    found = offences(path, source.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_there_is_something_to_check() -> None:
    assert {"records.py", "errors.py"} <= {source.name for source in SOURCES}


@pytest.mark.parametrize(
    ("path", "line", "why"),
    [
        ("dibs/records.py", "from dibs.operation import x", "to the right"),
        ("dibs/operation.py", "import dibs.storage.store", "to the right"),
        ("dibs/storage/store.py", "from ..nouns import leases", "to the right"),
        ("dibs/storage/store.py", "from .. import dibs", "to the right"),
        ("dibs/nouns/work.py", "from dibs import open", "to the right"),
        ("dibs/nouns/work.py", "from dibs.dibs import Dibs", "to the right"),
        ("dibs/nouns/work.py", "if TYPE_CHECKING:\n    from dibs.dibs import Dibs", "to the right"),
        ("dibs/nouns/work.py", "def f():\n    from dibs import aio", "to the right"),
        ("dibs/dibs.py", "from dibs.surfaces import cli", "to the right"),
        ("dibs/__init__.py", "from .surfaces.cli import main", "to the right"),
        ("dibs/surfaces/hooks/before.py", "from dibs.surfaces.cli import show", "another surface"),
        ("dibs/surfaces/hooks/git/push.py", "import dibs.surfaces.init.setup", "another surface"),
        ("dibs/surfaces/http/app.py", "from dibs.surfaces import cli", "another surface"),
        ("dibs/surfaces/http/app.py", "from .. import cli", "another surface"),
        ("dibs/surfaces/cli/run.py", "def f():\n    from ..hooks import hook", "another surface"),
        ("dibs/nouns/work.py", "import dibs.helpers", "no layer"),
        ("dibs/helpers.py", "", "no layer"),
        ("dibs/storage/store.py", "import apsw", "may"),
        ("dibs/nouns/work.py", "from psycopg.rows import tuple_row", "may"),
        ("dibs/storage/sqlite.py", "import psycopg.pq", "may"),
        ("dibs/storage/postgres.py", "import asyncio", "may"),
        ("dibs/aio.py", "import starlette", "may"),
        ("dibs/nouns/work.py", "q = 'SELECT 1'", "SQL"),
        ("dibs/nouns/work.py", "q = '''\n  WITH a AS (...)'''", "SQL"),
        ("dibs/nouns/work.py", "q = f'DELETE FROM {table}'", "SQL"),
        ("dibs/storage/sqlite.py", "q = 'UPDATE space SET seq = 1'", "SQL"),
        ("dibs/storage/store.py", "q = 'BEGIN IMMEDIATE'", "controls"),
        ("dibs/storage/store.py", "q = 'COMMIT'", "controls"),
        ("dibs/surfaces/cli/show.py", "q = f'{a} is held by {b}'", "has words for"),
        ("dibs/dibs.py", "import os\nos.environ['HOME']", "environment"),
        ("dibs/dibs.py", "from os import getenv", "environment"),
        ("dibs/nouns/work.py", "print('hello')", "prints"),
        ("dibs/swarm/limits.py", "class Now(Record):\n    agents: int", "defines a record"),
    ],
)
def test_an_offence_is_reported(path: str, line: str, why: str) -> None:
    (report,) = offences(path, line)
    assert why in report


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("dibs/errors.py", "from dibs.records import plain"),
        ("dibs/storage/store.py", "from . import driver\nfrom dibs import records, errors"),
        ("dibs/storage/sqlite.py", "import apsw\nq = 'PRAGMA journal_mode = wal'\nr = 'COMMIT'"),
        ("dibs/storage/postgres_bell.py", "import psycopg\nq = 'LISTEN bell'"),
        ("dibs/nouns/work.py", "why = 'Select another task, or CREATE'\nfootprint('x')"),
        ("dibs/aio.py", "import asyncio\nfrom dibs.dibs import Dibs"),
        ("dibs/__init__.py", "from .dibs import Dibs as Dibs\nfrom dibs.records import Lease"),
        ("dibs/surfaces/cli.py", "import os, dibs\nprint(os.environ['DIBS_URL'])"),
        ("dibs/surfaces/dashboard/app.py", "import starlette\nfrom dibs import open"),
        (
            "dibs/surfaces/hooks/git/push.py",
            "from dibs.surfaces.hooks import before\nimport dibs.mcp",
        ),
        ("dibs/surfaces/hooks/git/push.py", "from . import commit\nfrom .. import notes"),
        ("dibs/__main__.py", "from dibs.surfaces.cli.main import main"),
    ],
)
def test_what_is_allowed_is_not_reported(path: str, line: str) -> None:
    assert offences(path, line) == []


def loaded_by(statement: str) -> set[str]:
    """The modules that a new interpreter has loaded after the statement, .pth files left out."""
    places = [str(SRC), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = f"import sys; sys.path += {places!r}; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_dibs_loads_nothing_heavy() -> None:
    loaded = loaded_by("import dibs")
    assert "dibs" in loaded
    assert loaded & HEAVY == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert {"dataclasses", "inspect"} <= loaded_by("import dataclasses") & HEAVY
