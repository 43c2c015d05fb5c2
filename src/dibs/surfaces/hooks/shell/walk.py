"""Goes through the commands of a text in the order in which the shell would run them.

It follows what the text itself says: the working directory through `cd`, variables with
constant values, files that the same text has written. Where a command may run in one of several
settings (the values of a loop's variable, the two sides of a branch), it is taken as run in
each of them. Where something cannot be known, nothing is said about it.

Lists, pipelines, subshells, branches and loops decide where a command runs and whether what it
does to the shell's state is seen by those after it. Nesting costs no depth here: what is open is
kept as frames.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator

from dibs.surfaces.hooks.shell import rules, values
from dibs.surfaces.hooks.shell.syntax import MAX_TOKENS, Texts, end_of_words, keyword_at, name_at
from dibs.surfaces.hooks.shell.values import (
    MAX_VALUES,
    Redirect,
    ShellCall,
    ShellState,
    Token,
    Word,
)
from dibs.surroundings.occasion import Edit

# A working directory, "" if it cannot be known, and the values of the variables.
Setting = tuple[str, dict[str, str]]

MAX_DEPTH = 6
MAX_RUNS = 2_000

_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_CLOSERS = frozenset(_OPENERS.values()) | {"esac"}
# After these, a command has run in a shell of its own.
_APART = (["|"], ["|&"], ["&"])
_DECLARING = frozenset("export declare local readonly typeset".split())
_READING = frozenset("read unset mapfile readarray getopts".split())


class Frame:
    """An open `(`, `{`, `if`, loop or `case`.

    function: the name of the function whose body it is, if it is one's
    at: where what is inside begins
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


