"""Whether a command certainly succeeds or fails: `[ -f x ] || …`, `grep -q text file && …`.

The answer is certain or None: it depends on files as they are now, if the same text has not changed
them before.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from dibs.surfaces.hooks.shell.call import ASKED, ShellCall
from dibs.surfaces.hooks.shell.values import BRACKET, QUESTION, STAR, Values, options, plain

_ANY = ("file", "directory")
_KINDS = {
    "-d": ("directory",),
    "-f": ("file",),
    "-s": _ANY,
    **dict.fromkeys("-e -r -w -x".split(), _ANY),
}
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__,
    "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
# Not `-lt` and `-le`: loops count with them.
_COMPARING = frozenset("= == != =~ < > -z -n -eq -ne -gt -ge".split())
# A value with one of these stands for names that are not known yet.
_OPEN = frozenset((STAR, QUESTION, BRACKET, ASKED))
_MEANS = frozenset("*?[]()\\^$|+{}.")
_PLAINLY = frozenset("-q --quiet --silent -s -F -e -E -i -x".split())


def status(call: ShellCall) -> bool | None:
    if call.name in ("true", ":", "false"):
        return call.name != "false"
    if call.name in ("test", "[", "[["):
        return _test([arg for arg in call.args if arg not in ("]", "]]")], call)
    if call.name in ("which", "type", "hash"):
        return is_installed(call)
    return _grep(call)


def compares(call: ShellCall) -> bool:
    """Say whether the command compares values; the names that a command prints may be such."""
    return not _COMPARING.isdisjoint(call.args) and not any(
        arg and ASKED in arg for arg in call.args
    )


def is_installed(call: ShellCall) -> bool | None:
    """Whether the command that is looked for is there, as far as that can be seen."""
    _, names = options(call.args)
    name = names[0] if len(names) == 1 else None
    if not name or "/" in name or not call.kind_of(call.cwd):
        return None
    folders = os.environ.get("PATH", "").split(":")
    return any(call.kind_of(f"{folder}/{plain(name)}") == "file" for folder in folders)


def _test(args: Values, call: ShellCall) -> bool | None:
    if args[:1] == ["!"]:
        said = _test(args[1:], call)
        return None if said is None else not said
    if call.name == "[[" and len(args) == 3 and args[1] in ("=", "==", "!="):
        matched = matches(args[0], args[2])
        return None if matched is None else matched == (args[1] != "!=")
    if None in args or any(arg and not _OPEN.isdisjoint(arg) for arg in args):
        return None
    known = [plain(arg) for arg in args if arg is not None]
    if len(known) == 2 and known[0] in _KINDS:
        kind = _kind(call, known[1])
        if known[0] == "-s" and kind == "file" and not call.text(known[1]):
            return None
        return None if kind is None else kind in _KINDS[known[0]]
    if len(known) == 2 and known[0] in ("-n", "-z"):
        return (known[0] == "-n") == bool(known[1])
    if len(known) == 3 and known[1] in _NUMBERS:
        left, right = known[0].strip(), known[2].strip()
        if left.isdecimal() and right.isdecimal() and len(left + right) < 20:
            return _NUMBERS[known[1]](int(left), int(right))
        return None
    if len(known) == 3 and known[1] in ("=", "==", "!=") and "*" not in "".join(known):
        return (known[0] == known[2]) == (known[1] != "!=")
    return None


def matches(value: str | None, pattern: str | None) -> bool | None:
    """Say whether a value matches a pattern of `case` or `[[`; None if that is not certain."""
    if value is None or pattern is None or ASKED in value + pattern or BRACKET in pattern:
        return None
    if not _OPEN.isdisjoint(value):
        return None
    from fnmatch import fnmatchcase

    return fnmatchcase(plain(value), plain(pattern.replace("[", "[[]")))


def _kind(call: ShellCall, value: str) -> str | None:
    """What is at a path; None if that may be something else by the time the command runs."""
    path = call.path(value)
    if path is None or not call.kind_of(call.cwd):
        return None
    if any(
        edit.kind == "tree" or edit.path.startswith(f"{path}/") or "*" in edit.path
        or f"{path}/".startswith(f"{edit.path}/")
        for edit in call.scene.edits
    ):  # fmt: skip
        return None
    return call.kind_of(path)


def _grep(call: ShellCall) -> bool | None:
    """Whether a file contains a plain text; patterns are not tried."""
    found, names = options(call.args, "e --regexp")
    given = [found.get("-e"), *names] if "-e" in found else names
    if len(given) != 2 or not given[0] or not given[1] or found.keys() - _PLAINLY:
        return None
    kind = _kind(call, given[1])
    content = call.text(given[1]) if kind == "file" else None
    if content is None:
        return False if kind == "" else None
    wanted = plain(given[0])
    fixed = "-F" in found or call.name == "fgrep"
    content = "".join(f"\n{line}\n" for line in content.splitlines())
    if not fixed:
        start, end = wanted.startswith("^"), wanted.endswith("$")
        wanted = "\n" * start + wanted[start : len(wanted) - end].replace("\\.", ".") + "\n" * end
    if "-x" in found:
        wanted = f"\n{wanted.strip()}\n"
    if "-i" in found:
        content, wanted = content.lower(), wanted.lower()
    if wanted in content:
        return True
    return False if fixed or _MEANS.isdisjoint(wanted) else None
