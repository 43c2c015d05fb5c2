"""One simple command after another: the shell's state, and what each command changes in it.

It follows what the text itself says: the working directory through `cd`, variables with
constant values, files that the same text has written. Where a command may run in one of several
settings (the values of a loop's variable, the two sides of a branch), it is taken as run in
each of them. Where something cannot be known, nothing is said about it.
"""

from __future__ import annotations

import itertools
import os

from dibs.surfaces.hooks.shell import commands, prefixes, values, words
from dibs.surfaces.hooks.shell.call import Call, options
from dibs.surfaces.hooks.shell.words import Redirect, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.surfaces.hooks.shell.words import Token
    from dibs.surroundings.occasion import Edit

MAX_RUNS = 2_000
MAX_SETTINGS = 64

WRITING = frozenset(("&>", "&>>", "<>", ">", ">&", ">>", ">|"))
SHELLS = frozenset("bash sh zsh dash ksh".split())
_DECLARING = frozenset("export declare local readonly typeset".split())
_READING = frozenset("read unset mapfile readarray getopts".split())


class State:
    """Where the shell is and what its variables are, each with all the values it may have."""

    __slots__ = ("before", "cwds", "stack", "variables")

    def __init__(self, cwds: tuple[str, ...], variables: dict[str, tuple[str, ...]]) -> None:
        self.cwds = cwds
        self.before: tuple[str, ...] = ()
        self.stack: tuple[tuple[str, ...], ...] = ()
        self.variables = variables

    def copy(self) -> State:
        other = State(self.cwds, dict(self.variables))
        other.before, other.stack = self.before, self.stack
        return other

    def join(self, other: State) -> None:
        """Take in what may be so instead."""
        self.cwds = _union(self.cwds, other.cwds)
        for name, found in other.variables.items():
            self.variables[name] = _union(self.variables.get(name, ()), found)


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    both = tuple(dict.fromkeys(a + b))
    return both if len(both) <= MAX_SETTINGS else ()


