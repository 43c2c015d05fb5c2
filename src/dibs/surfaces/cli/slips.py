"""What to answer when somebody mistyped a command.

A command that ends or removes something is never offered: agents accept offers without reading
them, and must not lose anything by it.
"""

from __future__ import annotations

from dibs.errors import InvalidError, NotFoundError
from dibs.operation import NOUNS, Operation
from dibs.records import called
from dibs.surfaces.cli.main import BY_HAND, written_by_hand
from dibs.surroundings.commands import Command, closest, unknown
from dibs.surroundings.wording import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from dibs.dibs import Dibs
    from dibs.records import Task

CHECKED = 20
"""How many dependencies are looked up after tasks were added."""

# Words that people type for a command of another name. They are answered with that name and do
# nothing themselves: a script that uses a second name would keep it alive.
HINTS = {
    **dict.fromkeys(("ls", "list", "show", "who", "holders"), "status"),
    **dict.fromkeys(("lock", "acquire", "take", "reserve", "hold", "get-lock"), "claim PATH"),
    **dict.fromkeys(("unlock", "rm", "free", "drop"), "release PATH"),
    **dict.fromkeys(("give", "handover", "hand-over"), "transfer PATH --to AGENT"),
    **dict.fromkeys(("done", "complete", "finish", "close"), "work complete ID"),
    **dict.fromkeys(("next", "pop", "pull"), "work next"),
    **dict.fromkeys(("add", "new", "create", "todo"), "work add ID --title TEXT"),
    **dict.fromkeys(("tasks", "task", "queue", "todos", "issues"), "work list"),
    **dict.fromkeys(("msg", "message", "tell", "dm", "mail"), "send TEXT --to AGENT"),
    **dict.fromkeys(("broadcast", "say"), "announce TEXT"),
    **dict.fromkeys(("read", "messages-unread"), "inbox"),
    **dict.fromkeys(("history", "journal", "tail"), "log"),
    **dict.fromkeys(("dashboard", "web", "ui"), "open"),
    **dict.fromkeys(("daemon", "server", "start", "up"), "serve"),
    **dict.fromkeys(("setup", "install", "bootstrap"), "init"),
    **dict.fromkeys(("uninstall", "deinit"), "init --help"),
    **dict.fromkeys(("check", "health", "diagnose", "info"), "doctor"),
    **dict.fromkeys(("settings", "configure", "options"), "config list"),
    **dict.fromkeys(("id", "me", "identity"), "whoami"),
    **dict.fromkeys(("exec", "with"), "run --claim PATH -- COMMAND"),
    **dict.fromkeys(("get", "put", "set", "kv"), "state --help"),
    **dict.fromkeys(("watch", "monitor"), "top"),
    **dict.fromkeys(("import", "sync"), "work --help"),
    "metrics": "stats",
}


VERBS = {
    **dict.fromkeys(("work release", "work drop", "work unclaim"), "work abandon ID"),
    **dict.fromkeys(("work done", "work finish", "work close"), "work complete ID"),
    **dict.fromkeys(("work start", "work take", "work begin"), "work claim ID"),
    **dict.fromkeys(("messages list", "messages show", "messages log"), "messages"),
    "leases give": "transfer PATH --to AGENT",
    "messages read": "inbox",
    "events list": "log",
    "messages reply": "send TEXT --reply-to ID",
    "messages thread": "messages --thread ID",
    "state wait": "state watch NAMESPACE KEY",
}
"""The same for the second words of nouns."""
MEANT = dict.fromkeys(("task", "tasks", "todo", "todos", "issue", "issues"), "work")
"""Other words for a noun of dibs."""


EVERYWHERE = (
    "--as", "--store", "--space", "--json", "--format", "--quiet", "--color", "--help", "--version",
)  # fmt: skip
"""The options that can stand before a command."""

IN_THE_SHELL = {
    "list your leases": "dibs leases",
    "list the leases": "dibs leases",
    "list the tasks, or add it": "dibs work list, or add it: dibs work add ID --title TEXT",
    "list the agents, or release it": "dibs agents, or release it: dibs release PATH",
    "list the tokens": "dibs token list",
    "list the message history": "dibs messages",
    "list the namespace": "dibs state list NAMESPACE",
    "join first": "give --as NAME, or set DIBS_AGENT=NAME in the environment",
}
"""What the library advises without naming a call, as commands."""


