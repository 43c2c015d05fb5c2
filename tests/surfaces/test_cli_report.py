"""`dibs report` and `dibs contention`, as people read them: text, Markdown and HTML."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

import pytest

from dibs.records import Blocker, Waiter
from dibs.surfaces.cli.report import lasting, waiting_tree
from dibs.surroundings.sheets import Name, Sheet, as_text, code, html, markdown
from tests.surfaces.shell import Shell

HOSTILE = "x|`@all` <script>alert(1)</script> \\| [a](http://b) ![c](d) #12 *e* ~~"


@pytest.fixture
def worked(shell: Shell) -> Shell:
    """Alice has done a task, bob has waited for her and given up."""
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("work", "claim", "fix-login", "--lease", "src/a.py")
    bob.ok("work", "claim", HOSTILE)
    assert bob("claim", "src/a.py", "--wait", "300ms").code
    alice.ok("work", "complete", "fix-login")
    return shell


def test_a_report_of_a_restored_store_has_what_was_before(worked: Shell) -> None:
    """A restore leaves out most seqs, which are no events."""
    for agent in ("alice", "bob"):
        worked.as_(agent).ok("agents", "leave")
    before = worked.json("report")
    worked.ok("backup", "../copy.db")
    worked.ok("restore", "../copy.db", "--discard", worked.folder.name)
    after = worked.json("report")
    assert after["last_seq"] > before["last_seq"] + 1_000_000
    assert (after["total"]["done"], after["cut"]) == (1, False)
    assert before["events"] < after["events"] < before["events"] + 10
    assert "too much" not in worked.ok("report").out
    assert worked.json("contention")["total"]["waits"] == 1


def test_a_report_as_csv_has_a_row_for_each_group(worked: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(worked.ok("--format", "csv", "report").out)))
    assert {row["key"]: row["done"] for row in rows} == {"alice": "1", "bob": "0"}


def test_a_report_is_a_summary_and_a_table(worked: Shell) -> None:
    said = worked.ok("report").out
    assert "1 task done. Worked " in said
    assert "1 conflict avoided (1 wait, 0 other tasks taken)" in said
    lines = [line.split() for line in said.splitlines()]
    head = next(line for line in lines if line[:1] == ["agent"])
    assert head == ["agent", "done", "failed", "worked", "held", "waited", "gave", "up", "avoided"]
    alice = next(line for line in lines if line[:1] == ["alice"])
    assert (alice[1], alice[-1]) == ("1", "0")
    assert worked.ok("report", "--since", "1h", "--json").json["total"]["done"] == 1
    assert worked.ok("report", "--format", "json").json["by"] == "agent"
    assert "cost" in worked.ok("report", "--cost").out


def test_a_report_in_markdown_has_every_name_as_code(worked: Shell) -> None:
    said = worked.ok("report", "--by", "task", "--format", "markdown").out
    assert said.startswith("## Report of `repository`\n")
    assert "| `fix-login` | 1 | 0 |" in said
    table = [line for line in said.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1  # no name has made a column
    assert code(HOSTILE) in said
    assert worked.ok("--format", "markdown", "report", "--by", "task").out.startswith("## Report")


def test_a_report_in_html_is_one_file_without_scripts(worked: Shell) -> None:
    said = worked.ok("report", "--by", "task", "--format", "html").out
    tags: list[str] = []
    texts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            assert not {name for name, _ in attrs} & {"src", "href", "onclick"}

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed(said)
    assert set(tags) == {
        "html", "meta", "title", "style", "h1", "code", "p", "div", "table", "tr", "th", "td",
    }  # fmt: skip
    assert HOSTILE in texts
    assert "width=device-width" in said
    assert "@media print" in said


def test_contention_says_who_waits_and_what_would_have_helped(worked: Shell) -> None:
    said = worked.ok("contention").out
    assert "Nobody waits." in said
    assert re.search(r"1 wait, \S+ in all: 0 served, 1 given up\.", said)
    assert re.search(r"^src/a\.py +1 ", said, re.MULTILINE)
    assert re.search(r"^alice +bob +1 ", said, re.MULTILINE)
    assert "split src/a.py" in said
    assert " after fix-login (src/a.py)" in said


def test_wrong_words_are_refused_with_the_right_ones(shell: Shell) -> None:
    assert "agent, task, path, day" in shell("report", "--by", "week").err
    assert "text, markdown, json, html" in shell("report", "--format", "pdf").err
    assert "neither a seq nor a time" in shell("report", "--since", "someday").err
    assert "since is after until" in shell("report", "--since", "1h", "--until", "2h").err


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0"), (40, "40ms"), (1234, "1.2s"), (9_999, "10.0s"), (59_600, "1m"), (61_000, "1m 1s"),
        (3_600_000, "1h"), (5_400_000, "1h 30m"), (90_000_000, "1d 1h"),
    ],
)  # fmt: skip
def test_how_long_something_took(milliseconds: int, text: str) -> None:
    assert lasting(milliseconds) == text


@pytest.mark.parametrize("name", ["a`b", "`", "``", " a ", "a|b", "a\\", "\u202eb", "a\nb", ""])
def test_no_name_ends_its_code(name: str) -> None:
    written = code(name)
    assert not {"|", "\n", "\u202e"} & set(written)
    fence = re.match("`+", written)
    assert fence is not None
    inside = written[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)


def test_who_waits_for_several_is_below_each_and_told_whole_once() -> None:
    def blocker(agent: str, session: int, path: str, waiting: bool = False) -> Blocker:
        return Blocker(
            resource=path, mode="exclusive", agent=agent, session=session, epoch=1,
            waiting=waiting, note="", since_at=0, expires_in_ms=None,
        )  # fmt: skip

    def waiter(agent: str, session: int, path: str, *blockers: Blocker) -> Waiter:
        return Waiter(
            ticket=10 + session, agent=agent, session=session, resources=(path,), note="",
            since_at=0, blockers=blockers,
        )  # fmt: skip

    lines = waiting_tree([
        waiter("carol", 3, "src", blocker("alice", 1, "src/a.py"), blocker("bob", 2, "src/b.py")),
        waiter("dave", 4, "src", blocker("carol", 3, "src", waiting=True)),
    ])  # fmt: skip
    told = [(depth, as_text(text).split(" ")[0]) for depth, text in lines]
    assert told == [(0, "alice"), (1, "carol"), (2, "dave"), (0, "bob"), (1, "carol")]
    assert "also for 1 other" in as_text(lines[1][1])


def test_a_sheet_says_the_same_in_each_format() -> None:
    sheet = Sheet(["Report of ", Name("a<b")])
    sheet.line("All is well.")
    sheet.heading("More")
    sheet.table(["what", "n"], [[Name("x"), "1"]], [1])
    sheet.tree([(0, [Name("y"), " waits"]), (1, Name("z"))])
    assert list(markdown(sheet)) == [
        "## Report of `a<b`", "", "All is well.", "", "### More", "", "| what | n |",
        "| --- | --: |", "| `x` | 1 |", "", "- `y` waits", "  - `z`",
    ]  # fmt: skip
    written = "".join(html(sheet))
    assert "<h1>Report of <code>a&lt;b</code></h1>" in written
    assert "<td class=n>1</td>" in written
