"""`dibs top`: agents, leases, work and messages, live.

What needs attention comes first: who waits for whom, what is about to expire, what has failed for
good. Rows can be selected and opened, leases released, questions answered. All actions go through
the operations, which decide who may do them; taking something away asks for confirmation. Without a
terminal, the screen is printed once.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import DibsError, InvalidError, NotFoundError
from dibs.operation import EVERYBODY, OPERATIONS
from dibs.records import called, plain
from dibs.surfaces.cli.board import AGENT, MESSAGE, TASK, Board, Row
from dibs.surfaces.cli.views import as_json
from dibs.surroundings.wording import paint, print_json, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.dibs import Dibs
    from dibs.records import Lease, Task
    from dibs.surfaces.cli.terminal import Terminal
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
REFRESH_S = 0.5
NAME = 30
"""How many characters of a name fit into a question."""
HINTS = ("↑↓ select", "Enter open", "r release", "a answer", "/ filter", "? help", "q quit")
INSIDE = ("↑↓ scroll", "r release", "a answer", "Esc back", "q quit")
HELP = """\
keys

  ↑ ↓ j k     select a row; in an opened one, scroll
  PgUp PgDn   the same by pages; g and G: the first, the last
  Enter o     open it: holders, waiters, notes, messages, events
  r           release your lease, or abandon your task; people can take them
              from others, after a confirmation
  a           answer a task that asks, reply to a message, write to an agent
  /           filter the rows; Esc clears the filter
  Esc         back
  q           quit

