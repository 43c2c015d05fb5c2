"""Sheets: a title, lines, tables and trees, written as text, Markdown or one HTML file.

The content is built once, and each format only writes it. A text of a sheet is either our own words
or a name that somebody else chose (`Name`). A terminal shows such a name with invisible characters
as numbers, Markdown shows it as code, so that it is never markup, and HTML shows it as text. The
HTML has no script and loads nothing.
"""

from __future__ import annotations

from dibs.records import NAME_SHOWN, called, visible
from dibs.surroundings.wording import paint, say, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Cell = str | list[str]
    """A text, or several in one line, some of them names."""

STYLE = """\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
div{overflow-x:auto}table{border-collapse:collapse}
th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8886;text-align:left;
vertical-align:top;white-space:nowrap}
td:first-child,li{white-space:normal;overflow-wrap:anywhere}
.n{text-align:right;font-variant-numeric:tabular-nums}
code{font-family:ui-monospace,monospace;font-size:.9em}
@media print{body{max-width:none;padding:0;font-size:10pt}h2,tr{break-inside:avoid}
div{overflow:visible}th,td{white-space:normal}}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Name(str):
    """A name of somebody's choice: an agent, a task, a path."""

    __slots__ = ()


class Table:
    """Rows below a head; numbers: the columns that are aligned to the right"""

    def __init__(self, head: list[str], rows: list[list[Cell]], numbers: Sequence[int]) -> None:
        self.head = head
        self.rows = rows
        self.numbers = frozenset(numbers)


class Tree:
    """Lines below each other, each with its depth."""

    def __init__(self, lines: list[tuple[int, Cell]]) -> None:
        self.lines = lines


class Sheet:
    """A title and the parts below it, in order."""

    def __init__(self, title: Cell) -> None:
        self.title = title
        self.parts: list[tuple[str, Cell | Table | Tree]] = []

    def line(self, text: Cell) -> None:
        self.parts.append(("line", text))

    def heading(self, text: str) -> None:
        self.parts.append(("heading", text))

    def table(self, head: list[str], rows: list[list[Cell]], numbers: Sequence[int]) -> None:
        self.parts.append(("table", Table(head, rows, numbers)))

    def tree(self, lines: list[tuple[int, Cell]]) -> None:
        self.parts.append(("tree", Tree(lines)))


def show(sheet: Sheet) -> None:
    """Print it for people."""
    say(paint("bold", as_text(sheet.title)))
    for kind, part in sheet.parts:
        if isinstance(part, Table):
            table(*aligned(part))
        elif isinstance(part, Tree):
            for depth, text in part.lines:
                say("  " * (depth + 1) + as_text(text))
        else:
            say(f"\n{paint('bold', as_text(part))}" if kind == "heading" else as_text(part))


def aligned(part: Table) -> tuple[list[list[str]], list[str]]:
    """The rows and the head, with the numbers at the right of their columns."""
    rows = [part.head, *([as_text(cell) for cell in row] for row in part.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(part.head))]
    for row in rows:
        for place in part.numbers:
            row[place] = row[place].rjust(widths[place])
    return rows[1:], rows[0]


def as_text(cell: Cell) -> str:
    if isinstance(cell, list):
        return "".join(map(as_text, cell))
    return called(cell) if isinstance(cell, Name) else cell


def markdown(sheet: Sheet) -> Iterator[str]:
    """Its lines in Markdown, as forges render it."""
    yield f"## {as_markdown(sheet.title)}"
    for kind, part in sheet.parts:
        yield ""
        if isinstance(part, Table):
            yield from markdown_table(part)
        elif isinstance(part, Tree):
            for depth, text in part.lines:
                yield f"{'  ' * depth}- {as_markdown(text)}"
        else:
            yield f"### {as_markdown(part)}" if kind == "heading" else as_markdown(part)


def markdown_table(part: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(as_markdown, part.head))} |"
    rules = ["--:" if place in part.numbers else "---" for place in range(len(part.head))]
    yield f"| {' | '.join(rules)} |"
    for row in part.rows:
        yield f"| {' | '.join(map(as_markdown, row))} |"


def as_markdown(cell: Cell) -> str:
    if isinstance(cell, list):
        return "".join(map(as_markdown, cell))
    return code(cell) if isinstance(cell, Name) else cell


def code(name: str) -> str:
    """A name as code: between more backticks than it contains, and without bars."""
    shown = cut(name).replace("|", "\\u{7c}")
    fence = "`"
    while fence in shown:
        fence += "`"
    edge = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def cut(name: str) -> str:
    """A name with all characters visible, and short enough for a line."""
    shown = visible(name)
    return shown if len(shown) <= 2 * NAME_SHOWN else f"{shown[: 2 * NAME_SHOWN - 1]}…"


def html(sheet: Sheet) -> Iterator[str]:
    """Its lines as one file."""
    from html import escape

    def write(cell: Cell) -> str:
        if isinstance(cell, list):
            return "".join(map(write, cell))
        return f"<code>{escape(cut(cell))}</code>" if isinstance(cell, Name) else escape(cell)

    def row(kind: str, cells: Sequence[Cell], numbers: frozenset[int]) -> str:
        return "".join(
            f"<{kind}{' class=n' if place in numbers else ''}>{write(cell)}</{kind}>"
            for place, cell in enumerate(cells)
        )

    yield '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(visible(as_text(sheet.title)))}</title>\n<style>\n{STYLE}</style>"
    yield f"<h1>{write(sheet.title)}</h1>"
    for kind, part in sheet.parts:
        if isinstance(part, Table):
            yield f"<div><table>\n<tr>{row('th', part.head, part.numbers)}</tr>"
            for cells in part.rows:
                yield f"<tr>{row('td', cells, part.numbers)}</tr>"
            yield "</table></div>"
        elif isinstance(part, Tree):
            yield "<ul>"
            for depth, text in part.lines:
                yield f'<li style="margin-left:{2 * depth}rem">{write(text)}</li>'
            yield "</ul>"
        else:
            yield f"<h2>{write(part)}</h2>" if kind == "heading" else f"<p>{write(part)}</p>"
    yield "</html>"
