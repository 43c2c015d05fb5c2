"""Files that are chosen by their contents, or by git: `grep -l`, `git diff --name-only`.

Such a command prints a pattern that carries a question (`call`): which of these files contain the
text, or differ, is checked when it is known what others hold.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.patterns import literals
from dibs.surfaces.hooks.shell.values import Options, Values, every, options, plain

_TYPES = {"python": "py", "rust": "rs", "js": "js", "ts": "ts", "markdown": "md", "sh": "sh"}
_DIFFERING = frozenset("archive diff diff-tree format-patch log show stash status".split())
_PLAIN_LISTS = frozenset("-1 -n --max-count --format --pretty --reverse --no-merges".split())
_EXTENDED = frozenset("egrep rg ag".split())
_LEFT_OUT = (":!", ":^", ":(exclude)")


def matching(call: ShellCall, flags: Options, names: Values) -> str | None:
    """The files that contain something: `grep -rl text src`, `rg -l text`, `git grep -l text`."""
    given = [flags.value("-e --regexp"), *names] if flags.has("-e --regexp") else names
    pattern, *roots = given or [None]
    if not pattern or None in roots or (not roots and call.stdin is not None):
        return None
    extended = flags.has("-E --extended-regexp -P --perl-regexp") or call.name in _EXTENDED
    fixed = flags.has("-F --fixed-strings") or call.name == "fgrep"
    texts = [plain(pattern)] if fixed else literals(plain(pattern), basic=not extended)
    case = "i" if flags.has("-i --ignore-case -S --smart-case") else ""
    asks = [("only", "with", case, *texts), ("only", "there")]
    endings = [plain(one) for one in every(call.args, "--include", "-g", "--glob", "--iglob")]
    endings += [f"*.{_TYPES.get(one, one)}" for one in every(call.args, "-t", "--type")]
    out = [one for one in every(call.args, "--exclude", "--exclude-dir")]
    out += [one[1:] for one in endings if one[:1] == "!"]
    asks += [("only", "unlike", plain(one)) for one in out]
    wild = [one for one in endings if one[:1] != "!"] or ["*"]
    found = []
    for root in roots or ["."]:
        if root and ("*" in plain(root) or call.kind_of(call.path(root) or "") == "file"):
            found.append(plain(root))
        else:
            found += [f"{plain(root or '.')}/**/{one}" for one in wild]
    return "".join(f"{call.asking(one, *asks)}\n" for one in found)


def printed_by_git(call: ShellCall) -> str | None:
    """What git prints of the files of a checkout."""
    args = call.args
    if args in (["branch", "--show-current"], ["rev-parse", "--abbrev-ref", "HEAD"]):
        return _branch(call)
    if args[:1] == ["rev-parse"]:
        if args[1:] == ["--show-toplevel"] and call.cwd:
            path = call.cwd
            while path and not call.kind_of(f"{path}/.git"):
                path = path.rpartition("/")[0]
            return f"{path or call.cwd}\n"
        flags, revs = options(args[1:])
        shown = not flags.keys() - {"-q", "--verify", "--short", "--quiet", "--abbrev-ref"}
        # For git, the name of a commit is as good as its hash.
        return f"{revs[0]}\n" if shown and len(revs) == 1 and revs[0] else None
    if args[:1] in (["rev-list"], ["log"]):
        flags, revs = options(args[1 : args.index("--") if "--" in args else None], "n --max-count")
        hashes = args[0] == "rev-list" or flags.value("--format --pretty") in ("%H", "%h")
        one = flags.has("-1") or "1" in (flags.get("-n"), flags.get("--max-count"))
        known = not flags.keys() - _PLAIN_LISTS
        if hashes and known and len(revs) == 1 and revs[0] and (one or ".." in revs[0]):
            return f"{revs[0]}\n"
    if args[:1] == ["grep"]:
        flags, names = options(args[1:], "eABCm")
        if "--" in args:
            names = names[:1] + args[args.index("--") + 1 :]
        return matching(call, flags, names) if flags.has("-l --name-only") else None
    if args[:1] == ["ls-files"]:
        return _ls_files(call, args[1:])
    return _differing(call, args) if args[:1] and args[0] in _DIFFERING else None


def _branch(call: ShellCall) -> str | None:
    """The branch that is checked out, if no command before has changed it."""
    if any(edit.kind == "tree" for edit in call.scene.edits):
        return None
    folder = git_folder(call)
    head = (folder and call.text(f"{folder}/HEAD")) or ""
    name = head.strip().removeprefix("ref: refs/heads/")
    return f"{name}\n" if name != head.strip() else None


def git_folder(call: ShellCall, *, common: bool = False) -> str:
    """Give where git keeps what it knows of the checkout, "" if there is none.

    common: where it keeps what all worktrees share
    """
    path = call.cwd
    while path and not call.kind_of(f"{path}/.git"):
        path = path.rpartition("/")[0]
    folder = f"{path}/.git" if path else ""
    if folder and call.kind_of(folder) == "file":
        # In a linked worktree, it is a file that says where the repository is.
        folder = (call.text(folder) or "").removeprefix("gitdir:").strip()
        folder = folder.partition("/worktrees/")[0] if common else folder
    return folder


def _ls_files(call: ShellCall, args: Values) -> str | None:
    flags, names = options(args, "xX --exclude")
    if None in names or flags.has("-s --stage -i --ignored -t -u"):
        return None
    asks: list[tuple[str, ...]] = [("only", "there")]
    if flags.has("-m --modified"):
        asks = [("unstaged",)]
    elif flags.has("-d --deleted"):
        asks = [("absent",)]
    elif flags.has("-o --others"):
        asks = [("untracked", "-d", "-f")]
    listed = [plain(name) for name in names if name] or ["**"]
    return "".join(f"{call.asking(_through_directories(name), *asks)}\n" for name in listed)


def _differing(call: ShellCall, args: Values) -> str | None:
    """The names of what differs, or a patch of it: `git diff --name-only main`, `git show x`."""
    word, at = args[0], args.index("--") if "--" in args else len(args)
    flags, revs = options(args[1:at], "nUO --format --diff-filter --pretty", "SGM")
    paths: Values = args[at + 1 :]
    if None in revs or None in paths:
        return None
    named = flags.has("--name-only --name-status --porcelain -s --short")
    known = [plain(rev) for rev in revs if rev]
    while known and call.kind_of(call.path(known[-1]) or ""):
        paths = [known.pop(), *paths]  # a path without `--` before it
    if word == "archive":
        asks, paths, named = [("paths", *known[:1])], [*known[1:], *paths], True
    elif word == "diff":
        asks = _between(known, staged=flags.has("--cached --staged"))
    elif word == "status":
        asks = [("dirty",), ("untracked", "-d", "-f")]
    elif word == "stash":
        which = [*known[1:], "0"][0]
        which = f"stash@{{{which}}}" if which.isdecimal() else which
        asks = [("stash", which)] if known[:1] == ["show"] else []
    else:
        asks = [("commits", *(known or ["HEAD"]))]
    if not asks or (word == "format-patch" and "--stdout" not in flags):
        return None
    paths, limits = pathspec(paths)
    asks = [*asks, *limits]
    if not named:
        within = [path for one in paths if (path := call.path(one))]
        asks += [("only", "within", *within)] if within else []
        return f"{call.asking('', *asks)}\n" if word != "status" else None
    listed = [_through_directories(plain(one)) for one in paths if one] or ["**"]
    listed = [f"{one}/**" if call.is_directory(one) else one for one in listed]
    printed = "".join(f"{call.asking(one, *asks)}\n" for one in listed)
    added = call.scene.added if asks[:1] == [("staged",)] else []
    # What the same text has added is not staged yet.
    if None in added:
        printed += f"{call.asking('**', ('dirty',), *limits)}\n"
    else:
        for path in filter(None, added):
            folder = call.is_directory(path)
            printed += f"{call.asking(f'{path}/**', ('dirty',))}\n" if folder else f"{path}\n"
    return printed


def pathspec(paths: Values) -> tuple[Values, list[tuple[str, ...]]]:
    """The paths that are meant, and those that `:!docs` and the like exclude."""
    given = [plain(one) for one in paths if one]
    out: list[tuple[str, ...]] = []
    for one in given:
        magic = next((mark for mark in _LEFT_OUT if one.startswith(mark)), "")
        out += [("only", "unlike", one.removeprefix(magic))] if magic else []
    meant = [one for one in given if not one.startswith(_LEFT_OUT)]
    # Any other use of a colon may mean any file.
    return ([] if any(one.startswith(":") for one in meant) else [*meant]), out


def _between(revs: list[str], *, staged: bool) -> list[tuple[str, ...]]:
    if not revs:
        return [("staged",) if staged else ("unstaged",)]
    first, dots, second = revs[0].partition("...")
    if not dots:
        first, dots, second = revs[0].partition("..")
    if dots or revs[1:]:
        first, second = first or "HEAD", (second if dots else revs[1]) or "HEAD"
        return [("between", f"{first}...{second}" if dots == "..." else first, second)]
    return [("paths", revs[0])]


def _through_directories(name: str) -> str:
    """A wildcard that git itself expands matches across directories."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}**/{last}" if "*" in last and last != "**" else name
