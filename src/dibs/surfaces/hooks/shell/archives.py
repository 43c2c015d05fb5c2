"""Commands that pack and unpack files: an entry of COMMANDS for each.

The text does not say what is in an archive. Members that are named are claimed; otherwise the
archive is read, and only its members that others hold are claimed (`narrowing`).
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ASKED, ShellCall
from dibs.surfaces.hooks.shell.rules import Rule, table
from dibs.surfaces.hooks.shell.values import Values, options

_TAR = (
    "fCbTXIgK --file --directory --exclude --files-from --use-compress-program --transform"
    " --strip-components --owner --group --mode --format --exclude-from --wildcards-match"
)
# The suffix of each packer, and whether it keeps the packed file.
_ENDINGS = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "lzma": "lzma", "zstd": "zst", "lz4": "lz4"}
_UNPACKERS = {
    "gunzip": "gzip", "bunzip2": "bzip2", "unxz": "xz", "unlzma": "lzma", "unzstd": "zstd",
    "unlz4": "lz4",
}  # fmt: skip
_KEEPING = ("zstd", "lz4")


def _tar_args(args: Values) -> Values:
    """`tar xzf a.tgz` is `tar -x -z -f a.tgz`."""
    first = args[0] if args else None
    if not first or first.startswith("-"):
        return args
    values = iter(args[1:])
    spelled: Values = []
    for letter in first:
        spelled.append(f"-{letter}")
        if letter in "fCbTXIgK":
            spelled.append(next(values, None))
    return [*spelled, *values]


def _tar(call: ShellCall) -> None:
    found, names = options(_tar_args(call.args), _TAR)
    archive = found.value("-f --file")
    if found.has("-c --create -r --append -u --update -A --delete"):
        if archive != "-":
            call.write([archive])
        if "--remove-files" in found:
            call.write(names, "remove")
    elif found.has("-x --extract --get") and not found.has("-O --to-stdout"):
        folder = found.value("-C --directory")
        if archive in (None, "-", "/dev/stdin"):
            listed = [line for line in (call.stdin or "").split("\n") if ASKED in line]
            call.write(f"{folder or '.'}/{line}" for line in listed)
            if listed:
                return
        strip = found.get("--strip-components") or "0"
        unpacked(call, archive, folder, names, strip if strip.isdecimal() else "0")


def _tar_reads(args: list[str]) -> bool:
    found, _ = options(_tar_args([*args]), _TAR)
    if any(
        name.startswith(("--use", "--to-c", "--checkp", "--inf", "--new", "--rsh", "--rmt"))
        for name in found
    ):
        return False
    lists = found.has("-t --list") and not found.has("-x -c -r -u -A --extract --create --append")
    return lists and not found.has(
        "-I -F --delete --update --concatenate --catenate --index-file --get"
    )


def unpacked(
    call: ShellCall, archive: str | None, folder: str | None, names: Values, strip: str = "0"
) -> None:
    """What is unpacked: the named members, or everything in the archive, or everything in its
    own directory if the archive cannot be read."""
    path = call.path(archive)
    if names and strip == "0":
        call.write(f"{folder}/{name}" if folder and name else name for name in names)
    elif path and call.kind_of(path) == "file":
        call.write([folder or "."], asks=(("archive", path, strip),))
    elif folder and call.path(folder) != call.cwd:
        call.write([folder])


def _unzip(call: ShellCall) -> None:
    found, names = options(call.args, "dxP")
    if found.has("-l -t -p -c -v -Z"):
        return
    # After -x come the excluded members.
    members = [] if "-x" in found else names[1:]
    if "-n" not in found:
        unpacked(call, [*names, ""][0], found.get("-d"), [] if "-j" in found else members)


def _zip(call: ShellCall) -> None:
    found, names = options(call.args, "bnOPtx")
    archive = names[0] if names else None
    if archive and archive != "-" and "-sf" not in call.args:
        call.write([archive if "." in archive.rpartition("/")[2] else f"{archive}.zip"])
    if found.has("-m"):
        call.write(names[1:], "remove")


def _pack(call: ShellCall) -> None:
    packer = _UNPACKERS.get(call.name, call.name)
    found, names = options(call.args, "SoTMDB --suffix --threads --memory")
    if found.has("-c --stdout --to-stdout -l --list -t --test -h --help -V --version"):
        return
    keeps = found.has("-k --keep") or (packer in _KEEPING and "--rm" not in found)
    unpacks = call.name in _UNPACKERS or found.has("-d --decompress --uncompress")
    output = found.get("-o")
    for name in filter(None, names):
        ending = f".{_ENDINGS[packer]}"
        bare = f"{name[:-4]}.tar" if name.endswith(".tgz") else name.removesuffix(ending)
        call.write([output or (bare if unpacks else name + ending)])
        if not keeps:
            call.write([name], "remove")


def _packed(call: ShellCall) -> str | None:
    """What is unpacked into a pipe."""
    found, names = options(call.args, "SoTMDB --suffix --threads --memory")
    unpacks = call.name in _UNPACKERS or "cat" in call.name or found.has("-d --decompress")
    shows = "cat" in call.name or found.has("-c --stdout --to-stdout")
    return piped(call, names[0]) if unpacks and shows and len(names) == 1 else None


def piped(call: ShellCall, archive: str | None) -> str | None:
    """A stand-in for an archive in a pipe, for the command that unpacks it."""
    path = call.path(archive)
    is_there = path is not None and call.kind_of(path) == "file"
    return call.asking(".", ("archive", path, "0")) + "\n" if path and is_there else None


def _pack_reads(args: list[str]) -> bool:
    return bool(
        {"-c", "--stdout", "-dc", "-cd", "-l", "--list", "-t", "--test"} & {*args}
    ) and not any(arg.startswith(("-o", "--output")) for arg in args)


def _seven(call: ShellCall) -> None:
    _, names = options(call.args)
    folder = next((arg[2:] for arg in call.args if arg and arg.startswith("-o") and arg[2:]), "")
    if names[:1] in (["a"], ["u"], ["d"]):
        call.write(names[1:2])
    elif names[:1] in (["x"], ["e"]):
        unpacked(call, None, folder, names[2:] if names[0] == "x" else [])


COMMANDS = table({
    "7z 7za 7zz": Rule(_seven),
    " ".join((*_ENDINGS, *_UNPACKERS)): Rule(_pack, _pack_reads, _packed),
    "bzcat gzcat lz4cat xzcat zcat zstdcat": Rule(reads=True, prints=_packed),
    "zgrep": Rule(reads=True),
    "jar": Rule(_tar),
    "tar bsdtar gtar": Rule(_tar, _tar_reads),
    "unzip": Rule(_unzip, lambda args: "".join(args[:1]) in ("-l", "-t", "-v", "-p", "-Z", "-c")),
    "zip": Rule(_zip),
    "zipinfo": Rule(reads=True),
})  # fmt: skip
