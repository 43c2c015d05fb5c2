"""Names that one command passes to others: what `find`, `ls` or `git ls-files` print, and what
`xargs`, `find -exec` and similar commands then run.

Files that are not named in the text are named by a pattern: `find src -name '*.py'` prints
`src/**/*.py` here. If only some of these are meant, the name carries a question (`searches`). If
nothing can be asked (`-newer`), nothing is claimed: a claim on all of them would block others.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

from dibs.surfaces.hooks.shell.call import ASKED, ShellCall
from dibs.surfaces.hooks.shell.values import MAX_VALUES, Values, marked, options, plain

_ACTIONS = frozenset("-exec -execdir -ok -okdir".split())
# Tests that choose files by something other than their names.
_VAGUE = frozenset(
    "-newer -newermt -mtime -mmin -ctime -cmin -atime -amin -size -empty -perm -user -group -regex"
    " -iregex -links -inum -samefile -anewer -cnewer -executable -writable -readable".split()
)
# How many minutes the value of a test stands for.
_AGES = {"-mmin": 1, "-mtime": 24 * 60}
_XARGS = "aEILnPsd --arg-file --delimiter --max-args --max-procs --replace --max-lines --max-chars"
_FD = "etEdjcSoB --extension --type --exclude --max-depth --threads --color --size --base-directory"


def commands_of(call: ShellCall) -> Iterator[Values]:
    """Give every command that the call runs, with its input inserted."""
    if call.name == "find":
        yield from _executed(call)
    elif call.name == "xargs":
        found, command = options(call.args, _XARGS, "ile", ordered=True)
        mark = found.value("-I --replace") or ("{}" if found.has("-i -I --replace") else "")
        given = found.value("-a --arg-file")
        items = _items(call.text(given) if given else call.stdin, bool(mark))
        yield from _filled(command, items, mark)
    elif call.name == "parallel":
        _, command = options(call.args, "jN --jobs --delay --colsep", ordered=True)
        items = _items(call.stdin, True)
        if ":::" in command:
            at = command.index(":::")
            command, items = command[:at], command[at + 1 :]
        each = "{}" if any(arg and "{}" in arg for arg in command) else ""
        yield from _filled(command, items, each)
    else:
        at = next((at for at, arg in enumerate(call.args) if arg in _FD_RUNS), len(call.args))
        command, files = call.args[at + 1 :], fd_found(call.args[:at])
        yield from _filled(command, files or [None], "{}" if "{}" in command else "")


_FD_RUNS = ("-x", "-X", "--exec", "--exec-batch")


def printed_by(call: ShellCall) -> str | None:
    """Give what the call prints, if it lists files."""
    if call.name == "find" and not _ACTIONS & {*call.args}:
        return _lines(find_names(call))
    if call.name in ("fd", "fdfind") and not {*_FD_RUNS} & {*call.args}:
        return _lines(fd_found(call.args))
    return None


def _lines(names: Values | None) -> str | None:
    if names is None or None in names:
        return None
    return "".join(f"{plain(name)}\n" for name in names if name)


def _items(stdin: str | None, by_line: bool) -> Values:
    if stdin is None:
        return [None]
    text = stdin.replace("\0", "\n")
    return [*map(marked, filter(None, text.split("\n") if by_line else text.split()))]


def _filled(command: Values, items: Values, mark: str) -> Iterator[Values]:
    """Append the items to the command, or put each of them in place of the mark."""
    if not command:
        return
    if not mark:
        yield [*command, *items]
        return
    for item in items[:MAX_VALUES]:
        yield [
            arg if arg is None or mark not in arg else None if item is None
            else arg.replace(mark, item)
            for arg in command
        ]  # fmt: skip


def find_names(call: ShellCall) -> Values | None:
    """Give what `find` finds, with a question about what it leaves out."""
    names, asks = found(call.args), [*left_out(call.args), *_aged(call.args)]
    return (names and asks and [name and call.asking(name, *asks) for name in names]) or names


def _executed(call: ShellCall) -> Iterator[Values]:
    files = find_names(call)
    rest = iter(call.args)
    for arg in rest:
        if arg in _ACTIONS:
            command = [*itertools.takewhile(lambda one: one not in (";", "+"), rest)]
            yield from _filled(command, [None] if files is None else files, "{}")


def found(args: Values) -> Values | None:
    """Give what `find` finds, as patterns; None if the text does not say which files."""
    args = [arg for arg in args if arg not in ("-H", "-L", "-P")]
    cut = next((at for at, arg in enumerate(args) if arg and arg[0] in "-(!"), len(args))
    roots, tests = args[:cut] or ["."], args[cut:]
    if None in roots:
        return None
    deep = "" if "1" in tests and tests[tests.index("1") - 1] == "-maxdepth" else "**/"
    names: list[str] = []
    for branch in _branches(tests):
        chosen = _names(branch)
        if "-prune" in branch and not _ACTIONS & {*branch} and "-print" not in branch:
            continue
        if not chosen and (_VAGUE & {*branch} or _only_directories(branch)):
            return None
        names += chosen or [deep.rstrip("/") or "*"]
    return [
        marked(f"{root}/{name}" if name.startswith("**") else f"{root}/{deep}{name}")
        for root in roots
        for name in dict.fromkeys(names)
        if root
    ]


def _branches(tests: Values) -> Iterator[Values]:
    """What stands between one `-o` and the next, up to the action."""
    branch: Values = []
    inner = 0
    for test in tests:
        inner += test == "("
        inner -= test == ")"
        if test in ("-o", "-or") and (inner or not _ACTIONS & {*branch}):
            yield branch
            branch = []
        elif test in _ACTIONS:
            break
        else:
            branch.append(test)
    yield branch


def _names(branch: Values) -> list[str]:
    """The names that a branch asks for, and not those that it leaves out."""
    chosen, below = [], []
    for at, test in enumerate(branch[:-1]):
        value = branch[at + 1]
        if value is None or branch[at - 1 : at] in (["!"], ["-not"]):
            continue
        if test in ("-name", "-iname"):
            chosen.append(plain(value))
        elif test in ("-path", "-wholename", "-ipath") and "*" not in value.rstrip("*"):
            below.append(f"**/{plain(value).strip('*').removeprefix('./').strip('/')}/**")
    if chosen and below:
        return [f"{folder}/{name}" for folder in below for name in chosen]
    return chosen or below


def left_out(tests: Values) -> list[tuple[str, ...]]:
    """What `! -name x`, `-not -path y` and `-path z -prune` leave out."""
    asks: list[tuple[str, ...]] = []
    for at, test in enumerate(tests[:-1]):
        negated = tests[at - 1 : at] in (["!"], ["-not"]) or "-prune" in tests[at + 2 : at + 3]
        value = tests[at + 1]
        if negated and value and test in ("-name", "-iname", "-path", "-wholename", "-ipath"):
            asks.append(("only", "unlike", plain(value)))
    return asks


def _aged(tests: Values) -> list[tuple[str, ...]]:
    """What tests of the size and the age leave out: `-empty`, `-mtime +7`."""
    asks: list[tuple[str, ...]] = []
    for test, value in zip(tests, [*tests[1:], ""], strict=True):
        if test == "-empty" or (test == "-size" and value in ("0", "0c", "-1", "-1c")):
            asks.append(("only", "empty"))
        elif test in _AGES and value and value[0] == "+" and value[1:].isdecimal():
            asks.append(("only", "older", str(int(value[1:5]) * _AGES[test])))
    return asks if "-o" not in tests and "-or" not in tests else []


def _only_directories(branch: Values) -> bool:
    return "-type" in branch[:-1] and branch[branch.index("-type") + 1] == "d"


def fd_found(args: Values) -> Values | None:
    """Give what `fd` finds, as patterns; None if the text does not say which files."""
    flags, names = options(args, _FD)
    endings = [
        value for at, value in enumerate(args) if args[at - 1 : at] in (["-e"], ["--extension"])
    ]
    pattern, roots = (names[0] if names else ""), names[1:] or ["."]
    if pattern in (".", "^") or (len(names) == 1 and endings and "/" in (pattern or "")):
        roots, pattern = (roots if pattern in (".", "^") else names), ""
    if None in endings or None in roots or pattern is None:
        return None
    if pattern:
        if not flags.has("-g --glob"):
            name = plain(pattern)
            if not (name.startswith("\\.") and name.endswith("$") and name[2:-1].isalnum()):
                return None
            pattern = f"*.{name[2:-1]}"
        patterns = [plain(pattern)]
    else:
        patterns = [f"*.{ending}" for ending in endings] or ["*"]
    return [marked(f"{root}/**/{one}") for root in roots for one in patterns]


def _ls(call: ShellCall) -> str | None:
    flags, names = options(call.args, "Iw --ignore")
    if flags.has("-l -R -o -g -s -i -F -p") or None in names:
        return None
    if not names:
        return "*\n"
    if len(names) == 1 and names[0] and call.is_directory(names[0]) and not flags.has("-d"):
        return "*\n"
    return _lines(names)


def _passed(call: ShellCall) -> str | None:
    """A command that sorts or cuts a list adds no names."""
    _, names = options(call.args, "nckStT --lines --bytes --key")
    return call.text(names[0]) if names else call.stdin


def _part(call: ShellCall) -> str | None:
    """The first or last lines; of names that are not known, any may be among them."""
    text = _passed(call)
    named = bool(options(call.args, "nc --lines --bytes")[1])
    if text is None or ASKED in text or ("*" in text and not named):
        return text
    args = [f"-n{arg[1:]}" if arg and arg[1:].isdecimal() else arg for arg in call.args]
    said = plain(options(args, "nc --lines --bytes")[0].value("-n --lines") or "10")
    if not said.isdecimal() or options(args, "c --bytes")[0].has("-c --bytes"):
        return text
    lines = text.splitlines(keepends=True)
    count = int(said[:9])
    return "".join(
        lines[:count] if call.name == "head" else lines[len(lines) - min(count, len(lines)) :]
    )


def _grep(call: ShellCall) -> str | None:
    """The lines of a list that contain a plain text, or end as a pattern says."""
    flags, names = options(call.args, "eABCmgtT --include --exclude --exclude-dir --glob --type")
    if flags.has("-l --files-with-matches -rl -Rl") and not flags.has("-v -L"):
        from dibs.surfaces.hooks.shell.searches import matching

        return matching(call, flags, names)
    if flags.has("-c -n -o -r -R -f -L") or call.stdin is None:
        return None
    given = [flags.get("-e"), *names] if "-e" in flags else names
    if len(given) != 1 or not given[0]:
        return None
    without = flags.has("-v --invert-match")
    wanted = plain(given[0])
    ending = wanted.endswith("$")
    # Names are relative to where the command runs, so a path may begin at any folder.
    wanted = wanted.removesuffix("$").removeprefix("^").replace("\\.", ".")
    if not {*wanted}.isdisjoint("*?[]()\\^$|+{}"):
        return call.stdin if without else None
    kept = []
    for line in call.stdin.split("\n"):
        if "*" in line and ending and line.endswith("*") and "/" not in wanted and not without:
            kept.append(f"{line.rstrip('*')}{'**/' if line.endswith('**') else ''}*{wanted}")
        elif "*" in line:
            kept.append(call.asking(line, ("only", "unnamed" if without else "named", wanted)))
        elif (line.endswith(wanted) if ending else wanted in line) != without:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept if line)


def _tr(call: ShellCall) -> str | None:
    given, put = (*call.args, None, None)[:2]
    if call.stdin and given and len(given) == 1 and put in ("\\n", "\n"):
        return call.stdin.replace(given, "\n")
    return call.stdin if call.args[:1] in (["\\n"], ["\\0"], ["\\000"], ["-d"]) else None


def _cut(call: ShellCall) -> str | None:
    """A command that takes a column out of a list of names leaves names."""
    lines = (call.stdin or "").splitlines()
    return call.stdin if lines and all(ASKED in line for line in lines) else None


def _seq(call: ShellCall) -> str | None:
    numbers = [int(arg) for arg in call.args if arg and arg.isdecimal() and len(arg) < 10]
    if not 0 < len(numbers) == len(call.args) < 3:
        return None
    first, last = [1, *numbers][-2:]
    return "".join(f"{number}\n" for number in range(first, last + 1)[: MAX_VALUES + 1])


def _name(call: ShellCall) -> str | None:
    """What `dirname`, `basename`, `realpath` and `readlink -f` make of a path."""
    flags, names = options(call.args)
    if not names or not names[0] or (call.name == "readlink" and not flags.has("-f -m -e")):
        return None
    path = plain(names[0]).rstrip("/") or "/"
    if call.name == "dirname":
        return f"{path.rpartition('/')[0] or ('/' if path[0] == '/' else '.')}\n"
    if call.name == "basename":
        name = path.rpartition("/")[2]
        suffix = plain(names[1] or "") if len(names) == 2 else ""
        return f"{name.removesuffix(suffix) if name != suffix else name}\n"
    return f"{called}\n" if (called := call.path(names[0])) else None


def _mktemp(call: ShellCall) -> str | None:
    """A unique name in a place where nothing is ever claimed: files made there are copied to a
    place that counts."""
    flags, names = options(call.args, "p --suffix")
    if names or flags.has("-p --tmpdir -t"):
        return None
    call.scene.made += 1
    return f"/dev/made/{call.scene.made}\n"


def _uname(call: ShellCall) -> str | None:
    """The shell runs on this machine."""
    asked = {*call.args} <= {"-s", "--kernel-name"}
    return f"{os.uname().sysname}\n" if asked and hasattr(os, "uname") else None


def _pwd(call: ShellCall) -> str | None:
    return f"{call.cwd}\n" if call.cwd else None


def _git(call: ShellCall) -> str | None:
    from dibs.surfaces.hooks.shell.searches import printed_by_git

    return printed_by_git(call)


_Prints = Callable[[ShellCall], str | None]
_ENTRIES: dict[str, _Prints] = {
    "basename dirname readlink realpath": _name,
    "git": _git,
    "ag grep egrep fgrep rg": _grep,
    "head tail": _part,
    "sort uniq tac shuf": _passed,
    "ls": _ls,
    "mktemp": _mktemp,
    "pwd": _pwd,
    "seq": _seq,
    "tr": _tr,
    "uname": _uname,
    "awk cut gawk sed": _cut,
}
PRINTS = {name: prints for names, prints in _ENTRIES.items() for name in names.split()}
