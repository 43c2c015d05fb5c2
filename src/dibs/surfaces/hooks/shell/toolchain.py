"""What is known about git and patches: an entry of COMMANDS or GIT for each.

Of git, only the working tree matters here, not the index or the commits. Where git itself
decides which files change, as in `git stash` or `git checkout main`, the edit is the whole tree.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.rules import Reads, Rule, Writes, output, places, table
from dibs.surfaces.hooks.shell.values import ShellCall, Values, options, plain


def _patched(call: ShellCall, text: str | None, folder: str, strip: int | None = 1) -> None:
    """What a patch changes, by the names in it, from the folder."""
    if text and folder:
        from dibs.surroundings import patch

        for edit in patch.names(text, folder, strip):
            call.add(edit.path, edit.kind)


def _patch(call: ShellCall) -> None:
    found, names = options(
        call.args, "dpioFrBzDVgY --directory --strip --input --output --reject-file --fuzz"
    )
    if found.has("--dry-run -C"):
        return
    if found.has("-d --directory"):
        call.cwd = call.path(found.value("-d --directory")) or ""
    if target := found.value("-o --output") or (names[0] if names else ""):
        call.write([target])
        return
    source = found.value("-i --input")
    strip = found.value("-p --strip") or ""
    text = call.text(source) if source else call.stdin
    _patched(call, text, call.cwd, int(strip) if strip.isdecimal() else None)


def _apply_patch(call: ShellCall) -> None:
    for text in (call.stdin, *call.args):
        _patched(call, text, call.cwd)


_GLOBAL = "Cc --git-dir --work-tree --namespace --exec-path --config-env"


def _git(call: ShellCall) -> None:
    args = list(call.args)
    while args and (arg := args[0]) and arg.startswith("-"):
        found, _ = options(args[:2], _GLOBAL, ordered=True)
        folder = found.get("-C", found.get("--work-tree", ""))
        if folder != "":
            call.cwd = call.path(folder) or ""
        del args[: 2 if arg in ("-C", "-c", *_GLOBAL.split()) else 1]
    rule = GIT.get(args[0] or "") if args else None
    if rule and rule.writes:
        call.args = args[1:]
        rule.writes(call)


def _git_reads(args: list[str]) -> bool:
    while args and args[0].startswith("-"):
        if args[0] not in ("-C", "--no-pager", "-P", "--version", "--help"):
            return False
        args = args[2 if args[0] == "-C" else 1 :]
    if any(arg.startswith(("--output", "--open-files", "--ext-diff", "-O")) for arg in args[1:]):
        return False
    return not args or (args[0] in GIT and GIT[args[0]].only_reads([*args[1:]]))


def _paths(call: ShellCall, values: Values, kind: str = "write") -> None:
    for value in filter(None, values):
        if value.startswith(":"):
            call.tree()
        elif "*" in value or "?" in value:
            # A wildcard that git itself reads goes through directories.
            folder, slash, _ = value.replace("?", "*").partition("*")[0].rpartition("/")
            call.write([f"{folder}{slash}**/{value.rpartition('/')[2]}"], kind)
        else:
            call.write([value], kind)


def _paths_or_tree(call: ShellCall, values: Values, kind: str = "write") -> None:
    if values:
        _paths(call, values, kind)
    else:
        call.tree()


def _split(args: Values) -> tuple[Values, Values]:
    """What comes before `--`, and what comes after it."""
    at = args.index("--") if "--" in args else len(args)
    return args[:at], args[at + 1 :]


def _checkout(call: ShellCall) -> None:
    before, after = _split(call.args)
    found, names = options(before, "bB --orphan --conflict --pathspec-from-file")
    if after:
        _paths(call, after)
    elif found.has("-b -B --orphan"):
        if names:
            call.tree()
    elif names and _is_file(call, names[0]):
        _paths(call, names)
    elif len(names) > 1:
        _paths(call, names[1:])
    elif names or found.has("-f --force -p --patch"):
        call.tree()


def _is_file(call: ShellCall, value: str | None) -> bool:
    if not value:
        return False
    path = call.path(value)
    if value in (".", "..") or (path and call.kind_of(path)):
        return True
    # When it cannot be looked at, by how a file's name ends: `a.py`, and not `v1.2`.
    stem, dot, ending = plain(value).rpartition(".")
    return bool(dot) and ending.isalnum() and ending[0].isalpha() and not {*"~^@"} & {*stem}


def _switch(call: ShellCall) -> None:
    found, names = options(call.args, "cC --create --force-create --conflict")
    if names or not found.has("-c -C --create --force-create"):
        call.tree()


def _restore(call: ShellCall) -> None:
    before, after = _split(call.args)
    found, names = options(before, "s --source --conflict --pathspec-from-file")
    if not found.has("-S --staged") or found.has("-W --worktree"):
        _paths(call, names + after)


def _rm(call: ShellCall) -> None:
    found, names = options(call.args, " --pathspec-from-file")
    if not found.has("--cached -n --dry-run"):
        _paths(call, names, "remove")


def _clean(call: ShellCall) -> None:
    found, names = options(call.args, "e --exclude")
    if found.has("-f --force -i") and not found.has("-n --dry-run"):
        _paths_or_tree(call, names, "remove")


def _stash(call: ShellCall) -> None:
    before, after = _split(call.args)
    if before and before[0] in ("list", "show", "create", "store", "drop", "clear"):
        return
    _, names = options(before, "m --message --pathspec-from-file")
    _paths_or_tree(call, names[1:] + after if names[:1] == ["push"] else after)


def _tree(*, needs: str = "", unless: str = "", but: str = "") -> Writes:
    """Rule: any file may change.

    needs, unless: the arguments of which one must be there, and those that must not
    but: the first words with which nothing changes, as nothing does without a first word
    """

    def writes(call: ShellCall) -> None:
        given = {*call.args}
        if given & {*unless.split()} or (needs and not given & {*needs.split()}):
            return
        if not but or (call.args and call.args[0] not in but.split()):
            call.tree()

    return writes


def _applies(unless: str) -> Writes:
    """Rule: it changes the files that its patches name, any file if a patch cannot be seen.

    unless: the options with which it only looks
    """

    def writes(call: ShellCall) -> None:
        found, patches = options(call.args, "pC --directory --exclude --include --whitespace")
        if found.has(unless) and "--apply" not in found:
            return
        strip, folder = found.get("-p") or "", found.get("--directory") or ""
        sources = [value for value in patches if value != "-"]
        for text in map(call.text, sources) if sources else [call.stdin]:
            if text is None:
                call.tree()
                continue
            # git's own patches are named from the top, all others from where they are applied.
            base = _top(call) if "diff --git " in text else call.cwd
            strips = int(strip) if strip.isdecimal() else 1
            _patched(call, text, base and f"{base}/{folder}", strips)

    return writes


def _top(call: ShellCall) -> str:
    """Give the checkout's top directory, the working directory if it cannot be seen."""
    path = call.cwd
    while path and not call.kind_of(f"{path}/.git"):
        path = path.rpartition("/")[0]
    return path or call.cwd


