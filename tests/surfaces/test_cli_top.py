"""`dibs top` in a terminal: what the store holds is what a person sees."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.surfaces.screen import Screen, Terminal
from tests.surfaces.shell import DIBS, Shell


@contextmanager
def top(shell: Shell, *words: str, **options: Any) -> Iterator[Terminal]:
    terminal = Terminal([DIBS, "top", *words], shell.folder, shell.environment, **options)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """A space in which something happens."""
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    bob.ok("claim", "port:3000", "--ttl", "1h")
    bob.ok("agents", "beat", "--status", "running the tests")
    alice.ok("work", "add", "fix-login", "--title", "Fix the login")
    bob.ok("work", "claim", "deploy")
    alice.ok("work", "claim", "hopeless")
    alice.ok("work", "fail", "hopeless", "--no-retry", "--reason", "no such host")
    alice.ok("send", "the schema has changed", "--to", "bob")
    return shell


def section(text: str, title: str) -> str:
    """The lines below a heading, up to the next empty one."""
    found = re.search(rf"^{title}\n((?:  .+\n?)+)", text, re.MULTILINE)
    return found[1] if found else ""


def test_the_screen_shows_what_the_store_holds(busy: Shell) -> None:
    with top(busy) as terminal:
        seen = terminal.until(lambda text: "messages" in text and "q quit" in text)
        assert seen.startswith("dibs  main  seq ")
        assert 'hopeless is dead: "no such host"' in section(seen, "needs attention")
        assert '1 leases  1 tasks  1 unread  "running the tests"' in section(seen, "agents")
        assert re.search(r'src/a.py +alice +\d+m left  "fix the parser"', section(seen, "leases"))
        assert re.search(r"deploy +claimed by bob, \d+m left", section(seen, "work"))
        assert re.search(r'fix-login +available  "Fix the login"', section(seen, "work"))
        assert "alice → bob" in section(seen, "messages")
        assert "the schema has changed" in section(seen, "messages")
        assert terminal.screen.second and not terminal.screen.cursor
        terminal.press("q")
        assert terminal.finish() == 0


def test_the_screen_follows_what_happens(busy: Shell) -> None:
    with top(busy) as terminal:
        terminal.until(lambda text: "src/a.py" in section(text, "leases"))
        busy.as_("alice").ok("release", "src/a.py")
        terminal.until(lambda text: "src/a.py" not in section(text, "leases"))
        waiting = busy.as_("carol").start("claim", "port:3000", "--wait", "1h")
        seen = terminal.until(lambda text: "carol waits for port:3000" in text)
        assert "carol" in section(seen, "needs attention")
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=10)
        terminal.until(lambda text: "carol waits" not in text)


def test_a_filter_keeps_the_lines_that_have_it(busy: Shell) -> None:
    with top(busy) as terminal:
        terminal.until(lambda text: "fix the parser" in text)
        terminal.press("/PORT")
        seen = terminal.until(lambda text: "/PORT█" in text and "fix the parser" not in text)
        assert "port:3000" in section(seen, "leases")
        terminal.press("\x7f\x7fst\r")
        terminal.until(lambda text: "filter: POst" in text and "port:3000" not in text)
        # While a filter is typed q is a letter; afterwards it quits. Escape clears the filter.
        terminal.press("/q")
        terminal.until(lambda text: "/POstq█" in text)
        terminal.press("\x1b")
        terminal.until(lambda text: "fix the parser" in text and "filter" in text)
        terminal.press("q")
        assert terminal.finish() == 0


@pytest.mark.parametrize("ending", ["q", "interrupt"])
def test_the_terminal_is_left_as_it_was_found(busy: Shell, ending: str) -> None:
    with top(busy) as terminal:
        terminal.until(lambda text: "q quit" in text)
        assert terminal.settings() != terminal.before
        if ending == "q":
            terminal.press("q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == (0 if ending == "q" else 130)
        assert terminal.settings() == terminal.before
        assert terminal.screen.cursor and not terminal.screen.second
        assert terminal.screen.text.strip() == ""


@pytest.mark.parametrize(("columns", "lines"), [(30, 8), (200, 60)])
def test_any_size_of_terminal_will_do(busy: Shell, columns: int, lines: int) -> None:
    with top(busy, columns=columns, lines=lines) as terminal:
        seen = terminal.until(lambda text: "q quit" in text)
        assert seen.startswith("dibs  main")
        assert "q quit" in seen.splitlines()[-1]


def test_a_terminal_that_is_resized_is_drawn_anew(busy: Shell) -> None:
    with top(busy, columns=100, lines=40) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.read(0.1)
        terminal.resize(100, 10)
        seen = terminal.until(lambda text: "q quit" in text.splitlines()[-1])
        assert len(seen.splitlines()) == 10


def test_without_a_terminal_one_picture_is_printed(busy: Shell) -> None:
    answer = busy.ok("top")
    assert "fix the parser" in section(answer.out, "leases")
    assert "\x1b" not in answer.out
    board = busy.json("top")
    assert {lease["resource"] for lease in board["leases"]} == {"port:3000", "src/a.py"}


def test_no_colour_is_respected(busy: Shell) -> None:
    with top(busy.with_(NO_COLOR="1")) as terminal:
        terminal.screen.obey = refuse_colour(terminal.screen)  # type: ignore[method-assign]
        terminal.until(lambda text: "q quit" in text)


def refuse_colour(screen: Screen) -> Any:
    obey = screen.obey

    def checked(private: str, numbers: str, verb: str) -> None:
        assert verb != "m" or not numbers.strip("0"), f"colour {numbers}"
        obey(private, numbers, verb)

    return checked


def test_top_and_status_show_trains_and_workers_and_what_waits_for_a_person(shell: Shell) -> None:
    worker, conductor = shell.as_("crew/w1"), shell.as_("crew")
    worker.ok("work", "claim", "fix-login")
    for branch in ("fix-login", "keys"):
        worker.ok("work", "land", branch, "--commit", "1" * 40)
    worker.ok("work", "land", "fix-login", "--commit", "1" * 40, "--task", "fix-login")
    worker.ok("work", "claim", "other")
    conductor.ok("claim", "land:main")
    conductor.ok("work", "claim", "land:main:keys@111111111111")
    conductor.ok("work", "ask", "land:main:keys@111111111111", "src/keys.py is protected")
    for view in ("top", "status"):
        out = shell.ok(view).out
        for line in (
            "onto main: conducted by crew since ",
            "fix-login 111111111111 for fix-login, by crew/w1: queued, ",
            "keys 111111111111, by crew/w1: waits for a person, ",
            "land:main:keys@111111111111 waits for a person; crew asks ",
        ):
            assert line in out, (view, line, out)
    assert "crew/w1 at other since " in shell.ok("top").out
    assert shell.json("status")["asks"][0]["says"] == "src/keys.py is protected"
    assert "handed in, waits for its landing" in shell.ok("work", "list").out
    shown = shell.ok("work", "show", "land:main:keys@111111111111").out
    assert "waits for a person" in shown and '"src/keys.py is protected"' in shown
