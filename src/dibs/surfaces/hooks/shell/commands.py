"""What each of the plain writers changes, from its arguments alone."""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import Call, options
from dibs.surfaces.hooks.shell.values import STAR, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Values = list[str | None]


def _tee(call: Call) -> None:
    call.write(options(call.args)[1])


def _sed(call: Call) -> None:
    found, operands = options(call.args, "efl --expression --file --line-length", "i")
    if not found.keys() & {"-i", "--in-place"}:
        return
    if operands[:1] == [""]:
        del operands[0]  # `sed -i ''` of BSD: no copy is kept
    if not found.keys() & {"-e", "-f", "--expression", "--file"}:
        del operands[:1]
    call.write(operands)
    _copies(call, operands, found.get("-i") or found.get("--in-place"))


def _copies(call: Call, operands: Values, suffix: str | None) -> None:
    """The copies that an editor in place keeps beside the files."""
    if suffix and "*" not in suffix and "/" not in suffix:
        call.write([value + suffix for value in operands if value])


def _perl(call: Call) -> None:
    found, operands = options(call.args, "eEI", "iFMmD", ordered=True)
    if "-i" not in found:
        return
    if not found.keys() & {"-e", "-E"}:
        del operands[:1]
    call.write(operands)
    _copies(call, operands, found["-i"])


def _awk(call: Call) -> None:
    found, operands = options(call.args, "vFfi --assign --field-separator --file --include")
    if "inplace" in (found.get("-i"), found.get("--include")):
        call.write(operands if "-f" in found else operands[1:])


def targets(call: Call, sources: Values, target: str | None, into: bool) -> Values:
    """Where a move, a copy or a link puts its sources."""
    if not target:
        return []
    if not into:
        into = len(sources) > 1 or call.is_directory(target)
        # A wildcard stands for several files, unless the target goes along with it.
        into = into or (STAR not in target and any(STAR in source for source in sources if source))
    if not into:
        return [target]
    folder = target.rstrip("/") or "/"
    return [f"{folder}/{source.rstrip('/').rpartition('/')[2]}" for source in sources if source]


def placed(call: Call, found: dict[str, str | None], operands: Values) -> tuple[Values, Values]:
    """Split the operands into what is placed and where it ends up."""
    if "-t" in found or "--target-directory" in found:
        folder = found.get("-t") or found.get("--target-directory")
        return operands, targets(call, operands, folder, True)
    if len(operands) < 2:
        return [], []
    if found.keys() & {"-T", "--no-target-directory"}:
        return operands[:-1], operands[-1:]
    return operands[:-1], targets(call, operands[:-1], operands[-1], False)


_PLACING = "tS --target-directory --suffix"


def _mv(call: Call) -> None:
    sources, ends = placed(call, *options(call.args, _PLACING))
    call.remove(sources)
    call.write(ends)


def _cp(call: Call) -> None:
    call.write(placed(call, *options(call.args, _PLACING))[1])


def _install(call: Call) -> None:
    valued = "tSmog --target-directory --suffix --mode --owner --group"
    found, operands = options(call.args, valued)
    if not found.keys() & {"-d", "--directory"}:
        call.write(placed(call, found, operands)[1])


def _ln(call: Call) -> None:
    found, operands = options(call.args, _PLACING)
    if len(operands) == 1 and not found.keys() & {"-t", "--target-directory"}:
        call.write(targets(call, operands, ".", True))
    else:
        call.write(placed(call, found, operands)[1])


def _rm(call: Call) -> None:
    call.remove(options(call.args)[1])


def _shred(call: Call) -> None:
    found, operands = options(call.args, "ns --iterations --size --random-source")
    (call.remove if found.keys() & {"-u", "--remove"} else call.write)(operands)


def _truncate(call: Call) -> None:
    call.write(options(call.args, "sr --size --reference")[1])


def _touch(call: Call) -> None:
    call.write(options(call.args, "tdr --date --reference --time")[1])


def _dd(call: Call) -> None:
    call.write([arg[3:] for arg in call.args if arg and arg.startswith("of=")])


def _sort(call: Call) -> None:
    found, _ = options(call.args, "okStT --output --key --field-separator --buffer-size")
    call.write([found.get("-o"), found.get("--output")])


def _curl(call: Call) -> None:
    valued = "oHXdAbcDeFKmTuUwxrC --output --output-dir --header --request --data --user-agent"
    found, operands = options(call.args, valued)
    names: Values = [found.get("-o"), found.get("--output")]
    if found.keys() & {"-O", "--remote-name"}:
        names += [plain(url).partition("?")[0].rpartition("/")[2] for url in operands if url]
    folder = found.get("--output-dir")
    call.write([f"{folder}/{name}" if folder and name else name for name in names])


