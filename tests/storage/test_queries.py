"""The named queries: all used, all there, one text for both databases, and found by index."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dibs
from dibs.storage import queries
from dibs.storage.queries import Queries, Query, migrations, newest_migration, pieces
from dibs.storage.store import Store

SRC = Path(dibs.__file__).parent
FILES = sorted(path.stem for path in Path(queries.HERE).glob("*.sql"))
OWN = {"sqlite", "postgres"}
COMMON = [file for file in FILES if file not in OWN]

FORBIDDEN = re.compile(
    r"\bnow\s*\(|\bANY\s*\(|\[|\]|::|\b(LIKE|ILIKE|GLOB|REGEXP|SIMILAR|CURRENT_TIMESTAMP|CURRENT_TIME|CURRENT_DATE|"
    r"localtime\w*|datetime|strftime|SERIAL|BIGSERIAL|AUTOINCREMENT|IDENTITY|ARRAY|"
    r"BOOLEAN|BOOL|TRUE|FALSE|JSONB?|BLOB|BYTEA|REAL|FLOAT|NUMERIC|TIMESTAMPTZ?|"
    r"INTEGER|INT)\b",
    re.IGNORECASE,
)
# A word that changes data must not stand in a common table expression: SQLite has no such thing.
DML_IN_CTE = re.compile(r"\bWITH\b.*\bAS\s*\(\s*(INSERT|UPDATE|DELETE)\b", re.I | re.S)


HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def named() -> dict[tuple[str, str], Query]:
    return {(file, name): query for file in FILES for name, query in Queries(file).load().items()}


def texts(file: str) -> dict[str, str]:
    """Each query of a file as it stands there, by its name."""
    _, *parts = HEAD.split((Path(queries.HERE) / f"{file}.sql").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def parameters_of(text: str) -> dict[str, Any]:
    """A value for each parameter: three for a list, two rows of `VALUES`, NULL for all others."""
    found = re.findall(r"(?<![:\w]):([a-z_]+)(\.\.\.)?", without_comments(text))
    lists: dict[str, Any] = {"rows": [("1", 2, None, 4)] * 2}
    return {name: lists.get(name, [1, 2, 3]) if many else None for name, many in found}


def plan(store: Store, file: str, name: str) -> list[str]:
    """How SQLite would find the rows, step by step."""
    parameters = parameters_of(texts(file)[name])
    text, values = Queries(file).load()[name].bind("sqlite", parameters)
    connection = store.driver.take()
    try:
        steps = connection.db.execute(f"EXPLAIN QUERY PLAN {text}", values)
        return [step[3] for step in steps]
    finally:
        store.driver.give_back(connection)


def uses() -> dict[tuple[str, str], str]:
    """Every `NAME.query` in the source where NAME is a `Queries(...)`, imported or not."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}
    files: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="Queries"), args=[ast.Constant(value=file)]),
                ):
                    files.setdefault(name, set()).add(str(file))
    found = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(
                    value=ast.Name(id=name) | ast.Attribute(attr=name), attr=query
                ) if name in files and query != "load":
                    (file,) = files[name]
                    found[file, query] = f"{path.relative_to(SRC)}:{node.lineno}"
    return found


