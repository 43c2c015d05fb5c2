"""What is known about tools that fetch, copy or make files: an entry of COMMANDS for each."""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.rules import (
    Reads,
    Rule,
    copied,
    operands,
    output,
    outputs,
    table,
    targets,
)
from dibs.surfaces.hooks.shell.values import QUESTION, STAR, Values, every, options, plain

_WGET = "OoaPUtTiQ --output-document --output-file --append-output --directory-prefix --header"
_OPENSSL = (
    " -in -out -key -keyout -CA -CAkey -CAserial -days -subj -newkey -passin -passout -config"
)
_PANDOC = "ofts --output --from --to --template --metadata"
_CURL_SHOWS = (
    "-s -S -f -L -I -i -v -k -H -A -m -w -g --silent --show-error --fail --location --head"
    " --include --verbose --insecure --header --user-agent --max-time --connect-timeout --retry"
    " --compressed"
)
_VERSIONED = (
    "clang clang++ cmake g++ gcc gem java javac make mypy node nodejs php python python3"
    " rustc rustup uvx"
)
_SQL_SAVES = (".output", ".once", ".backup", ".save", ".clone")
_SQL_WRITES = "insert update delete create drop alter replace vacuum reindex begin attach .restore"


def _curl(call: ShellCall) -> None:
    valued = "oHXdAbcDeFKmTuUwxrC --output --output-dir --header --request --data --user-agent"
    found, urls = options(call.args, valued)
    names: Values = [found.get("-o"), found.get("--output")]
    if found.has("-O --remote-name"):
        names += [plain(url).partition("?")[0].rpartition("/")[2] for url in urls if url]
    folder = found.get("--output-dir")
    call.write(f"{folder}/{name}" if folder and name else name for name in names)


def _wget(call: ShellCall) -> None:
    found, urls = options(call.args, _WGET)
    if found.has("--spider"):
        return
    folder = found.value("-P --directory-prefix")
    names: Values = [found.value("-O --output-document")]
    if not any(names):
        names = [plain(url).partition("?")[0].rpartition("/")[2] for url in urls if url]
    call.write(f"{folder}/{name}" if folder and name else name for name in names)
    call.write([found.value("-o --output-file -a --append-output")])


def _rsync(call: ShellCall) -> None:
    valued = "efBM --rsh --exclude --include --exclude-from --files-from --filter --log-file"
    out = [("only", "unlike", plain(one)) for one in every(call.args, "--exclude")]
    found, names = options(call.args, valued)
    target = names[-1] if len(names) > 1 else None
    if found.has("-n --dry-run --list-only --ignore-existing") or not target or ":" in target:
        return
    for name in filter(None, call.expanded(names[:-1])):
        mirrors = any(one.startswith("--del") for one in found)
        asks = [*(() if mirrors else copied(call, name)), *out]
        whole = name.endswith(("/", "/.")) or name == "."
        into = whole or target.endswith("/") or call.is_directory(target)
        end = target if whole else targets(call, [name], target, into)[0]
        call.write([end], asks=tuple(asks))
    call.write([found.get("--log-file")])


def _copies(call: ShellCall) -> None:
    """`docker cp`, `docker compose cp`, `kubectl cp`: like scp."""
    args = call.args[1:] if call.args[:1] == ["compose"] else call.args
    if args[:1] == ["cp"] and args[-1:] != ["-"]:
        call.args = args[1:]
        _scp(call)


def _scp(call: ShellCall) -> None:
    _, names = options(call.args, "cFiJloPSn --index --container --namespace --context")
    target = names[-1] if len(names) > 1 else None
    if target and ":" not in target:
        sources: Values = [name.rpartition(":")[2] for name in names[:-1] if name]
        call.write(targets(call, sources, target, False))


def _split(call: ShellCall) -> None:
    if call.name == "csplit":
        found, _ = options(call.args, "fbn --prefix --suffix-format --digits")
        call.write([f"{found.value('-f --prefix') or 'xx'}{STAR}"])
        return
    _, names = options(call.args, "abCln --bytes --lines --number --suffix-length --filter")
    prefix = names[1] if len(names) > 1 else "x"
    # Without a prefix, the pieces are called xaa, xab and so on.
    call.write([f"{prefix}{STAR}" if len(names) > 1 else f"{prefix}{QUESTION * 2}"])


def _converted(call: ShellCall) -> None:
    """The last operand is the file that is created."""
    names = [arg for arg in call.args if arg != "-y"]
    if len(names) > 1 and names[-1] and not names[-1].startswith("-"):
        call.write([names[-1].partition(":")[2] if names[-1][:4] == "png:" else names[-1]])


def _sqlite(call: ShellCall) -> None:
    _, names = options(call.args, " -cmd -separator -init -newline -nullvalue")
    said = "\n".join(plain(text) for text in (*names[1:], call.stdin) if text)
    words = {*said.lower().replace(";", " ").replace("(", " ").split()}
    for line in map(str.split, said.splitlines()):
        if line[:1] and line[0] in _SQL_SAVES and line[1:]:
            _save(call, line[-1])
    if names and words & {*_SQL_WRITES.split(), ".import", ".read"}:
        call.write(names[:1])


def _psql(call: ShellCall) -> None:
    outputs(call)
    for text in [*every(call.args, "-c", "--command"), *(call.stdin or "").splitlines()]:
        words = plain(text).split()
        said = [word.lower() for word in words]
        if said[:1] == ["\\copy"] and "to" in said[:-1]:
            _save(call, words[said.index("to") + 1])


def _save(call: ShellCall, word: str) -> None:
    """The file that a statement names."""
    name = word.strip("'\";")
    if name not in ("stdout", "STDOUT", "pstdout", "program", "PROGRAM", "off"):
        call.write([name])


