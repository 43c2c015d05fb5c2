"""Completion in bash, zsh and fish: a small script for each shell, and one command that they ask.

`dibs candidates` knows the commands, their options and what these take: agents, tasks, resources,
paths, settings. What it prints was partly chosen by agents, so the scripts never evaluate it, and a
name with anything in it that cannot be seen is left out. Pressing Tab must neither make a store nor
take long: without a store there are no names, and after two seconds the command gives up.
"""

from __future__ import annotations

import os

from dibs.arguments import AgentName, Choice, ResourceName, TaskId
from dibs.errors import DibsError, InvalidError
from dibs.operation import EVERYBODY
from dibs.records import called, is_hidden
from dibs.surfaces.cli.main import BY_HAND, written_by_hand
from dibs.surroundings.commands import COLORS, FORMATS, Command, Globals, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.dibs import Dibs
    from dibs.operation import Operation

BY = {"completion": EVERYBODY, "candidates": EVERYBODY}
PATIENCE_S = 2
MOST = 1_000
SHELLS = Choice("bash", "zsh", "fish")
KINDS = {"shell": SHELLS}
EVERYWHERE = {
    "--as": "who you are",
    "--store": "which store",
    "--space": "which space in it",
    "--json": "answer in JSON",
    "--format": "answer in this format",
    "--quiet": "print data and errors only",
    "--color": "when to use colour",
    "--help": "what the command does",
}
VALUED = ("--as", "--store", "--space", "--format", "--color")
OWN = ("release", "renew", "transfer", "leases see")
"""Commands that take what the caller holds."""
STATES = {
    "work claim": ("available",),
    **dict.fromkeys(
        ("work complete", "work fail", "work abandon", "work renew", "work ask"), ("claimed",)
    ),
    "work reopen": ("cancelled", "completed", "dead", "failed"),
}
"""Commands that only tasks in some states can be given to."""
PATHS = (
    "dir",
    "file",
    "folder",
    "into",
    "path",
    "paths",
    "template",
    "tls_cert",
    "tls_key",
    "unix",
)

