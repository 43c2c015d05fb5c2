"""`dibs top` in a terminal: what the store holds is what a person sees."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dibs
from tests.surfaces.screen import Screen, Terminal
from tests.surfaces.shell import DIBS, Shell


@contextmanager
def top(shell: Shell, *words: str, **options: Any) -> Iterator[Terminal]:
    terminal = Terminal(
        [DIBS, *shell.always, "top", *words], shell.folder, shell.environment, **options
    )
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """A space in which something happens."""
    make_busy(shell)
    return shell


def make_busy(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    bob.ok("claim", "port:3000", "--ttl", "1h")
    bob.ok("agents", "beat", "--status", "running the tests")
    alice.ok("work", "add", "fix-login", "--title", "Fix the login")
    bob.ok("work", "claim", "deploy")
    alice.ok("work", "claim", "hopeless")
    alice.ok("work", "fail", "hopeless", "--no-retry", "--reason", "no such host")
    alice.ok("send", "the schema has changed", "--to", "bob")


def section(text: str, title: str) -> str:
    """The lines below a heading, up to the next empty one."""
    found = re.search(rf"^{title}\n((?:  .+\n?)+)", text, re.MULTILINE)
    return found[1] if found else ""


def test_the_screen_shows_what_the_store_holds(busy: Shell) -> None:
    with top(busy) as terminal:
        seen = terminal.until(lambda text: "messages" in text and "q quit" in text)
        assert seen.startswith("dibs  main  seq ")
        assert 'hopeless is dead: "no such host"' in section(seen, "needs attention")
        assert 'leases 1  tasks 1  unread 1  "running the tests"' in section(seen, "agents")
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


def test_a_terminal_that_is_resized_is_drawn_again(busy: Shell) -> None:
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
            "onto main: conducted by crew for ",
            "fix-login 111111111111 for fix-login, by crew/w1: queued, ",
            "keys 111111111111, by crew/w1: waits for a person, ",
            "land:main:keys@111111111111 waits for a person; crew asked ",
        ):
            assert line in out, (view, line, out)
    assert "crew/w1 at other for " in shell.ok("top").out
    assert shell.json("status")["asks"][0]["says"] == "src/keys.py is protected"
    assert "handed in, waits for its landing" in shell.ok("work", "list").out
    shown = shell.ok("work", "show", "land:main:keys@111111111111").out
    assert "waits for a person" in shown and '"src/keys.py is protected"' in shown


def select(terminal: Terminal, text: str) -> None:
    """Go down from the first row until one with this text is selected."""
    terminal.press("g")
    terminal.until(lambda text: re.match(r".*\n\n.*\n> ", text))
    for _ in range(40):
        seen = terminal.until(lambda text: re.search(r"^> ", text, re.MULTILINE))
        row = next(line for line in seen.splitlines() if line.startswith("> "))
        if text in row:
            return
        terminal.press("j")
        terminal.until(lambda now, row=row: row not in now.splitlines())  # type: ignore[misc]
    raise AssertionError(f"no row with {text!r}")


def test_rows_are_selected_with_arrows_and_letters_and_stay_selected(busy: Shell) -> None:
    with top(busy, lines=40) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.press("\x1b[B")
        terminal.until(lambda text: "> hopeless is dead" in text)
        terminal.press("\x1b[B\x1bOB")
        terminal.until(lambda text: re.search(r"^> bob +leases 1", text, re.MULTILINE))
        terminal.press("k\x1b[A")
        terminal.until(lambda text: "> hopeless is dead" in text)
        terminal.press("G")
        terminal.until(lambda text: "> alice → bob" in text)
        select(terminal, "port:3000")
        # What is added above it moves the row, not what is selected.
        busy.as_("aaron").ok("claim", "a-first")
        seen = terminal.until(lambda text: "a-first" in section(text, "leases"))
        assert re.search(r"^> port:3000", seen, re.MULTILINE)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10)])
def test_the_selected_row_is_always_in_sight(busy: Shell, columns: int, lines: int) -> None:
    for number in range(30):
        busy.as_("alice").ok("work", "add", f"task-{number:02}")
    with top(busy, columns=columns, lines=lines) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.press("G")
        terminal.until(lambda text: "> alice → bob" in text)
        terminal.press("g")
        terminal.until(lambda text: "> hopeless is dead" in text)
        for _ in range(12):
            terminal.press("j")
        terminal.until(lambda text: re.search(r"^> task-\d\d", text, re.MULTILINE))
        terminal.resize(columns, 6)
        terminal.until(lambda text: re.search(r"^> task-\d\d", text, re.MULTILINE))


def test_an_opened_lease_says_who_waits_for_it(busy: Shell) -> None:
    waiting = busy.as_("carol").start("claim", "port:3000", "--wait", "1h", "--note", "my turn")
    busy.waits()
    with top(busy, columns=140, lines=40) as terminal:
        terminal.until(lambda text: "q quit" in text)
        select(terminal, "port:3000  ")
        terminal.press("\r")
        seen = terminal.until(lambda text: text.startswith("lease port:3000"))
        assert re.search(r"held by +bob, session", seen) and "exclusive" in seen
        assert 'carol waits for port:3000 "my turn"' in seen
        assert "lease.claimed" in section(seen, "what happened")
        terminal.press("\x1b")
        terminal.until(lambda text: text.startswith("dibs  main"))
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=10)


def test_an_opened_agent_and_an_opened_task_say_all_about_them(busy: Shell) -> None:
    with top(busy, columns=140, lines=50) as terminal:
        terminal.until(lambda text: "q quit" in text)
        select(terminal, "leases 1  tasks 1")
        terminal.press("o")
        seen = terminal.until(lambda text: text.startswith("agent bob"))
        assert "port:3000" in section(seen, "holds") and "deploy" in section(seen, "works on")
        assert "> the schema has changed" in section(seen, "messages")
        terminal.press("\x1b[D")
        select(terminal, "hopeless is dead")
        terminal.press("\x1b[C")
        seen = terminal.until(lambda text: text.startswith("task hopeless"))
        assert re.search(r'reason +"no such host"', seen) and "task.dead" in seen


def test_what_is_opened_is_whole_and_can_be_scrolled(busy: Shell) -> None:
    body = "\n".join(f"line {number} {'x' * 70} end" for number in range(30))
    busy.as_("alice").ok("send", body, "--to", "bob")
    with top(busy, columns=40, lines=12) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.press("/line 0\r")
        terminal.until(lambda text: "filter: line 0" in text)
        select(terminal, "alice → bob")
        terminal.press("\r")
        seen = terminal.until(lambda text: "line 0 xxx" in text and text.startswith("message"))
        assert "x end" in seen
        terminal.press("\x1b[6~" * 3)
        terminal.until(lambda text: text.startswith("message") and "line 0 xxx" not in text)
        terminal.press("G")
        terminal.until(lambda text: "bob queued" in text)
        terminal.press("g")
        terminal.until(lambda text: "line 0 xxx" in text)


def test_a_lease_of_ones_own_is_released(on_each: Shell) -> None:
    busy = on_each
    make_busy(busy)
    # Names are those of the checkout, wherever in it one is.
    with top(busy.as_("alice").at(busy.folder / "src")) as terminal:
        terminal.until(lambda text: "q quit" in text)
        select(terminal, "src/a.py")
        terminal.press("r")
        terminal.until(lambda text: "release src/a.py? y/n" in text)
        terminal.press("y")
        terminal.until(lambda text: "src/a.py is released" in text)
    assert [lease["resource"] for lease in busy.json("leases")] == ["port:3000"]


def test_a_person_takes_a_lease_away_after_a_question(on_each: Shell) -> None:
    busy = on_each
    make_busy(busy)
    with top(busy) as terminal:
        terminal.until(lambda text: "q quit" in text)
        for key, said in (("n", "nothing was done"), ("\x1b", "nothing was done"), ("y", "taken")):
            select(terminal, "port:3000")
            terminal.press("r")
            terminal.until(lambda text: "take port:3000 from bob" in text)
            assert len(busy.json("leases")) == 2
            terminal.press(key)
            terminal.until(lambda text, said=said: said in text)  # type: ignore[misc]
    assert [lease["resource"] for lease in busy.json("leases")] == ["src/a.py"]
    assert "was taken away" in busy.as_("bob").ok("inbox").out


def test_an_agent_takes_nothing_away(busy: Shell) -> None:
    with top(busy.as_("alice").with_(CLAUDECODE="1"), columns=120) as terminal:
        terminal.until(lambda text: "q quit" in text)
        select(terminal, "port:3000")
        terminal.press("r")
        terminal.until(lambda text: "only people may do this" in text)
        terminal.press("y")
    assert len(busy.json("leases")) == 2


@pytest.mark.parametrize(("key", "state"), [("y", "available"), ("n", "dead")])
def test_a_question_is_answered_with_a_line(busy: Shell, key: str, state: str) -> None:
    busy.as_("bob").ok("work", "ask", "deploy", "May I?")
    with top(busy) as terminal:
        terminal.until(lambda text: "deploy waits for a person" in text)
        select(terminal, "deploy waits for a person")
        terminal.press("a")
        terminal.until(lambda text: "yes or no to deploy? y/n" in text)
        terminal.press(key)
        terminal.until(lambda text: ":" in text.splitlines()[-1] and "█" in text)
        terminal.press("aftr\x7fer lunch, é\r")
        terminal.until(lambda text: "deploy was" in text)
    task = busy.json("work", "show", "deploy")
    assert task["state"] == state
    said = [
        event["data"].get("note") for event in busy.json("events", "latest", "--task", "deploy")
    ]
    assert "after lunch, é" in said


def test_a_message_is_replied_to_and_acknowledged(busy: Shell) -> None:
    with top(busy.person("bob")) as terminal:
        terminal.until(lambda text: "q quit" in text)
        select(terminal, "alice → bob")
        terminal.press("a")
        terminal.until(lambda text: "reply: █" in text)
        terminal.press("thank you\r")
        terminal.until(lambda text: "sent to alice" in text)
        terminal.press("\r")
        seen = terminal.until(lambda text: text.startswith("message "))
        assert "> thank you" in seen and "bob acknowledged" in seen
    reply, first = busy.json("messages")
    assert (reply["reply_to"], reply["body"]) == (first["id"], "thank you")


def test_help_is_whole_wherever_the_list_was_scrolled_to(busy: Shell) -> None:
    for number in range(30):
        busy.as_("alice").ok("work", "add", f"task-{number:02}")
    with top(busy) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.press("G")
        terminal.until(lambda text: "> alice → bob" in text)
        terminal.press("?")
        terminal.until(lambda text: text.startswith("keys") and "select a row" in text)


def test_tasks_that_are_not_shown_are_counted_and_found(busy: Shell) -> None:
    with dibs.open(start=str(busy.folder), user_dir=busy.user_dir) as space:
        alice = space.join("alice")
        for begin in range(0, 1200, 200):
            ids = [f"task-{begin + number:04}" for number in range(200)]
            alice.work.add_many([{"id": id} for id in ids])
    with top(busy, lines=60, columns=100) as terminal:
        terminal.until(
            lambda text: "… 980 more available and 201 available that are not loaded" in text
        )
        terminal.press("/task-01\r")
        terminal.until(
            lambda text: "task-0118" in text and "… 80 more available and 201 available" in text
        )


def test_help_says_the_keys(busy: Shell) -> None:
    with top(busy) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.press("?")
        terminal.until(lambda text: "release your lease" in text)
        terminal.press("?")
        terminal.until(lambda text: text.startswith("dibs  main"))
        terminal.press("r")
        terminal.until(lambda text: "select a row first" in text)


def test_no_word_of_others_moves_the_cursor_or_turns_the_text(busy: Shell) -> None:
    words = "a\u202eb\u200bc 漢字漢字"
    busy.as_("bob").ok("work", "add", "odd", "--title", words)
    busy.as_("bob").ok("send", f"{words}\nsecond", "--to", "alice")
    with top(busy, columns=60, lines=40) as terminal:
        seen = terminal.until(lambda text: "q quit" in text)
        select(terminal, "bob → alice")
        terminal.press("\r")
        seen += terminal.until(lambda text: text.startswith("message "))
        assert "\u202e" not in seen and "\u200b" not in seen
        assert "\\u{202e}" in seen and "> second" in seen


@pytest.mark.parametrize("ending", ["term", "gone"])
def test_the_terminal_is_restored_however_it_ends(busy: Shell, ending: str) -> None:
    with top(busy, columns=300) as terminal:
        terminal.until(lambda text: "q quit" in text)
        if ending == "term":
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.finish() == 143
        else:
            (busy.folder / ".dibs").rename(busy.folder / "elsewhere")
            assert terminal.finish() not in (0, 70)
        assert terminal.settings() == terminal.before
        assert terminal.screen.cursor and not terminal.screen.second


def test_a_stopped_top_gives_the_terminal_back_until_it_goes_on(busy: Shell) -> None:
    with top(busy) as terminal:
        terminal.until(lambda text: "q quit" in text)
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(lambda text: not terminal.screen.second)
        assert terminal.settings() == terminal.before
        # It gives the terminal back first, and stops then; going on before would be too early.
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda text: terminal.screen.second and "q quit" in text)
        terminal.press("q")
        assert terminal.finish() == 0