def _script(call: ShellCall) -> None:
    _, names = options(call.args, "cIOBTEmo --command --log-out --log-io")
    call.write(names[:1] or ["typescript"])


_GENERATED = {
    "python": "_pb2.py", "pyi": "_pb2.pyi", "mypy": "_pb2.pyi", "grpc_python": "_pb2_grpc.py",
    "go": ".pb.go", "go-grpc": "_grpc.pb.go", "js": "_pb.js", "ts": "_pb.ts", "java": "",
}  # fmt: skip


def _protoc(call: ShellCall) -> None:
    """`--python_out=DIR a/b.proto` makes b_pb2.py somewhere below DIR."""
    _, names = options(call.args, "I --proto_path")
    stems = [plain(name).rpartition("/")[2].removesuffix(".proto") for name in names if name]
    for arg in call.args:
        option, _, folder = (arg or "").partition("=")
        ending = _GENERATED.get(option.removeprefix("--").removesuffix("_out"), "")
        if folder and ending:
            folder = folder.rpartition(":")[2]
            call.write(f"{folder}/{STAR}{STAR}/{stem}{ending}" for stem in stems)


def _shred(call: ShellCall) -> None:
    found, files = options(call.args, "ns --iterations --size --random-source")
    call.write(files, "remove" if found.has("-u --remove") else "write")


def _gh(call: ShellCall) -> None:
    """A pull request by the name of its branch; which branch a number means is not known here."""
    names = options(call.args, "bR --branch --repo")[1]
    if names[:2] == ["pr", "checkout"] and names[2:] and not (names[2] or "0").isdecimal():
        from dibs.surfaces.hooks.shell.git_rules import GIT

        call.args = names[2:3]
        checkout = GIT["checkout"].writes
        if checkout:
            checkout(call)


def _tsc(call: ShellCall) -> None:
    if "--init" in call.args:
        call.write(["tsconfig.json"])


def _curl_reads(args: list[str]) -> bool:
    """Only what fetches and shows: no file, no cookies, nothing sent."""
    found, _ = options(args, "HAmw --header --user-agent --max-time --connect-timeout --retry")
    return bool(args) and not found.keys() - {*_CURL_SHOWS.split()}


def _first(*words: str) -> Reads:
    """Rule: it only shows something if its arguments begin with these."""
    beginnings = [one.split() for one in words]
    return lambda args: args == ["--version"] or any(args[: len(one)] == one for one in beginnings)


def _rename(call: ShellCall) -> None:
    """`rename 's/old/new/' FILE…` of Perl, `rename OLD NEW FILE…` of Linux."""
    found, names = options(call.args, "e")
    expression = plain(found.get("-e") or [*names, ""][0] or "")
    if found.has("-n --nono --no-act") or not expression:
        return
    from dibs.surfaces.hooks.shell.filters import part
    from dibs.surfaces.hooks.shell.patterns import literals

    texts = [expression]
    files = names if "-e" in found else names[1:]
    if expression[0] in "sty" and not expression[1:2].isalnum() and len(expression) > 2:
        pattern = expression[2 : part(expression, 2, expression[1]) - 1]
        texts = literals(pattern) if expression[0] == "s" else [""]
    else:
        files = names[2:]
    for file in filter(None, call.expanded(files)):
        if "*" in plain(file) and len(texts) == 1:
            call.write([call.asking(file, ("only", "named", texts[0]))], "remove")
        elif "*" in plain(file) or any(text in plain(file) for text in texts):
            call.write([file], "remove")


COMMANDS = table({
    _VERSIONED: Rule(outputs, lambda args: args == ["--version"]),
    "docker podman": Rule(
        _copies, reads=_first("ps", "images", "logs", "inspect", "version", "info")
    ),
    "fastmod": Rule(operands("deg --dir --extensions --glob", needs="--accept-all", skip=2)),
    "gh": Rule(_gh, reads=_first(
        "pr view", "pr list", "pr status", "pr diff", "pr checks", "issue view", "issue list",
        "run list", "run view", "repo view", "auth status",
    )),
    "kubectl": Rule(_copies, reads=_first("get", "describe", "logs", "version", "explain")),
    "systemctl": Rule(reads=_first("status", "is-active", "list-units", "show")),
    "convert magick ffmpeg sox": Rule(_converted),
    "csplit": Rule(_split),
    "curl": Rule(_curl, _curl_reads),
    "iconv": Rule(output("fto --from-code --to-code --output", "-o --output")),
    "dd": Rule(lambda call: call.write(arg[3:] for arg in call.args if arg and arg[:3] == "of=")),
    "openssl": Rule(output(_OPENSSL, "-out -keyout -CAserial")),
    "pandoc": Rule(output(_PANDOC, "-o --output")),
    "mariadb-dump mysqldump": Rule(output("hPpru --result-file", "-r --result-file")),
    "mongodump": Rule(output("dchou --archive --out", "-o --out")),
    "pg_dump pg_dumpall": Rule(output("fdhpUFntTj --file --dbname --schema --table", "-f --file")),
    "file-rename prename rename": Rule(_rename),
    "protoc": Rule(_protoc),
    "psql": Rule(_psql),
    "rsync": Rule(_rsync),
    "script": Rule(_script),
    "scp": Rule(_scp),
    "sd": Rule(operands(unless="-p --preview", skip=2)),
    "shred": Rule(_shred),
    "split": Rule(_split),
    "sqlite3": Rule(_sqlite),
    "tsc": Rule(_tsc, lambda args: args == ["--version"]),
    "wget": Rule(_wget),
    "xxd": Rule(lambda call: call.write(options(call.args, "cglos")[1][1:2])),
    "yq": Rule(operands(needs="-i --inplace", skip=1)),
})  # fmt: skip
