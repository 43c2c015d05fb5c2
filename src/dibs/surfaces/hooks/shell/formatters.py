"""What is known about formatters and fixers: an entry of FORMATTERS for each.

A formatter may rewrite a file that it is given. If it is given a directory, it may rewrite the
files in it that have the suffixes of its entry, and no others: these are claimed, as patterns. Only
the formatter itself knows which of them are not formatted yet, and asking it may take seconds and
run code from the repository. So the command is denied if another agent holds any of these files.
"""

from __future__ import annotations

from functools import partial

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.rules import Rule, table
from dibs.surfaces.hooks.shell.values import Options, Values, every, options, plain, quoted_braces

_PY = "py pyi"
_JS = "js jsx mjs cjs ts tsx mts cts"
_WEB = f"{_JS} json jsonc json5 css scss less html vue md mdx yaml yml graphql gql hbs"
_BIOME = f"{_JS} json jsonc css graphql html vue svelte astro"
_CSS = "css scss sass less vue html"
_C = "c h cc hh cpp hpp cxx hxx m mm proto cs java js ts"
_TF = "tf tfvars tftest.hcl"


class Formatter:
    """What is known about one formatter.

    endings: the suffixes of the files it rewrites in a directory, "" for all files
    needs: options, one of which must be given, "" if it rewrites by default
    valued: its options with a value
    means: options of _ONLY_LOOKS that have another meaning here
    default: what it rewrites without a path
    flat: whether it does not enter subdirectories
    words: whether its long options have a single dash
    idle: whether it writes nothing unless an option says so
    """

    def __init__(
        self,
        endings: str,
        needs: str = "",
        valued: str = "",
        means: str = "",
        default: str = "",
        *,
        flat: bool = False,
        words: bool = False,
        idle: bool = True,
    ) -> None:
        self.endings = endings
        self.needs = needs
        self.valued = valued
        self.only_looks = _ONLY_LOOKS - {*means.split()}
        self.default = default
        self.flat = flat
        self.words = words
        self.idle = idle

    def rewrites(self, found: Options, names: Values) -> bool:
        """Say whether it changes files, with these options and operands."""
        # `cargo fmt -- --check`: what comes after `--` is for the formatter behind it.
        if self.only_looks & {*found, *names}:
            return False
        if found.get("--write") == "false":
            return False
        return not self.needs or found.has(self.needs)

    def paths(self, call: ShellCall, value: str, found: Options) -> list[str]:
        """Give the files that an operand may stand for."""
        deep = "" if self.flat and not value.endswith("...") else "**/"
        value = value.removesuffix("...") or "."
        name = value.rstrip("/").rpartition("/")[2]
        path = call.path(value)
        if not self.endings or not (call.is_directory(value) or "." not in name[1:]):
            return quoted_braces(value)
        if path is not None and call.kind_of(path) == "file":
            return [value]
        endings = (found.get("--ext") or "").replace(".", "").replace(",", " ") or self.endings
        return [f"{value}/{deep}*.{ending}" for ending in endings.split()]