BASH = r"""# dibs: completion for bash
_dibs() {
    local line=${COMP_LINE:0:COMP_POINT} part=${COMP_WORDS[COMP_CWORD]} word found
    # bash also ends a word at a colon or an equals sign, and replaces only what comes after it.
    word=${line##*[[:space:]]}
    [[ $part == [:=] ]] && part=
    COMPREPLY=()
    while IFS= read -r found; do
        printf -v found %q "${found%%$'\t'*}"
        found=${found#"${word%"$part"}"}
        [[ $found == */ ]] || found+=" "
        COMPREPLY+=("$found")
    done < <(dibs candidates --line "$line" 2>/dev/null)
}
complete -o nospace -F _dibs dibs agent-dibs"""
ZSH = r"""#compdef dibs agent-dibs
_dibs() {
    local -a found folders others
    found=("${(@f)$(dibs candidates -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found%%$'\t'*}")
    folders=("${(@M)found:#*/}")
    others=("${(@)found:#(|*/)}")
    compadd -S '' -a folders
    compadd -a others
}
if [ "$funcstack[1]" = "_dibs" ]; then
    _dibs "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _dibs dibs agent-dibs
fi"""
FISH = r"""# dibs: completion for fish
function __dibs_candidates
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    dibs candidates -- $words "$current" 2>/dev/null
end
complete -c dibs -f -a '(__dibs_candidates)'
complete -c agent-dibs -f -a '(__dibs_candidates)'"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(call: Globals, shell: str) -> int:
    """Print the completion script for a shell.

    shell: bash, zsh or fish
    example: bash > ~/.local/share/bash-completion/completions/dibs
    """
    if shell not in SCRIPTS:
        raise InvalidError(f"there is no completion for {shell!r}", next="name bash, zsh or fish")
    return call.answer({"completion": f"{SCRIPTS[shell]}\n"}, SCRIPTS[shell])


def candidates(call: Globals, *command: str, line: str | None = None) -> int:
    """Print the completions of the last of some words, one on each line.

    The completion scripts call it. After a tab, a line may say what the candidate is.

    command: the words after `dibs` up to the cursor
    line: the whole command line up to the cursor, to be split as a shell would
    example: -- work cl
    """
    import signal

    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(PATIENCE_S)
    words = split(line)[1:] if line is not None else list(command)
    try:
        found = dict(Completing(words[:-1], words[-1] if words else "").candidates())
    except (DibsError, OSError):
        found = {}  # there is nobody to tell while somebody types
    safe = {name: says for name, says in found.items() if not any(map(is_hidden, name))}
    lines = [f"{name}\t{says}" if says else name for name, says in safe.items()]
    if call.json:
        return call.answer({"candidates": list(safe)}, "")
    if lines:
        print("\n".join(lines))  # a tab stands between a name and what it is
    return 0


def split(line: str) -> list[str]:
    """The words of a command line; the last one is empty if it has not begun."""
    import shlex

    for end in ("", "'", '"', "\\"):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return [*words, ""] if not end and line[-1:] in (" ", "\t", "") else words
    return []


class Completing:
    """A command line that is not finished.

    before: the words that are; current: the one that is not
    """

    def __init__(self, before: list[str], current: str) -> None:
        self.typed = Globals()
        self.last = before[-1] if before else ""
        self.current = current
        if self.last in VALUED:
            before = before[:-1]
        self.rest = self.typed.take_format(self.typed.take(before))

    def candidates(self) -> Iterator[tuple[str, str]]:
        """The possible completions, each with its description."""
        if "--" in self.rest:
            yield from self.fitting(self.paths())
        elif self.last in VALUED:
            yield from self.fitting(self.of_everywhere(self.last))
        else:
            name = self.name()
            if name:
                yield from self.of_command(name)
            if len(self.rest) < 2 and self.current[:1] != "-":
                yield from self.fitting(self.words())
            if self.current[:1] == "-":
                yield from self.fitting(EVERYWHERE.items())

    def fitting(self, found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        return ((name, says) for name, says in found if name.startswith(self.current))

    def of_everywhere(self, option: str) -> Iterator[tuple[str, str]]:
        if option == "--as":
            return self.agents()
        if option == "--store":
            return self.paths()
        choices = {"--format": FORMATS.choices, "--color": COLORS.choices}.get(option, ())
        return ((choice, "") for choice in choices)

    def words(self) -> Iterator[tuple[str, str]]:
        """The next word of a command."""
        start, found = f"{self.rest[0]} " if self.rest else "", dict[str, str]()
        for name, entry in sorted(commands().items(), key=lambda item: item[0]):
            word = name.removeprefix(start).partition(" ")[0]
            longer = entry is not None and entry.cli != name  # `leases claim` is `claim`
            if name.startswith(start) and not word.startswith("-") and not longer:
                summary = written_by_hand(name).summary if entry is None else entry.summary
                found.setdefault(word, summary if f"{start}{word}" == name else "")
        yield from found.items()

    def name(self) -> str:
        """The command that the words so far name, if they do."""
        known = commands()
        longer = " ".join(self.rest[:2])
        return longer if longer in known else next(iter(set(self.rest[:1]) & {*known}), "")

    def of_command(self, name: str) -> Iterator[tuple[str, str]]:
        command = command_of(name)
        words = self.rest[name.count(" ") + 1 :]
        named = {f"--{option.name}": option for option in command.options if not option.placed}
        start, equals, text = self.current.partition("=")
        if words and (option := named.get(words[-1])) and not option.switch:
            yield from self.fitting(self.values(command, option))
        elif equals and (option := named.get(start)):
            self.current = text
            for value, says in self.fitting(self.values(command, option)):
                yield f"{start}={value}", says
        elif self.current[:1] == "-":
            yield from self.fitting((name, option.help) for name, option in named.items())
            variants = (one for one in commands() if one.startswith(f"{name} --"))
            yield from self.fitting((one.removeprefix(f"{name} "), "") for one in variants)
        else:
            option = self.at(command, words, named)
            if option is not None:
                yield from self.fitting(self.values(command, option))

    def at(self, command: Command, words: list[str], named: dict[str, Option]) -> Option | None:
        """The argument that a word stands for by its place."""
        count, skip = 0, False
        for word in words:
            value, skip = skip, word in named and not named[word].switch
            count += not (value or word.startswith("--"))
        placed = [option for option in command.options if option.placed]
        if placed and placed[-1].argument.many:
            count = min(count, len(placed) - 1)
        return placed[count] if count < len(placed) else None

    def values(self, command: Command, option: Option) -> Iterator[tuple[str, str]]:
        """What an argument could be."""
        kind, name = option.argument.kind, option.argument.name
        if isinstance(kind, Choice):
            yield from ((choice, "") for choice in kind.choices)
        elif isinstance(kind, AgentName) or name == "agent":
            yield from self.agents()
        elif isinstance(kind, TaskId):
            yield from self.tasks(STATES.get(command.words, ()))
        elif isinstance(kind, ResourceName) or name == "resources":
            own = command.words in OWN
            yield from self.resources(own)
            if not own:
                yield from self.paths()
        elif name in PATHS or option.after_dashes:
            yield from self.paths()
        elif name == "namespace" and (space := self.space()):
            with space:
                yield from ((one, "") for one in space.state.namespaces())
        elif name == "setting":
            from dibs.surroundings.settings import SETTINGS

            yield from ((one, says) for one, (says, _) in SETTINGS.items())

    def space(self) -> Dibs | None:
        """The space to ask, if there is one: looking must not make it."""
        if self.typed.store is None:
            from dibs.dibs import DATABASE
            from dibs.names.paths import find_place
            from dibs.storage.user_dir import default_user_dir

            place = find_place(None, default_user_dir())
            if not os.path.exists(os.path.join(place.store_dir, DATABASE)):
                return None
        elif "://" not in self.typed.store and not os.path.exists(self.typed.store):
            return None
        self.typed.tidies = False
        return self.typed.open()

    def agents(self) -> Iterator[tuple[str, str]]:
        if space := self.space():
            with space:
                yield from ((one.agent, "") for one in space.agents.list())

    def tasks(self, states: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if space := self.space():
            with space:
                for task in space.work.list(text=self.current or None, limit=MOST):
                    if not states or task.state in states:
                        yield task.id, task.state

    def resources(self, own: bool) -> Iterator[tuple[str, str]]:
        """What is held, by anybody or by the caller."""
        if space := self.space():
            with space:
                handle = self.typed.look(space)
                session = handle.scope.session if own else None
                for lease in space.leases.list(session=session or None, limit=MOST):
                    yield lease.resource, f"held by {called(lease.agent)}"

    def paths(self) -> Iterator[tuple[str, str]]:
        """The files and folders here that begin like the word."""
        folder, name = os.path.split(self.current)
        before = self.current[: len(self.current) - len(name)]
        try:
            with os.scandir(os.path.expanduser(folder) or ".") as found:
                names = sorted((one.name, one.is_dir()) for one in found)
        except OSError:
            return
        for one, is_folder in names:
            if one.startswith(name) and (name.startswith(".") or not one.startswith(".")):
                yield f"{before}{one}{'/' if is_folder else ''}", ""


def commands() -> dict[str, Operation | None]:
    """Every command, and its operation if it has one."""
    from dibs.dibs import operations

    offered = [one for one in operations().values() if one.by]
    named: dict[str, Operation | None] = {f"{one.noun} {one.verb}": one for one in offered}
    return named | {one.cli: one for one in offered} | dict.fromkeys(BY_HAND)


def command_of(name: str) -> Command:
    from dibs.surfaces.cli.main import find

    return written_by_hand(name) if name in BY_HAND else Command.of(find(name.split())[0])
