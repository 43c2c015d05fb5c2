"""Which commands of a text run: lists with `&&` and `||`, groups, branches, loops and functions.

A command may certainly run, certainly not run, or run if a condition is met. What it writes counts
in the first case and in the third, with one exception: if the condition compares something that the
text does not say (`[ "$old" = "$new" ]`), nobody knows, and a denial that was not needed costs more
than a late warning. Such a command is in doubt. What it does to the shell's state still counts, and
so does a file that every branch of an `if` or a `case` writes.

Nesting does not use recursion: open constructs are kept as frames.
"""

from __future__ import annotations

import itertools

from dibs.surfaces.hooks.shell.call import Scene
from dibs.surfaces.hooks.shell.expansion import Expansion, Printed
from dibs.surfaces.hooks.shell.syntax import keyword_at
from dibs.surfaces.hooks.shell.values import STAR, Redirect, ShellState, Token, Word
from dibs.surroundings.occasion import Edit

# Before these, a command runs in its own shell.
APART = (["|"], ["|&"], ["&"])
PIPES = (["|"], ["|&"])
# Commands that leave a loop, a function or the text.
LEAVES = frozenset("break continue exit return".split())


class Frame:
    """An open `(`, `{`, `if`, loop or `case`.

    function: the name of the function, if it is a function's body
    at: where its contents begin
    piped: whether a pipe leads into it
    functions, out, stdin, skipped, doubted, settled, dropped: those of the walk outside
    dead, doubt, certain: whether the construct itself runs, as for the walk
    loops: how its commands are repeated: `for`, `while`, `until` or not at all, ""
    met: whether the condition of one of its branches is certainly met
    unmet: whether those of all branches so far are certainly not met
    open: whether one of its conditions is in doubt
    whole: whether one of its branches runs in any case
    begun: whether a branch of the `case` has begun
    branches: what each branch so far writes in doubt
    subjects: what a `case` may compare, empty if unknown
    """

    def __init__(self, closer: str, walk: Branches, apart: bool, at: int) -> None:
        self.closer = closer
        self.function = walk.function
        self.at = at
        self.apart = apart
        self.piped = walk.piped
        self.functions = walk.functions
        self.unsure = walk.unsure
        self.begin = walk.begin
        self.start = self.base = walk.state.copy()
        self.ends: list[ShellState] = []
        self.out = walk.out
        self.stdin = walk.stdin
        self.skipped, self.dead = walk.skipped, walk.dead
        self.doubted, self.doubt = walk.doubted, walk.doubt
        self.settled, self.certain = walk.settled, walk.certain
        self.dropped = walk.dropped
        self.loops = ""
        self.otherwise = self.met = self.open = self.whole = self.begun = False
        self.unmet = True
        self.branches: list[list[Edit]] = []
        self.subjects: tuple[str, ...] = ()


