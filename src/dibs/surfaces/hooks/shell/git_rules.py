"""What is known about git: an entry of GIT for each of its commands.

Only the working tree matters here, not the index or the commits. If git itself decides which files
change, as in `git stash` or `git checkout main`, the edit is the whole tree or a directory, with
the question for git that finds out which files these are (`git_questions`).
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.git_questions import (
    CHANGED,
    DIRTY,
    MERGING,
    ORIGINAL,
    PICKING,
    REBASING,
    STAGED,
    TRACKED,
    UNKNOWN,
    UNMERGED,
    about,
    bisect,
    fetch,
    merge,
    pick,
    pull,
    rebase,
    split,
    stage,
)
from dibs.surfaces.hooks.shell.rules import Reads, Rule, Writes, output, places, table
from dibs.surfaces.hooks.shell.values import Asks, Options, Values, every, options, plain
from dibs.surroundings.occasion import Edit

_GLOBAL = "Cc --git-dir --work-tree --namespace --exec-path --config-env"


def begun(call: ShellCall) -> tuple[Values, bool]:
    """Take git's own options: give the rest, and whether one of them names a repository."""
    args = list(call.args)
    apart = False
    while args and (arg := args[0]) and arg.startswith("-"):
        found, _ = options(args[:2], _GLOBAL, ordered=True)
        apart |= found.has("--git-dir --work-tree")
        folder = found.get("-C", found.get("--work-tree", ""))
        if folder != "":
            call.cwd = call.path(folder) or ""
        del args[: 2 if arg in ("-C", "-c", *_GLOBAL.split()) else 1]
    return args, apart


def _git(call: ShellCall) -> None:
    args, apart = begun(call)
    args = [call.scene.fetched or arg if arg == "FETCH_HEAD" else arg for arg in args]
    rule = GIT.get(args[0] or "") if args else None
    if not rule or not rule.writes or _is_help(args[1:]):
        return
    call.args = args[1:]
    kept, call.edits = call.edits, {}
    rule.writes(call)
    for edit in call.edits:
        # A repository named by an option is ignored.
        kept[Edit(edit.path, edit.kind) if apart else edit] = None
    call.edits = kept


def _is_help(args: Values) -> bool:
    """Whether git shows a page or its usage: `git stash --help`, `git stash push -h`."""
    return args[:1] == ["--help"] or (len(args) <= 2 and args[-1:] in (["-h"], ["--help"]))


def _git_reads(args: list[str]) -> bool:
    while args and args[0].startswith("-"):
        if args[0] not in ("-C", "--no-pager", "-P", "--version", "--help"):
            return False
        args = args[2 if args[0] == "-C" else 1 :]
    if args and args[0] in GIT and args[1:] in (["-h"], ["--help"]):
        return True
    if any(arg.startswith(("--output", "--open-files", "--ext-diff", "-O")) for arg in args[1:]):
        return False
    return not args or (args[0] in GIT and GIT[args[0]].only_reads([*args[1:]]))


def _paths(call: ShellCall, values: Values, kind: str = "write", asks: Asks = ()) -> None:
    # Which files are meant is known even if the revision is not.
    asks = () if UNKNOWN in asks else asks
    if any(value and value[0] == ":" for value in values):
        values, asks = _magic(call, values, asks)
    for value in filter(None, values):
        if "*" in value or "?" in value:
            # A wildcard that git itself expands matches across directories.
            folder, slash, _ = value.replace("?", "*").partition("*")[0].rpartition("/")
            call.write([f"{folder}{slash}**/{value.rpartition('/')[2]}"], kind, asks)
        else:
            call.write([value], kind, asks)


def _magic(call: ShellCall, values: Values, asks: Asks) -> tuple[Values, Asks]:
    """Give the paths that are meant, and what is asked of them; any path, if `:(glob)x` is."""
    from dibs.surfaces.hooks.shell.searches import pathspec

    meant, limits = pathspec([_from_top(call, value) for value in values])
    if not meant:
        call.tree(*asks, *limits)
    return meant, (*asks, *limits)


def _from_top(call: ShellCall, value: str | None) -> str | None:
    """Give what `:/docs` means: a path from the top of the checkout."""
    given = plain(value or "")
    for mark in (":/", ":(top)"):
        if given.startswith(mark) and given[len(mark) : len(mark) + 1] not in ("!", "^"):
            return f"{top_of(call)}/{given.removeprefix(mark)}"
    return value


def _paths_or_tree(call: ShellCall, values: Values, kind: str, *asks: tuple[str, ...]) -> None:
    if values:
        _paths(call, values, kind, asks)
    else:
        call.tree(*asks)


def _moves(call: ShellCall, target: str | None, found: Options, *more: tuple[str, ...]) -> None:
    """What changing to another commit does."""
    target = "@{-1}" if target == "-" else target
    asks = [about("to", [target]), about("moves", [target])]
    if found.has("-f --force --discard-changes"):
        asks.append(DIRTY)
    else:
        asks.append(UNMERGED if found.has("-m --merge") else CHANGED)
    call.tree(*asks, *more)


