"""What is known about each command: what it changes, whether it only reads, what it prints.

To add a command, add an entry to COMMANDS: here if it is an everyday command, otherwise in the
module for its kind: `tools`, `archives`, `formatters`, `packages`, `toolchain`; git's commands are
in `git_rules`. An unknown command may write anything.
"""

from __future__ import annotations

from collections.abc import Callable

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import (
    STAR,
    Asks,
    Options,
    Values,
    assigned_name,
    every,
    options,
    plain,
)

Writes = Callable[[ShellCall], None]
Reads = Callable[[list[str]], bool]


class Rule:
    """What is known about one command.

    writes: adds what a call of it changes to the call's edits
    reads: whether it certainly changes no file, in doubt False; a function if that
        depends on its arguments
    prints: gives what a call of it prints, if the text says that
    """

    def __init__(
        self,
        writes: Writes | None = None,
        reads: Reads | bool = False,
        prints: Callable[[ShellCall], str | None] | None = None,
    ) -> None:
        self.writes = writes
        self.reads = reads
        self.prints = prints

    def only_reads(self, args: Values) -> bool:
        if isinstance(self.reads, bool):
            return self.reads
        # An unknown argument may be an option that writes.
        return None not in args and self.reads([plain(arg) for arg in args if arg is not None])


def rule_of(name: str) -> Rule:
    """Give what is known about the command of that name."""
    if name in COMMANDS:
        return COMMANDS[name]
    if name == "git":
        from dibs.surfaces.hooks.shell import git_rules

        return git_rules.RULE
    from dibs.surfaces.hooks.shell import toolchain

    if name in toolchain.COMMANDS:
        return toolchain.COMMANDS[name]
    from dibs.surfaces.hooks.shell import archives, formatters, packages, tools

    tables = (packages.COMMANDS, formatters.COMMANDS, archives.COMMANDS, tools.COMMANDS)
    return next((entries[name] for entries in tables if name in entries), UNKNOWN)


def is_known(name: str) -> bool:
    return rule_of(name) is not UNKNOWN


def run(call: ShellCall) -> str | None:
    """Add what the call changes to its edits; give what it prints, if the text says that."""
    rule = rule_of(call.name)
    # First, because a rule may skip git's own options.
    printed = _listed(call) if call.name == "git" else None
    if rule.writes:
        rule.writes(call)
    return rule.prints(call) if rule.prints else printed


SHELLS = frozenset("bash sh zsh dash ksh".split())
# Prefix words that only say how a command is run, each with its options with a value.
PREFIXES = {
    "sudo": "ugpChrtTD --user --group", "doas": "uC", "env": "uC --unset --chdir", "time": "fo",
    "nice": "n --adjustment", "nohup": "", "command": "", "exec": "a", "builtin": "",
    "timeout": "sk --signal --kill-after", "stdbuf": "ioe --input --output --error",
    "setsid": "", "ionice": "cnp", "caffeinate": "tw", "busybox": "", "noglob": "",
}  # fmt: skip

# What runs a tool of a project: the word after it, and the options with a value after that.
_RUNNERS: dict[str, dict[str, str]] = {
    "npx": {"": "pc --package --call"}, "pnpx": {"": "p --package"}, "bunx": {"": "p --package"},
    "uvx": {"": "p --from --with --python"},
    "npm": {"exec": "pcw --package --call --workspace", "x": "pc --package"},
    "pnpm": {"exec": "C --dir --filter", "dlx": " --package"},
    "yarn": {"run": "", "exec": "", "dlx": "p --package", "": " --cwd"},
    "bun": {"x": "", "run": ""}, "uv": {"run": "p --with --python --project --group --extra"},
    "poetry": {"run": "C"}, "pipenv": {"run": ""}, "pdm": {"run": "p"}, "hatch": {"run": ""},
    "rye": {"run": ""}, "bundle": {"exec": ""}, "mise": {"exec": ""},
}  # fmt: skip

_RUN_BY_RUNNERS = frozenset(
    "changeset commit-and-tag-version conventional-changelog cz hatch jest lerna ncu node"
    " npm-check-updates perl pip-compile playwright pre-commit prisma pytest python python3 rails"
    " rake ruby semantic-release standard-version towncrier ts-node tsc tsx vitest".split()
)


