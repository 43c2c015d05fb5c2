"""What a shell command is going to change, read from its text before it runs.

`read` gives a verdict. Nothing is run and no file is read. What can be recognised is named:
redirections, the plain writers (`tee`, `sed -i`, `mv`, `rm`), git, patches and formatters. What
cannot be known from the text (a script, a variable from elsewhere, what `xargs` is fed) is left
out on purpose: the hook finds it after the command has run. That a command only reads is said
the other way round, only if every command in the text is known to leave files alone.
"""

from __future__ import annotations

from collections.abc import Callable

from dibs.surfaces.hooks.shell.rules import SHELLS, name_of, rule_of, unwrap
from dibs.surfaces.hooks.shell.syntax import Texts
from dibs.surfaces.hooks.shell.values import VARIABLE, Redirect, Token, Word, options, plain
from dibs.surroundings.occasion import Edit

READS, WRITES, UNKNOWN = "reads", "writes", "unknown"

MAX_DEPTH = 6
_KEYWORDS = frozenset("if then elif else fi while until do done { } ! time".split())
_QUIET_PREFIXES = frozenset("command env nice time timeout".split())
_QUIET_SETTINGS = frozenset(
    "LC_ALL LANG PAGER GIT_PAGER NO_COLOR TERM COLUMNS TZ FORCE_COLOR".split()
)


class Verdict:
    """What is known of a command before it runs.

    says: READS if it is sure to leave every file as it is; WRITES if it is going to make the
        edits, and perhaps others; UNKNOWN if it may write anything
    edits: with absolute paths, each once
    """

    def __init__(self, says: str, edits: list[Edit]) -> None:
        self.says = says
        self.edits = edits


def read(command: str, cwd: str, kind_of: Callable[[str], str] = lambda _: "") -> Verdict:
    """Say what the command is going to change.

    kind_of: says of a path whether it is now a "directory", a "file" or nothing (""); without
        it, `mv a b` is taken to write b itself and `git checkout x` is judged by how x is spelled
    """
    text = command.replace("\0", "")
    texts = Texts()
    # A NUL reaches no shell; what another program makes of such a text cannot be told.
    if text == command and _only_reads(text, texts, 0):
        return Verdict(READS, [])
    from dibs.surfaces.hooks.shell.walk import Walk

    walk = Walk(texts, cwd, kind_of)
    walk.text(text)
    return Verdict(WRITES if walk.edits else UNKNOWN, list(walk.edits))


def _only_reads(text: str, texts: Texts, depth: int) -> bool:
    reader = texts[text]
    return reader.complete and _all_read(reader.tokens, texts, depth)


def _all_read(tokens: list[Token], texts: Texts, depth: int) -> bool:
    """Say whether every command is sure to leave all files as they are."""
    if depth > MAX_DEPTH:
        return False
    command: list[Word] = []
    for at, token in enumerate([*tokens, ";"]):
        if isinstance(token, Word):
            if not _inner_reads(token, texts, depth):
                return False
            command.append(token)
        elif isinstance(token, Redirect):
            if not _redirect_reads(token, texts, depth):
                return False
        elif tokens[at : at + 2] == ["(", ")"] or not _command_reads(command, texts, depth):
            return False
        else:
            command = []
    return True


def _inner_reads(word: Word, texts: Texts, depth: int) -> bool:
    """Say whether what is substituted into the word only reads."""
    hidden = any(kind == VARIABLE and ("$(" in text or "`" in text) for kind, text, _ in word.parts)
    if hidden or word.array is not None:
        return False
    return all(_all_read(code, texts, depth + 1) for code in word.code.values())


def _redirect_reads(redirect: Redirect, texts: Texts, depth: int) -> bool:
    target = redirect.word.single({})
    if redirect.writes(target) and target not in ("/dev/null", "/dev/stderr", "/dev/stdout"):
        return False
    return all(_inner_reads(word, texts, depth) for word in (redirect.word, redirect.inner))


def _command_reads(command: list[Word], texts: Texts, depth: int) -> bool:
    while command and command[0].plain() in _KEYWORDS:
        command = command[1:]
    if command and command[0].plain() == "for":
        return True
    names = [word.assigns() for word in command]
    if all(names):
        return True  # Nothing but assignments.
    count = names.index("")
    if not _QUIET_SETTINGS.issuperset(names[:count]):
        return False
    args = [arg for word in command[count:] for arg in word.fields({})]
    if not args:
        return True
    if args[0] and (prefix := name_of(args[0])) in _QUIET_PREFIXES:
        name, rest = unwrap(args)
        if not name:
            return prefix in ("command", "env") and None not in args
        args = [name, *rest]
    # A path in front of the name may lead to any program.
    name = plain(args[0] or "/")
    if name in SHELLS and None not in args:
        found, operands = options(args[1:], "oO", ordered=True)
        inner = plain(operands[0] or "") if operands else None
        return "-c" in found and inner is not None and _only_reads(inner, texts, depth + 1)
    return "/" not in name and rule_of(name).only_reads(args[1:])