def without_comments(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def test_a_name_of_queries_means_one_file_wherever_it_is_used():
    assert len(uses()) > 50


def test_every_query_is_used():
    assert sorted(named().keys() - uses().keys()) == []


def test_every_query_that_is_used_exists():
    missing = {use: where for use, where in uses().items() if use not in named()}
    assert missing == {}


@pytest.mark.parametrize("file", COMMON)
def test_common_queries_use_only_what_both_databases_have(file):
    for name, text in texts(file).items():
        # A string literal may hold any character.
        bare = re.sub(r"'[^']*'", "''", without_comments(text))
        assert not FORBIDDEN.search(bare), f"{name}: {FORBIDDEN.search(bare)}"
        assert not DML_IN_CTE.search(bare), name


def test_migrations_use_only_what_both_databases_have():
    for number, name, text in migrations():
        found = FORBIDDEN.search(without_comments(text))
        assert not found, f"{number} {name}: {found}"


def test_the_search_for_forbidden_words_finds_them():
    for text in (
        "x LIKE 'a%'",
        "x GLOB 'a*'",
        "created TEXT DEFAULT CURRENT_TIMESTAMP",
        "SELECT now()",
        "id BIGSERIAL",
        "id INTEGER PRIMARY KEY AUTOINCREMENT",
        "x = ANY(:list)",
        "SELECT tags[1]",
        "done BOOLEAN",
        "x::text",
    ):
        assert FORBIDDEN.search(text), text
    assert DML_IN_CTE.search("WITH gone AS (DELETE FROM x RETURNING id) SELECT id FROM gone")


def test_both_databases_get_the_same_text_but_for_the_marks_of_parameters():
    compared = 0
    for file in COMMON:
        for name, text in texts(file).items():
            query, parameters = Queries(file).load()[name], parameters_of(text)
            theirs, values = query.bind("postgres", parameters)
            ours = re.sub(r"\?(\d+)", r"$\1", query.bind("sqlite", parameters)[0])
            assert theirs == ours, f"{file}.{name}"
            assert query.bind("sqlite", parameters)[1] == values
            compared += 1
    assert compared > 50


def test_parameters_are_numbered_each_once_and_the_elements_of_lists_after_them():
    query = Query("example", "SELECT :b FROM t WHERE id IN (:ids...) AND a = :a OR a = :b")
    text, values = query.bind("postgres", {"a": "A", "ids": [7, 8], "b": "B", "unused": 0})
    assert text == "SELECT $1 FROM t WHERE id IN ($3, $4) AND a = $2 OR a = $1"
    assert values == ("B", "A", 7, 8)


def test_rows_that_are_inserted_are_inserted_by_one_statement():
    query = Query("add", "INSERT INTO t (a, b, c, d)\nVALUES (:a, 'x', :b, :a);")
    assert query.inserts
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    text, values = query.bind_rows("postgres", rows)
    assert text == "INSERT INTO t (a, b, c, d) VALUES ($1, 'x', $2, $1), ($3, 'x', $4, $3)"
    assert values == (1, 2, 3, 4)
    assert query.bind("postgres", rows[1]) == (
        "INSERT INTO t (a, b, c, d) VALUES ($1, 'x', $2, $1)", (3, 4),
    )  # fmt: skip
    for other in (
        "INSERT INTO t (a) SELECT :a",
        "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET b = 1",
        "INSERT INTO t (a) VALUES (:a) RETURNING a",
        "UPDATE t SET a = :a WHERE b IN (:b)",
    ):
        assert not Query("other", other).inserts


def test_a_list_of_rows_stands_in_a_values():
    query = Query("rows", "UPDATE t SET a = :a FROM (VALUES :rows...) AS given WHERE b = column1")
    text, values = query.bind("sqlite", {"a": 0, "rows": [(1, "x"), (2, None)]})
    assert text == "UPDATE t SET a = ?1 FROM (VALUES (?2, ?3), (?4, ?5)) AS given WHERE b = column1"
    assert values == (0, 1, "x", 2, None)


def test_a_query_that_is_not_there_is_named_in_the_error():
    with pytest.raises(AttributeError, match=r"leases\.sql has no query named steal"):
        _ = Queries("leases").steal


PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+(?:\.\.\.)?)")


@given(st.text(st.sampled_from("ab_:.,é9 (\n") | st.characters()))
@example(":a")
@example("x::text :a:b :a_b... é:c _:d 1:e :F ::")
def test_parameters_are_found_where_they_stand(text):
    assert pieces(text) == PARAMETER.split(text)


def test_every_parameter_of_every_query_is_found():
    for file in FILES:
        for name, text in texts(file).items():
            expected = parameters_of(text)
            found = pieces(Queries(file).load()[name]._text)[1::2]
            assert {one.removesuffix("...") for one in found} == expected.keys(), f"{file}.{name}"