def _checkout(call: ShellCall) -> None:
    before, after = split(call.args)
    found, names = options(before, "bB --orphan --conflict --pathspec-from-file")
    rev = [*names[:1], ""][0]
    if after:
        asks = _from_index(found) if rev == "" else (about("paths", [rev]),)
        _paths(call, after, "write", asks)
    elif found.has("-b -B --orphan"):
        if names:
            _moves(call, names[0], found)
    elif names and _is_file(call, names[0]):
        _paths(call, names, "write", _from_index(found))
    elif len(names) > 1:
        _paths(call, names[1:], "write", (about("paths", [rev]),))
    elif names:
        _moves(call, names[0], found)
    elif found.has("-f --force -p --patch"):
        call.tree(DIRTY)


def _from_index(found: Options) -> Asks:
    """What is restored from the index: not if there is a conflict, unless it is forced."""
    forced = found.has("-f --force -m --merge --ours --theirs --ignore-unmerged")
    return (("paths", ""), *(() if forced else (("refuses", "below"),)))


def _is_file(call: ShellCall, value: str | None) -> bool:
    if not value:
        return False
    path = call.path(value)
    if value in (".", "..") or (path and call.kind_of(path)):
        return True
    # If it cannot be examined, judge by the suffix: `a.py`, but not `v1.2`.
    stem, dot, ending = plain(value).rpartition(".")
    return bool(dot) and ending.isalnum() and ending[0].isalpha() and not {*"~^@"} & {*stem}


def _switch(call: ShellCall) -> None:
    found, names = options(call.args, "cC --create --force-create --orphan --conflict")
    if found.has("--orphan"):
        call.tree()
    elif names:
        _moves(call, names[0], found, ("unless", MERGING, *REBASING, *PICKING))


def _restore(call: ShellCall) -> None:
    before, after = split(call.args)
    found, names = options(before, "s --source --conflict --pathspec-from-file")
    staged = found.has("-S --staged")
    if not staged or found.has("-W --worktree"):
        source = found.value("-s --source") or ("HEAD" if staged else "")
        given = found.has("-s --source") and not found.value("-s --source")
        asks = (("paths", plain(source)),) if source else _from_index(found)
        _paths(call, names + after, "write", (UNKNOWN,) if given else asks)


def _reset(call: ShellCall) -> None:
    found, names = options(split(call.args)[0])
    target = [about(word, names[:1]) for word in ("to", "moves") if names]
    if "--hard" in found:
        call.tree(*target, DIRTY)
    elif "--keep" in found:
        call.tree(*target, CHANGED)
    elif "--merge" in found:
        call.tree(*target, STAGED, ("refuses", "unstaged"))


def _rm(call: ShellCall) -> None:
    found, names = options(call.args, " --pathspec-from-file")
    if found.has("--cached -n --dry-run"):
        return
    for name in names:
        several = bool(name) and ("*" in plain(name or "") or call.is_directory(name or ""))
        _paths(call, [name], "remove", (TRACKED,) if several else ())


def _clean(call: ShellCall) -> None:
    found, names = options(call.args, "e --exclude")
    if not found.has("-f --force -i") or found.has("-n --dry-run"):
        return
    flags = [flag for flag in ("-d", "-x", "-X") if flag in found]
    given = [arg for arg in call.args if arg]
    short = [arg for arg in given if arg[0] == "-" and arg[1:2] != "-"]
    # Given twice, it also removes nested repositories.
    twice = given.count("--force") + "".join(short).count("f") > 1
    excluded = [f"--exclude={plain(value)}" for value in every(call.args, "-e", "--exclude")]
    asks = ("untracked", *flags, "-ff" if twice else "-f", *excluded)
    _paths_or_tree(call, names, "remove", asks)


def _stash(call: ShellCall) -> None:
    before, after = split(call.args)
    word = before[0] if before and not (before[0] or "-").startswith("-") else "push"
    found, names = options(before, "m --message --pathspec-from-file")
    names = names[1:] if names[:1] == [word] else names
    if word in ("pop", "apply", "branch"):
        number = plain(([*names[word == "branch" :], ""])[0] or "") or "0"
        stash = f"stash@{{{number}}}" if number.isdecimal() else number
        to = [("to", f"{stash}^1")] if word == "branch" else []
        call.tree(*to, ("stash", stash), CHANGED)
    elif word in ("push", "save"):
        asks: list[tuple[str, ...]] = [STAGED if found.has("-S --staged") else DIRTY]
        if found.has("-u --include-untracked -a --all"):
            asks.append(("untracked", "-d", "-f", *(["-x"] if found.has("-a --all") else [])))
        paths = (names if word == "push" else []) + after
        _paths_or_tree(call, paths, "write", *asks, UNMERGED)


def _read_tree(call: ShellCall) -> None:
    found, names = options(call.args, " --prefix --index-output")
    if "-u" in found and not found.has("-n --dry-run"):
        asks = [about("to", names[-1:])] if names else []
        call.tree(*asks, DIRTY if "--reset" in found else CHANGED)