def _worktree(call: ShellCall) -> None:
    _, names = options(call.args)
    if names[:1] == ["remove"]:
        call.write(names[1:], "remove")


def _lists(first: str, *, alone: bool = False) -> Reads:
    """Rule: it only lists if one of these comes first, or perhaps if there is nothing at all.

    `git branch new` makes a branch; with one of these in front, what follows is a pattern.
    """
    return lambda args: args[0].partition("=")[0] in first.split() if args else alone


_READS = (
    "annotate blame cat-file check-attr check-ignore cherry count-objects describe diff-files"
    " diff-index diff-tree for-each-ref grep help ls-files ls-tree merge-base name-rev"
    " rev-list rev-parse shortlog show-branch show-ref status var version whatchanged"
)
_REWRITES = "merge rebase pull cherry-pick revert read-tree checkout-index filter-branch subtree"
_BRANCHES = (
    "-a -r -v -vv -l --list --all --remotes --show-current --contains --merged --no-merged"
    " --no-color --sort --format"
)
_TAGS = "-l --list -n --contains --points-at --merged --sort --format"
_CONFIG = "--get --list -l --get-all --get-regexp --show-origin"
_OUTPUT = output(" -o --output", "--output -o")
GIT = table({
    _READS: Rule(reads=True),
    _REWRITES: Rule(_tree(unless="--quit -h --help --show-current-patch")),
    "am": Rule(_applies("--quit --show-current-patch")),
    "apply": Rule(_applies("--check --stat --numstat --summary --cached")),
    "archive": Rule(_OUTPUT),
    "bisect": Rule(_tree(but="log view visualize terms help")),
    "branch": Rule(reads=_lists(_BRANCHES, alone=True)),
    "checkout": Rule(_checkout),
    "clean": Rule(_clean),
    "config": Rule(reads=_lists(_CONFIG)),
    "diff log show": Rule(_OUTPUT, reads=True),
    "mv": Rule(places("", unless="-n --dry-run", moves=True)),
    "notes": Rule(reads=_lists("list show")),
    "reflog": Rule(reads=_lists("show", alone=True)),
    "remote": Rule(reads=_lists("-v --verbose show get-url", alone=True)),
    "reset": Rule(_tree(needs="--hard --merge --keep")),
    "restore": Rule(_restore),
    "rm": Rule(_rm),
    "sparse-checkout": Rule(_tree(but="list")),
    "stash": Rule(_stash, _lists("list show")),
    "submodule": Rule(reads=_lists("status summary")),
    "switch": Rule(_switch),
    "tag": Rule(reads=_lists(_TAGS, alone=True)),
    "worktree": Rule(_worktree, _lists("list")),
})  # fmt: skip
COMMANDS = table({
    "apply_patch applypatch": Rule(_apply_patch),
    "git": Rule(_git, _git_reads),
    "patch": Rule(_patch),
})  # fmt: skip