def test_every_query_of_a_file_is_found_under_its_name():
    for file in FILES:
        assert list(Queries(file).load()) == list(texts(file))


def test_the_newest_migration_is_the_last_one():
    assert newest_migration() == migrations()[-1][0]


def test_an_empty_list_matches_nothing():
    query = Query("example", "SELECT 1 FROM t WHERE id IN (:ids...)")
    assert query.bind("sqlite", {"ids": []}) == ("SELECT 1 FROM t WHERE id IN (NULL)", ())
    assert query.bind("sqlite", {"ids": [7, 8]})[0].endswith("IN (?1, ?2)")
    assert query.bind("postgres", {"ids": [7]})[0].endswith("IN ($1)")


HOT = [
    ("leases", "around"),
    ("leases", "queue_around"),
    ("leases", "same_file"),
    ("leases", "held"),
    ("leases", "of_session"),
    ("leases", "ticket"),
    ("leases", "tickets_of_session"),
    ("leases", "grant"),
    ("leases", "remove"),
    ("leases", "dequeue"),
    ("leases", "said"),
    ("leases", "revoked"),
    ("work", "one"),
    ("work", "head"),
    ("work", "due"),
    ("work", "next_due"),
    ("work", "of_session"),
    ("work", "claim"),
    ("work", "settle"),
    ("work", "needs_of"),
    ("work", "needed"),
    ("work", "opened_by"),
    ("work", "several"),
    ("work", "states"),
    ("work", "heads"),
    ("work", "take"),
    ("work", "take_many"),
    ("work", "complete_many"),
    ("work", "lane"),
    ("messages", "several"),
    ("messages", "unread"),
    ("messages", "unread_channel"),
    ("messages", "cursor"),
    ("messages", "search"),
    ("state", "get"),
    ("state", "list"),
    ("state", "history"),
    ("space", "answered"),
    ("space", "enter"),
    ("events", "since"),
    ("agents", "several"),
    ("agents", "labelled"),
    ("agents", "of_client"),
    ("agents", "token_of"),
    ("agents", "one_token"),
]


# What looks like a search of a whole space but is none: EXISTS stops at the first row, and the
# queue is as long as the number of waiters at one moment.
ALLOWED = {
    ("space", "enter"): [
        "SEARCH ticket USING COVERING INDEX ticket_line (space=?)",
        "SEARCH event USING PRIMARY KEY (space=?)",  # the last one, for MAX(seq)
    ],
    ("leases", "tickets_of_session"): ["SEARCH ticket USING INDEX ticket_number (space=?)"],
}


@pytest.fixture
def store(sqlite_url, space_name, tmp_path):
    with dibs.open(sqlite_url, space=space_name, user_dir=str(tmp_path / "user")) as space:
        yield space.scope.store


@pytest.mark.parametrize(("file", "name"), HOT)
def test_a_hot_query_finds_its_rows_by_index(file, name, store):
    steps = plan(store, file, name)
    assert steps or name == "grant"
    # What a subquery has found, and what is given with the statement, are few.
    few = ("SCAN above", "SCAN head", "VALUES")
    scans = [step for step in steps if step.startswith("SCAN")]
    assert [step for step in scans if not any(one in step for one in few)] == []
    # A search by the space alone reads every row of it.
    tables = "lease|ticket|task|message|word|entry|event|session|outcome|token"
    table = re.compile(rf"SEARCH ({tables})\b.*\(space=\?\)")
    broad = [step for step in steps if table.search(step)]
    assert [step for step in broad if step not in ALLOWED.get((file, name), ())] == [], steps


@pytest.mark.parametrize(
    ("file", "name"), [("work", "head"), ("work", "due"), ("messages", "unread")]
)
def test_the_best_of_many_comes_first_without_sorting(file, name, store):
    steps = plan(store, file, name)
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