def _wget(call: Call) -> None:
    found, _ = options(call.args, "OoPUtTiQ --output-document --output-file --header")
    call.write([found.get("-O"), found.get("--output-document")])


def _ed(call: Call) -> None:
    call.write(options(call.args, "pcS")[1])


def _after_first(call: Call) -> None:
    """The first operand is an expression, the others are files."""
    found, operands = options(call.args)
    if call.name == "yq" and not found.keys() & {"-i", "--inplace"}:
        return
    if call.name == "sd":
        operands = [] if found.keys() & {"-p", "--preview"} else operands[1:]
    call.write(operands[1:])


def _find(call: Call) -> None:
    args = list(call.args)
    while args and args[0] in ("-H", "-L", "-P"):
        del args[0]
    cut = next((at for at, arg in enumerate(args) if arg and arg[0] in "-(!"), len(args))
    roots, tests = args[:cut] or ["."], args[cut:]
    names = [tests[at + 1] for at, test in enumerate(tests[:-1]) if test == "-name"]
    narrow = len(names) == 1 and names[0] and not {"-o", "-or", "!", "-not"} & {*tests}
    found: Values = [f"{root}/**/{names[0]}" if narrow else root for root in roots if root]
    for at, test in enumerate(tests):
        if test in ("-fprint", "-fprint0", "-fls"):
            call.write(tests[at + 1 : at + 2])
        elif test == "-delete":
            call.write(found)
        elif test in ("-exec", "-execdir", "-ok", "-okdir"):
            _executed(call, tests[at + 1 :], found)


def _executed(call: Call, args: Values, found: Values) -> None:
    """What a command that find runs for each `{}` changes."""
    end = next((at for at, arg in enumerate(args) if arg in (";", "+")), len(args))
    if not end or not args[0] or not (each := call.path("{}")):
        return
    name = args[0].rpartition("/")[2]
    inner = Call(name, args[1:end], cwd=call.cwd, edits={}, files=call.files, look=call.look)
    changes(inner)
    for edit in inner.edits:
        if edit.path.startswith(each):
            after = edit.path.removeprefix(each)
            call.write([value + after for value in found if value])
        else:
            call.add(edit.path.replace("{}", "*"), edit.kind)


def _patch(call: Call) -> None:
    from dibs.surroundings import patch

    found, operands = options(
        call.args, "dpioFrBzDVgY --directory --strip --input --output --reject-file --fuzz"
    )
    if "--dry-run" in found or "-C" in found:
        return
    if "-d" in found or "--directory" in found:
        folder = call.path(found.get("-d") or found.get("--directory"))
        call.cwd = folder or ""
    if target := found.get("-o") or found.get("--output") or (operands[0] if operands else ""):
        call.write([target])
        return
    source = found.get("-i") or found.get("--input")
    text = call.text(source) if source else call.stdin
    strip = found.get("-p") or found.get("--strip") or ""
    if text and call.cwd:
        for edit in patch.names(text, call.cwd, int(strip) if strip.isdecimal() else None):
            call.add(edit.path, edit.kind)


def _apply_patch(call: Call) -> None:
    from dibs.surroundings import patch

    for text in (call.stdin, *call.args):
        if text and call.cwd:
            for edit in patch.names(text, call.cwd):
                call.add(edit.path, edit.kind)


def _git(call: Call) -> None:
    from dibs.surfaces.hooks.shell import git

    git.changes(call)


COMMANDS: dict[str, Callable[[Call], None]] = {
    "tee": _tee, "sponge": _tee, "sed": _sed, "gsed": _sed, "perl": _perl, "ruby": _perl,
    "awk": _awk, "gawk": _awk, "mv": _mv, "cp": _cp, "install": _install, "ln": _ln, "rm": _rm,
    "rmdir": _rm, "unlink": _rm, "shred": _shred, "truncate": _truncate, "touch": _touch,
    "dd": _dd, "sort": _sort, "curl": _curl, "wget": _wget, "ed": _ed, "ex": _ed,
    "yq": _after_first, "sd": _after_first, "find": _find, "patch": _patch, "git": _git,
    "apply_patch": _apply_patch, "applypatch": _apply_patch,
}  # fmt: skip


def changes(call: Call) -> None:
    """Add what the command changes to its edits, if it is one of those that are known."""
    known = COMMANDS.get(call.name)
    if known is not None:
        known(call)
        return
    from dibs.surfaces.hooks.shell import formatters

    formatters.changes(call)
