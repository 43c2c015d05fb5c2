"""What a name means in a file of the project: `make build`, `npm run fix`, `task check`.

The file is read and never run: plain variables are expanded, conditions are assumed to be met, and
included files are ignored. Everything is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import MAX_LENGTH, Values, options, plain

MAX_TARGETS = 60
MAX_LINES = 200
MAX_FILLED = 100

_MAKE = "CfIlOW --directory --file --makefile --include-dir"
_ONLY_SHOWS = (
    "-n --dry-run --just-print --recon -q --question -t --touch -v --version -h --help -p -l"
    " --list --summary --show --evaluate"
)
# The options with a value of each script runner, and where its scripts are.
_RUNNERS = {
    "bun": (" --cwd", "package.json"),
    "composer": ("d --working-dir", "composer.json"),
    "npm": ("Cw --prefix --workspace", "package.json"),
    "pnpm": ("CF --dir --filter", "package.json"),
    "yarn": (" --cwd", "package.json"),
}
_SHORT = {"t": "test", "tst": "test", "test": "test", "start": "start", "stop": "stop"}
# What a hook of pre-commit runs; one that is not here runs what its entry says.
_HOOKS = {
    "autopep8": "autopep8 -i", "black": "black", "black-jupyter": "black",
    "clang-format": "clang-format -i", "eslint": "eslint --fix", "fmt": "cargo fmt",
    "go-fmt": "gofmt -w", "gofmt": "gofmt -w", "isort": "isort", "markdownlint-fix":
    "markdownlint --fix", "mdformat": "mdformat", "prettier": "prettier --write",
    "pyupgrade": "pyupgrade", "ruff-format": "ruff format", "rustfmt": "rustfmt",
    "shfmt": "shfmt -w", "stylua": "stylua", "taplo-format": "taplo fmt", "yapf": "yapf -i",
    "terraform_fmt": "terraform fmt", "gofumpt": "gofumpt -w", "goimports": "goimports -w",
    "ruff": "ruff check", "ruff-check": "ruff check", "autoflake": "autoflake", "codespell":
    "codespell", "typos": "typos", "black-check": "black --check",
}  # fmt: skip
_TIDYING = frozenset("trailing-whitespace end-of-file-fixer mixed-line-ending".split())


def texts_of(call: ShellCall) -> Iterator[tuple[str, str]]:
    """Give what the call runs in a shell, each with its directory."""
    if call.name in ("make", "gmake", "just"):
        yield from _targets(call)
    elif call.name in ("task", "go-task"):
        from dibs.surfaces.hooks.shell import taskfiles

        yield from taskfiles.texts_of(call)
    elif call.name == "pre-commit":
        for text in _hooks(call):
            yield call.cwd, text
    else:
        yield from _scripts(call)


def _scripts(call: ShellCall) -> Iterator[tuple[str, str]]:
    """A script of package.json, with those that run before and after it."""
    valued, file = _RUNNERS[call.name]
    found, names = options(call.args, valued, ordered=True)
    if found.has("--workspace -w --filter -F --help") or not names or None in names:
        return
    word, *rest = names
    if word in ("run", "run-script", "rum", "urn") and rest:
        _, rest = options(rest)
        word, *rest = [*rest, ""][:1] + _after(call.args, rest[0] if rest else "")
    elif (call.name == "npm" and word not in _SHORT) or call.name == "bun":
        return
    folder = call.path(found.value(" ".join(valued.split()[1:]) + " -C") or ".")
    while folder and not call.kind_of(f"{folder}/{file}"):
        folder = folder.rpartition("/")[0]
    scripts = _json(call.text(f"{folder}/{file}")) if folder else {}
    name = _SHORT.get(plain(word or ""), plain(word or ""))
    rest = [one for one in rest if one != "--"] if "--" in rest or call.name != "npm" else []
    given = " ".join(_quoted(one) for one in rest)
    for one in (f"pre{name}", name, f"post{name}"):
        text = scripts.get(one)
        for line in text if isinstance(text, list) else [text]:
            if isinstance(line, str) and folder:
                yield folder, f"{line} {given}" if one == name else line


def _after(args: Values, word: str | None) -> Values:
    return args[args.index(word) + 1 :] if word in args else []


def _quoted(value: str | None) -> str:
    return '"$x"' if value is None else "'" + plain(value).replace("'", "'\\''") + "'"


def _json(text: str | None) -> dict[str, object]:
    import json

    try:
        found = json.loads(text or "{}").get("scripts", {})
    except (ValueError, RecursionError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


class Target:
    """A target of a Makefile: its prerequisites, and the lines that make it.

    parameters: those of a recipe of just
    """

    def __init__(self, parameters: list[str]) -> None:
        self.needs: list[str] = []
        self.lines: list[str] = []
        self.parameters = parameters

    def named(self, given: list[str]) -> dict[str, str]:
        """Give the values of the parameters: what is given, or what they have by default."""
        found = {}
        for at, parameter in enumerate(self.parameters):
            name, _, default = parameter.partition("=")
            value = given[at] if at < len(given) else default.strip("'\"")
            found[name.lstrip("*+$")] = " ".join(given[at:]) if name[0] in "*+" else value
        return found


def _targets(call: ShellCall) -> Iterator[tuple[str, str]]:
    just = call.name == "just"
    found, names = options(call.args, "fd" if just else _MAKE, "j")
    if found.has(_ONLY_SHOWS) or None in names:
        return
    if folder := found.value("-C --directory -d --working-directory"):
        call.cwd = call.path(folder) or ""
    text = _file(call, found.value("-f --file --makefile --justfile"), just)
    if not text or not call.cwd:
        return
    given = [plain(name) for name in names if name and not name.isdecimal()]
    makefile = Makefile(text, just)
    makefile.variables |= {k: v for one in given if "=" in one for k, _, v in (one.partition("="),)}
    wanted = [name for name in given if "=" not in name]
    if just and wanted:
        target = makefile.targets.get(wanted[0])
        makefile.variables |= target.named(wanted[1:]) if target else {}
        wanted = wanted[:1] if target else []
    for line in makefile.lines(wanted or makefile.first(), call):
        yield call.cwd, line


def _file(call: ShellCall, named: str | None, just: bool) -> str | None:
    if named:
        return call.stdin if named == "-" else call.text(named)
    names = (
        ("justfile", "Justfile", ".justfile") if just else ("GNUmakefile", "makefile", "Makefile")
    )
    name = next((one for one in names if call.kind_of(f"{call.cwd}/{one}") == "file"), "")
    return call.text(name) if name else None


class Makefile:
    def __init__(self, text: str, just: bool) -> None:
        self.just = just
        self.variables: dict[str, str] = {"MAKE": "make", "CURDIR": "."}
        self.targets: dict[str, Target] = {}
        self.phony: set[str] = set()
        current: list[Target] = []
        for line in text.replace("\\\n", " ").splitlines():
            if line[:1] == "\t" or (just and line[:1] == " "):
                for target in current:
                    target.lines.append(line.strip())
            elif line.strip() and line[0] != "#":
                current = self._head(line) or ([] if "=" in line or ":" in line else current)

    def _head(self, line: str) -> list[Target]:
        """Take in a line that sets a variable or begins a rule; give what the rule makes."""
        left, equals, right = line.partition("=")
        name = left.rstrip(":?+! ").removeprefix("export ").strip()
        if equals and name.replace("_", "").replace("-", "").isalnum():
            before = self.variables.get(name, "")
            kept = left.endswith("?") and before
            value = right.strip().strip("'\"" if self.just else "")
            self.variables[name] = (
                before if kept else f"{before} {value}" if left[-1:] == "+" else value
            )
            return []
        names, colon, rest = line.partition(":")
        if not colon:
            return []
        needs, _, inline = rest.lstrip(":").partition(";")
        made, parameters = self.filled(names).split(), []
        if self.just:
            made, parameters = names.split()[:1], names.split()[1:]
        made = [name.lstrip("@") for name in made]
        if made == [".PHONY"]:
            self.phony |= {*needs.split()}
        current = []
        for name in made[:MAX_TARGETS]:
            target = self.targets.setdefault(name, Target(parameters))
            target.needs += self.filled(needs.partition("#")[0]).split()
            target.lines += [inline.strip()] if inline.strip() else []
            current.append(target)
        return current

    def first(self) -> list[str]:
        return [name for name in self.targets if name[:1] != "." and "%" not in name][:1]

    def lines(self, wanted: list[str], call: ShellCall) -> Iterator[str]:
        """Give the lines that make the targets, and before these what they need."""
        done: set[str] = set()
        waiting = [(name, False) for name in reversed(wanted)]
        left = MAX_LINES
        while waiting and len(done) < MAX_TARGETS and left > 0:
            name, ready = waiting.pop()
            target = self.targets.get(name)
            if target is None or (name in done and not ready):
                continue
            done.add(name)
            if not ready:
                waiting.append((name, True))
                waiting += [(need, False) for need in reversed(target.needs)]
                continue
            path = call.path(name)
            if (
                not (target.needs or name in self.phony or self.just)
                and path
                and call.kind_of(path)
            ):
                continue  # it exists, and nothing can be newer
            needs = [need for need in target.needs if need != "|"]
            automatic = {"@": name, "<": "".join(needs[:1]), "^": " ".join(needs)}
            for line in target.lines[:left]:
                yield self.filled(line.lstrip("@-+ "), automatic)
            left -= len(target.lines)

    def filled(self, text: str, automatic: dict[str, str] | None = None) -> str:
        """Expand variables; unknown ones stay as they are."""
        known = {**self.variables, **(automatic or {})}
        opening = "{{" if self.just else "$"
        at, left = 0, MAX_FILLED
        while left > 0 and (at := text.find(opening, at)) >= 0 and len(text) < MAX_LENGTH:
            inner = text[at + 1 : at + 2]
            closer = {"(": ")", "{": "}"}.get(inner, "")
            close = text.find("}}" if self.just else closer, at + 2)
            name = text[at + 2 : close].strip() if closer else inner
            after = close + len(closer) + self.just if closer else at + 2
            if close >= 0 and name in known:
                text = text[:at] + known[name] + text[after:]
                left -= 1
            else:
                at += 2
        return text if self.just else text.replace("$(shell ", "$(").replace("$$", "$")


def _hooks(call: ShellCall) -> Iterator[str]:
    """What the hooks of pre-commit run, over the files that are staged or those it is given."""
    found, names = options(call.args, "c --config --hook-stage --from-ref --to-ref")
    if names[:1] != ["run"]:
        return
    files = [name for name in names[1:] if name]
    chosen = files.pop(0) if files and "--files" not in found else ""
    over = " ".join(map(_quoted, files)) if "--files" in found else "."
    if not found.has("-a --all-files --files"):
        over = call.asking("**", ("staged",))
    hooks: list[tuple[str, dict[str, str]]] = []
    for line in (
        call.text(found.value("-c --config") or ".pre-commit-config.yaml") or ""
    ).splitlines():
        key, _, value = line.strip().removeprefix("- ").partition(": ")
        value = value.partition(" #")[0].strip("\"' ")
        if key == "id":
            hooks.append((value, {}))
        elif hooks and key in ("entry", "args"):
            hooks[-1][1][key] = value
    for name, said in hooks[:MAX_LINES]:
        if chosen and plain(chosen) != name:
            continue
        if name in _TIDYING:
            call.write([call.asking(over if over != "." else "**", ("only", "untidy"))])
            continue
        words = (
            said.get("args", "").strip("[]").replace(",", " ").replace('"', " ").replace("'", " ")
        )
        yield f"{said.get('entry') or _HOOKS.get(name, 'true')} {words} {over}"
