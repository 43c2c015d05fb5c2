"""Formatters and fixers: which of their calls rewrite files, and which files."""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import options
from dibs.surfaces.hooks.shell.values import quoted_braces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.shell.call import Call

# Each tool: the words that must come first, the options of which one must be there ("" if it
# rewrites without being told), its options with a value, and whether it takes the working
# directory if it is given no path.
TOOLS: dict[str, tuple[tuple[tuple[str, ...], str, str, bool], ...]] = {
    "prettier": (((), "--write -w", " --config --parser --ignore-path --plugin", False),),
    "black": (((), "", "ltCW --line-length --target-version --config --exclude", False),),
    "ruff": (
        (("format",), "", " --config --line-length --exclude --range --target-version", True),
        (
            ("check",), "--fix --unsafe-fixes --fix-only --add-noqa",
            " --config --select --ignore --extend-select --line-length --exclude",
            True,
        ),
    ),
    "isort": (((), "", "lmpso --profile --line-length --settings-path --skip", False),),
    "autopep8": (((), "-i --in-place", "j --max-line-length --select --ignore --exclude", False),),
    "autoflake": (((), "-i --in-place", " --imports --exclude", False),),
    "yapf": (((), "-i --in-place", "els --style --exclude --lines", False),),
    "docformatter": (((), "-i --in-place", " --wrap-summaries --wrap-descriptions", False),),
    "pyupgrade": (((), "", "", False),),
    "gofmt": (((), "-w", " -r -cpuprofile", False),),
    "gofumpt": (((), "-w", " -lang -modpath", False),),
    "goimports": (((), "-w", " -local -srcdir", False),),
    "rustfmt": (((), "", " --config --config-path --edition --emit", False),),
    "cargo": ((("fmt",), "", "p --package --manifest-path", True), (("fix",), "", "p", True)),
    "go": ((("fmt",), "", "", True),),
    "clang-format": (((), "-i", " -style -assume-filename -lines", False),),
    "eslint": (
        ((), "--fix", "cfo --config --ext --format --output-file --rule --max-warnings", False),
    ),
    "stylelint": (((), "--fix", "cfo --config --formatter", False),),
    "biome": (
        (("format",), "--write --fix", " --config-path --max-diagnostics", True),
        (("check",), "--write --apply --fix", " --config-path --max-diagnostics", True),
        (("lint",), "--write --apply --fix", " --config-path --max-diagnostics", True),
    ),
    "shfmt": (((), "-w --write", "ilp -i -ln --indent --language-dialect", False),),
    "stylua": (((), "", "fg --config-path --glob", False),),
    "taplo": ((("fmt",), "", "co --config --option", True), (("format",), "", "co", True)),
    "deno": ((("fmt",), "", "c --config --ext --ignore", True),),
    "dart": ((("format",), "", "lo --line-length --output", True),),
    "terraform": ((("fmt",), "", "", True),),
    "rubocop": (((), "-a -A --autocorrect --autocorrect-all", "cfr --config --only", True),),
    "dos2unix": (((), "", "ci --convmode", False),),
    "unix2dos": (((), "", "ci --convmode", False),),
}  # fmt: skip

_ONLY_LOOKS = frozenset(
    "--check -check --diff -d --list-different -l --dry-run --fix-dry-run --help --version --stdout"
    " --stdin-filepath --stdin-filename --check-only -c -n -V".split()
)
# The same letter means something else in these.
_ALSO = {
    "prettier": {"-c"}, "black": {"-l", "-c"}, "isort": {"-l", "-n"}, "gofmt": {"-l"},
    "goimports": {"-l"}, "gofumpt": {"-l"}, "eslint": {"-c"}, "stylelint": {"-c"},
    "stylua": {"-c"}, "rustfmt": {"-l"}, "shfmt": {"-l", "-i"}, "dart": {"-l"},
    "rubocop": {"-c", "-d"}, "dos2unix": {"-c", "-n"}, "unix2dos": {"-c", "-n"},
    "taplo": {"-c"}, "deno": {"-c"},
}  # fmt: skip


def changes(call: Call) -> None:
    """Add what the formatter rewrites, if it is one."""
    for first, needed, valued, takes_directory in TOOLS.get(call.name, ()):
        if (*call.args[: len(first)],) != first:
            continue
        found, operands = options(call.args[len(first) :], valued)
        looks = _ONLY_LOOKS - _ALSO.get(call.name, set())
        if found.keys() & looks or (needed and not found.keys() & {*needed.split()}):
            return
        paths = [value for value in operands if value is None or value != "-"]
        if not paths and takes_directory:
            paths = ["."]
        for value in paths:
            if value and not value.startswith("!"):
                call.write(quoted_braces(value.removesuffix("/...")))
        return
