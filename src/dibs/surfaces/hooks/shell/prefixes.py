"""Words in front of a command that only say how it is run: `sudo`, `env A=b`, `npx`."""

from __future__ import annotations

import re

from dibs.surfaces.hooks.shell.call import options
from dibs.surfaces.hooks.shell.values import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    Values = list[str | None]

# Each with its options that take a value.
_PREFIXES = {
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

is_assignment = re.compile(r"[A-Za-z_]\w*\+?=").match


def name_of(value: str) -> str:
    """Give the command's name without the directory it is in."""
    return plain(value).rpartition("/")[2]


def unwrap(args: Values) -> tuple[str, Values]:
    """Give the name and the arguments of the command itself, "" if there is none to be known."""
    while args and args[0]:
        name = name_of(args[0])
        if name in _PREFIXES:
            found, args = options(args[1:], _PREFIXES[name], ordered=True)
            if name == "command" and found.keys() & {"-v", "-V"}:
                break
            if name == "timeout":
                args = args[1:]
            while name in ("env", "sudo") and args and args[0] and is_assignment(args[0]):
                args = args[1:]
        elif name in _RUNNERS:
            return _tool(name, args)
        elif name.startswith("python") and args[1:2] == ["-m"] and args[2:] and args[2]:
            return _if_formatter(args[2], args[3:]) or (name, args[1:])
        else:
            return name, args[1:]
    return "", []


def _tool(runner: str, args: Values) -> tuple[str, Values]:
    """Give the tool that a runner runs; those that install and the like are left as they are."""
    words = _RUNNERS[runner]
    word = args[1] if args[1:] and args[1] in words else ""
    rest = args[2 if word else 1 :]
    _, operands = options(rest, words.get(word or "", ""), ordered=True)
    if operands and operands[0]:
        # Only a formatter: `pnpm install` is not the `install` that copies files.
        return _if_formatter(operands[0], operands[1:]) or (runner, args[1:])
    return runner, args[1:]


def _if_formatter(value: str, args: Values) -> tuple[str, Values] | None:
    from dibs.surfaces.hooks.shell.formatters import TOOLS

    name = name_of(value).partition("@")[0]
    return (name, args) if name in TOOLS else None