def no_command(words: list[str], named: dict[str, Operation]) -> InvalidError:
    def is_safe(name: str) -> bool:
        if name in BY_HAND:
            return not written_by_hand(name).destructive
        return name not in named or not named[name].destructive

    if words[0].startswith("-"):
        return unknown("option", words[0], [*EVERYWHERE])
    spelled = [name.partition(" ") for name in {**named, **BY_HAND}]
    verbs = [second for first, _, second in spelled if first == words[0] and second.isalpha()]
    if verbs:
        return no_verb(words, verbs, is_safe)
    nouns = {first for first, _, second in spelled if second.isalpha()}
    noun = MEANT.get(words[0]) or other_number(words[0], nouns)
    if noun and len(words) > 1:
        return of_noun(noun, words[:2], named, is_safe)
    if words[0] in HINTS:
        return instead_of(words[0], HINTS[words[0]])
    firsts = {first for first, _, _ in spelled}
    known = sorted({*firsts, *NOUNS, "help"})
    return unknown("command", words[0], known, is_safe=is_safe, instead=noun)


def no_verb(words: list[str], verbs: list[str], is_safe: Callable[[str], bool]) -> InvalidError:
    noun = words[0]
    if len(words) == 1:
        return InvalidError(f"dibs {noun} needs another word", next=f"one of: {', '.join(verbs)}")
    typed = f"{noun} {words[1]}"
    if typed in VERBS:
        return InvalidError(
            f"there is no command {typed}", next=f"use dibs {VERBS[typed]} for that"
        )
    # Their common beginning would make any two of them look alike.
    close = [verb for verb in closest(words[1], verbs) if is_safe(f"{noun} {verb}")]
    instead = f"{noun} {close[0]}" if close else ""
    return unknown("command", typed, [], f"dibs {noun}", instead=instead)


def instead_of(typed: str, meant: str) -> InvalidError:
    return InvalidError(f"there is no command {typed}", next=f"use dibs {meant} for that")


def other_number(word: str, nouns: Iterable[str]) -> str:
    """The noun whose singular or plural this is; "" if there is none."""
    stem = word.removesuffix("s")
    return next((noun for noun in nouns if stem and noun.removesuffix("s") == stem), "")


def of_noun(
    noun: str, words: list[str], named: dict[str, Operation], is_safe: Callable[[str], bool]
) -> InvalidError:
    """The refusal of a command that begins with another form or name of a noun."""
    name = f"{noun} {words[1]}"
    if name not in named and name not in BY_HAND:
        return no_command([noun, words[1]], named)
    name = named[name].cli if name in named else name
    return unknown(
        "command", " ".join(words), [], f"dibs {noun}", instead=name if is_safe(name) else ""
    )


def suggest(error: NotFoundError, space: Dibs, operation: Operation, placed: list[Any]) -> None:
    """Name the task or the lease that the caller may have meant."""
    if operation.destructive:
        return  # what was meant is for the caller to find out
    if operation.noun == "work":
        known = [task.id for task in space.work.list(limit=1000)]
    elif operation.noun == "leases":
        session = space.scope.session
        known = [lease.resource for lease in space.leases.list(session=session)]
    else:
        return
    for word in placed:
        if word not in known and (close := closest(word, known)):
            error.next = f"did you mean {called(close[0])}?"
            return


def two_words(error: InvalidError, operation: Operation, words: list[str]) -> None:
    """Explain what is missing if the namespace and the key were typed as they are shown."""
    namespace, slash, key = words[0].partition("/") if words else ("", "", "")
    if slash and key and error.message.endswith(" is missing"):
        typed = " ".join(map(quote, (namespace, key, *words[1:])))
        error.next = f"write two words: dibs {operation.cli} {typed}"


def unknown_needs(space: Dibs, tasks: Sequence[Task]) -> str:
    """What to say of dependencies that nobody has added; "" if there is nothing."""
    added = {task.id for task in tasks}
    waiting = (task for task in tasks if task.state == "blocked")
    needs = dict.fromkeys(need for task in waiting for need in task.after if need not in added)
    missing = [need for need in list(needs)[:CHECKED] if not is_added(space, need)]
    if not missing:
        return ""
    known = [task.id for task in space.work.list(limit=1000)]
    close = closest(missing[0], [id for id in known if id not in added])
    hint = "; give --after once for each task" if "," in missing[0] else ""
    hint = f"; did you mean {called(close[0])}?" if close and not hint else hint
    names = ", ".join(map(called, missing))
    return f"nobody has added {names} yet; until then, what comes after it is blocked{hint}"


def is_added(space: Dibs, id: str) -> bool:
    try:
        space.work.show(id)
    except NotFoundError:
        return False
    return True


def name_as_typed(error: InvalidError, command: Command) -> None:
    """Call an argument what the caller typed, such as --ttl instead of ttl_s."""
    for option in command.options:
        name = option.argument.name
        if error.message.startswith((f"{name} is ", f"{name} must ")):
            error.message = option.typed + error.message.removeprefix(name)
            return
