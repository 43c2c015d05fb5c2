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
from dibs.surfaces.hooks.shell.branches import APART, LEAVES, Branches, Frame, together
from dibs.surfaces.hooks.shell.call import Disk, Scene, ShellCall
from dibs.surfaces.hooks.shell.expansion import Printed, Setting
from dibs.surfaces.hooks.shell.syntax import MAX_TOKENS, Texts, end_of_words, keyword_at, name_at
from dibs.surfaces.hooks.shell.values import Redirect, ShellState, Token, Word

MAX_DEPTH = 6

_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_CLOSERS = frozenset(_OPENERS.values()) | {"esac"}
_LOOPS = frozenset("for while until select".split())
# Words after which a command begins, not arguments.
_LEADING = frozenset("if then elif else do while until ! { time".split())
# Commands that print nothing, so that later output is the whole output.
_SILENT = frozenset(
    "cd export set shopt declare local readonly typeset true : [ [[ (( test mkdir rm cp mv touch"
    " chmod unset read mapfile readarray shift trap umask wait sleep tee".split()
)
_SETTING = frozenset("cd export set shopt declare local readonly typeset unset".split())
# What bash calls the system; versions may follow.
_OSTYPES = {"linux": "linux-gnu", "darwin": "darwin"}
_CONDITIONS = frozenset("true : false test [ [[ grep egrep fgrep which type hash".split())