def name_of(value: str) -> str:
    """Give the command's name without the directory it is in."""
    return plain(value).rpartition("/")[2]


def unwrap(args: Values) -> tuple[str, Values]:
    """Give the name and the arguments of the command itself; "" if it cannot be known."""
    while args and args[0]:
        name = name_of(args[0])
        if name not in PREFIXES:
            return _tool(name, args[1:]) or (name, args[1:])
        found, args = options(args[1:], PREFIXES[name], ordered=True)
        if name == "command" and found.has("-v -V"):
            break
        if name == "timeout":
            args = args[1:]
        while name in ("env", "sudo") and args and args[0] and assigned_name(args[0]):
            args = args[1:]
    return "", []


def _tool(name: str, args: Values) -> tuple[str, Values] | None:
    """Give the tool that a runner, or `python -m`, runs.

    Only known tools count: `pnpm install` is not the `install` that copies files.
    """
    if name in _RUNNERS:
        words = _RUNNERS[name]
        word = args[0] if args and args[0] in words else ""
        _, args = options(args[1 if word else 0 :], words.get(word or "", ""), ordered=True)
        if name == "npm" and args[1:2] == ["--"]:
            del args[1]  # what comes after it is the tool's
    elif name.startswith("python") and args[:1] == ["-m"]:
        args = args[1:]
    else:
        return None
    if not args or not args[0]:
        return None
    from dibs.surfaces.hooks.shell.formatters import FORMATTER_NAMES

    tool = name_of(args[0]).partition("@")[0]
    return (tool, args[1:]) if tool in FORMATTER_NAMES or tool in _RUN_BY_RUNNERS else None


def shell_text(call: ShellCall) -> tuple[str | None, Values]:
    """Give the text that a shell runs (an argument, a file or its standard input), and `$0` …"""
    found, names = options(call.args, "oO --rcfile --init-file", ordered=True)
    if "-n" in found:
        return None, []  # it only checks the syntax
    if "-c" in found:
        return (names[0] if names else None), names[1:]
    if names and "-s" not in found:
        return call.text(names[0]), names
    return call.stdin, [call.name, *names]


def operands(
    valued: str = "", kind: str = "write", *, needs: str = "", unless: str = "", skip: int = 0
) -> Writes:
    """Rule: it changes its operands, except the first few.

    needs, unless: options, one of which must be given, and options that must not be
    """

    def writes(call: ShellCall) -> None:
        found, names = options(call.args, valued)
        if not found.has(unless) and (not needs or found.has(needs)):
            call.write(names[skip:], kind)

    return writes


def output(valued: str, names: str) -> Writes:
    """Rule: it writes the files that these options name."""
    return lambda call: call.write(map(options(call.args, valued)[0].get, names.split()))


def _without(letters: str, starts: str) -> Reads:
    """Rule: it only reads unless an option has one of the letters or begins like one of these."""
    beginnings = tuple(starts.split())

    def reads(args: list[str]) -> bool:
        return not any(
            arg.startswith(beginnings)
            or (arg.startswith("-") and {*letters} & {*arg[1:].partition("-")[0]})
            for arg in args
        )

    return reads


def _sed(call: ShellCall) -> None:
    found, files = options(call.args, "efl --expression --file --line-length", "i")
    if any(arg and ("w" in arg or "W" in arg) for arg in call.args):
        from dibs.surfaces.hooks.shell.filters import sed_scripts, sed_writes

        call.write(sed_writes(sed_scripts(call.args)) or ())
    if not found.has("-i --in-place"):
        return
    if files[:1] == [""]:
        del files[0]  # `sed -i ''` of BSD: no copy is kept
    if not found.has("-e -f --expression --file"):
        del files[:1]
    from dibs.surfaces.hooks.shell.filters import sed_scripts
    from dibs.surfaces.hooks.shell.patterns import sought

    asks: Asks = ()
    if not found.has("-n --quiet --silent"):
        basic = not found.has("-E -r --regexp-extended")
        asks = sought(sed_scripts(call.args), basic=basic)
    _in_place(call, files, found.value("-i --in-place"), asks)