class Branches(Expansion):
    """The part of a walk that knows whether the current command runs.

    begin: the state before the current list
    piped: whether a pipe leads into the current command
    stdin: what the commands of the current loop or group read, if no pipe leads into them
    out: what the current commands have printed, if it is not redirected
    closed: where the redirections begin that follow the group just closed
    unsure: whether the command runs only if the one before it failed
    status: whether the last command certainly succeeds or fails, None if unknown
    open: whether that is unknown because it compares what the text does not say
    dead: whether the current command certainly does not run
    doubt: whether it is in doubt that it runs
    certain: whether it certainly runs, once if it is in a loop
    skipped, doubted, settled: the same for everything in the current frame
    dropped: what commands in doubt write
    written: how many edits there were before the last command of a list
    left_by: the `exit` or `return` that has ended the current text, if any
    function: the name of the function whose body begins next, if any
    functions: the bodies of functions, by name
    """

    def __init__(self, state: ShellState, scene: Scene) -> None:
        super().__init__(state)
        self.scene = scene
        self.begin = state
        self.feed: str | None = None
        self.stdin: str | None = None
        self.out: list[Printed] = []
        self.closed = -1
        self.status: bool | None = None
        self.written = 0
        self.functions: dict[str, list[Token]] = {}
        self.enter()

    def enter(self) -> None:
        """Begin a text, or the body of a function."""
        self.piped = self.unsure = self.open = False
        self.dead = self.skipped = self.doubt = self.doubted = False
        self.certain = self.settled = True
        self.dropped: list[Edit] = []
        self.left_by = self.function = ""
        self.out = []

    def kept(self) -> dict[str, object]:
        """What belongs to the current text, and is not changed by another one inside it."""
        names = (
            "feed piped unsure open dead skipped doubt doubted certain settled dropped left_by"
            " function out begin closed"
        )
        return {name: getattr(self, name) for name in names.split()}

    def weigh(self, operator: str) -> None:
        """Find out whether what follows an operator runs."""
        written = [*itertools.islice(self.scene.edits, self.written, None)]
        self.written = len(self.scene.edits)
        self.dead = self.skipped
        if operator == "&&":
            self.dead |= self.status is False
            self.certain &= self.status is True
        elif operator == "||":
            # A command that writes files is assumed to succeed, so the handler of a failure is
            # skipped.
            plainly = any(
                all(ask[0] == "only" for ask in edit.asks) and "*" not in edit.path
                for edit in written
            )
            self.dead |= self.status is True or (self.status is None and plainly)
            self.certain &= self.status is False
        else:
            self.open |= self.doubt
            self.doubt, self.certain = self.doubted, self.settled
            return
        self.doubt |= self.open

    def drop(self, before: int) -> None:
        """Leave out what has been added to the edits since there were so many."""
        for edit in [*itertools.islice(self.scene.edits, before, None)]:
            del self.scene.edits[edit]
            self.dropped.append(edit)

    def leave(self, how: str, frames: list[Frame]) -> None:
        """Skip what comes after `exit`, `return`, `break` or `continue`."""
        loops = [at for at, frame in enumerate(frames) if frame.loops]
        if how in ("break", "continue"):
            if not loops:
                return
            inside = loops[-1] + 1
        elif loops:
            return  # Whether the loop runs at all is not known.
        else:
            shells = [at for at, frame in enumerate(frames) if frame.apart]
            inside = shells[-1] + 1 if shells else 0
            self.left_by = "" if shells else how
        for frame in frames[inside:]:
            frame.dead = frame.skipped = True
        self.dead = self.skipped = True

    def open_frame(
        self, closer: str, frames: list[Frame], at: int, loops: str = "", *, apart: bool = False
    ) -> None:
        frames.append(Frame(closer, self, apart or self.piped or bool(self.function), at))
        frames[-1].loops = loops
        if self.piped:
            self.stdin = self.feed
        self.out, self.dropped = [], []
        self.begin = self.state.copy()
        self.functions = self.functions.copy()
        # The body of a function runs where it is called.
        self.dead |= bool(self.function)
        self.skipped, self.doubted = self.dead, self.doubt
        self.certain = self.settled = bool(loops) or self.certain
        self.piped = self.unsure = False
        self.function = ""

    def close_frame(self, frames: list[Frame], tokens: list[Token], at: int) -> Frame:
        frame = frames.pop()
        printed = together(self.out)
        self.out, self.stdin, self.closed = frame.out, frame.stdin, at
        frame.branches.append(self.dropped)
        self.dropped = frame.dropped
        if len(frame.branches) == 1 or (frame.open and (frame.otherwise or frame.whole)):
            self._in_each(frame)
        self.dead, self.skipped = frame.dead, frame.skipped
        self.doubt, self.doubted = frame.doubt, frame.doubted
        self.certain, self.settled = frame.certain, frame.settled
        if not frame.dead and frame.closer not in (")", "}"):
            self.status, self.open = None, False
        if not frame.apart or frame.function:
            frame.functions |= self.functions
        self.functions = frame.functions
        if frame.function:
            if not frame.dead and not frame.piped and tokens[at : at + 1] not in APART:
                self.functions[frame.function] = tokens[frame.at : at - 1]
            printed = ()
        self.begin = frame.begin.copy()
        if frame.closer in ("fi", "esac"):
            if not frame.otherwise:
                frame.ends.append(frame.base)
            for end in frame.ends:
                self.state.join(end)
        while at < len(tokens) and isinstance(one := tokens[at], Redirect):
            printed = () if one.is_output() else printed
            at += 1
        self.pass_on(printed, tokens, at)
        if frame.apart or tokens[at : at + 1] in APART:
            self.state = frame.start
        elif frame.unsure:
            self.state.join(frame.start)
        return frame

    def _in_each(self, frame: Frame) -> None:
        """Count what every branch writes: one of them runs."""
        first, *others = frame.branches
        paths = [{edit.path for edit in branch} for branch in others]
        for edit in first:
            if all(edit.path in written for written in paths):
                if frame.doubt or not others:
                    self.dropped.append(edit)
                else:
                    self.scene.edits[edit] = None

    def branch(self, keyword: str, frame: Frame) -> None:
        if keyword == "then":
            frame.base = self.state.copy()
            self.skipped = self.skipped or self.status is False
            frame.met |= self.status is True and not self.skipped
            frame.unmet &= self.status is False
            frame.open |= self.open
            self.doubted = frame.doubt or self.open
            self.settled = frame.certain and self.status is True
            self.dropped = []
        else:
            frame.otherwise = keyword == "else"
            self._back(frame)
            self.skipped = frame.dead or frame.met
            self.doubted = frame.doubt or frame.open
            self.settled = frame.certain and frame.unmet
        self.dead, self.doubt, self.certain = self.skipped, self.doubted, self.settled

    def repeat(self, frame: Frame) -> None:
        """Begin the body of a loop whose condition comes first."""
        self.skipped = self.skipped or (
            self.status is not None and self.status is (frame.loops == "until")
        )
        self.doubted = frame.doubt or self.open
        self.dead, self.doubt = self.skipped, self.doubted

    def _back(self, frame: Frame) -> None:
        """Begin another branch: the state is again that before the first branch."""
        frame.ends.append(self.state)
        frame.branches.append(self.dropped)
        self.dropped = []
        self.state = frame.base.copy()
        self.begin = frame.base.copy()

    def next_case(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Skip the pattern of a case."""
        if not frames or frames[-1].closer != "esac":
            return at
        while at < len(tokens) and tokens[at] == "\n":
            at += 1
        if keyword_at(tokens, at) == "esac":
            return at
        if frames[-1].begun:
            self._back(frames[-1])
        frames[-1].begun = True
        patterns = []
        while at < len(tokens) and tokens[at] != ")":
            patterns.append(tokens[at])
            at += 1
        self._choose(frames[-1], [one for one in patterns if isinstance(one, Word)])
        return at + 1

    def _choose(self, frame: Frame, patterns: list[Word]) -> None:
        """Find out whether a branch of a `case` runs."""
        from dibs.surfaces.hooks.shell import conditions

        values = [one.single({}) for one in patterns]
        said = {conditions.matches(one, value) for one in frame.subjects for value in values}
        rest = any(value == STAR for value in values)
        frame.whole |= rest
        self.skipped = frame.dead or frame.met or said == {False}
        frame.open |= not frame.subjects
        # What the patterns before it do not match is the usual case.
        self.doubted = frame.doubt or not (frame.subjects or rest)
        sure = len(frame.subjects) == 1 and True in said
        self.settled = frame.certain and frame.unmet and sure
        frame.met |= sure
        frame.unmet &= said == {False}
        self.dead, self.doubt, self.certain = self.skipped, self.doubted, self.settled

    def pass_on(self, printed: Printed, tokens: list[Token], at: int) -> None:
        """Pass what a command prints to the pipe after it, or to the reader of the whole output."""
        self.feed = None if printed is None else "".join(printed)
        # After `||` it runs only if the one before failed, which is assumed to succeed.
        instead = self.unsure and self.out and any(self.out[-1] or ())
        if tokens[at : at + 1] not in PIPES and not instead:
            self.out.append(printed)


def together(out: list[Printed]) -> Printed:
    """Give the output of several commands in sequence; for a single one, all possibilities."""
    if None in out:
        return None
    known = [one for one in out if one]
    return known[0] if len(known) == 1 else ("".join(itertools.chain(*filter(None, known))),)