class Walk(Branches):
    """One command text being walked; the edits of its scene are what it is going to change.

    left: how many more tokens may be read
    moved: the directories that the current command changes to, "" for an unknown one
    earlier: the state before that command, if it would have changed it
    untouched: whether nothing has run yet that could make a directory
    ended: the `exit`, `return`, `break` or `continue` that has just run
    """

    def __init__(self, texts: Texts, cwd: str, disk: Disk) -> None:
        home = os.environ.get("HOME")
        self.texts = texts
        self.moved: list[str] = []
        self.left = MAX_TOKENS
        self.depth = 0
        known: dict[str, tuple[str, ...]] = {"HOME": (home,)} if home else {}
        if sys.platform in _OSTYPES:
            known["OSTYPE"] = (_OSTYPES[sys.platform],)
        super().__init__(ShellState((cwd,), known), Scene(disk))
        self.earlier: ShellState | None = None
        self.ended = ""
        self.untouched = True

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
        kept = self.kept()
        state = self.state.copy()
        self.depth += 1
        self.enter()
        self._level(tokens)
        printed = together(self.out)
        self.ended = self.left_by
        self.depth -= 1
        self.__dict__.update(kept)
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
                self.open_frame(")", frames, at, apart=True)
                subshells += 1
            elif token == ")":
                while subshells and self.close_frame(frames, tokens, at).closer != ")":
                    pass
                subshells = max(0, subshells - 1)
            elif token in (";;", ";&", ";;&"):
                at = self.next_case(tokens, at, frames)
            elif token != "\n" or tokens[at - 2 : at - 1] not in (["|"], ["|&"], ["||"]):
                if token == "&":
                    self.state = self.begin  # The whole list has run in the background.
                if token in (";", "&", "\n"):
                    self.begin = self.state.copy()
                self.piped = token in ("|", "|&")
                self.unsure = token == "||" and self.status is not False
                if not self.piped:
                    self.feed = None
                    self.weigh(token)

    def _command(self, tokens: list[Token], at: int, frames: list[Frame]) -> int:
        """Take keywords and then one simple command; give where it ends."""
        negated = False
        while keyword := keyword_at(tokens, at):
            if keyword in _OPENERS:
                piped = self.piped
                loops = keyword if keyword in ("while", "until") else ""
                self.open_frame(_OPENERS[keyword], frames, at + 1, loops)
                if loops:
                    self.state.any_argument()
                if keyword == "while" and not piped:
                    self._fed(tokens, at + 1)
            elif keyword == "case":
                self.open_frame("esac", frames, at + 1)
                frames[-1].subjects = self._values(tokens[at + 1 : at + 2])
                while at < len(tokens) and keyword_at(tokens, at) != "in":
                    at += 1
                return self.next_case(tokens, at + 1, frames)
            elif keyword in ("for", "select"):
                self.open_frame("done", frames, at + 1, keyword)
                return self._loop(tokens, at + 1)
            elif keyword in _CLOSERS:
                if frames and frames[-1].closer == keyword:
                    self.close_frame(frames, tokens, at + 1)
            elif keyword in ("then", "else", "elif"):
                if frames and frames[-1].closer == "fi":
                    self.branch(keyword, frames[-1])
            elif keyword == "function":
                at += 1
                self.function = name_at(tokens, at)
            elif keyword == "do":
                if frames and frames[-1].loops in ("while", "until"):
                    self.repeat(frames[-1])
            elif keyword not in ("!", "time", "coproc"):
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
            apart = self.piped or tokens[end : end + 1] in APART
            before = len(self.scene.edits)
            printed = self._simple(words, redirects, apart)
            if self.doubt:
                self.drop(before)
            if self.ended and self.certain and not self.doubt and not apart:
                self.leave(self.ended, frames)
            self.function = ""
            if words or self.closed != at:
                self.pass_on(printed, tokens, end)
            if negated and self.status is not None:
                self.status = not self.status
        return end

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

    def _values(self, tokens: list[Token]) -> tuple[str, ...]:
        """Give the values that a word may have, nothing if they are not known."""
        words = [one for one in tokens if isinstance(one, Word)]
        self.inner(words)
        found = [one.assigned(variables) for one in words for _, variables in self.settings(words)]
        return () if None in found else tuple(one for one in found if one is not None)

    def _loop(self, tokens: list[Token], at: int) -> int:
        """Give the variable of a loop all its values; give where its body begins."""
        end = end_of_words(tokens, at)
        given = [token for token in tokens[at:end] if isinstance(token, Word)]
        over = given[2:]
        if self.state.variables.get("#") == ("0",) and all(map(_is_arguments, over)):
            self.dead = self.skipped = True
        self.inner(over)
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
        self.open, self.ended = False, ""
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
        elif self.unsure or self.doubt:
            self.state.join(kept)
        return None if None in printed else tuple(one for one in printed if one is not None)

    def _run(
        self, words: list[Word], redirects: list[Redirect], setting: Setting, given: list[Word]
    ) -> str | None:
        """Run one command in one setting; give what it prints, if the text says that."""
        cwd, variables = setting
        args = [arg for word in words for arg in self._whole(word) or word.fields(variables)]
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

    def _whole(self, word: Word) -> tuple[str, ...]:
        """Give all the words that `"$@"` or `"${command[@]}"` stands for."""
        parts = [part for part in word.parts if part[1]]
        kind, text, _ = parts[0] if len(parts) == 1 else (values.UNKNOWN, "", False)
        whole = kind == values.VARIABLE and (text == "@" or text.endswith("[@]"))
        return self.state.variables.get(text.removesuffix("[@]"), ()) if whole else ()

    def call(self, call: ShellCall, words: list[Word]) -> str | None:
        """Run one command; give what it prints, if the text says that."""
        args = call.args
        call.name, call.args = rules.unwrap(args)
        call.spelled = next((one for one in args if one and rules.name_of(one) == call.name), "")
        self.untouched &= call.name in _SETTING or rules.rule_of(call.name).only_reads(call.args)
        if call.name in self.functions:
            body = self.functions[call.name]
            self.left -= len(body)
            if self.left <= 0:
                return None
            kept = self.state.arguments(call.args)
            printed = self.tokens(body, apart=False)
            self.ended = self.ended if self.ended == "exit" else ""
            self.state.arguments([])
            self.state.variables |= kept
            return None if printed is None else "".join(printed)
        if builtin := builtins.builtin_of(call.name):
            return builtin(self, call, words)
        if call.name in LEAVES:
            self.ended = call.name
            return ""
        if not call.name:
            self.status = self._found(call, args)
            return None if words else ""
        said = rules.run(call)
        if call.name in _CONDITIONS:
            from dibs.surfaces.hooks.shell import conditions

            self.status = conditions.status(call)
            self.open |= self.status is None and conditions.compares(call)
        if "/" in call.spelled and not rules.is_known(call.name):
            return builtins.script(self, call)
        return "" if said is None and call.name in _SILENT else said

    def _found(self, call: ShellCall, args: values.Values) -> bool | None:
        """Say whether a command looks for another one that is there: `command -v jq`."""
        if args[:1] != ["command"] or args[1:2] not in (["-v"], ["-V"]):
            return None
        from dibs.surfaces.hooks.shell import conditions

        call.args = args[2:]
        return conditions.is_installed(call)

    def deeper(self, outer: ShellCall, args: values.Values, words: list[Word]) -> str | None:
        """Run a command that another one runs; give what it prints."""
        if self.depth >= MAX_DEPTH or self.runs <= 0:
            return None
        self.depth += 1
        self.runs -= 1
        printed = self.call(ShellCall(args, outer.cwd, self.scene), words)
        self.depth -= 1
        return printed


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


def _is_arguments(word: Word) -> bool:
    return [(kind, text) for kind, text, _ in word.parts if text] == [(values.VARIABLE, "@")]


def _begins(tokens: list[Token], at: int) -> bool:
    """Say whether a command begins here, not its arguments."""
    return not at or isinstance(tokens[at - 1], str) or keyword_at(tokens, at - 1) in _LEADING