def _checkout_index(call: ShellCall) -> None:
    before, after = split(call.args)
    found, names = options(before, " --prefix --stage")
    if "--prefix" not in found and (names or after or found.has("-a --all")):
        asks = ("unstaged",) if found.has("-f --force") else ("absent",)
        _paths_or_tree(call, names + after, "write", asks)


def _submodule(call: ShellCall) -> None:
    _, names = options(call.args, "b --branch --reference --depth --jobs")
    if names[:1] == ["update"]:
        _paths_or_tree(call, names[1:], "write", ("modules",))
    elif names[:1] == ["deinit"]:
        _paths_or_tree(call, names[1:], "write")


def _tree(but: str) -> Writes:
    """Rule: any file may change, unless one of these comes first, or nothing at all."""

    def writes(call: ShellCall) -> None:
        if call.args and call.args[0] not in but.split():
            call.tree()

    return writes


def _applies(unless: str, mailed: bool) -> Writes:
    """Rule: it changes the files that its patches name, any file if a patch cannot be seen.

    unless: the options with which it only reads
    """

    def writes(call: ShellCall) -> None:
        if mailed and stage(call, abort=(("during", "rebase-apply"), ORIGINAL, STAGED)):
            return
        found, patches = options(call.args, "pC --directory --exclude --include --whitespace")
        back = ["-R"] if found.has("-R --reverse") else []
        # It is tried first if it is applied as a whole or not at all.
        tried = [] if mailed or found.has("-3 --3way --reject --index") else ["--check", *back]
        if found.has(unless) and "--apply" not in found:
            return
        strip, folder = found.get("-p") or "", found.get("--directory") or ""
        strip = strip if strip.isdecimal() else "1"
        sources = [value for value in patches if value != "-"]
        for source in sources or [None]:
            text = call.written(source) if sources else call.stdin
            if printed := call.asked(text):
                call.tree(*printed)
                continue
            if text is None:
                path = call.path(source)
                asks = ("patch", path, strip, plain(folder), *tried) if path else UNKNOWN
                call.tree(asks)
                continue
            from dibs.surfaces.hooks.shell.toolchain import patched

            # Paths in git's own patches are relative to the top, others to where they are applied.
            base = top_of(call) if "diff --git " in text else call.cwd
            patched(call, text, base and f"{base}/{folder}", int(strip))

    return writes


def top_of(call: ShellCall) -> str:
    """Give the checkout's top directory, the working directory if it cannot be seen."""
    path = call.cwd
    while path and not call.kind_of(f"{path}/.git"):
        path = path.rpartition("/")[0]
    return path or call.cwd


def _add(call: ShellCall) -> None:
    """What is staged matters to a hook before the commit."""
    found, names = options(call.args, " --chmod --pathspec-from-file")
    if found.has("-n --dry-run -N --intent-to-add"):
        return
    whole = found.has("-A --all -u --update") and not names
    for name in [None] if whole else names:
        call.scene.added.append(None if name in (None, ".") else call.path(name))


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
_BRANCHES = (
    "-a -r -v -vv -l --list --all --remotes --show-current --contains --merged --no-merged"
    " --no-color --sort --format"
)
_TAGS = "-l --list -n --contains --points-at --merged --sort --format"
_CONFIG = "--get --list -l --get-all --get-regexp --show-origin"
_OUTPUT = output(" -o --output", "--output -o")
GIT = table({
    _READS: Rule(reads=True),
    "add stage": Rule(_add),
    "clone commit gc init push": Rule(),
    "am": Rule(_applies("", mailed=True)),
    "apply": Rule(_applies("--check --stat --numstat --summary --cached", mailed=False)),
    "archive": Rule(_OUTPUT),
    "bisect": Rule(bisect),
    "branch": Rule(reads=_lists(_BRANCHES, alone=True)),
    "checkout": Rule(_checkout),
    "checkout-index": Rule(_checkout_index),
    "cherry-pick revert": Rule(pick),
    "clean": Rule(_clean),
    "cliff": Rule(_OUTPUT),
    "config": Rule(reads=_lists(_CONFIG)),
    "diff log show": Rule(_OUTPUT, reads=True),
    "fetch": Rule(fetch),
    "filter-branch": Rule(_tree("--setup")),
    "merge": Rule(merge),
    "mv": Rule(places("", unless="-n --dry-run", moves=True)),
    "notes": Rule(reads=_lists("list show")),
    "pull": Rule(pull),
    "read-tree": Rule(_read_tree),
    "rebase": Rule(rebase),
    "reflog": Rule(reads=_lists("show", alone=True)),
    "remote": Rule(reads=_lists("-v --verbose show get-url", alone=True)),
    "reset": Rule(_reset),
    "restore": Rule(_restore),
    "rm": Rule(_rm),
    "sparse-checkout": Rule(_tree("list add disable check-rules")),
    "stash": Rule(_stash, _lists("list show")),
    "submodule": Rule(_submodule, _lists("status summary")),
    "subtree": Rule(_tree("push split")),
    "switch": Rule(_switch),
    "tag": Rule(reads=_lists(_TAGS, alone=True)),
    "worktree": Rule(_worktree, _lists("list")),
})  # fmt: skip
RULE = Rule(_git, _git_reads)