class Walk:
    """One command text on its way; `edits` are what it is going to change.

    left: how many more tokens may be read
    begin: the state before the list at hand
    piped: whether a pipe leads into the command at hand, and `feed` is what comes through it
    unsure: whether the command runs only if the one before has failed
    earlier: the state before that one, if it would have changed it
    function: the name of the function whose body is opened next, if it is one's
    functions: the bodies of functions, by name
    """

    def __init__(self, texts: Texts, cwd: str, kind_of: Callable[[str], str]) -> None:
        home = os.environ.get("HOME")
        self.texts = texts
        self.kind_of = kind_of
        self.edits: dict[Edit, None] = {}
        self.files: dict[str, str] = {}
        self.feed: str | None = None
        self.left = MAX_TOKENS
        self.runs = MAX_RUNS
        self.depth = 0
        self.state = self.begin = ShellState((cwd,), {"HOME": (home,)} if home else {})
        self.earlier: ShellState | None = None
        self.piped = self.unsure = False
        self.function = ""
        self.functions: dict[str, list[Token]] = {}

    def text(self, text: str, *, apart: bool = True) -> None:
        """Go through a text; what it does to the state stays inside if it is run apart."""
        self.left -= len(text) // 50 if self.depth else 0
        if self.left > 0:
            reader = self.texts[text]
            self.left -= MAX_TOKENS - reader.left
            self._tokens(reader.tokens, apart=apart)

    def _tokens(self, tokens: list[Token], *, apart: bool = True) -> None:
        """Go through tokens one level deeper."""
        if self.depth >= MAX_DEPTH:
            return
        kept = self.state.copy(), self.feed, self.piped, self.unsure, self.function, self.begin
        self.depth += 1
        self.piped = self.unsure = False
        self.function = ""
        self._level(tokens)
        self.depth -= 1
        state, self.feed, self.piped, self.unsure, self.function, self.begin = kept
        if apart:
            self.state = state

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

    def _command(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Take keywords and then one simple command; give where it ends."""
        while keyword := keyword_at(tokens, at):
            if keyword in _OPENERS:
                self._open(_OPENERS[keyword], frames, at + 1)
            elif keyword == "case":
                self._open("esac", frames, at + 1)
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
            at += 1
        end = end_of_words(tokens, at)
        if end == at + 1 and tokens[end : end + 2] == ["(", ")"]:
            self.function = name_at(tokens, at)
            return end + 2
        words = [token for token in tokens[at:end] if isinstance(token, Word)]
        redirects = [token for token in tokens[at:end] if isinstance(token, Redirect)]
        if words or redirects:
            apart = self.piped or tokens[end : end + 1] in _APART
            self._simple(words, redirects, apart)
            self.function = ""
            body = self.functions.get(name_at(tokens, at), [])
            self.left -= len(body)
            if body and self.left > 0:
                self._tokens(body, apart=apart)
        return end

    def _open(self, closer: str, frames: list[Frame], at: int, *, apart: bool = False) -> None:
        frames.append(Frame(closer, self, apart or self.piped or bool(self.function), at))
        self.begin = self.state.copy()
        self.piped = self.unsure = False
        self.function = ""

    def _close(self, frames: list[Frame], tokens: list[Token], at: int) -> Frame:
        frame = frames.pop()
        self.feed = None
        if frame.function:
            self.functions[frame.function] = tokens[frame.at : at - 1]
        self.begin = frame.begin.copy()
        if frame.closer in ("fi", "esac"):
            if not frame.otherwise:
                frame.ends.append(frame.base)
            for end in frame.ends:
                self.state.join(end)
        while at < len(tokens) and isinstance(tokens[at], Redirect):
            at += 1
        if frame.apart or tokens[at : at + 1] in _APART:
            self.state = frame.start
        elif frame.unsure:
            self.state.join(frame.start)
        return frame

    def _branch(self, keyword: str, frame: Frame) -> None:
        if keyword == "then":
            frame.base = self.state.copy()
        else:
            frame.otherwise = keyword == "else"
            self._back(frame)

    def _back(self, frame: Frame) -> None:
        """Begin another branch: the state is again what it was before the first."""
        frame.ends.append(self.state)
        self.state = frame.base.copy()
        self.begin = frame.base.copy()

    def _next_case(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Step over the pattern of a case."""
        if not frames or frames[-1].closer != "esac":
            return at
        self._back(frames[-1])
        while at < len(tokens) and tokens[at] == "\n":
            at += 1
        if keyword_at(tokens, at) == "esac":
            return at
        while at < len(tokens) and tokens[at] != ")":
            at += 1
        return at + 1

    def _loop(self, tokens: list[Token], at: int) -> int:
        """Give the variable of a loop all its values; give where its body begins."""
        end = end_of_words(tokens, at)
        given = [token for token in tokens[at:end] if isinstance(token, Word)]
        self._inner(given[2:])
        if given:
            self.state.set(given[0].plain(), self._fields(given[2:]))
        return end

    def _simple(self, words: list[Word], redirects: list[Redirect], apart: bool) -> None:
        """Run one simple command in every setting it may run in."""
        targets = [redirect.word for redirect in redirects]
        self._inner([*words, *targets, *(redirect.inner for redirect in redirects)])
        kept = self.state.copy()
        if self.unsure and self.earlier is not None:
            self.state = self.earlier.copy()  # The command before `||` has failed.
        command = [*itertools.dropwhile(Word.assigns, words)]
        if not command:
            self._assign(words)
        feed: str | None = None
        moved: list[str] = []
        for setting in self._settings([*command, *targets]):
            feed = self._run(command, redirects, setting, moved)
        self.feed = feed
        if moved:
            self.state.before = self.state.cwds
            self.state.cwds = tuple(filter(None, values.few(moved)))
        changed = bool(moved) or not command
        self.earlier = kept if changed else None
        if apart or (self.unsure and not changed):
            self.state = kept
        elif self.unsure:
            self.state.join(kept)

    def _inner(self, words: Iterable[Word]) -> None:
        """Run what is substituted into the words."""
        for word in words:
            for code in word.code:
                self._tokens(code)

    def _settings(self, words: list[Word]) -> Iterator[Setting]:
        """Every working directory and choice of values in which a command may run."""
        used = {
            values.split_parameter(text)[0]
            for word in words
            for kind, text, _ in word.parts
            if kind == values.VARIABLE
        }
        sure = {name: held[0] for name, held in self.state.variables.items() if len(held) == 1}
        many = {name: held for name, held in self.state.variables.items() if name in used - {*sure}}
        cwds = self.state.cwds or ("",)
        for cwd, *chosen in itertools.islice(itertools.product(cwds, *many.values()), MAX_VALUES):
            if self.runs <= 0:
                break
            self.runs -= 1
            variables = {**sure, **dict(zip(many, chosen, strict=True))}
            if cwd:
                variables["PWD"] = cwd
            yield cwd, variables

    def _fields(self, words: Iterable[Word]) -> Iterator[str]:
        """Give what the words become, in every setting."""
        for word in words:
            for _, variables in self._settings([word]):
                yield from (field for field in word.fields(variables) if field is not None)

    def _assign(self, words: list[Word]) -> None:
        for word in words:
            if not (name := word.assigns()):
                continue
            left, _, first = word.parts[0][1].partition("=")
            held: list[str] = []
            if word.array is not None:
                held += self._fields(word.array)
            else:
                right = Word((values.TEXT, first, False), *word.parts[1:])
                found = [right.assigned(variables) for _, variables in self._settings([right])]
                held += [value for value in found if value is not None]
            if left != name:  # `name+=`
                held = [a + b for a in self.state.variables.get(name, ()) for b in held]
            self.state.set(name, held)

    def _run(
        self, words: list[Word], redirects: list[Redirect], setting: Setting, moved: list[str]
    ) -> str | None:
        """Run one command in one setting; give what it prints, if the text says that."""
        cwd, variables = setting
        args = [arg for word in words for arg in word.fields(variables)]
        call = ShellCall("", [], cwd, self.edits, self.files, self.kind_of)
        call.stdin = self.feed if self.piped else None
        outputs: list[str] = []
        for redirect in redirects:
            value = redirect.word.single(variables)
            if redirect.op in ("<<", "<<-"):
                call.stdin = redirect.body
            elif redirect.op == "<<<":
                call.stdin = value
            elif redirect.op == "<":
                call.stdin = call.text(value)
            elif value and redirect.writes(value):
                call.write([value])
                if (path := call.path(value)) and redirect.op in (">", ">|"):
                    outputs.append(path)
        call.name, call.args = rules.unwrap(args)
        printed = self._dispatch(call, words, moved)
        for path in outputs:
            if printed is None:
                self.files.pop(path, None)
            else:
                self.files[path] = printed
        return None if outputs else printed

    def _dispatch(self, call: ShellCall, words: list[Word], moved: list[str]) -> str | None:
        name, args = call.name, call.args
        if name in ("cd", "pushd", "popd"):
            moved += self._move(call)
        elif name in _DECLARING:
            self._assign(words[1:])
        elif name in _READING:
            for arg in args:
                self.state.variables.pop(arg or "", None)
        elif name in rules.SHELLS:
            self._nested(rules.shell_text(call), call)
        elif name == "eval":
            self._nested(" ".join(arg or "''" for arg in args))
        elif name == "trap":
            self._nested(args[0] if args else None, call)
        elif name in ("source", "."):
            self._nested(call.text(args[0]) if args else None)
        elif name:
            return rules.run(call)
        return None

    def _move(self, call: ShellCall) -> tuple[str, ...]:
        """Give the directories the shell may be in afterwards, none if it stays."""
        state = self.state
        if call.name == "popd":
            *rest, last = state.stack or ((),)
            state.stack = tuple(rest)
            return last
        if call.name == "pushd":
            state.stack = (*state.stack, state.cwds)[-MAX_VALUES:]
        targets = [arg for arg in call.args if arg is None or arg == "-" or arg[:1] != "-"]
        if targets[:1] == ["-"]:
            return state.before or ("",)
        path = call.path(targets[0] if targets else (state.variables.get("HOME") or ("",))[0])
        # A directory by wildcard cannot be known.
        return (path if path and "*" not in path and "?" not in path else "",)

    def _nested(self, text: str | None, apart: ShellCall | None = None) -> None:
        """Run a text in this shell, or apart in a new one as the call begins it."""
        if text and apart:
            kept = self.state
            home = {name: held for name, held in kept.variables.items() if name == "HOME"}
            self.state = ShellState((apart.cwd,) if apart.cwd else (), home)
            self.text(values.plain(text))
            self.state = kept
        elif text:
            self.text(values.plain(text), apart=False)