def _in_place(call: ShellCall, files: Values, suffix: str | None, asks: Asks = ()) -> None:
    """What an editor in place writes: the files, and the copies it keeps beside them.

    asks: what must be true of a file if it changes
    """
    for file in files:
        call.write([call.asking(file, *asks) if file and asks else file])
    if suffix and "*" not in suffix and "/" not in suffix:
        call.write(value + suffix for value in files if value)


def _sed_reads(args: list[str]) -> bool:
    from dibs.surfaces.hooks.shell.filters import sed_scripts, sed_writes

    found, _ = options(args, "efl --expression --file --line-length", "i")
    if "-i" in found or any(name.startswith(("--i", "--f")) for name in found):
        return False
    scripts = sed_scripts([*args])
    return bool(scripts) and sed_writes(scripts) == []


def _perl(call: ShellCall) -> None:
    # `-0777pi`: after the digits come further options.
    args = [
        f"-{arg[2:].lstrip('x0123456789') or 'n'}" if arg and arg[:2] == "-0" else arg
        for arg in call.args
    ]
    found, files = options(args, "eEI", "iFMmDlC", ordered=True)
    if "-i" in found and found.has("-e -E"):
        from dibs.surfaces.hooks.shell.patterns import sought

        codes = [args[at + 1] for at, arg in enumerate(args[:-1]) if _ends_in_code(arg)]
        prints = found.has("-p") and call.name == "perl"
        _in_place(call, files, found["-i"], sought(codes, perl=True) if prints else ())
    elif "-i" in found:
        _in_place(call, files[1:], found["-i"])


def _ends_in_code(arg: str | None) -> bool:
    """Say whether the next argument is code: `-e`, `-pe`, `-i -lpe`."""
    return arg is not None and arg[:1] == "-" != arg[1:2] and arg[-1:] in ("e", "E")


def _awk(call: ShellCall) -> None:
    from dibs.surfaces.hooks.shell.filters import awk_of

    awk, in_place = awk_of(call.args)
    call.write(awk.files if awk else ())
    if in_place:
        found, files = options(call.args, "vFfi --assign --field-separator --file --include")
        call.write(files if "-f" in found else files[1:])


def _awk_reads(args: list[str]) -> bool:
    from dibs.surfaces.hooks.shell.filters import awk_of

    awk, in_place = awk_of([*args])
    # Other options may load a program, or write something by themselves.
    plainly = all(arg[:1] != "-" or arg[:2] in ("-F", "-v") for arg in args)
    return plainly and bool(awk and awk.sure and not awk.files and not in_place)


def targets(call: ShellCall, sources: Values, target: str | None, into: bool) -> Values:
    """Where a move, a copy or a link puts its sources."""
    if not target:
        return []
    # A wildcard stands for several files, unless the target contains it too.
    wild = STAR not in target and any(STAR in source for source in sources if source)
    if not (into or wild or len(sources) > 1 or call.is_directory(target)):
        return [target]
    folder = target.rstrip("/") or "/"
    return [f"{folder}/{source.rstrip('/').rpartition('/')[2]}" for source in sources if source]


def _placed(call: ShellCall, found: Options, names: Values, default: str) -> tuple[Values, Values]:
    """Split the operands into sources and target."""
    if found.has("-t --target-directory"):
        return names, targets(call, names, found.value("-t --target-directory"), True)
    if len(names) < 2:
        return (names, targets(call, names, default, True)) if default else ([], [])
    if found.has("-T --no-target-directory"):
        return names[:-1], names[-1:]
    return names[:-1], targets(call, names[:-1], names[-1], False)


_PLACING = "tS --target-directory --suffix"


def places(
    valued: str = _PLACING,
    *,
    unless: str = "",
    default: str = "",
    moves: bool = False,
    spares: str = "",
    forced: str = "",
) -> Writes:
    """Rule: it puts its operands where the last of them, or an option, says.

    default: where it puts a single operand
    spares: options with which it leaves existing files alone
    forced: options without which it does
    """

    def writes(call: ShellCall) -> None:
        found, names = options(call.args, valued)
        if not found.has(unless):
            spared = found.has(spares) or bool(forced and not found.has(forced))
            # Without options with a value, as in `git mv`, it has none that names the target.
            names = [*call.expanded(names[:-1]), *names[-1:]]
            sources, ends = _placed(call, found if valued else Options(), names, default)
            pairs = [*zip(sources, ends, strict=False)]
            if spared:
                pairs = [one for one in pairs if not call.kind_of(call.path(one[1]) or "")]
                sources = [source for source, _ in pairs]
            call.write(sources if moves else (), "remove")
            for source, end in pairs:
                made = call.made_below(source)
                call.write(f"{end}/{name}" for name in made)
                if not made:
                    call.write([end], asks=copied(call, source))

    return writes


