"""Shell builtins, and commands that run other commands: an entry of COMMANDS for each.

Each changes the walk's state or continues the walk in another text, and returns what is printed, if
the text says that.
"""

from __future__ import annotations

from collections.abc import Callable

from dibs.surfaces.hooks.shell import rules, values
from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import ShellState, Values, Word, options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.shell.walk import Walk

Builtin = Callable[["Walk", ShellCall, list[Word]], str | None]


def _move(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    folders = _directories(walk.state, call)
    if walk.untouched and folders and call.kind_of(call.cwd) and call.kind_of(folders[0]) == "":
        walk.status = False if folders[0] else None
        folders = folders if walk.status is None else ()
    walk.moved += folders
    return "" if call.name == "cd" else None


def _directories(state: ShellState, call: ShellCall) -> tuple[str, ...]:
    """Give the directories the shell may be in afterwards, none if it stays."""
    if call.name == "popd":
        *rest, last = state.stack or ((),)
        state.stack = tuple(rest)
        return last
    if call.name == "pushd":
        state.stack = (*state.stack, state.cwds)[-values.MAX_VALUES :]
    targets = [arg for arg in call.args if arg is None or arg == "-" or arg[:1] != "-"]
    if targets[:1] == ["-"]:
        return state.before or ("",)
    path = call.path(targets[0] if targets else (state.variables.get("HOME") or ("",))[0])
    # A directory given by a wildcard cannot be known.
    return (path if path and "*" not in path and "?" not in path else "",)


def _declare(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    walk.assign(words[1:])
    return ""


def _read(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    """Each line is a value that the variable may have; several variables share a line."""
    found, names = options(call.args, "adinNptu" if call.name == "read" else "dnOsuCc")
    names = [found.get("-a"), *names] if "-a" in found else names
    names = names or ["REPLY" if call.name == "read" else "MAPFILE"]
    separators = call.settings.get("IFS", call.variables.get("IFS", " \t"))
    lines = (call.stdin or "").split("\n")
    rows = [_columns(line, separators, len(names)) for line in lines if line.strip()]
    walk.state.set_together([name or "" for name in names], rows)
    return ""


def _columns(line: str, separators: str, count: int) -> tuple[str, ...]:
    """Split a line for so many variables; the last one gets the rest."""
    if not separators or count == 1:
        parts = [line]
    elif separators.isspace():
        parts = line.split(None, count - 1)
    else:
        parts = line.translate({ord(one): separators[0] for one in separators}).split(
            separators[0], count - 1
        )
    return tuple(part.strip() for part in (parts + [""] * count)[:count])


def _printf(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    if call.args[:1] != ["-v"] or len(call.args) < 3:
        return rules.run(call)
    name, call.args = call.args[1], call.args[2:]
    printed = rules.run(call)
    walk.state.set(name or "", () if printed is None else (printed,))
    return ""


def _unset(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    for arg in call.args:
        walk.state.variables.pop(arg or "", None)
        walk.functions.pop(arg or "", None)
    return ""


def _set(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    if "--" in call.args:
        walk.state.arguments(call.args[call.args.index("--") + 1 :])
    return ""


def _shift(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    held = walk.state.variables.get("@", ())
    count = (call.args or ["1"])[0] or ""
    walk.state.arguments([*held[int(count) :]] if count.isdecimal() and len(count) < 4 else [])
    return ""


def _shell(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    text, arguments = rules.shell_text(call)
    return apart(walk, text, call, arguments)


def apart(walk: Walk, text: str | None, call: ShellCall, arguments: Values) -> str | None:
    """Run a text in a new shell, as the call begins it.

    arguments: `$0` and those that follow it
    """
    if not text:
        return None
    kept = walk.state
    home = {name: held for name, held in kept.variables.items() if name == "HOME"}
    walk.state = ShellState((call.cwd,) if call.cwd else (), home)
    walk.state.arguments(arguments[1:])
    for name in ("0", "BASH_SOURCE") if arguments and arguments[0] else ():
        walk.state.set(name, (values.plain(arguments[0] or ""),))
    for name, value in call.settings.items():
        walk.state.set(name, (value,))
    printed = walk.text(values.plain(text))
    walk.state, walk.ended = kept, ""
    return None if printed is None else "".join(printed)


def _eval(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    return _here(walk, " ".join(arg or "''" for arg in call.args))


def _source(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    return _here(walk, call.text(call.args[0]) if call.args else None)


def _here(walk: Walk, text: str | None) -> str | None:
    """Run a text in this shell."""
    printed = walk.text(values.plain(text), apart=False) if text else None
    return None if printed is None else "".join(printed)


def _trap(walk: Walk, call: ShellCall, words: list[Word]) -> str:
    apart(walk, call.args[0] if call.args else None, call, [])
    return ""


def _each(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    """Run the commands of `xargs` and similar programs, for their input."""
    from dibs.surfaces.hooks.shell import lists

    rules.run(call)
    printed = [walk.deeper(call, args, words) for args in lists.commands_of(call)]
    known = [one for one in printed if one is not None]
    if call.name == "xargs" and known and len(known) == len(printed):
        return "".join(known)
    return lists.printed_by(call)


def _interpret(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    from dibs.surfaces.hooks.shell import interpreters

    rules.run(call)
    for text in interpreters.follow(call):
        apart(walk, text, call, [])
    return None


def script(walk: Walk, call: ShellCall) -> str | None:
    """Run a script that is called by its path."""
    from dibs.surfaces.hooks.shell import interpreters

    text = call.text(call.spelled) or ""
    first = text.partition("\n")[0]
    words = [rules.name_of(word) for word in first[2:].split()] if first[:2] == "#!" else []
    name = next((word for word in words if word != "env" and word[:1] != "-"), "")
    if name in rules.SHELLS or (not name and call.spelled.endswith(".sh")):
        return apart(walk, text, call, [call.spelled, *call.args])
    if interpreters.name_of(name):
        call.name, call.args = name, [call.spelled, *call.args]
        return _interpret(walk, call, [])
    return None


def _git(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    """Run git, or what one of its aliases is short for."""
    from dibs.surfaces.hooks.shell.git_aliases import alias, hook_of

    text, arguments = alias(call)
    if text:
        return apart(walk, text, call, ["", *arguments])
    printed = rules.run(call)
    if hook := hook_of(call):
        script(walk, hook)
    return printed


def _recipes(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    """Run what a file of the project defines for a name: `make build`, `npm run x`."""
    from dibs.surfaces.hooks.shell import recipes

    printed = rules.run(call)
    for folder, text in recipes.texts_of(call):
        call.cwd = folder
        apart(walk, text, call, [])
    return printed


def builtin_of(name: str) -> Builtin | None:
    """Give what runs a command of that name, if the shell does it or it runs others."""
    return COMMANDS.get("python" if name.startswith(("python", "pypy")) else name)


def _jq(walk: Walk, call: ShellCall, words: list[Word]) -> str | None:
    from dibs.surfaces.hooks.shell import json_values

    rules.run(call)
    return json_values.printed(call)


_ENTRIES: dict[str, Builtin] = {
    "cd pushd popd": _move,
    "export declare local readonly typeset": _declare,
    "read mapfile readarray": _read,
    "unset getopts": _unset,
    "printf": _printf,
    "set": _set,
    "shift": _shift,
    " ".join(rules.SHELLS): _shell,
    "eval": _eval,
    "source .": _source,
    "trap": _trap,
    "git": _git,
    "jq": _jq,
    "xargs find fd fdfind parallel": _each,
    "deno node nodejs perl php python ruby ts-node tsx": _interpret,
    "bun": lambda walk, call, words: _interpret(walk, call, words) or _recipes(walk, call, words),
    "composer gmake go-task just make npm pnpm pre-commit task yarn": _recipes,
}
COMMANDS = {name: builtin for names, builtin in _ENTRIES.items() for name in names.split()}
