"""Which files a git command changes in the working tree.

The index and the commits do not matter here. Where git itself decides which files change, as in
`git stash` or `git checkout main`, the edit is the whole tree.
"""

from __future__ import annotations

import re

from dibs.surfaces.hooks.shell.call import options
from dibs.surfaces.hooks.shell.values import plain
from dibs.surroundings import patch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.surfaces.hooks.shell.call import Call

    Values = list[str | None]

_GLOBAL = "Cc --git-dir --work-tree --namespace --exec-path --config-env"
_QUIET = "list show create store drop clear".split()


def changes(call: Call) -> None:
    """Add what the git command changes."""
    args = list(call.args)
    while args and (arg := args[0]) and arg.startswith("-"):
        found, _ = options(args[:2], _GLOBAL, ordered=True)
        folder = found.get("-C", found.get("--work-tree", ""))
        if folder != "":
            call.cwd = call.path(folder) or ""
        takes_next = arg in ("-C", "-c") or (arg in _GLOBAL.split() and "=" not in arg)
        del args[: 2 if takes_next else 1]
    if not args or not args[0]:
        return
    known = _COMMANDS.get(args[0])
    if known is not None:
        call.args = args[1:]
        known(call)


def _paths(call: Call, values: Values, kind: str = "write") -> None:
    for value in values:
        if not value:
            continue
        if value.startswith(":"):
            call.tree()
        elif "*" in value or "?" in value:
            # A wildcard that git itself reads goes through directories.
            base = re.split(r"[^/]*[*?]", value, maxsplit=1)[0]
            last = value.rpartition("/")[2]
            call.add(call.path(f"{base}**/{last}"), kind)
        else:
            call.add(call.path(value), kind)


def _split(args: Values) -> tuple[Values, Values | None]:
    """What comes before `--`, and what comes after it if there is one."""
    if "--" in args:
        at = args.index("--")
        return args[:at], args[at + 1 :]
    return args, None


def _checkout(call: Call) -> None:
    before, after = _split(call.args)
    found, operands = options(before, "bB --orphan --conflict --pathspec-from-file")
    if after:
        _paths(call, after)
    elif found.keys() & {"-b", "-B", "--orphan"}:
        if operands:
            call.tree()
    elif len(operands) > 1:
        _paths(call, operands if _is_file(call, operands[0]) else operands[1:])
    elif operands and _is_file(call, operands[0]):
        _paths(call, operands)
    elif operands or found.keys() & {"-f", "--force", "-p", "--patch"}:
        call.tree()


def _is_file(call: Call, value: str | None) -> bool:
    if not value:
        return False
    path = call.path(value)
    if value in (".", "..") or (path and call.look(path)):
        return True
    # When it cannot be looked at, by how a file's name ends: `a.py`, and not `v1.2`.
    stem, dot, ending = plain(value).rpartition(".")
    return bool(dot) and ending.isalnum() and ending[0].isalpha() and not {*"~^@"} & {*stem}


def _switch(call: Call) -> None:
    found, operands = options(call.args, "cC --create --force-create --conflict")
    new = found.keys() & {"-c", "-C", "--create", "--force-create"}
    if operands or not new:
        call.tree()


def _restore(call: Call) -> None:
    before, after = _split(call.args)
    found, operands = options(before, "s --source --conflict --pathspec-from-file")
    staged = found.keys() & {"-S", "--staged"}
    if not staged or found.keys() & {"-W", "--worktree"}:
        _paths(call, operands + (after or []))


def _rm(call: Call) -> None:
    found, operands = options(call.args, " --pathspec-from-file")
    if not found.keys() & {"--cached", "-n", "--dry-run"}:
        _paths(call, operands, "remove")


def _mv(call: Call) -> None:
    from dibs.surfaces.hooks.shell.commands import placed

    found, operands = options(call.args)
    if not found.keys() & {"-n", "--dry-run"}:
        sources, ends = placed(call, {}, operands)
        call.remove(sources)
        call.write(ends)


def _clean(call: Call) -> None:
    found, operands = options(call.args, "e --exclude")
    if found.keys() & {"-n", "--dry-run"} or not found.keys() & {"-f", "--force", "-i"}:
        return
    if operands:
        _paths(call, operands, "remove")
    else:
        call.tree()


def _stash(call: Call) -> None:
    before, after = _split(call.args)
    if before and before[0] in _QUIET:
        return
    _, operands = options(before, "m --message --pathspec-from-file")
    paths = operands[1:] + (after or []) if operands[:1] == ["push"] else after
    if paths:
        _paths(call, paths)
    else:
        call.tree()


def _reset(call: Call) -> None:
    if {"--hard", "--merge", "--keep"} & {*call.args}:
        call.tree()


def _tree(call: Call) -> None:
    if not {"--quit", "-h", "--help", "--show-current-patch"} & {*call.args}:
        call.tree()


def _bisect(call: Call) -> None:
    if call.args and call.args[0] not in ("log", "view", "visualize", "terms", "help"):
        call.tree()


def _sparse(call: Call) -> None:
    if call.args and call.args[0] != "list":
        call.tree()


def _apply(call: Call) -> None:
    valued = "pC --directory --exclude --include --whitespace"
    found, operands = options(call.args, valued)
    only_looks = {"--check", "--stat", "--numstat", "--summary", "--cached"}
    if found.keys() & only_looks and "--apply" not in found:
        return
    strip = found.get("-p") or ""
    _named(call, operands, int(strip) if strip.isdecimal() else 1, found.get("--directory") or "")


def _am(call: Call) -> None:
    found, operands = options(call.args, "pC --directory --exclude --include --whitespace")
    if not found.keys() & {"--quit", "--show-current-patch"}:
        _named(call, operands, 1, "")


def _named(call: Call, operands: Values, strip: int, folder: str) -> None:
    """The files that the patches name, the whole tree if a patch cannot be seen."""
    sources = [value for value in operands if value != "-"]
    texts = [call.text(value) for value in sources] if sources else [call.stdin]
    for text in texts:
        if text is None:
            call.tree()
            continue
        # git's own patches are named from the top, all others from where they are applied.
        base = call.top() if "diff --git " in text else call.cwd
        for edit in patch.names(text, f"{base}/{folder}", strip) if base else ():
            call.add(edit.path, edit.kind)


def _worktree(call: Call) -> None:
    _, operands = options(call.args)
    if operands[:1] == ["remove"]:
        call.remove(operands[1:])


def _output(call: Call) -> None:
    found, _ = options(call.args, " -o --output")
    call.write([found.get("--output"), found.get("-o")])


_COMMANDS: dict[str, Callable[[Call], None]] = {
    "checkout": _checkout, "switch": _switch, "restore": _restore, "rm": _rm, "mv": _mv,
    "clean": _clean, "stash": _stash, "reset": _reset, "apply": _apply, "am": _am,
    "merge": _tree, "rebase": _tree, "pull": _tree, "cherry-pick": _tree, "revert": _tree,
    "read-tree": _tree, "checkout-index": _tree, "filter-branch": _tree, "subtree": _tree,
    "bisect": _bisect, "sparse-checkout": _sparse, "worktree": _worktree,
    "diff": _output, "log": _output, "show": _output, "archive": _output,
}  # fmt: skip