def copied(call: ShellCall, source: str | None) -> Asks:
    """A copy of a directory changes files that exist in both, and nothing else in the target."""
    path = call.path(source)
    is_folder = path is not None and call.kind_of(path) == "directory"
    return (("only", "copied", path),) if path and is_folder else ()


def _ed(call: ShellCall) -> None:
    """ed writes on a command: an address and a letter at the beginning of a line."""
    said = [line.lstrip("%,.$0123456789 ")[:1] for line in (call.stdin or "w").splitlines()]
    if {"w", "W", "x"} & {*said}:
        call.write(options(call.args, "p")[1])


def _touch(call: ShellCall) -> None:
    """An existing file stays as it is, except for its time."""
    found, names = options(call.args, "tdr --date --reference --time")
    if not found.has("-c --no-create"):
        call.write(name for name in names if call.kind_of(call.path(name) or "") != "file")


_VIM_WRITES = frozenset("w write wq x xit xa wa wqa up update %w argdo bufdo".split())


def _vim(call: ShellCall) -> None:
    _, files = options(call.args, "cSTuUi --cmd")
    said = [*_vim_commands(call.args), *(call.stdin or "").splitlines()]
    if _VIM_WRITES & {*" ".join(said).replace("|", " ").replace("!", " ").split()}:
        call.write(file for file in files if file and file[0] != "+")


def _vim_commands(args: Values) -> list[str]:
    """`-c CMD`, `-cCMD`, `-sc CMD`, `+CMD`."""
    said = every(args, "--cmd")
    for arg, after in zip(args, [*args[1:], ""], strict=True):
        if arg and arg[0] == "+":
            said.append(arg[1:])
        elif arg and arg[0] == "-" and arg[1:2] != "-" and "c" in arg:
            said.append(arg.partition("c")[2] or after or "")
    return said


def _uniq_reads(args: list[str]) -> bool:
    return len([arg for arg in args if arg[:1] != "-"]) < 2


def _find(call: ShellCall) -> None:
    """What find itself writes; the commands that it runs are treated like any command."""
    tests = call.args
    for at, test in enumerate(tests):
        if test in ("-fprint", "-fprint0", "-fls", "-fprintf"):
            call.write(tests[at + 1 : at + 2])
        elif test == "-delete":
            from dibs.surfaces.hooks.shell.lists import find_names

            call.write(find_names(call) or (), "remove")


def _listed(call: ShellCall) -> str | None:
    from dibs.surfaces.hooks.shell.lists import PRINTS

    return PRINTS[call.name](call) if call.name in PRINTS else None


def _columns(call: ShellCall) -> str | None:
    return _listed(call) if call.stdin else None


def _shown(call: ShellCall) -> Values:
    return [arg for arg in call.args if arg is None or not arg.startswith("-") or arg == "-"]


def _cat(call: ShellCall) -> str | None:
    if len(call.args) == 1 and (call.args[0] or "").endswith(("gz", ".tar", ".xz", ".bz2")):
        from dibs.surfaces.hooks.shell.archives import piped

        return piped(call, call.args[0])
    texts = [call.stdin if arg == "-" else call.text(arg) for arg in _shown(call)] or [call.stdin]
    return None if None in texts else "".join(text for text in texts if text is not None)


def _echo(call: ShellCall) -> str | None:
    args = _shown(call)
    if None in args:
        return None
    return " ".join(plain(arg) for arg in args if arg is not None).replace("\\n", "\n") + "\n"


def _printf(call: ShellCall) -> str | None:
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    if not args or None in args:
        return None
    form, *given = [plain(arg) for arg in args if arg is not None]
    for escape, char in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0"), ("%d", "%s"), ("%%", "%")):
        form = form.replace(escape, char)
    first, *parts = form.split("%s")
    rows = [given[at : at + len(parts)] for at in range(0, len(given), len(parts) or 1)]
    return "".join(
        first + "".join(map("".join, zip([*row, *[""] * len(parts)], parts, strict=False)))
        for row in (rows if parts and rows else [[]])
    )


