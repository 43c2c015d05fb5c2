"""Whether a command certainly changes no file.

This is the verdict only if every command in the text, with its arguments, is known to change none.
A text may change what a name means (`PATH`, a function, `alias`), make a program run another
(`PAGER`), or hide commands where a shell evaluates (`${x@P}`, arithmetic): then nothing is certain.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.rules import PREFIXES, SHELLS, rule_of, unwrap
from dibs.surfaces.hooks.shell.syntax import Texts
from dibs.surfaces.hooks.shell.values import (
    TEXT,
    VARIABLE,
    Redirect,
    Token,
    Values,
    Word,
    assigned_name,
    options,
    plain,
)

MAX_DEPTH = 6
_KEYWORDS = frozenset("if then elif else fi while until do done { } ! time".split())
# Words in front of a command that change nothing about it, with the options that they may have.
_QUIET_PREFIXES = {
    "command": "-p", "env": "-i -u -C --unset --chdir", "nice": "-n --adjustment", "time": "-p",
    "timeout": "-s -k --signal --kill-after --foreground --preserve-status",
}  # fmt: skip
# What runs a tool of the project, and by itself writes nothing in it.
_QUIET_RUNNERS = frozenset("npx pnpx bunx pnpm yarn poetry pipenv".split())
_QUIET_SETTINGS = frozenset(
    "LC_ALL LANG PAGER GIT_PAGER NO_COLOR TERM COLUMNS TZ FORCE_COLOR CI".split()
)
_PAGERS = frozenset(("cat", "less", "more", ""))
# Parts of the names of settings that may make another program run.
_LOUD = tuple(
    "PATH OPT PAGER EDITOR VISUAL GIT LD_ DYLD BASH ENV IFS LESS CONFIG HOME ZIP MAN SHELL PROMPT"
    " PS RC PRE PYTHON NODE PERL RUBY TMP CMD COMMAND PROGRAM SSH ASKPASS LOADER".split()
)
_LOUD_IN_ZSH = frozenset("path cdpath fpath manpath module_path".split())


class Reading:
    """One pass over a text and everything inside it.

    evaluates: whether a shell may evaluate texts in it, in arithmetic or as an index
    """

    def __init__(self, texts: Texts, text: str) -> None:
        self.texts = texts
        self.depth = 0
        self.evaluates = any(mark in text for mark in ("((", "[[", "-v", "${"))

    def text(self, text: str) -> bool:
        if self.evaluates and "PATH=" in text.replace(" ", ""):
            return False  # `((PATH=1))`
        reader = self.texts[text]
        return reader.complete and self._all(reader.tokens)

    def _all(self, tokens: list[Token]) -> bool:
        """Say whether every command certainly changes no file."""
        if self.depth > MAX_DEPTH:
            return False
        self.depth += 1
        command: list[Word] = []
        for at, token in enumerate([*tokens, ";"]):
            if isinstance(token, Word):
                if not self._inner(token):
                    return False
                command.append(token)
            elif isinstance(token, Redirect):
                if not self._redirect(token):
                    return False
            elif tokens[at : at + 2] == ["(", ")"] or not self._command(command):
                return False
            else:
                command = []
        self.depth -= 1
        return True

    def _inner(self, word: Word) -> bool:
        """Say whether what is substituted into the word only reads."""
        if word.array is not None:
            return False
        for kind, text, _ in word.parts:
            if kind == VARIABLE and not _only_looked_at(text):
                return False
            if kind == TEXT and self.evaluates and _is_hidden(text):
                return False
        return all(self._all(code) for code in word.code.values())

    def _redirect(self, redirect: Redirect) -> bool:
        target = redirect.word.single({})
        if redirect.writes(target) and target not in ("/dev/null", "/dev/stderr", "/dev/stdout"):
            return False
        return self._inner(redirect.word) and self._inner(redirect.inner)

    def _command(self, command: list[Word]) -> bool:
        while command and command[0].plain() in _KEYWORDS:
            command = command[1:]
        if command and command[0].plain() == "for":
            return all(_is_quiet(word.plain()) or word.plain() == "((" for word in command[1:2])
        names = [word.assigns() for word in command]
        if all(names):
            return all(map(_is_quiet, names))
        count = names.index("")
        if not all(map(_is_quiet_setting, command[:count])):
            return False
        args = _unprefixed([arg for word in command[count:] for arg in word.fields({})])
        if args is None:
            return False
        if not args:
            return True
        name = _bare(args[0] or "/")
        if name in _QUIET_RUNNERS and not {"-c", "--call"} & {*args}:
            name, rest = unwrap(args)
            args = [name, *rest]
        if name in SHELLS and None not in args:
            found, operands = options(args[1:], "oO", ordered=True)
            inner = plain(operands[0] or "") if operands else None
            return "-c" in found and inner is not None and self._deeper(inner)
        if name == "export":
            settings = [assigned_name(arg) if arg else "" for arg in args[1:]]
            return all(map(_is_quiet, settings)) if all(settings) else args[1:] in ([], ["-p"])
        return "/" not in name and rule_of(name).only_reads(args[1:])

    def _deeper(self, text: str) -> bool:
        if self.depth > MAX_DEPTH:
            return False
        self.depth += 1
        reads = Reading.text(self, text)
        self.depth -= 1
        return reads


def _is_hidden(text: str) -> bool:
    """Say whether a text has commands in it that run if a shell evaluates it."""
    return "$(" in text or "`" in text


def _only_looked_at(parameter: str) -> bool:
    """Say whether `${…}` runs and sets nothing: not `${x:=y}`, nor `${x@P}`."""
    return (
        not _is_hidden(parameter)
        and "=" not in parameter
        and "@" not in parameter[1:].replace("[@]", "")
    )


def _is_quiet(name: str) -> bool:
    """Say whether no other command uses the variable."""
    if name.islower():
        return name not in _LOUD_IN_ZSH
    return name in _QUIET_SETTINGS or not any(loud in name.upper() for loud in _LOUD)


def _is_quiet_setting(word: Word) -> bool:
    name = word.assigns()
    value = (word.single({}) or "?").partition("=")[2]
    return name in _QUIET_SETTINGS and ("PAGER" not in name or value in _PAGERS)


def _bare(spelled: str) -> str:
    """A path before the name may mean any program, unless it is a system path."""
    return plain(spelled).removeprefix("/usr").removeprefix("/bin/")


def _unprefixed(args: Values) -> Values | None:
    """Give the command without its prefix words; None if a prefix may change what it does."""
    while args and args[0] and (prefix := _bare(args[0])) in _QUIET_PREFIXES:
        found, rest = options(args[1:], PREFIXES[prefix], ordered=True)
        if prefix == "command" and found.has("-v -V"):
            return []
        if found.keys() - {*_QUIET_PREFIXES[prefix].split()}:
            return None
        rest = rest[1:] if prefix == "timeout" else rest
        while prefix == "env" and rest and rest[0] and (name := assigned_name(rest[0])):
            if name not in _QUIET_SETTINGS or "PAGER" in name:
                return None
            rest = rest[1:]
        if not rest:
            return [] if prefix in ("command", "env") else None
        args = rest
    return args
