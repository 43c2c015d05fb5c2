"""Follow a page of the documentation literally: type its commands, compare what it shows.

CONTRIBUTING.md, section "Documentation", says how a page is written. A page runs from top to
bottom in one repository; each shell of it stays open to its end.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import os
import queue
import re
import shlex
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.surfaces.shell import PATIENCE_S, Shell, until

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DATABASE = "postgresql://dibs@db.example.com/dibs"
PORT = "4242"
WAITS = "# waits"
KEEPS_RUNNING = "# keeps running"
DONE = "-- this block is done --"
OWNER = re.compile(r"# (\w+)'s shell\n")
SERVES = re.compile(r"^(dibs serve)\b(?!.*--(?:port|unix|print-unit))", re.MULTILINE)
BEFORE = re.compile(r"<!-- before:(.*?)-->", re.DOTALL)
CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
DURATION = r"\b\d+(?:\.\d+)? ?(?:ms|s|m|h|d)\b"
VARIES = [
    (
        re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?: ?[+-]\d\d:?\d\d|Z)?"),
        "DATE",
    ),
    (re.compile(r"\b(epoch|seq) +\d+"), r"\1 N"),
    (re.compile(r"^ *\d+(?=  )", re.MULTILINE), "N"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "HASH"),
    (re.compile(rf"{DURATION}(?: {DURATION})*"), "TIME"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" +$", re.MULTILINE), ""),
]
# A figure alone on a line is the point of the line, such as an exit code.
FIGURE = re.compile(r"^(\d+)$|\b\d[\d,]*\b", re.MULTILINE)


class Block:
    """A piece of code in a page, and the output that is shown beneath it."""

    def __init__(self, page: str, line: int, language: str, code: str, output: str | None) -> None:
        """line: of the opening fence; output: `None` if the page shows none"""
        self.place = f"{page}:{line}"
        self.line = line
        self.language = language
        self.code = code
        self.output = output

    def run(self, namespace: dict[str, Any]) -> str:
        """Run a block of Python, with the line numbers of the page in a traceback."""
        code = "\n" * self.line + self.code
        linecache.cache[self.place] = (len(code), None, code.splitlines(True), self.place)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, self.place, "exec"), namespace)
        return printed.getvalue()


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead to."""
    inner = [child for token in parsed(text) for child in token.children or ()]
    found = [child.attrGet("href") or child.attrGet("src") for child in inner]
    return [str(link) for link in found if link]


@functools.cache
def anchors(text: str) -> set[str]:
    """The anchors that a forge and the site make of the headings of a page."""
    found: set[str] = set()
    tokens = parsed(text)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            inner = tokens[place + 1].children or ()
            heading = "".join(child.content for child in inner).strip().lower()
            anchor = name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
            number = 0
            while anchor in found:
                number += 1
                anchor = f"{name}-{number}"
            found.add(anchor)
    return found


def blocks(page: str, text: str) -> list[Block]:
    """The code of a page in order; `before` is a language here, for what is typed and not shown."""
    found = []
    tokens = parsed(text)
    for place, token in enumerate(tokens):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "fence":
            after = tokens[place + 1] if place + 1 < len(tokens) else None
            shown = (
                after.content if after and after.type == "fence" and after.info == "text" else None
            )
            found.append(Block(page, line, token.info, token.content, shown))
        elif token.type == "code_block":
            found.append(Block(page, line, "indented", token.content, None))
        elif token.type == "html_block" and (hidden := BEFORE.match(token.content)):
            found.append(Block(page, line, "before", hidden[1].strip(), None))
    return found


def blocks_of(page: Path) -> list[Block]:
    return blocks(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))


def steady(text: str, again: bool = False) -> str:
    """Without what depends on the moment, on the machine or, the second time, on the first.

    again: also without figures in lines, for numbers go on rising
    """
    if again:
        text = FIGURE.sub(lambda found: found[1] or "0", text)
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text.strip("\n")


def matches(printed: str, shown: str, again: bool = False) -> bool:
    """Whether a page shows what was printed; `…` in the page stands for anything."""
    pattern = ""
    for line in f"{steady(shown, again)}\n".splitlines(keepends=True):
        if line.strip() == "…":
            pattern += r"(?:.*\n)*"
        else:
            pattern += re.escape(line).replace("…", ".*")
    return re.fullmatch(pattern, f"{steady(printed, again)}\n") is not None