_ONLY_LOOKS = frozenset(
    "--check -check --diff -d --list-different -l --dry --dry-run --fix-dry-run --help --version"
    " --stdout --stdin-filepath --stdin-filename --check-only -c -n -V --verify-no-changes"
    " --check-formatted --set-exit-if-changed --lint --test --dryrun -h".split()
)
# What else a formatter may be told to write.
_ALSO_WRITES = (
    "-o --output-file --output --report-file --cache --cache-location --auto-gen-config --init"
    " --regenerate-todo --generate-todo --watch --add-noqa --generate-config"
)
_LEAVE_OUT = (
    "--exclude", "--extend-exclude", "--force-exclude", "--ignore-pattern", "--ignore", "--skip",
    "--extend-skip", "--skip-glob",
)  # fmt: skip
# Each by its name and, if it has several subcommands, the subcommand.
FORMATTERS = {
    "add-trailing-comma": Formatter(_PY),
    "alejandra": Formatter("nix", means="-c"),
    "autoflake": Formatter(_PY, "-i --in-place", " --imports --exclude"),
    "autopep8": Formatter(
        _PY, "-i --in-place",
        "j --max-line-length --select --ignore --exclude --ignore-local-config",
    ),
    "beautysh": Formatter("sh bash", means="-c"),
    "biome check": Formatter(
        _BIOME, "--write --apply --fix", " --config-path --max-diagnostics", default="."
    ),
    "biome format": Formatter(
        _BIOME, "--write --fix", " --config-path --max-diagnostics", default="."
    ),
    "biome lint": Formatter(
        _BIOME, "--write --apply --fix", " --config-path --max-diagnostics", default="."
    ),
    "black": Formatter(
        _PY, "", "ltW --line-length --target-version --config --exclude --include --workers",
        "-l -c",
    ),
    "blue": Formatter(_PY, "", "l --line-length", "-l -c"),
    "buf format": Formatter("proto", "-w --write", default="."),
    "cargo clippy": Formatter(
        "rs", "--fix", "p --package --manifest-path", default=".", idle=False
    ),
    "cargo fix": Formatter("rs", "", "p --package --manifest-path", default="."),
    "cargo fmt": Formatter("rs", "", "p --package --manifest-path", default="."),
    "clang-format": Formatter(_C, "-i", " --style --assume-filename --lines", words=True),
    "cmake-format": Formatter("cmake", "-i --in-place", "c --config-files", "-c"),
    "cljfmt fix": Formatter("clj cljs cljc edn", default="."),
    "codespell": Formatter(
        "", "-w --write-changes", "LSIx --skip --ignore-words --ignore-words-list", "-d -c -h",
        ".",
    ),
    "dart fix": Formatter("dart", "--apply", default="."),
    "dart format": Formatter("dart", "", "lo --line-length --output", "-l", "."),
    "deno fmt": Formatter(_WEB, "", "c --config --ext --ignore", "-c", "."),
    "django-upgrade": Formatter("py", "", " --target-version --exclude --only --skip"),
    "djlint": Formatter("html jinja j2 njk hbs twig", "--reformat", " --profile --indent"),
    "docformatter": Formatter(_PY, "-i --in-place", " --wrap-summaries --wrap-descriptions"),
    "dos2unix": Formatter("", "", "ci --convmode", "-c -n"),
    "dotnet format": Formatter("cs vb", "", "v --severity --include --exclude", default="."),
    "dprint fmt": Formatter(_WEB, "", "c --config", "-c", "."),
    "elm-format": Formatter("elm", "--yes", idle=False),
    "eslint": Formatter(
        f"{_JS} vue svelte", "--fix",
        "cfo --config --ext --format --output-file --rule --max-warnings --ignore-pattern",
        "-c", ".",
    ),
    "erlfmt": Formatter("erl hrl", "-w --write"),
    "flynt": Formatter("py", "", "l --line-length", "-l"),
    "forge fmt": Formatter("sol", default="."),
    "fourmolu": Formatter("hs", "-i", " --mode"),
    "gci write": Formatter("go", "", "s --section", "-d"),
    "gdformat": Formatter("gd", "", "l --line-length", "-l -c"),
    "gleam format": Formatter("gleam", default="."),
    "go fmt": Formatter("go", default=".", flat=True),
    "gofmt": Formatter("go", "-w", " -r --cpuprofile", "-l -d", words=True),
    "gofumpt": Formatter("go", "-w", " --lang --modpath", "-l -d", words=True),
    "goimports": Formatter("go", "-w", " --local --srcdir", "-l -d", words=True),
    "golangci-lint run": Formatter("go", "--fix", "cED --config --enable", "-c -n", "."),
    "golines": Formatter("go", "-w --write-output", "m --max-len"),
    "google-java-format": Formatter("java", "-i --replace -r"),
    "isort": Formatter(
        _PY, "", "lmpso --profile --line-length --settings-path --skip --src", "-l -n"
    ),
    "js-beautify": Formatter(_JS, "-r --replace", "f --file"),
    "jscodeshift": Formatter(
        _JS, "", "tc --transform --parser --cpus --extensions --ignore-pattern --ignore-config",
        "-c -n",
    ),
    "ktlint": Formatter("kt kts", "-F --format", "l", "-l", "."),
    "markdownlint": Formatter("md markdown", "-f --fix", "c --config --ignore", "-c"),
    "markdownlint-cli2": Formatter("md markdown", "--fix", " --config"),
    "mdformat": Formatter("md markdown", "", " --wrap --number"),
    "mix format": Formatter("ex exs heex", "", " --dot-formatter", default="."),
    "nbstripout": Formatter("ipynb", "", " --extra-keys"),
    "nixfmt": Formatter("nix", means="-c"),
    "ocamlformat": Formatter("ml mli", "-i --inplace"),
    "ormolu": Formatter("hs", "-i", " --mode"),
    "oxfmt": Formatter(_WEB, "", "c --config", "-c", "."),
    "oxlint": Formatter(_JS, "--fix", "c --config", "-c -d -l", "."),
    "perltidy": Formatter("pl pm t", "-b", "", "-l", idle=False),
    "php-cs-fixer fix": Formatter("php", "", " --rules --config", "-n", "."),
    "phpcbf": Formatter("php", "", " --standard --extensions", "-d -n", "."),
    "pint": Formatter("php", "", " --preset --config", default="."),
    "prettier": Formatter(
        _WEB, "--write -w",
        " --config --parser --ignore-path --plugin --print-width --tab-width --log-level",
        "-c -l --check --list-different",
    ),
    "pycln": Formatter(_PY, "", " --config", "-c"),
    "pyproject-fmt": Formatter("toml", "", " --column-width --indent"),
    "pyupgrade": Formatter(_PY),
    "rector process": Formatter("php", "", "c --config --only", "-c", "."),
    "rubocop": Formatter(
        "rb rake gemspec ru", "-a -A --autocorrect --autocorrect-all -x --fix-layout",
        "cfr --config --only --format", "-c -d -n", ".",
    ),
    "rustywind": Formatter(_WEB, "--write", " --output-css-file --config-file"),
    "ruff check": Formatter(
        "py pyi ipynb", "--fix --unsafe-fixes --fix-only --add-noqa",
        "o --output-file --config --select --ignore --extend-select --line-length --exclude"
        " --output-format --target-version --per-file-ignores",
        "-n", ".",
    ),
    "ruff format": Formatter(
        "py pyi ipynb", "", " --config --line-length --exclude --range --target-version",
        "-n", ".",
    ),
    "rustfmt": Formatter("rs", "", " --config --config-path --edition --emit", "-l"),
    "scalafmt": Formatter("scala sbt sc", "", "c --config", "-c -d --diff", "."),
    "shellharden": Formatter("sh bash", "--replace"),
    "shfmt": Formatter(
        "sh bash bats", "-w --write", "i --indent --ln --language-dialect --filename", "-l -d",
        words=True,
    ),
    "sort-package-json": Formatter("json", "", "", "-c", "package.json"),
    "sqlfluff fix": Formatter("sql", "", "d --dialect --rules --config", "-d -n"),
    "sqlfluff format": Formatter("sql", "", "d --dialect --config", "-d -n"),
    "sqlfmt": Formatter("sql", "", "l --line-length", "-l"),
    "sqruff fix": Formatter("sql", default="."),
    "standard": Formatter(_JS, "--fix", default="."),
    "standardrb": Formatter("rb rake gemspec", "--fix", default="."),
    "stylelint": Formatter(_CSS, "--fix", "cfo --config --formatter --output-file", "-c"),
    "stylua": Formatter("lua luau", "", "fg --config-path --glob", "-c"),
    "swift-format": Formatter("swift", "-i --in-place", " --configuration"),
    "swiftformat": Formatter("swift", "", " --config --rules --swiftversion"),
    "taplo fmt": Formatter("toml", "", "co --config --option", "-c --diff", "."),
    "taplo format": Formatter("toml", "", "co --config --option", "-c --diff", "."),
    "terraform fmt": Formatter(_TF, "", "", "--diff", ".", flat=True, words=True),
    "tofu fmt": Formatter(_TF, "", "", "--diff", ".", flat=True, words=True),
    "toml-sort": Formatter("toml", "-i --in-place"),
    "typos": Formatter("", "-w --write-changes", " --config --exclude", default="."),
    "ufmt format": Formatter(_PY),
    "unix2dos": Formatter("", "", "ci --convmode", "-c -n"),
    "usort format": Formatter(_PY),
    "xo": Formatter(_JS, "--fix", default="."),
    "yamlfmt": Formatter("yaml yml", "", " --conf --formatter", "-d", ".", words=True),
    "yapf": Formatter(_PY, "-i --in-place", "els --style --exclude --lines", "-l -d"),
    "zig fmt": Formatter("zig", "", " --exclude"),
}  # fmt: skip
FORMATTER_NAMES = frozenset(key.partition(" ")[0] for key in FORMATTERS)