def _dibs_reads(args: list[str]) -> bool:
    reading = "status leases wait inbox agents log help messages protocol verify".split()
    return bool(args) and args[0] in reading and args[1:2] not in (["see"], ["report"])


def table(entries: dict[str, Rule]) -> dict[str, Rule]:
    """Give the rule of each name; several may share an entry."""
    return {name: rule for names, rule in entries.items() for name in names.split()}


_OUTPUTS = (
    "-o", "--output", "--output-file", "--out", "--out-file", "--outfile", "--dest",
    "--destination", "-destination",
)  # fmt: skip


def outputs(call: ShellCall) -> None:
    """What almost every tool calls the file that it writes; other uses do not look like a file."""
    if {"--help", "--check", "--dry-run"} & {*call.args}:
        return
    for value in every(call.args, *_OUTPUTS):
        stem, _, ending = plain(value).rpartition("/")[2].rpartition(".")
        if stem and ending.isalnum() and not ending.isdecimal() and not {*"=:"} & {*value}:
            call.write([value])


UNKNOWN = Rule(outputs)
_READS = (
    "(( : [ [[ arch b2sum basename break cal cd cksum cmp colordiff column comm continue cut"
    " date df diff diff3 dirname du egrep exa exit expand expr eza factor false fgrep fmt fold"
    " free getconf grep groups head hexdump id join jq locale logname ls lsblk lscpu lsd lsof"
    " md5sum nl nproc numfmt od paste pgrep pidof popd pr printenv ps pstree pushd"
    " pwd readelf readlink realpath return rev seq set sha1sum sha224sum sha256sum sha384sum"
    " sha512sum shopt sleep ss stat strings sum tac tail test tput tr true tsort tty type"
    " uname unexpand unset uptime users uuidgen vmstat w wait wc which who whoami"
)
_SORT = "okStT --output --key --field-separator --buffer-size"
COMMANDS = table({
    _READS: Rule(reads=True, prints=_listed),
    "ag": Rule(reads=_without("", "--pager"), prints=_listed),
    "awk gawk mawk nawk": Rule(_awk, _awk_reads, _columns),
    "base64": Rule(reads=_without("o", "--o")),
    "cat": Rule(reads=True, prints=_cat),
    "cp": Rule(places(spares="-n --no-clobber")),
    "dibs": Rule(reads=_dibs_reads),
    "echo": Rule(reads=True, prints=_echo),
    "ed": Rule(_ed),
    "ex vi vim nvim": Rule(_vim),
    "fd": Rule(reads=_without("xX", "--exec")),
    "file": Rule(reads=_without("C", "--compile")),
    "find": Rule(_find, _without("", "-delete -exec -ok -fprint -fls")),
    "gsed": Rule(_sed, _sed_reads),
    "install": Rule(places(f"mog{_PLACING} --mode --owner --group", unless="-d --directory")),
    "ln": Rule(places(default=".", forced="-f --force -i --interactive")),
    "mktemp": Rule(prints=_listed),
    "mv": Rule(places(moves=True, spares="-n --no-clobber")),
    "perl ruby": Rule(_perl),
    "printf": Rule(reads=lambda args: args[:1] != ["-v"], prints=_printf),
    "rg": Rule(reads=_without("", "--pre --hostname-bin"), prints=_listed),
    "rm unlink": Rule(operands(kind="remove")),
    "sed": Rule(_sed, _sed_reads, _columns),
    "shuf": Rule(output("oin --output", "-o --output"), _without("o", "--o"), _listed),
    "sort": Rule(output(_SORT, "-o --output"), _without("oT", "--o --compress --t"), _listed),
    "sponge": Rule(operands()),
    "tee": Rule(operands(), prints=lambda call: call.stdin),
    "touch": Rule(_touch),
    "tree": Rule(reads=_without("oR", "--output")),
    "truncate": Rule(operands("sr --size --reference")),
    "uniq": Rule(operands("fsw", skip=1), _uniq_reads, _listed),
})  # fmt: skip