class Prompt:
    """One bash that stays open, and what it has shown."""

    def __init__(self, shell: Shell, blocks: Path) -> None:
        """blocks: the folder in which bash finds what is typed"""
        self.shell = shell
        self.blocks = blocks
        self.process = shell.spawn(["bash"], stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines: queue.Queue[str] = queue.Queue()
        self.busy = False
        self.runs_on = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(DONE)

    def type(self, code: str) -> None:
        file = self.blocks / str(len(list(self.blocks.iterdir())))
        file.write_text(code, encoding="utf-8")
        assert self.process.stdin is not None
        # A command that reads its input gets none, and not the blocks that follow.
        self.process.stdin.write(f". {shlex.quote(str(file))} </dev/null; echo $?'{DONE}'\n")
        self.process.stdin.flush()
        self.busy = True

    def shown(self) -> tuple[str, str]:
        """What was shown since the last time, when the block has ended, and its exit code."""
        text = ""
        while not text.endswith(f"{DONE}\n"):
            text += self.lines.get(timeout=PATIENCE_S)
        self.busy = False
        text = text.removesuffix(f"{DONE}\n")
        shown = text.rstrip("0123456789")
        return shown, text.removeprefix(shown)

    def where(self) -> Shell:
        """Somebody in the same folder, with the same variables."""
        file = self.blocks / "environment"
        self.type(f"pwd > {shlex.quote(str(file))}; env -0 >> {shlex.quote(str(file))}")
        self.shown()
        folder, _, rest = file.read_text(encoding="utf-8").partition("\n")
        variables = dict(pair.partition("=")[::2] for pair in rest.split("\0") if pair)
        return Shell(Path(folder), variables)

    def close(self) -> None:
        if self.runs_on:
            os.killpg(self.process.pid, signal.SIGINT)
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate("exit\n", timeout=PATIENCE_S)


class Reader:
    """Somebody who follows pages in a repository, with as many shells as a page names."""

    def __init__(self, shell: Shell, database: str = "") -> None:
        """database: the PostgreSQL server of the pages that name one"""
        self.shell = shell
        self.blocks = Path(shell.environment["HOME"]).with_name("blocks")
        self.blocks.mkdir()
        self.real = {DATABASE: database} if database else {}
        self.compared = 0

    def follow(self, found: list[Block], again: bool = False) -> None:
        """Do what a page says, from its top to its bottom.

        again: it is the second time, and figures differ
        """
        namespace: dict[str, Any] = {"__name__": "page"}
        self.real[PORT] = free_port()
        with contextlib.ExitStack() as stack:
            prompts: dict[str, Prompt] = {}
            for block in found:
                if block.language == "python":
                    if prompts:
                        os.chdir([*prompts.values()][-1].where().folder)
                    self.compare(block, block.run(namespace), block.output or "", again)
                elif block.language in ("sh", "before"):
                    owner = OWNER.match(block.code)
                    name = owner[1] if owner else ""
                    if name not in prompts:
                        prompts[name] = Prompt(self.shell, self.blocks)
                        stack.callback(prompts[name].close)
                    self.type(prompts[name], block, again)

    def type(self, prompt: Prompt, block: Block, again: bool) -> None:
        assert not prompt.runs_on, f"{block.place} is typed into a shell that is busy"
        code = block.code
        for shown, real in self.real.items():
            code = code.replace(shown, real)
        code = SERVES.sub(rf"\1 --port {self.real[PORT]}", code)
        if WAITS in code:
            before = prompt.where()
            number = len(before.json("leases", "waiting"))
            prompt.type(code)
            if re.search(r"\bclaim\b.*# waits", code):
                before.waits(number + 1)
            return
        if KEEPS_RUNNING in code:
            prompt.type(code)
            prompt.runs_on = True
            until(lambda: not prompt.lines.empty(), f"{block.place} say something")
            return
        waited = prompt.busy
        prompt.type(code)
        printed, status = prompt.shown()
        if waited:
            more, status = prompt.shown()
            printed += more
        for shown, real in self.real.items():
            printed = printed.replace(real, shown)
        if block.output is None:
            assert status == "0", f"{block.place} exits with {status}:\n{printed}"
        else:
            self.compare(block, printed, block.output, again)

    def compare(self, block: Block, printed: str, shown: str, again: bool) -> None:
        assert matches(printed, shown, again), (
            f"{block.place} prints something else:\n{printed}\nnot:\n{shown}"
        )
        self.compared += 1


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])