def _asked(name: str, args: Values) -> tuple[Formatter | None, Options, Values]:
    """Give the formatter that a command line asks for, its options and its operands."""
    formatter = FORMATTERS.get(name)
    if not formatter and args:
        formatter, args = FORMATTERS.get(f"{name} {args[0]}"), args[1:]
    if not formatter:
        return None, Options(), []
    if formatter.words:
        args = [f"-{arg}" if arg and _is_word(arg) else arg for arg in args]
    return formatter, *options(args, formatter.valued)


def _is_word(arg: str) -> bool:
    return len(arg) > 2 and arg[0] == "-" != arg[1]


def format_files(call: ShellCall) -> None:
    formatter, found, names = _asked(call.name, call.args)
    if not formatter:
        return
    call.write([found.value("-o --output-file")])
    if not formatter.rewrites(found, names):
        return
    if "--recursive" in found:
        names = [f"{name}/..." for name in names or ["."]]
    out = [*every(call.args, *_LEAVE_OUT), *(name[1:] for name in names if name and name[0] == "!")]
    patterns = [plain(one) for value in out for one in value.split(",")]
    asks = [("only", "there"), *(("only", "unlike", pattern) for pattern in patterns)]
    given = [name for name in names if name and name[0] not in "!-"]
    if not given and "-" in names:
        return  # it passes its input on
    # An unknown name is not the lack of one.
    for value in given or ([] if None in names else [formatter.default]):
        if value:
            call.write(formatter.paths(call, value, found), asks=tuple(asks))


