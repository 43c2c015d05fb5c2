"""Walks through the commands of a text in the order in which the shell would run them.

It follows what the text itself says: the working directory through `cd`, variables with constant
values, what commands print, files that the same text has written. If a command may run in one of
several settings (the values of a loop's variable, the two sides of a branch), it is treated as if
it ran in each of them. What cannot be known is left out.

Lists, pipelines, subshells, branches and loops decide where a command runs and whether later
commands see what it does to the shell's state. Nesting does not use recursion: open constructs are
kept as frames.
"""

from __future__ import annotations

import itertools
import os
import sys

from dibs.surfaces.hooks.shell import builtins, rules, values
from dibs.surfaces.hooks.shell.call import Disk, Scene, ShellCall
from dibs.surfaces.hooks.shell.expansion import Expansion, Printed, Setting
from dibs.surfaces.hooks.shell.syntax import MAX_TOKENS, Texts, end_of_words, keyword_at, name_at
from dibs.surfaces.hooks.shell.values import Redirect, ShellState, Token, Word

MAX_DEPTH = 6

_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_CLOSERS = frozenset(_OPENERS.values()) | {"esac"}
# Before these, a command runs in its own shell.
_APART = (["|"], ["|&"], ["&"])
_PIPES = (["|"], ["|&"])
_LOOPS = frozenset("for while until select".split())
# Words after which a command begins, not arguments.
_LEADING = frozenset("if then elif else do while until ! { time".split())
# Commands that print nothing, so that later output is the whole output.
_SILENT = frozenset(
    "cd export set shopt declare local readonly typeset true : [ [[ (( test mkdir rm cp mv touch"
    " chmod unset read mapfile readarray shift trap umask wait sleep tee".split()
)
# What bash calls the system; versions may follow.
_OSTYPES = {"linux": "linux-gnu", "darwin": "darwin"}
_CONDITIONS = frozenset("true : false test [ [[ grep egrep fgrep".split())


class Frame:
    """An open `(`, `{`, `if`, loop or `case`.

    function: the name of the function, if it is a function's body
    at: where its contents begin
    out, stdin, skipped: those of the walk outside
    dead: whether it does not run at all
    met: whether the condition of one of its branches is certainly met
    subject: what a `case` compares, None if unknown
    """

    def __init__(self, closer: str, walk: Walk, apart: bool, at: int) -> None:
        self.closer = closer
        self.function = walk.function
        self.at = at
        self.apart = apart
        self.unsure = walk.unsure
        self.begin = walk.begin
        self.start = self.base = walk.state.copy()
        self.ends: list[ShellState] = []
        self.otherwise = False
        self.out = walk.out
        self.stdin = walk.stdin
        self.skipped = walk.skipped
        self.dead = walk.dead
        self.met = False
        self.subject: str | None = None


