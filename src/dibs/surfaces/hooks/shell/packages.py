"""Which files package managers write: an entry of PACKAGES for each of their commands.

Only the files that a project keeps are named: the manifest (`package.json`) and the lock file
(`package-lock.json`). Installed packages (`node_modules`, a virtual environment) are nobody's work,
and an installation from the lock file alone (`npm ci`, `pip install`) changes none of these files.
"""

from __future__ import annotations

from functools import partial

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.rules import Rule, outputs, table
from dibs.surfaces.hooks.shell.values import Values, options, plain

_NPM = "package.json package-lock.json"
_PNPM = "package.json pnpm-lock.yaml"
_YARN = "package.json yarn.lock"
_BUN = "package.json bun.lock bun.lockb"
_UV = "pyproject.toml uv.lock"
_POETRY = "pyproject.toml poetry.lock"
_PDM = "pyproject.toml pdm.lock"
_PIPENV = "Pipfile Pipfile.lock"
_CARGO = "Cargo.toml Cargo.lock"
_GO = "go.mod go.sum"
_BUNDLE = "Gemfile Gemfile.lock"
_COMPOSER = "composer.json composer.lock"
_PUB = "pubspec.yaml pubspec.lock"
_VALUED = (
    "C --prefix --cwd --dir --directory --project --manifest-path --features --group --extra -r"
    " --requirement --registry --tag --filter --workspace --index --python --bump --package"
)
_NOT_HERE = "--global --dry-run --help -h --no-save --check"
_WITH_NAMES = "+"
"""Only if it is given something to install; otherwise it installs what is in the lock file."""

# What each command writes; with a `+`, only if it is given names.
PACKAGES = {
    "bun add remove rm update": _BUN,
    "bun install i": f"+ {_BUN}",
    "bundle add remove": _BUNDLE,
    "bundle lock update": "Gemfile.lock",
    "cargo add remove rm upgrade set-version": _CARGO,
    "cargo generate-lockfile update": "Cargo.lock",
    "commit-and-tag-version": f"{_NPM} CHANGELOG.md",
    "composer remove require": _COMPOSER,
    "changeset version": "package.json CHANGELOG.md",
    "conventional-changelog -s --same-file": "CHANGELOG.md",
    "cz bump": "pyproject.toml CHANGELOG.md",
    "cz changelog ch": "CHANGELOG.md",
    "composer update": "composer.lock",
    "dart pub": _PUB,
    "diesel migration": "src/schema.rs",
    "deno add remove": "deno.json deno.lock",
    "flutter pub": _PUB,
    "go get": _GO,
    "go mod": _GO,
    "go work": "go.work go.work.sum",
    "gradle --write-locks": "**/gradle.lockfile",
    "hatch version": "pyproject.toml **/__about__.py",
    "lerna version": "lerna.json package.json CHANGELOG.md",
    "mix deps.get deps.unlock deps.update": "mix.lock",
    "ncu -u --upgrade": "package.json",
    "npm audit dedupe update": _NPM,
    "npm init pkg set-script": "package.json",
    "npm --package-lock-only": "package-lock.json",
    "npm install i add in": f"+ {_NPM}",
    "npm remove rm uninstall un r version": _NPM,
    "npm-check-updates -u --upgrade": "package.json",
    "nix flake": "flake.lock",
    "pdm add remove rm update": _PDM,
    "pdm lock": "pdm.lock",
    "pipenv install": f"+ {_PIPENV}",
    "pipenv lock update upgrade": "Pipfile.lock",
    "pipenv uninstall": _PIPENV,
    "pnpm add remove rm uninstall un update up": _PNPM,
    "pnpm dedupe": "pnpm-lock.yaml",
    "pnpm init pkg": "package.json",
    "pnpm install i": f"+ {_PNPM}",
    "pnpm version": "package.json",
    "pod install update": "Podfile.lock",
    "poetry add remove": _POETRY,
    "poetry init version": "pyproject.toml",
    "poetry lock update": "poetry.lock",
    "pre-commit autoupdate": ".pre-commit-config.yaml",
    "prisma db format": "prisma/schema.prisma",
    "rails db:migrate db:rollback db:schema:dump": "db/schema.rb db/structure.sql",
    "rake db:migrate db:rollback db:schema:dump": "db/schema.rb db/structure.sql",
    "rye add remove": "pyproject.toml requirements.lock requirements-dev.lock",
    "semantic-release version": "pyproject.toml CHANGELOG.md",
    "standard-version": f"{_NPM} CHANGELOG.md",
    "swift package": "Package.resolved",
    "terraform init providers": ".terraform.lock.hcl",
    "tofu init providers": ".terraform.lock.hcl",
    "towncrier build": "CHANGELOG.md NEWS.rst CHANGES.rst NEWS.md CHANGES.md",
    "uv add remove": _UV,
    "uv lock": "uv.lock",
    "uv version": _UV,
    "yarn add remove up upgrade upgrade-interactive": _YARN,
    "yarn dedupe": "yarn.lock",
    "yarn init version": "package.json",
}
_BY_COMMAND = {
    f"{names.split()[0]} {word}": files
    for names, files in PACKAGES.items()
    for word in names.split()[1:] or [""]
}
# What follows the command, where only some of that writes.
_FURTHER = {
    "dart pub": "add remove get upgrade", "flutter pub": "add remove get upgrade",
    "diesel migration": "run redo revert",
    "go mod": "tidy init edit", "go work": "init use edit sync", "nix flake": "update lock",
    "npm audit": "fix", "npm pkg": "set delete fix", "pnpm pkg": "set delete",
    "prisma db": "pull",
    "swift package": "update resolve", "terraform providers": "lock", "tofu providers": "lock",
}  # fmt: skip


