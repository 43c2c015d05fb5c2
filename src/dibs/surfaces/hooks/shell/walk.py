"""Goes through the commands of a text in the order in which the shell would run them.

Lists, pipelines, subshells, branches and loops decide where a command runs and whether what it
does to the shell's state is seen by those after it. Nesting costs no depth here: what is open is
kept as frames.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell import values
from dibs.surfaces.hooks.shell.simple import Simple, State
from dibs.surfaces.hooks.shell.tokens import MAX_TOKENS, Reader
from dibs.surfaces.hooks.shell.words import Redirect, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.surfaces.hooks.shell.words import Token

MAX_DEPTH = 6

_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_CLOSERS = frozenset(("fi", "done", "}", "esac"))
# After these, a command has run in a shell of its own.
_APART = (["|"], ["|&"], ["&"])


class Frame:
    """An open `(`, `{`, `if`, loop or `case`."""

    __slots__ = ("apart", "base", "begin", "closer", "ends", "otherwise", "start", "unsure")

    def __init__(
        self, closer: str, state: State, begin: State, apart: bool, unsure: bool = False
    ) -> None:
        self.closer = closer
        self.unsure = unsure
        self.begin = begin
        self.start = state
        self.base = state
        self.apart = apart
        self.ends: list[State] = []
        self.otherwise = False


class Walk(Simple):
    """One command text on its way.

    begin: the state before the list at hand
    function: whether what is opened next is the body of a function
    """

    __slots__ = ("begin", "depth", "function", "left")

    def __init__(self, cwd: str, look: Callable[[str], str]) -> None:
        super().__init__(cwd, look)
        self.left = MAX_TOKENS
        self.depth = 0
        self.function = False
        self.begin = self.state

    def text(self, text: str, *, apart: bool = True) -> None:
        """Go through a text; what it does to the state stays inside if it is run apart."""
        self.left -= len(text) // 50 if self.depth else 0
        if self.left > 0:
            reader = Reader(text, self.left)
            self.left = reader.left
            self.tokens(reader.tokens, apart=apart)

    def tokens(self, tokens: list[Token], *, apart: bool = True) -> None:
        """Go through tokens one level deeper."""
        if self.depth >= MAX_DEPTH:
            return
        kept = self.state.copy(), self.feed, self.piped, self.unsure, self.function, self.begin
        self.depth += 1
        self.piped = self.unsure = self.function = False
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
                frames.append(Frame(")", self.state.copy(), self.begin, True))
                subshells += 1
                self.begin = self.state.copy()
                self.piped = self.unsure = self.function = False
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
        while at < len(tokens) and isinstance(token := tokens[at], Word):
            keyword = token.plain()
            if keyword in _OPENERS:
                self._open(_OPENERS[keyword], frames)
            elif keyword == "case":
                self._open("esac", frames)
                return self._next_case(tokens, _after(tokens, at, "in"), frames)
            elif keyword in ("for", "select"):
                self._open("done", frames)
                return self._loop(tokens, at + 1)
            elif keyword in _CLOSERS:
                if frames and frames[-1].closer == keyword:
                    self._close(frames, tokens, at + 1)
            elif keyword in ("then", "else", "elif"):
                self._branch(keyword, frames)
            elif keyword == "function":
                self.function = True
                at += 1
            elif keyword not in ("do", "!", "time", "coproc"):
                break
            at += 1
        end = at
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += 1
        if end == at + 1 and tokens[end : end + 2] == ["(", ")"]:
            self.function = True
            return end + 2
        found = [token for token in tokens[at:end] if isinstance(token, Word)]
        redirects = [token for token in tokens[at:end] if isinstance(token, Redirect)]
        if found or redirects:
            self._simple(found, redirects, tokens[end : end + 1] in _APART)
            self.function = False
        return end

    def _open(self, closer: str, frames: list[Frame]) -> None:
        apart = self.piped or self.function
        frames.append(Frame(closer, self.state.copy(), self.begin, apart, self.unsure))
        self.begin = self.state.copy()
        self.piped = self.unsure = self.function = False

    def _close(self, frames: list[Frame], tokens: list[Token], at: int) -> Frame:
        frame = frames.pop()
        self.feed = None
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

    def _branch(self, keyword: str, frames: list[Frame]) -> None:
        if not frames or frames[-1].closer != "fi":
            return
        frame = frames[-1]
        if keyword == "then":
            frame.base = self.state.copy()
            return
        frame.otherwise = keyword == "else"
        frame.ends.append(self.state)
        self.state = frame.base.copy()
        self.begin = frame.base.copy()

    def _next_case(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Step over the pattern of a case; the state is again what it was before them."""
        if not frames or frames[-1].closer != "esac":
            return at
        frames[-1].ends.append(self.state)
        self.state = frames[-1].base.copy()
        self.begin = frames[-1].base.copy()
        while at < len(tokens) and tokens[at] == "\n":
            at += 1
        token = tokens[at] if at < len(tokens) else None
        if isinstance(token, Word) and token.plain() == "esac":
            return at
        while at < len(tokens) and tokens[at] != ")":
            at += 1
        return at + 1

    def _loop(self, tokens: list[Token], at: int) -> int:
        """Give the variable of a loop all its values; give where its body begins."""
        end = at
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += 1
        given = [token for token in tokens[at:end] if isinstance(token, Word)]
        found: list[str] = []
        for word in given[2:]:
            self._inner(word)
            for _, variables in self._settings([word], []):
                found += values.expand(word, variables) or ()
        if given:
            self._set(given[0].plain(), tuple(found))
        return end


def _after(tokens: list[Token], at: int, keyword: str) -> int:
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if isinstance(token, Word) and token.plain() == keyword:
            break
    return at