class Walk(Expansion):
    """One command text being walked; the edits of its scene are what it is going to change.

    left: how many more tokens may be read
    begin: the state before the current list
    piped: whether a pipe leads into the current command, and `feed` is what comes through it
    stdin: what the commands of the current loop or group read, if no pipe leads into them
    out: what the current commands have printed, if it is not redirected
    closed: where the redirections begin that follow the group just closed
    moved: the directories that the current command changes to, "" for an unknown one
    unsure: whether the command runs only if the one before it failed
    status: whether the last command certainly succeeds or fails, None if unknown
    dead: whether the current command certainly does not run
    skipped: the same for everything in the current frame
    written: how many edits there were before the last command of a list
    earlier: the state before that command, if it would have changed it
    function: the name of the function whose body begins next, if any
    functions: the bodies of functions, by name
    """

    def __init__(self, texts: Texts, cwd: str, disk: Disk) -> None:
        home = os.environ.get("HOME")
        self.texts = texts
        self.scene = Scene(disk)
        self.feed: str | None = None
        self.stdin: str | None = None
        self.out: list[Printed] = []
        self.closed = -1
        self.moved: list[str] = []
        self.left = MAX_TOKENS
        self.depth = 0
        known: dict[str, tuple[str, ...]] = {"HOME": (home,)} if home else {}
        if sys.platform in _OSTYPES:
            known["OSTYPE"] = (_OSTYPES[sys.platform],)
        super().__init__(ShellState((cwd,), known))
        self.begin = self.state
        self.earlier: ShellState | None = None
        self.piped = self.unsure = self.dead = self.skipped = False
        self.status: bool | None = None
        self.written = 0
        self.function = ""
        self.functions: dict[str, list[Token]] = {}

    def text(self, text: str, *, apart: bool = True) -> Printed:
        """Walk through a text; if it runs separately, its changes to the state stay inside."""
        self.left -= len(text) // 50 if self.depth else 0
        if self.left > 0:
            reader = self.texts[text]
            self.left -= MAX_TOKENS - reader.left
            return self.tokens(reader.tokens, apart=apart)
        return None

    def tokens(self, tokens: list[Token], *, apart: bool = True) -> Printed:
        """Walk through tokens one level deeper; give what they print."""
        if self.depth >= MAX_DEPTH:
            return None
        kept = self.feed, self.piped, self.unsure, self.function, self.begin, self.out, self.closed
        skipped = self.dead, self.skipped
        state = self.state.copy()
        self.depth += 1
        self.piped = self.unsure = self.dead = self.skipped = False
        self.function = ""
        self.out = []
        self._level(tokens)
        printed = _together(self.out)
        self.depth -= 1
        self.feed, self.piped, self.unsure, self.function, self.begin, self.out, self.closed = kept
        self.dead, self.skipped = skipped
        if apart:
            self.state = state
        return printed

    def _level(self, tokens: list[Token]) -> None:
        frames: list[Frame] = []
        subshells = 0
        self.begin = self.state.copy()
        at = 0
        while at < len(tokens) and self.runs > 0:
            token = tokens[at]
            if not isinstance(token, str):
                at = self._command(tokens, at, frames)
                continue
            at += 1
            if token == "(":
                if tokens[at : at + 1] == [")"]:
                    at += 1  # `function f()`
                    continue
                self.unsure = False
                self._open(")", frames, at, apart=True)
                subshells += 1
            elif token == ")":
                while subshells and self._close(frames, tokens, at).closer != ")":
                    pass
                subshells = max(0, subshells - 1)
            elif token in (";;", ";&", ";;&"):
                at = self._next_case(tokens, at, frames)
            elif token != "\n" or tokens[at - 2 : at - 1] not in (["|"], ["|&"], ["||"]):
                if token == "&":
                    self.state = self.begin  # The whole list has run in the background.
                if token in (";", "&", "\n"):
                    self.begin = self.state.copy()
                self.piped = token in ("|", "|&")
                self.unsure = token == "||"
                if not self.piped:
                    self.feed = None
                    self._weigh(token)

    def _weigh(self, operator: str) -> None:
        """Find out whether what follows an operator certainly does not run."""
        written = [*itertools.islice(self.scene.edits, self.written, None)]
        self.written = len(self.scene.edits)
        self.dead = self.skipped
        if operator == "&&":
            self.dead |= self.status is False
        elif operator == "||":
            # A command that writes files is assumed to succeed, so the handler of a failure is
            # skipped.
            plainly = any(
                all(ask[0] == "only" for ask in edit.asks) and "*" not in edit.path
                for edit in written
            )
            self.dead |= self.status is True or (self.status is None and plainly)

    def _command(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Take keywords and then one simple command; give where it ends."""
        negated = False
        while keyword := keyword_at(tokens, at):
            if keyword in _OPENERS:
                piped = self.piped
                self._open(_OPENERS[keyword], frames, at + 1)
                if keyword == "while" and not piped:
                    self._fed(tokens, at + 1)
            elif keyword == "case":
                self._open("esac", frames, at + 1)
                frames[-1].subject = self._only(tokens[at + 1 : at + 2])
                while at < len(tokens) and keyword_at(tokens, at) != "in":
                    at += 1
                return self._next_case(tokens, at + 1, frames)
            elif keyword in ("for", "select"):
                self._open("done", frames, at + 1)
                return self._loop(tokens, at + 1)
            elif keyword in _CLOSERS:
                if frames and frames[-1].closer == keyword:
                    self._close(frames, tokens, at + 1)
            elif keyword in ("then", "else", "elif"):
                if frames and frames[-1].closer == "fi":
                    self._branch(keyword, frames[-1])
            elif keyword == "function":
                at += 1
                self.function = name_at(tokens, at)
            elif keyword not in ("do", "!", "time", "coproc"):
                break
            negated ^= keyword == "!"
            at += 1
        end = end_of_words(tokens, at)
        if end == at + 1 and tokens[end : end + 2] == ["(", ")"]:
            self.function = name_at(tokens, at)
            return end + 2
        words = [token for token in tokens[at:end] if isinstance(token, Word)]
        redirects = [token for token in tokens[at:end] if isinstance(token, Redirect)]
        if self.dead:
            self.function = ""
        elif words or redirects:
            apart = self.piped or tokens[end : end + 1] in _APART
            printed = self._simple(words, redirects, apart)
            self.function = ""
            if words or self.closed != at:
                self._print(printed, tokens, end)
            if negated and self.status is not None:
                self.status = not self.status
        return end

    def _print(self, printed: Printed, tokens: list[Token], at: int) -> None:
        """Pass what a command prints to the pipe after it, or to the reader of the whole output."""
        self.feed = None if printed is None else "".join(printed)
        # After `||` it runs only if the one before failed, which is assumed to succeed.
        instead = self.unsure and self.out and any(self.out[-1] or ())
        if tokens[at : at + 1] not in _PIPES and not instead:
            self.out.append(printed)

    def _fed(self, tokens: list[Token], at: int) -> None:
        """Find what a loop reads that is redirected at its end: `while read f; do …; done < x`."""
        depth = 1
        while at < len(tokens) and depth and self.left > 0:
            if _begins(tokens, at):
                keyword = keyword_at(tokens, at)
                depth += (keyword in _LOOPS) - (keyword == "done")
            self.left -= 1
            at += 1
        if self.left <= 0:
            return
        after = tokens[at : end_of_words(tokens, at)]
        redirects = [one for one in after if isinstance(one, Redirect)]
        words = [word for one in redirects for word in (one.word, one.inner)]
        self.inner(words)
        for cwd, variables in itertools.islice(self.settings(words), 1):
            call = ShellCall([], cwd, self.scene)
            for redirect in redirects:
                self.stdin = _stdin(redirect, call, variables, self.stdin)

    def _open(self, closer: str, frames: list[Frame], at: int, *, apart: bool = False) -> None:
        frames.append(Frame(closer, self, apart or self.piped or bool(self.function), at))
        if self.piped:
            self.stdin = self.feed
        self.out = []
        self.begin = self.state.copy()
        self.skipped = self.dead
        self.piped = self.unsure = False
        self.function = ""

    def _close(self, frames: list[Frame], tokens: list[Token], at: int) -> Frame:
        frame = frames.pop()
        printed = _together(self.out)
        self.out, self.stdin, self.closed = frame.out, frame.stdin, at
        self.dead, self.skipped = frame.dead, frame.skipped
        if not frame.dead and frame.closer not in (")", "}"):
            self.status = None
        if frame.function:
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
        self._print(printed, tokens, at)
        if frame.apart or tokens[at : at + 1] in _APART:
            self.state = frame.start
        elif frame.unsure:
            self.state.join(frame.start)
        return frame

    def _branch(self, keyword: str, frame: Frame) -> None:
        if keyword == "then":
            frame.base = self.state.copy()
            self.skipped = self.skipped or self.status is False
            frame.met |= self.status is True and not self.skipped
        else:
            frame.otherwise = keyword == "else"
            self._back(frame)
            self.skipped = frame.dead or frame.met
        self.dead = self.skipped

    def _back(self, frame: Frame) -> None:
        """Begin another branch: the state is again that before the first branch."""
        frame.ends.append(self.state)
        self.state = frame.base.copy()
        self.begin = frame.base.copy()

    def _next_case(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Skip the pattern of a case."""
        if not frames or frames[-1].closer != "esac":
            return at
        self._back(frames[-1])
        while at < len(tokens) and tokens[at] == "\n":
            at += 1
        if keyword_at(tokens, at) == "esac":
            return at
        patterns = []
        while at < len(tokens) and tokens[at] != ")":
            patterns.append(tokens[at])
            at += 1
        self._choose(frames[-1], [one for one in patterns if isinstance(one, Word)])
        return at + 1

    def _choose(self, frame: Frame, patterns: list[Word]) -> None:
        """Find out whether a branch of a `case` certainly runs, or certainly does not."""
        if frame.subject is None:
            return
        from dibs.surfaces.hooks.shell import conditions

        said = {conditions.matches(frame.subject, one.single({})) for one in patterns}
        self.dead = self.skipped = frame.dead or frame.met or said == {False}
        frame.met |= True in said

    def _only(self, tokens: list[Token]) -> str | None:
        """Give the value of a word that has only one."""
        words = [one for one in tokens if isinstance(one, Word)]
        self.inner(words)
        found = [*self.fields(words)]
        return found[0] if len(found) == 1 else None

    def _loop(self, tokens: list[Token], at: int) -> int:
        """Give the variable of a loop all its values; give where its body begins."""
        end = end_of_words(tokens, at)
        given = [token for token in tokens[at:end] if isinstance(token, Word)]
        self.inner(given[2:])
        if given:
            held = [*self.fields(given[2:])] if given[1:] else self.state.variables.get("@", ())
            for cwd in self.state.cwds[:1] if len(self.state.cwds) == 1 else ():
                names = ShellCall([], cwd, self.scene).expanded([*held])
                held = tuple(name for name in names if name)
            self.state.set(given[0].plain(), held)
        return end

    def _simple(self, words: list[Word], redirects: list[Redirect], apart: bool) -> Printed:
        """Run one simple command in every setting it may run in; give what it prints."""
        targets = [word for redirect in redirects for word in (redirect.word, redirect.inner)]
        self.inner([*words, *targets])
        kept = self.state.copy()
        if self.unsure and self.earlier is not None:
            self.state = self.earlier.copy()  # The command before `||` has failed.
        command = [*itertools.dropwhile(Word.assigns, words)]
        if not command:
            self.assign(words)
        moved: list[str] = []
        self.moved = moved
        given = words[: len(words) - len(command)] if command else []
        printed: list[str | None] = []
        statuses: set[bool | None] = set()
        for setting in self.settings([*words, *targets]):
            self.status = None
            printed.append(self._run(command, redirects, setting, given))
            statuses.add(self.status)
        self.status = statuses.pop() if len(statuses) == 1 else None
        if moved:
            self.state.before = self.state.cwds
            self.state.cwds = tuple(filter(None, values.few(moved)))
        changed = bool(moved) or not command
        self.earlier = kept if changed else None
        if apart or (self.unsure and not changed):
            self.state = kept
        elif self.unsure:
            self.state.join(kept)
        return None if None in printed else tuple(one for one in printed if one is not None)

    def _run(
        self, words: list[Word], redirects: list[Redirect], setting: Setting, given: list[Word]
    ) -> str | None:
        """Run one command in one setting; give what it prints, if the text says that."""
        cwd, variables = setting
        args = [arg for word in words for arg in word.fields(variables)]
        if whole := self._whole(words):
            args[:1] = whole
        if args and args[0] in ("env", "sudo"):
            # `env PATH="$PATH" make`: which command it is does not depend on the value.
            for at, word in enumerate(words if len(words) == len(args) else ()):
                args[at] = f"{word.assigns()}=" if args[at] is None and word.assigns() else args[at]
        call = ShellCall(args, cwd, self.scene)
        call.stdin = self.feed if self.piped else self.stdin
        call.variables = variables
        call.settings = {
            one.assigns(): value.partition("=")[2]
            for one in given
            if (value := one.assigned(variables)) is not None
        }
        outputs: list[str] = []
        for redirect in redirects:
            call.stdin = _stdin(redirect, call, variables, call.stdin)
            value = redirect.word.single(variables)
            if value and redirect.writes(value):
                call.write([value])
                if (path := call.path(value)) and redirect.op in (">", ">|"):
                    outputs.append(path)
        printed = self.call(call, words)
        for path in outputs:
            if printed is None:
                self.scene.files.pop(path, None)
            else:
                self.scene.files[path] = printed
        return "" if any(map(Redirect.is_output, redirects)) else printed

    def _whole(self, words: list[Word]) -> tuple[str, ...]:
        """Give the words that `"$@"` or `"${command[@]}"` in front of a command stands for."""
        parts = [part for part in words[0].parts if part[1]] if words else []
        kind, text, _ = parts[0] if len(parts) == 1 else (values.UNKNOWN, "", False)
        whole = kind == values.VARIABLE and (text == "@" or text.endswith("[@]"))
        return self.state.variables.get(text.removesuffix("[@]"), ()) if whole else ()

    def call(self, call: ShellCall, words: list[Word]) -> str | None:
        """Run one command; give what it prints, if the text says that."""
        args = call.args
        call.name, call.args = rules.unwrap(args)
        call.spelled = next((one for one in args if one and rules.name_of(one) == call.name), "")
        if call.name in self.functions:
            body = self.functions[call.name]
            self.left -= len(body)
            if self.left <= 0:
                return None
            kept = self.state.arguments(call.args)
            printed = self.tokens(body, apart=False)
            self.state.arguments([])
            self.state.variables |= kept
            return None if printed is None else "".join(printed)
        if builtin := builtins.builtin_of(call.name):
            return builtin(self, call, words)
        if not call.name:
            return None if words else ""
        said = rules.run(call)
        if call.name in _CONDITIONS:
            from dibs.surfaces.hooks.shell import conditions

            self.status = conditions.status(call)
        if "/" in call.spelled and not rules.is_known(call.name):
            return builtins.script(self, call)
        return "" if said is None and call.name in _SILENT else said

    def deeper(self, outer: ShellCall, args: values.Values, words: list[Word]) -> None:
        """Run a command that another one runs."""
        if self.depth < MAX_DEPTH and self.runs > 0:
            self.depth += 1
            self.runs -= 1
            call = ShellCall(args, outer.cwd, self.scene)
            self.call(call, words)
            self.depth -= 1


def _stdin(
    redirect: Redirect, call: ShellCall, variables: dict[str, str], otherwise: str | None
) -> str | None:
    """Give what a command reads after the redirection."""
    if redirect.op in ("<<", "<<-"):
        filled = redirect.inner.assigned(variables) if redirect.inner.parts else None
        return redirect.body if filled is None else filled
    if redirect.op == "<<<":
        return redirect.word.single(variables)
    if redirect.op != "<":
        return otherwise
    kind, name, _ = redirect.word.parts[0] if redirect.word.parts else (values.UNKNOWN, "", False)
    if kind == values.STREAM:
        return variables.get(name)
    return call.text(redirect.word.single(variables))


def _together(out: list[Printed]) -> Printed:
    """Give the output of several commands in sequence; for a single one, all possibilities."""
    if None in out:
        return None
    known = [one for one in out if one]
    return known[0] if len(known) == 1 else ("".join(itertools.chain(*filter(None, known))),)


def _begins(tokens: list[Token], at: int) -> bool:
    """Say whether a command begins here, not its arguments."""
    return not at or isinstance(tokens[at - 1], str) or keyword_at(tokens, at - 1) in _LEADING
