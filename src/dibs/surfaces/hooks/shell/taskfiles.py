"""What a task does: `task fmt`, from Taskfile.yml.

The file is read line by line, as people write it: tasks are indented by two spaces, and a command
is on a line of its own or in a block. Variables stay as they are, conditions are assumed to be met.
"""

from __future__ import annotations

from collections.abc import Iterator

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import options, plain

MAX_LINES = 400
_ONLY_SHOWS = "-l --list -a --list-all -n --dry --status --summary --version -h --help -i --init"
_FILES = tuple(f"{name}.{end}" for name in ("Taskfile", "taskfile") for end in ("yml", "yaml"))
_BLOCKS = ("|", "|-", ">", ">-")

# What a task does: "cmd" and a command, or "task" and the names of other tasks.
Steps = list[tuple[str, str]]


def texts_of(call: ShellCall) -> Iterator[tuple[str, str]]:
    """Give what the tasks and those that they run do in a shell, each with its directory."""
    found, names = options(call.args, "dtoC --dir --taskfile --output --concurrency")
    folder = call.path(found.value("-d --dir") or ".")
    if found.has(_ONLY_SHOWS) or None in names or not folder:
        return
    files = [found.value("-t --taskfile") or "", *_FILES]
    file = next((one for one in files if one and call.kind_of(f"{folder}/{one}")), "")
    tasks = _steps((file and call.text(f"{folder}/{file}")) or "")
    waiting = [plain(one) for one in names if one and "=" not in one] or ["default"]
    done: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        for word, text in tasks.get(name, []) if name not in done else []:
            if word == "cmd":
                yield folder, text
            else:
                waiting += text.strip("[]").replace(",", " ").split()
        done.add(name)


def _steps(text: str) -> dict[str, Steps]:
    """Give the steps of every task."""
    tasks: dict[str, Steps] = {}
    steps: Steps = []
    inside, part, block = False, "", 0
    for line in text.splitlines()[:MAX_LINES]:
        said = line.strip()
        depth = len(line) - len(line.lstrip())
        if not said or said[0] == "#":
            continue
        item = said[:2] == "- "
        key, _, value = said.removeprefix("- ").partition(":")
        value = _unquoted(value.strip())
        block = block if depth > block else 0
        if block:
            steps[-1] = ("cmd", f"{steps[-1][1]}\n{said}")
        elif depth == 0:
            inside = line.startswith("tasks:")
        elif inside and depth == 2:
            steps = tasks[key] = [("cmd", value)] if value else []
        elif key in ("cmd", "cmds", "task", "deps") and value and value not in _BLOCKS:
            steps.append(("cmd" if key[:3] == "cmd" else "task", value))
        elif item and part in ("cmds", "deps") and value not in _BLOCKS and said[2:] not in _BLOCKS:
            steps.append(("cmd" if part == "cmds" else "task", _unquoted(said[2:].strip())))
        elif (part in ("cmds", "deps") or key == "cmd") and {value, said[2:]} & {*_BLOCKS}:
            steps.append(("cmd", ""))
            block = depth
        part = key if depth == 4 and not item else part
    return tasks


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] in ("'", '"') else text
