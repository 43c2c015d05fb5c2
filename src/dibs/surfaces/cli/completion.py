"""`dibs completion bash|zsh|fish`: the completion script, made from the operation registry."""

from __future__ import annotations

import re

from dibs.dibs import operations
from dibs.errors import InvalidError
from dibs.surfaces.cli.main import BY_HAND, by_hand
from dibs.surroundings.commands import options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs completion bash|zsh|fish

Print the completion script of a shell.

example: dibs completion bash > ~/.local/share/bash-completion/completions/dibs"""

GLOBALS = "--as --store --space --json --help"

BASH = """\
_dibs() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" line="${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}"
    local choices=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        choices="{first}"
    else
        if [ "$COMP_CWORD" -eq 2 ]; then
            case "${{COMP_WORDS[1]}}" in
{seconds}
            esac
        fi
        case "$line" in
{lines}
        esac
        choices="$choices {globals}"
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _dibs dibs
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def main(globals_: Globals, words: list[str]) -> int:
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    if len(words) != 1 or words[0] not in scripts:
        raise InvalidError("which shell?", next="dibs completion bash, zsh or fish")
    script = scripts[words[0]]()
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json({"completion": script})
    else:
        print(script, end="")
    return 0


def commands() -> dict[str, list[str]]:
    """Each command with its own options."""
    known = {
        entry.cli: [f"--{option.name}" for option in options(entry) if not option.placed]
        for entry in operations().values()
    }
    for name in BY_HAND:
        known[name] = re.findall(r"^  (--[a-z-]+)", by_hand(name).HELP, re.MULTILINE)
    known["completion"] = ["bash", "zsh", "fish"]
    return known


def bash() -> str:
    known = commands()
    seconds: dict[str, list[str]] = {}
    for command in known:
        first, _, second = command.partition(" ")
        if second:
            seconds.setdefault(first, []).append(second)
    return BASH.format(
        first=" ".join(sorted({command.split()[0] for command in known})),
        seconds="\n".join(
            f'                {first}) choices="{" ".join(rest)}" ;;'
            for first, rest in seconds.items()
        ),
        # The longer commands first: `work claim` must not be taken for `work`.
        lines="\n".join(
            f'            "{command}"*) choices="$choices {" ".join(found)}" ;;'
            for command, found in sorted(known.items(), key=lambda item: -len(item[0]))
            if found
        ),
        globals=GLOBALS,
    )


def zsh() -> str:
    return ZSH + bash()


def fish() -> str:
    first_words = " ".join(sorted({command.split()[0] for command in commands()}))
    lines = [f"complete -c dibs -f -n __fish_use_subcommand -a '{first_words}'"]
    for command, found in commands().items():
        first, _, second = command.partition(" ")
        if second:
            lines.append(f"complete -c dibs -n '__fish_seen_subcommand_from {first}' -a '{second}'")
        for option in found:
            word = f"-l {option[2:]}" if option.startswith("--") else f"-a {option}"
            lines.append(f"complete -c dibs -n '__fish_seen_subcommand_from {first}' {word}")
    lines += [f"complete -c dibs -l {name[2:]}" for name in GLOBALS.split()]
    return "\n".join(dict.fromkeys(lines)) + "\n"