# What only shows the version, unless it is told the next one.
_SHOWS_ALONE = frozenset(
    ("poetry version", "uv version", "hatch version", "npm version", "pnpm version")
)
# The options with which it writes nothing, besides those of _NOT_HERE.
_ONLY_SHOWS = {"go": "-json -print -diff", "mix": "--check-locked", "prisma": "--print"}
# The words with which they only show something.
_SHOWING = {
    "npm": "explain list ls outdated prefix root view why", "pip": "check freeze list show",
    "pip3": "check freeze list show", "pnpm": "list ls outdated why", "yarn": "info list why",
}  # fmt: skip


def _shows(name: str, args: list[str]) -> bool:
    words = _SHOWING.get(name, "").split()
    return args == ["--version"] or (args[:1] != [] and args[0] in words)


def _packages(call: ShellCall) -> None:
    found, names = options(call.args, _VALUED)
    said = [f"{call.name} {word}" for word in (*found, *names[:1], "")]
    command = next((one for one in said if one in _BY_COMMAND), "")
    files = _BY_COMMAND.get(command, "")
    if not files:
        outputs(call)
    if not files or found.has(_NOT_HERE) or (call.name != "go" and "-g" in found):
        return
    if {*_ONLY_SHOWS.get(call.name, "").split()} & {*call.args}:
        return
    if command in _FURTHER and (len(names) < 2 or names[1] not in _FURTHER[command].split()):
        return
    if names[:2] in (["mod", "edit"], ["mod", "init"]):
        files = "go.mod"
    if command in _SHOWS_ALONE and len(names) < 2 and not found.has("--bump"):
        return
    if files.startswith(_WITH_NAMES) and len(names) < 2:
        return
    folder = found.value("-C --prefix --cwd --dir --directory --project")
    if (manifest := found.value("--manifest-path")) and "/" in manifest:
        folder = manifest.rpartition("/")[0]
    _write_beside(call, folder, files.removeprefix(_WITH_NAMES).split())


def _write_beside(call: ShellCall, folder: str | None, names: list[str]) -> None:
    """The files in the nearest parent directory that contains the first of them."""
    start = call.path(folder) if folder else call.cwd
    base = start
    while base and not folder and not call.kind_of(f"{base}/{names[0]}"):
        base = base.rpartition("/")[0]
    call.write(f"{base or start}/{name}" for name in names if base or start)


def _compile(call: ShellCall) -> None:
    """`pip-compile`, `uv pip compile`: lock files for requirements."""
    args = call.args[2:] if call.args[:2] == ["pip", "compile"] else call.args
    if call.name == "uv" and args is call.args:
        _packages(call)
        return
    found, names = options(
        args, "orP --output-file --index-url --extra --python-version --resolver"
    )
    if found.has("--dry-run -n --help"):
        return
    output = found.value("-o --output-file")
    if output or call.name == "uv":
        call.write([output])
        return
    sources: Values = names or ["requirements.in"]
    call.write(
        f"{one.removesuffix('.in')}.txt" if one.endswith(".in") else "requirements.txt"
        for one in sources
        if one
    )