class Simple:
    """Runs simple commands in thought; `edits` are what they are going to change.

    piped: whether a pipe leads into the command at hand, and `feed` is what comes through it
    unsure: whether the command runs only if the one before has failed
    earlier: the state before that one, if it would have changed it
    """

    __slots__ = (
        "earlier", "edits", "feed", "files", "look", "piped", "runs", "state", "unsure",
    )  # fmt: skip

    def __init__(self, cwd: str, look: Callable[[str], str]) -> None:
        home = os.environ.get("HOME")
        self.state = State((cwd,), {"HOME": (home,)} if home else {})
        self.look = look
        self.edits: dict[Edit, None] = {}
        self.files: dict[str, str] = {}
        self.feed: str | None = None
        self.runs = MAX_RUNS
        self.piped = False
        self.unsure = False
        self.earlier: State | None = None

    def text(self, text: str, *, apart: bool = True) -> None:
        raise NotImplementedError

    def tokens(self, tokens: list[Token], *, apart: bool = True) -> None:
        raise NotImplementedError

    def _simple(self, found: list[Word], redirects: list[Redirect], piped: bool) -> None:
        for word in (*found, *(redirect.word for redirect in redirects)):
            self._inner(word)
        for redirect in redirects:
            self._inner(redirect.inner)
        apart = piped or self.piped
        kept = self.state.copy()
        if self.unsure and self.earlier is not None:
            self.state = self.earlier.copy()  # The command before `||` has failed.
        count = 0
        while count < len(found) and _is_assignment(found[count]):
            count += 1
        if count == len(found):
            self._assign(found)
        feed: str | None = None
        moved: list[str] = []
        for cwd, variables in self._settings(found[count:], redirects):
            feed = self._run(found[count:], redirects, cwd, variables, moved)
        self.feed = feed
        if moved:
            self.state.before, self.state.cwds = self.state.cwds, _union(tuple(moved), ())
            self.state.cwds = tuple(filter(None, self.state.cwds))
        changed = bool(moved) or count == len(found)
        self.earlier = kept if changed else None
        if apart or (self.unsure and not changed):
            self.state = kept
        elif self.unsure:
            self.state.join(kept)

    def _settings(
        self, found: list[Word], redirects: list[Redirect]
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Every working directory and choice of values in which a command may run."""
        used = {
            values.name_of(str(content))
            for word in (*found, *(redirect.word for redirect in redirects))
            for kind, content, _ in word.parts
            if kind == words.VARIABLE
        }
        sure = {name: held[0] for name, held in self.state.variables.items() if len(held) == 1}
        many = {name: held for name, held in self.state.variables.items() if name in used - {*sure}}
        cwds = self.state.cwds or ("",)
        for count, (cwd, *chosen) in enumerate(itertools.product(cwds, *many.values())):
            if count >= MAX_SETTINGS or self.runs <= 0:
                break
            self.runs -= 1
            variables = {**sure, **dict(zip(many, chosen, strict=True))}
            if cwd:
                variables["PWD"] = cwd
            yield cwd, variables

    def _assign(self, found: list[Word]) -> None:
        for word in found:
            if not _is_assignment(word):
                continue
            name, _, first = str(word.parts[0][1]).partition("=")
            held: list[str] = []
            if word.parts[1:] and word.parts[1][0] == words.ARRAY:
                items = [item for item in _listed(word.parts[1][1]) if isinstance(item, Word)]
                for item in items:
                    for _, variables in self._settings([item], []):
                        held += values.expand(item, variables) or ()
            else:
                right = Word([(words.TEXT, first, False), *word.parts[1:]])
                for _, variables in self._settings([right], []):
                    value = values.assigned(right, variables)
                    held += () if value is None else (value,)
            if name.endswith("+"):
                name, held = name[:-1], [a + b for a in self._held(name[:-1]) for b in held]
            self._set(name, tuple(held))

    def _set(self, name: str, found: tuple[str, ...]) -> None:
        found = tuple(dict.fromkeys(found))
        if found and len(found) <= MAX_SETTINGS and max(map(len, found)) <= values.MAX_LENGTH:
            self.state.variables[name] = found
        else:
            self.state.variables.pop(name, None)

    def _held(self, name: str) -> tuple[str, ...]:
        return self.state.variables.get(name, ())

    def _inner(self, word: Word | None) -> None:
        """Run what is substituted into a word."""
        for kind, content, _ in word.parts if word else ():
            if kind == words.CODE and isinstance(content, list):
                self.tokens(content)
            elif kind == words.ARRAY and isinstance(content, list):
                for token in content:
                    if isinstance(token, Word):
                        self._inner(token)

    def _run(
        self,
        found: list[Word],
        redirects: list[Redirect],
        cwd: str,
        variables: dict[str, str],
        moved: list[str],
    ) -> str | None:
        """Run one command in one setting; give what it prints, if the text says that."""
        args: list[str | None] = []
        for word in found:
            fields = values.expand(word, variables)
            args += [None] if fields is None else fields
        call = Call("", args, cwd=cwd, edits=self.edits, files=self.files, look=self.look)
        call.stdin = self.feed if self.piped else None
        outputs: list[str] = []
        for redirect in redirects:
            value = values.single(redirect.word, variables)
            if redirect.op in ("<<", "<<-"):
                call.stdin = redirect.body
            elif redirect.op == "<<<":
                call.stdin = value
            elif redirect.op == "<":
                call.stdin = call.text(value)
            elif redirect.op in WRITING and value:
                if redirect.op == ">&" and (value.isdecimal() or value == "-"):
                    continue
                call.write([value])
                if (path := call.path(value)) and redirect.op in (">", ">|"):
                    outputs.append(path)
        call.name, call.args = prefixes.unwrap(args)
        printed = self._dispatch(call, found, moved)
        for path in outputs:
            if printed is None:
                self.files.pop(path, None)
            else:
                self.files[path] = printed
        return None if outputs else printed

    def _dispatch(self, call: Call, found: list[Word], moved: list[str]) -> str | None:
        name, args = call.name, call.args
        if name in ("cd", "pushd", "popd"):
            self._move(call, moved)
        elif name in _DECLARING:
            self._assign(found[1:])
        elif name in _READING:
            for arg in args:
                self.state.variables.pop(arg or "", None)
        elif name in ("cat", "echo", "printf", "tee"):
            return _printed(call)
        elif name in SHELLS:
            self._shell(call)
        elif name == "eval":
            self._nested(" ".join(arg or "''" for arg in args), call, apart=False)
        elif name == "trap":
            self._nested(args[0] if args else None, call)
        elif name in ("source", "."):
            self._nested(call.text(args[0]) if args else None, call, apart=False)
        elif name:
            commands.changes(call)
        return None

    def _move(self, call: Call, moved: list[str]) -> None:
        targets = [arg for arg in call.args if arg is None or arg == "-" or arg[:1] != "-"]
        if call.name == "popd":
            if self.state.stack:
                moved += self.state.stack[-1]
                self.state.stack = self.state.stack[:-1]
            return
        if call.name == "pushd":
            self.state.stack = (*self.state.stack, self.state.cwds)[-MAX_SETTINGS:]
        if targets[:1] == ["-"]:
            moved += self.state.before or ("",)
            return
        target = targets[0] if targets else (self._held("HOME") or ("",))[0]
        path = call.path(target)
        # A directory by wildcard cannot be known.
        moved.append(path if path and "*" not in path and "?" not in path else "")

    def _shell(self, call: Call) -> None:
        found, operands = options(call.args, "oO --rcfile --init-file", ordered=True)
        if "-c" in found:
            text = operands[0] if operands else None
        elif operands and "-s" not in found:
            text = call.text(operands[0])
        else:
            text = call.stdin
        self._nested(text, call)

    def _nested(self, text: str | None, call: Call, *, apart: bool = True) -> None:
        if not text:
            return
        if apart:
            kept = self.state
            home = {name: held for name, held in kept.variables.items() if name == "HOME"}
            self.state = State((call.cwd,) if call.cwd else (), home)
            self.text(values.plain(text))
            self.state = kept
        else:
            self.text(values.plain(text), apart=False)


def _is_assignment(word: Word) -> bool:
    kind, text, quoted = word.parts[0] if word.parts else (words.UNKNOWN, "", True)
    return kind == words.TEXT and not quoted and bool(prefixes.is_assignment(str(text)))


def _listed(content: object) -> list[object]:
    return content if isinstance(content, list) else []


def _printed(call: Call) -> str | None:
    """Do the commands whose output can be known: `cat`, `echo`, `printf` and `tee`."""
    args = [arg for arg in call.args if arg is None or not arg.startswith("-") or arg == "-"]
    if call.name == "tee":
        commands.changes(call)
        return call.stdin
    if call.name == "cat":
        texts = [call.stdin if arg == "-" else call.text(arg) for arg in args] or [call.stdin]
        return None if None in texts else "".join(text for text in texts if text is not None)
    if None in args:
        return None
    known = [values.plain(arg) for arg in args if arg is not None]
    if call.name == "printf":
        if known[:1] and "%" in known[0] and "%s" in known[0]:
            return "\n".join(known[1:]) + "\n"
        known = known[:1]
    return " ".join(known).replace("\\n", "\n") + "\n"
