"""Which commands are sure to leave every file as it is. In doubt they are not."""

from __future__ import annotations

import re

from dibs.surfaces.hooks.shell import prefixes, values, words
from dibs.surfaces.hooks.shell.call import options
from dibs.surfaces.hooks.shell.simple import SHELLS, WRITING
from dibs.surfaces.hooks.shell.tokens import Reader
from dibs.surfaces.hooks.shell.words import Redirect, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.shell.words import Token

    Values = list[str | None]

MAX_DEPTH = 6
# Whatever their arguments are.
_ALWAYS = frozenset(
    ": [ [[ (( ag arch basename break cat cd cksum cmp column comm continue cut date df diff"
    " dirname du echo egrep exit expand export expr false fgrep fold grep groups head hexdump id"
    " join jq ls md5sum nl nproc od paste popd printenv printf ps pushd pwd readlink realpath"
    " return rev seq sha1sum sha256sum sleep stat strings tac tail test tr true type uname"
    " unexpand unset uptime wait wc which whoami".split()
)
_KEYWORDS = frozenset("if then elif else fi while until do done { } ! time".split())
_QUIET_PREFIXES = frozenset("command env nice time timeout".split())
_QUIET_SETTINGS = frozenset(
    "LC_ALL LANG PAGER GIT_PAGER NO_COLOR TERM COLUMNS TZ FORCE_COLOR".split()
)
_GIT = frozenset(
    "annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files"
    " diff-index diff-tree for-each-ref grep help log ls-files ls-remote ls-tree merge-base"
    " name-rev rev-list rev-parse shortlog show show-branch show-ref status var"
    " version whatchanged".split()
)
_GIT_LISTING = {
    "branch": "-a -r -v -vv -l --list --all --remotes --show-current --contains --merged"
    " --no-merged --no-color --sort --format",
    "tag": "-l --list -n --contains --points-at --merged --sort --format",
    "config": "--get --list -l --get-all --get-regexp --show-origin --global --local",
    "remote": "-v --verbose show get-url",
    "stash": "list show",
    "worktree": "list",
    "reflog": "show",
    "submodule": "status summary",
    "notes": "list show",
}
_DIBS = frozenset("status leases wait inbox agents log help messages protocol verify".split())
_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED = re.compile(
    rf"(?:{_ADDRESS}(?:,[+~]?{_ADDRESS})?)? ?!? ?"
    r"(?:[pdqQ=]\d*|s/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/[gpiI\d]*)?"
).fullmatch


def is_harmless(text: str, depth: int = 0) -> bool:
    """Say whether every command in the text only reads."""
    reader = Reader(text)
    return reader.complete and _all(reader.tokens, depth)


def _all(tokens: list[Token], depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    command: list[Word] = []
    for at, token in enumerate([*tokens, ";"]):
        if isinstance(token, Word):
            if not _inside(token, depth):
                return False
            command.append(token)
        elif isinstance(token, Redirect):
            if not _inside(token.word, depth) or not _redirect(token, depth):
                return False
        elif tokens[at : at + 2] == ["(", ")"] or not _one(command, depth):
            return False
        else:
            command = []
    return True


def _inside(word: Word | None, depth: int) -> bool:
    """Say whether what is substituted into the word only reads."""
    for kind, content, _ in word.parts if word else ():
        if kind in (words.CODE, words.ARRAY):
            if kind == words.ARRAY or not isinstance(content, list) or not _all(content, depth + 1):
                return False
        elif kind == words.VARIABLE and ("$(" in str(content) or "`" in str(content)):
            return False
    return True


def _redirect(redirect: Redirect, depth: int) -> bool:
    if redirect.op not in WRITING:
        return _inside(redirect.inner, depth)
    target = values.single(redirect.word, {})
    if redirect.op == ">&" and target is not None and (target.isdecimal() or target == "-"):
        return True
    return target in ("/dev/null", "/dev/stderr", "/dev/stdout")


def _one(command: list[Word], depth: int) -> bool:
    while command and command[0].plain() in _KEYWORDS:
        command = command[1:]
    if command and command[0].plain() == "for":
        return True
    alone = all(map(_assigned_name, command))
    while command and (name := _assigned_name(command[0])):
        if not alone and name not in _QUIET_SETTINGS:
            return False
        command = command[1:]
    args: Values = []
    for word in command:
        fields = values.expand(word, {})
        args += [None] if fields is None else fields
    if not args:
        return True
    while args[0] and (prefix := prefixes.name_of(args[0])) in _QUIET_PREFIXES:
        name, rest = prefixes.unwrap(args)
        if not name:
            return prefix in ("command", "env") and all(arg is not None for arg in args)
        args = [name, *rest]
    # A path in front of the name may lead to any program.
    name = values.plain(args[0] or "/")
    return "/" not in name and _known(name, args[1:], depth)


def _assigned_name(word: Word) -> str:
    kind, text, quoted = word.parts[0] if word.parts else (words.UNKNOWN, "", True)
    if kind != words.TEXT or quoted or not prefixes.is_assignment(str(text)):
        return ""
    return str(text).partition("=")[0].rstrip("+")


def _known(name: str, args: Values, depth: int) -> bool:
    if name in _ALWAYS:
        return True
    if None in args:
        return False  # It may be the very option that writes.
    known = [values.plain(arg) for arg in args if arg is not None]
    if name in SHELLS:
        found, operands = options(list(known), "oO", ordered=True)
        return "-c" in found and bool(operands) and is_harmless(operands[0] or "", depth + 1)
    if name == "git":
        return _git(known)
    if name == "dibs":
        return bool(known) and known[0] in _DIBS and known[1:2] not in (["see"], ["report"])
    if name == "sed":
        return _sed(known)
    if name == "uniq":
        return len([arg for arg in known if not arg.startswith("-")]) < 2
    if name in _FORBIDDEN:
        return not any(_FORBIDDEN[name](arg) for arg in known)
    return False


_FORBIDDEN = {
    "find": re.compile(r"-(delete|exec|ok|fprint|fls)").match,
    "sort": re.compile(r"-[^-]*o|--o|--compress|-[^-]*T|--t").match,
    "rg": re.compile(r"--pre|--hostname-bin").match,
    "tree": re.compile(r"-[^-]*o|--output").match,
    "file": re.compile(r"-[^-]*C|--compile").match,
    "fd": re.compile(r"-[^-]*[xX]|--exec").match,
}


def _sed(args: list[str]) -> bool:
    found, operands = options(list(args), "e --expression")
    if found.keys() - {"-n", "-e", "-E", "-r", "--expression", "--quiet", "-s", "-u", "-z"}:
        return False
    if args.count("-e") > 1 or "--expression" in found:
        return False
    script = found.get("-e") or (operands[0] if operands else "")
    return bool(script) and all(_SED(one.strip()) for one in re.split("[;\n]", script or ""))


def _git(args: list[str]) -> bool:
    while args and args[0].startswith("-"):
        if args[0] not in ("-C", "--no-pager", "-P", "--version", "--help"):
            return False
        args = args[2 if args[0] == "-C" else 1 :]
    if not args:
        return True
    name, rest = args[0], args[1:]
    if any(arg.startswith(("--output", "--open-files", "--ext-diff", "-O")) for arg in rest):
        return False
    if name in _GIT:
        return True
    allowed = _GIT_LISTING.get(name)
    if allowed is None:
        return False
    if name in ("branch", "tag", "remote", "reflog") and not rest:
        return True
    # `git branch new` makes a branch; with one of these in front, what follows is a pattern.
    return bool(rest) and rest[0].partition("=")[0] in allowed.split()