def _helm(call: ShellCall) -> None:
    _, names = options(call.args)
    if names[:1] in (["dep"], ["dependency"]) and names[1:2] in (["update"], ["up"], ["build"]):
        chart = names[2] if len(names) > 2 else "."
        call.write([f"{chart}/Chart.lock", f"{chart}/charts"] if chart else ())


def _dotnet(call: ShellCall) -> None:
    _, names = options(call.args, "vfs --version --framework --source --package-directory")
    if names[:1] in (["add"], ["remove"]) and {"package", "reference"} & {*names[1:3]}:
        project = names[1] if names[1:2] not in (["package"], ["reference"]) else "*.csproj"
        call.write([project])
    elif names[:1] == ["sln"]:
        call.write(names[1:2] if (names[1] or "").endswith(".sln") else ["*.sln"])
    else:
        _formats_too(call)


def _maven(call: ShellCall) -> None:
    words = {(name or "").partition(":")[0] for name in call.args}
    if "versions" in words or "org.codehaus.mojo" in words:
        call.write(["**/pom.xml"])
    elif "spotless" in words and any((name or "").endswith(":apply") for name in call.args):
        call.write(["**/*.java", "**/*.kt"])


def _gradle(call: ShellCall) -> None:
    if any((name or "").endswith(("Apply", "ormatKotlin", "JavaFormat")) for name in call.args):
        call.write(["**/*.java", "**/*.kt", "**/*.kts"])
    call.name = "gradle"
    _packages(call)


# Runners of tests, each with the words with which they update snapshots, and what these are called.
_SNAPSHOTS = {
    "jest": ("-u --updateSnapshot --update", "*.snap"),
    "vitest": ("-u --updateSnapshot --update", "*.snap"),
    "playwright": ("-u --update-snapshots", "*-snapshots/**"),
    "pytest": ("--snapshot-update --update-snapshots", "__snapshots__/**"),
    "go": ("-update --update -update=true", "testdata/**"),
    "cargo": ("--accept accept", "*.snap"),
}


def _snapshots(call: ShellCall) -> None:
    """Tests that update their snapshots: those of the folders that are named, or all."""
    updating, files = _SNAPSHOTS[call.name]
    if {*updating.split()} & {*call.args}:
        tests = [plain(name) for name in call.args if name and name[0] != "-" and "/" in name]
        folders = [_folder_of(call, name) for name in tests if call.name in ("go", "pytest")]
        call.write(f"{folder}**/{files}" for folder in folders or [""])


def _pytest(call: ShellCall) -> None:
    outputs(call)
    _snapshots(call)


def _folder_of(call: ShellCall, test: str) -> str:
    """`./store/...`, `tests/test_a.py::test_b`."""
    name = test.partition("::")[0].removesuffix("...").removesuffix("/")
    if call.kind_of(call.path(name) or "") == "file" or name.endswith(".py"):
        name = name.rpartition("/")[0]
    return f"{name}/" if name not in ("", ".") else ""


def _tests_too(call: ShellCall) -> None:
    if call.args[:1] == [{"cargo": "insta", "go": "test"}[call.name]]:
        _snapshots(call)
    _formats_too(call)


def _formats_too(call: ShellCall) -> None:
    """Some, such as `cargo` and `go`, have a formatter beside their packages."""
    from dibs.surfaces.hooks.shell.formatters import format_files

    format_files(call)
    _packages(call)


def _only_looks(name: str, args: list[str]) -> bool:
    from dibs.surfaces.hooks.shell.formatters import only_looks

    return only_looks(name, args)


_FORMATTING = "cargo dart deno go mix terraform tofu".split()
_NAMES = {command.partition(" ")[0] for command in _BY_COMMAND}
COMMANDS = table({
    **{name: Rule(_packages, partial(_shows, name)) for name in {*_NAMES, *_SHOWING}},
    **{name: Rule(_formats_too, partial(_only_looks, name)) for name in _FORMATTING},
    **{name: Rule(_tests_too, partial(_only_looks, name)) for name in ("cargo", "go")},
    "dotnet": Rule(_dotnet, partial(_only_looks, "dotnet")),
    "gradle gradlew": Rule(_gradle),
    "helm": Rule(_helm),
    "jest playwright vitest": Rule(_snapshots),
    "mvn mvnw": Rule(_maven),
    "pip-compile uv": Rule(_compile),
    "pytest": Rule(_pytest, lambda args: args == ["--version"]),
})  # fmt: skip