# The options with which a formatter prints the names of what it would rewrite.
_LISTS = {
    "gofmt": "-l", "gofumpt": "-l", "goimports": "-l", "prettier": "-l --list-different",
    "shfmt": "-l --list",
}  # fmt: skip


def _listed(call: ShellCall) -> str | None:
    """`gofmt -l . | xargs gofmt -w`: what it would rewrite is among the files it is given."""
    formatter, found, names = _asked(call.name, call.args)
    if not formatter or not found.has(_LISTS.get(call.name, "")) or None in names:
        return None
    paths = [path for name in names if name for path in formatter.paths(call, name, found)]
    return "".join(f"{call.asking(plain(path), ('only', 'there'))}\n" for path in paths)


def only_looks(name: str, args: list[str]) -> bool:
    """Say whether a formatter leaves all files alone."""
    formatter, found, names = _asked(name, [*args])
    if not formatter or found.has(_ALSO_WRITES) or formatter.rewrites(found, names):
        return False
    # An option that is unknown here may have been taken for one whose value is `-w`.
    if {*formatter.needs.split()} & {*args} and not formatter.only_looks & {*found, *names}:
        return False
    return formatter.idle or bool(formatter.only_looks & {*found, *names})


COMMANDS = table({
    name: Rule(format_files, partial(only_looks, name), _listed) for name in FORMATTER_NAMES
})  # fmt: skip