What agents wrote is in quotation marks: information, not an instruction."""


def main(call: Globals) -> int:
    """Watch agents, leases, work and messages live; select, open, release, answer.

    ? shows the keys, / filters, Esc goes back, q quits. Without a terminal, it prints once.
    """
    with call.open() as space:
        if call.json:
            print_json(plain(as_json(space.agents.overview(limit=1000), named=False)))
        elif sys.stdin.isatty() and sys.stdout.isatty():
            from dibs.surfaces.cli.terminal import Terminal

            os.chdir(space.scope.place.top)  # names of leases begin at the top of the checkout
            with Terminal() as terminal:
                Top(call, space).run(terminal)
        else:
            board = Board(space, None)
            say("\n".join(text for _, text in listed(board, "")))
    return 0


def listed(board: Board, pattern: str) -> Iterator[tuple[Row | None, str]]:
    """All lines, each with its row."""
    yield None, board.title
    for title, rows in board.sections(pattern):
        yield None, ""
        yield None, paint("bold", title)
        yield from ((row if row.what else None, f"  {row.text}") for row in rows)


class Prompt:
    """A line that is being typed, and its purpose.

    keys: the keys that are accepted, the first for yes; empty if any text is
    """

    def __init__(self, label: str, then: Callable[[str], str], keys: str = "") -> None:
        self.label, self.then, self.keys = label, then, keys
        self.text = ""


class Top:
    """The state of the screen, and what keys do."""

    def __init__(self, call: Globals, space: Dibs) -> None:
        self.call, self.space = call, space
        self.pattern = ""
        self.filtering = self.helping = False
        self.rows: list[Row] = []
        self.place: int | None = None
        """Which of the rows is selected."""
        self.opened: Row | None = None
        self.first = 0
        """The first line that is shown."""
        self.said = ""
        self.prompt: Prompt | None = None
        self.page = 1

    def run(self, terminal: Terminal) -> None:
        """Draw and handle keys until somebody quits."""
        while True:
            self.draw(terminal)
            for key in terminal.keys(REFRESH_S):
                if not self.obey(key):
                    return

    def draw(self, terminal: Terminal) -> None:
        self.board = Board(self.space, self.call.name())
        size = terminal.size()
        self.page = max(1, size.lines - 2)
        lines = self._listed() if self.opened is None else self._details(size.columns)
        if self.opened is not None:
            self.first = max(0, min(self.first, len(lines) - 1 - self.page))
        # The first line is the title.
        lines = [*lines[:1], *lines[1 + self.first :]]
        terminal.draw(HELP.split("\n") if self.helping else lines, self._foot(size.columns))

    def _details(self, columns: int) -> list[str]:
        from dibs.surfaces.cli.terminal import wrapped

        assert self.opened is not None
        found = self.board.details(self.opened)
        return [part for line in found for part in wrapped(line, max(columns, 8))]

    def _listed(self) -> list[str]:
        found = list(listed(self.board, self.pattern))
        before = self.selected
        self.rows = [row for row, _ in found if row is not None]
        if before is not None:
            self.place = self._place_of(before)
        lines: list[str] = []
        here = number = 0
        for row, text in found:
            if row is not None and number == self.place:
                here = len(lines)
                text = paint("bold", f"> {text[2:]}")
            number += row is not None
            lines.append(text)
        # A heading stays visible with its first row.
        low, high = max(0, here - 3), here - self.page
        self.first = 0 if self.place is None else max(min(self.first, low), high, 0)
        return lines

    @property
    def selected(self) -> Row | None:
        within = self.place is not None and self.place < len(self.rows)
        return self.rows[self.place or 0] if within else None

    def _place_of(self, row: Row) -> int | None:
        """Where a row is now: the nearest one about the same thing, else the one in its place."""
        assert self.place is not None
        same = [
            place
            for place, one in enumerate(self.rows)
            if (one.what, one.name, one.session) == (row.what, row.name, row.session)
        ]
        if same:
            return min(same, key=lambda place: abs(place - (self.place or 0)))
        return min(self.place, len(self.rows) - 1) if self.rows else None

    def _foot(self, columns: int) -> str:
        """The line being typed or the last message, and the keys, as far as they fit."""
        if self.prompt is not None:
            return f"{self.prompt.label} {self.prompt.text}█"[-columns:]
        if self.filtering:
            head = f"/{self.pattern}█"
        else:
            kept = f"filter: {self.pattern}" if self.pattern and self.opened is None else ""
            head = self.said or kept
        hints = list(INSIDE if self.opened is not None else HINTS)
        while len(hints) > 1 and len("   ".join([head, *hints])) >= columns:
            del hints[0]
        room = columns - len(hints[-1]) - 4 if hints else columns
        foot = "   ".join(filter(None, [head[: max(0, room)], *hints]))
        return foot if self.said else paint("dim", foot)

    def obey(self, key: str) -> bool:
        """Handle a key; False to quit."""
        if self.prompt is not None:
            self._type(self.prompt, key)
        elif self.filtering:
            self._filter(key)
        elif key in ("q", "Q", "end of input"):
            return False
        else:
            self.said = ""
            self._command(key)
        return True

    def _filter(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.pattern, self.filtering = ("" if key == "escape" else self.pattern), False
        elif key == "backspace":
            self.pattern = self.pattern[:-1]
        elif len(key) == 1:
            self.pattern += key

    def _type(self, prompt: Prompt, key: str) -> None:
        if key in ("escape", "end of input"):
            self.prompt, self.said = None, "nothing was done"
        elif prompt.keys:
            self.prompt = None
            self._do(prompt, key if key in prompt.keys else "")
        elif key == "enter":
            self.prompt = None
            self._do(prompt, prompt.text)
        elif key == "backspace":
            prompt.text = prompt.text[:-1]
        elif len(key) == 1:
            prompt.text += key

    def _do(self, prompt: Prompt, text: str) -> None:
        try:
            self.said = prompt.then(text)
        except DibsError as error:
            self.said = f"{error.message}{f' — {error.next}' if error.next else ''}"

    def _command(self, key: str) -> None:
        if key == "?":
            self.helping = not self.helping
        elif self.helping:
            self.helping = False
        elif key in ("up", "k", "down", "j", "page up", "page down", "home", "end", "g", "G"):
            self._move(key)
        elif key in ("enter", "o", "right"):
            self.opened, self.first = self.opened or self._chosen(), 0
        elif key in ("escape", "left", "backspace"):
            if self.opened is not None:
                self.opened, self.first = None, 0
            elif key == "escape":
                self.pattern = ""
        elif key == "/":
            self.opened, self.filtering = None, True
        elif key in ("r", "a") and (row := self.opened or self._chosen()) is not None:
            try:
                self.prompt = self._release(row) if key == "r" else self._answer(row)
            except DibsError as error:
                self.said = error.message

    def _move(self, key: str) -> None:
        by = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self.page, "page down": self.page}
        step = by.get(key, -sys.maxsize if key in ("home", "g") else sys.maxsize)
        if self.opened is not None:
            self.first = max(0, self.first + step)
        elif self.rows:
            place = (-1 if self.place is None else self.place) + step
            self.place = max(0, min(place, len(self.rows) - 1))

    def _chosen(self) -> Row | None:
        row = self.selected
        if row is None:
            self.said = "select a row first, with ↑ and ↓"
        return row

    def _release(self, row: Row) -> Prompt:
        """The confirmation before something is released or taken away."""
        lease = self.board.lease(row)
        if lease is not None:
            name = called(lease.resource, limit=NAME)
            if self._is_own(lease):
                self._may("leases.release")

                def release(yes: str) -> str:
                    if yes != "y":
                        return "nothing was done"
                    self._acting().leases.release(lease.resource, epoch=lease.epoch)
                    return f"{name} is released"

                return Prompt(f"release {name}? y/n", release, "y")
            self._may("leases.revoke")

            def revoke(yes: str) -> str:
                if yes != "y":
                    return "nothing was done"
                taken = self._acting().leases.revoke(lease.resource)
                return f"taken away: {', '.join(called(one.resource) for one in taken)}"

            return Prompt(
                f"take {name} from {called(lease.agent, limit=NAME)}, with all that overlaps? y/n",
                revoke,
                "y",
            )
        task = next((one for one in self.board.found.tasks if row.what == TASK
                     and one.id == row.name and one.state == "claimed"), None)  # fmt: skip
        if task is None:
            raise InvalidError(f"{called(row.name)} is not held")
        mine = self._is_own(task)
        self._may("work.abandon" if mine else "work.revoke")

        def give_back(yes: str) -> str:
            if yes != "y":
                return "nothing was done"
            work = self._acting().work
            if mine:
                work.abandon(task.id, epoch=task.epoch)
            else:
                work.revoke(task.id)
            return f"{called(task.id)} is available"

        whose = "your task" if mine else f"the task of {called(task.agent or '', limit=NAME)}"
        return Prompt(f"give {whose} {called(task.id, limit=NAME)} back? y/n", give_back, "y")

    def _answer(self, row: Row) -> Prompt:
        """The answer to give: yes or no to a question, or a line to an agent."""
        if self.board.asks(row) is not None:
            self._may("work.ack")
            return Prompt(
                f"yes or no to {called(row.name, limit=NAME)}? y/n",
                lambda key: self._decide(row, key),
                "yn",
            )
        if row.what == MESSAGE:
            self._may("messages.send")
            return Prompt("reply:", lambda text: self._send(text, reply_to=int(row.name)))
        lease = self.board.lease(row)
        to = row.name if row.what == AGENT else lease.agent if lease is not None else None
        if to is None:
            raise InvalidError(f"{called(row.name)} asks nothing")
        self._may("messages.send")
        return Prompt(f"to {called(to, limit=NAME)}:", lambda text: self._send(text, to=to))

    def _decide(self, row: Row, key: str) -> str:
        if not key:
            return "nothing was done"
        refuse = key == "n"

        def ack(text: str) -> str:
            self._acting().work.ack(row.name, refuse=refuse, note=text)
            return f"{called(row.name)} was {'refused' if refuse else 'acknowledged'}"

        self.prompt = Prompt("no, because:" if refuse else "yes, with the note:", ack)
        return ""

    def _send(self, text: str, *, to: str | None = None, reply_to: int | None = None) -> str:
        if not text.strip():
            return "nothing was sent"
        messages = self._acting().messages
        sent = messages.send(text, to=to, reply_to=reply_to)
        if reply_to is not None:
            try:
                messages.ack(reply_to)
            except NotFoundError:
                pass  # it was for somebody else, or is our own: the reply is enough
        return f"sent to {called(sent.to or sent.channel or 'everybody')}"

    def _is_own(self, held: Lease | Task) -> bool:
        """Whether our own session holds it."""
        session = self.call.look(self.space).scope.session
        if not session and held.agent == self.call.name():
            session = (
                self._acting().scope.session
            )  # a daemon tells this only to sessions that have joined
        return held.session == session

    def _may(self, name: str) -> None:
        """Refuse what only people may do, in an agent's shell."""
        __import__(f"dibs.nouns.{name.partition('.')[0]}.operations")
        OPERATIONS[name].permit(self.call.party())

    def _acting(self) -> Dibs:
        """The session to act in: that of the chosen name, else that of the person."""
        return self.call.join(self.space, people=True)
