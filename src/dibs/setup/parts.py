"""What dibs adds to JSON and TOML: members, hooks in lists, a name among others, a table.

Each part knows whether it is present, how to add itself, and how to recognise itself when it is
removed. A member that somebody has written differently is theirs and stays. A hook is recognised by
its event, its matcher and its command; the user may change the rest, such as the timeout.

Every client starts `dibs mcp` for its tools. Clients with hooks run `dibs hook CLIENT` at certain
events. The command is always just `dibs`, found on the PATH: git shares these files, and a path of
one machine would be wrong on every other. For the same reason, if dibs is not installed, a hook
does nothing (`line`), and the server has no tools (`tools_line`): a teammate without dibs must not
notice.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dibs.clients import Client
from dibs.setup import jsonc
from dibs.setup.files import BOM, Draft, Refusal, cut, cut_apart, gap_after, line_of
from dibs.setup.jsonc import Node
from dibs.setup.targets import Target
from dibs.surroundings import settings

Item = dict[str, Any]

PLAIN = {"command": "dibs", "args": ["mcp"]}
"""The server as earlier releases wrote it."""
TIMEOUT_S = 10
MOST_TRIES = 20


class JsonFile(Target):
    def __init__(self, path: str, parts: Sequence[Part]) -> None:
        super().__init__(path)
        self.parts = parts

    def present(self, text: str) -> bool:
        root = jsonc.parse(text)
        return all(part.present(root) for part in self.parts)

    def add(self, draft: Draft) -> list[str]:
        return [name for part in self.parts for name in part.add(draft)]

    def strip(self, text: str, only: set[str] | None) -> str:
        for part in reversed(self.parts):
            text = part.strip(text, only)
        return text

    def void(self, text: str) -> bool:
        return not "".join(text.removeprefix(BOM).split()).strip("{}")


class Part:
    """A value at the end of a path of keys, and the containers on the way to it."""

    path: tuple[str, ...]

    @property
    def id(self) -> str:
        return ".".join(self.path)

    def present(self, root: Node) -> bool:
        raise NotImplementedError

    def add(self, draft: Draft) -> list[str]:
        """Add what is missing; return the names of what was added, containers first."""
        if self.present(jsonc.parse(draft.text)):
            return []
        return [*self.insert(draft), self.id]

    def insert(self, draft: Draft) -> list[str]:
        """Add it; return the names of the containers that had to be created."""
        raise NotImplementedError

    def strip(self, text: str, only: set[str] | None) -> str:
        """Remove it, and the containers that are then empty."""
        return text if only is not None and self.id not in only else self.take(text, only)

    def take(self, text: str, only: set[str] | None) -> str:
        raise NotImplementedError


class JsonMember(Part):
    """A member of an object, such as our server among the servers."""

    def __init__(
        self, path: tuple[str, ...], value: Any, *, serves: str = "", former: Any = None
    ) -> None:
        self.path = path
        self.value = value
        self.former = former  # what earlier releases wrote
        # A member beside it that needs it: while that exists, ours stays.
        self.serves = serves

    def present(self, root: Node) -> bool:
        return root.find(self.path) is not None

    def insert(self, draft: Draft) -> list[str]:
        made, node = descend(draft, self.path[:-1], dict)
        jsonc.add(draft, node, self.value, self.path[-1])
        return made

    def take(self, text: str, only: set[str] | None) -> str:
        root = jsonc.parse(text)
        found = root.find(self.path)
        if found is None or self.serves in root.value:
            return text
        if found.value not in (self.value, self.former):
            return text
        return empty_out(jsonc.take(text, found), self.path[:-1], only)


class Hook(Part):
    """An item in the list of an event, with a command of ours."""

    def __init__(self, path: tuple[str, ...], item: Item) -> None:
        self.path = path
        self.item = item

    @property
    def id(self) -> str:
        return f"{super().id}[]"

    def present(self, root: Node) -> bool:
        items = root.value_at(self.path)
        return isinstance(items, list) and any(self.does_the_same(item) for item in items)

    def does_the_same(self, item: object) -> bool:
        if not isinstance(item, dict) or item.get("matcher", "") != self.item.get("matcher", ""):
            return False
        return any(words(one) == words(handlers(self.item)[0]) for one in handlers(item))

    def insert(self, draft: Draft) -> list[str]:
        made, node = descend(draft, self.path, list)
        jsonc.add(draft, node, self.item)
        return made

    def take(self, text: str, only: set[str] | None) -> str:
        ours = self.ours(jsonc.parse(text))
        for element in reversed(ours):  # so that earlier places stay valid
            text = jsonc.take(text, element)
        return empty_out(text, self.path, only) if ours else text

    def ours(self, root: Node) -> list[Node]:
        """Our items, or our commands in items with others."""
        items, found = root.find(self.path), []
        for element in items.elements if items else ():
            inner = element.member("hooks")
            inside = inner.elements if inner else [element]
            mine = [one for one in inside if is_ours(one.value)]
            found += [element] if mine and len(mine) == len(inside) else mine
        return found


class NoOthers(Part):
    """No hook of ours at events that dibs no longer uses."""

    def __init__(self, path: tuple[str, ...], events: set[str]) -> None:
        self.path = path
        self.events = events

    def present(self, root: Node) -> bool:
        return not any(hook.ours(root) for hook in self.others(root))

    def others(self, root: Node) -> list[Hook]:
        holder = root.value_at(self.path)
        return [
            Hook((*self.path, event), {})
            for event, items in (holder.items() if isinstance(holder, dict) else ())
            if event not in self.events and isinstance(items, list)
        ]

    def add(self, draft: Draft) -> list[str]:
        return []

    def strip(self, text: str, only: set[str] | None) -> str:
        for hook in self.others(jsonc.parse(text)):
            text = hook.strip(text, None)
        return text


def server(*path: str, lists: bool = False, **more: Any) -> JsonMember:
    """The server in a file of a client.

    lists: as for `tools_line`
    more: what else the client needs to know about the server
    """
    line = {"command": "sh", "args": ["-c", tools_line(lists=lists)]}
    return JsonMember((*path, "dibs"), more | line, former=more | PLAIN)


def tools_line(*, lists: bool = False) -> str:
    """What a shell runs for a server.

    lists: whether the client treats a server with nothing to list as broken

    A server that cannot be started is an error at every start of a client. So if dibs is missing,
    every request gets the answer to the first request of a session: no capabilities, or one
    resource that nobody can read.
    """
    resources = '"resources":{}' if lists else ""
    listed = ',"resources":[{"uri":"dibs://missing","name":"missing"}]' if lists else ""
    answer = (
        f'{{"protocolVersion":"2025-06-18","capabilities":{{{resources}}},'
        f'"serverInfo":{{"name":"dibs","version":"0"}}{listed}}}'
    )
    return (
        "command -v dibs >/dev/null && exec dibs mcp; while read -r l; do case $l in *'\"id\":'*) "
        f'i=${{l#*\'"id":\'}}; printf \'{{"jsonrpc":"2.0","id":%s,"result":{answer}}}\\n\' '
        '"${i%%[,\\}]*}";; esac; done'
    )


class ListedName(Part):
    """A name among others: a list, or plain text if there is only one."""

    def __init__(self, path: tuple[str, ...], name: str, default: list[str]) -> None:
        self.path = path
        self.name = name
        self.default = default

    def present(self, root: Node) -> bool:
        found = root.value_at(self.path)
        return found == self.name or (isinstance(found, list) and self.name in found)

    def insert(self, draft: Draft) -> list[str]:
        made, node = descend(draft, self.path[:-1], dict)
        there = node.member(self.path[-1])
        if there is None:
            jsonc.add(draft, node, self.default, self.path[-1])
        elif isinstance(there.value, list):
            jsonc.add(draft, there, self.name)
        elif isinstance(there.value, str):
            draft.insert(there.end, f', "{self.name}"]')
            draft.insert(there.opens, "[")
        else:
            raise wrong(draft.text, there, self.path, "a list of names")
        return made

    def take(self, text: str, only: set[str] | None) -> str:
        found = jsonc.parse(text).find(self.path)
        if found is None:
            return text
        if found.value == self.default:
            return empty_out(jsonc.take(text, found), self.path[:-1], only)
        if only is None or not isinstance(found.value, list):
            return text  # it is no longer known whose it is
        mine = next((one for one in found.elements if one.value == self.name), None)
        return text if mine is None else jsonc.take(text, mine)


def groups(client: Client, handler: Item, *above: str, **special: Item) -> list[Part]:
    """Hooks in the shape of Claude Code: for each event a list of matchers with commands.

    special: what is different in the handler of an event
    """
    return hooks(client, above, lambda event: {"hooks": [handler | special.get(event, {})]})


def flat(client: Client, handler: Item, *above: str) -> list[Part]:
    """Hooks in which an event has a list of commands, each with its own matcher."""
    return hooks(client, above, lambda event: handler)


def hooks(client: Client, above: tuple[str, ...], item: Callable[[str], Item]) -> list[Part]:
    events = client.events or ()
    found = [Hook((*above, event), client.matcher(event) | item(event)) for event in events]
    return [*found, NoOthers(above, set(events))]


def shell(client: Client, per_second: int = 1) -> Item:
    """A hook that is a shell command line; per_second: the client's units of time per second."""
    return {"type": "command", "command": line(client), "timeout": TIMEOUT_S * per_second}


def line(client: Client, *more: str) -> str:
    """What a shell runs for a hook: nothing if dibs is missing, otherwise dibs without a shell.

    more: further arguments of the hook

    A dibs that is installed but cannot start, for example because its Python was removed, must not
    stop anybody, and some clients treat every failure as a refusal. A shell ends when `exec` fails:
    dash then runs the trap, but bash does not, unless it is told to go on.
    """
    spared = "trap 'exit 0' EXIT; shopt -s execfail 2>/dev/null"
    said = " ".join((client.name, *more))
    return f"command -v dibs >/dev/null || exit 0; {spared}; exec dibs hook {said}"


def handlers(item: Item) -> list[Any]:
    """The commands of an item: some clients put them into a list inside."""
    inner = item.get("hooks", [item])
    return inner if isinstance(inner, list) else []


def words(handler: object) -> list[str]:
    """A command as words, whether it is one text or a program with arguments."""
    if not isinstance(handler, dict):
        return []
    args = handler.get("args", [])
    parts = [handler.get("command"), *(args if isinstance(args, list) else [])]
    return " ".join(part for part in parts if isinstance(part, str)).split()


def is_ours(handler: object) -> bool:
    said = " ".join(words(handler))
    return said.startswith("dibs hook ") or "; exec dibs hook " in said


def descend(draft: Draft, path: tuple[str, ...], holder: type) -> tuple[list[str], Node]:
    """Follow a path and create what is missing; return what was created, and the last node."""
    made: list[str] = []
    for depth in range(len(path) + 1):
        root = jsonc.parse(draft.text)
        node = root.find(path[:depth]) or root
        kind = holder if depth == len(path) else dict
        if not isinstance(node.value, kind):
            raise wrong(draft.text, node, path[:depth], "a list" if kind is list else "an object")
        if depth < len(path) and node.member(path[depth]) is None:
            jsonc.add(draft, node, holder() if depth == len(path) - 1 else {}, path[depth])
            made.append(".".join(path[: depth + 1]))
    return made, node


def empty_out(text: str, path: tuple[str, ...], only: set[str] | None) -> str:
    """Remove the containers along a path that are empty now, innermost first."""
    for depth in range(len(path), 0, -1):
        found = jsonc.parse(text).find(path[:depth])
        if found is None or found.value:
            return text
        inside = (found.opens + 1, found.end - 1)
        if text[slice(*inside)].strip():  # somebody's comment
            return text
        if only is not None and ".".join(path[:depth]) not in only:
            return cut(text, [inside])
        text = jsonc.take(text, found)
    return text


def wrong(text: str, node: Node, path: tuple[str, ...], kind: str) -> Refusal:
    what = f'"{".".join(path)}"' if path else "the whole"
    return Refusal(f"{what} is not {kind}", line_of(text, node.opens), f"make it {kind}")


class TomlFile(Target):
    """A table in a TOML file: candidates are tried until one parses to the right thing.

    The standard library reads TOML but does not write it. So we try the few places where our table
    can be, and keep the first one with which the file means what it meant before, plus our table.

    values: already written as TOML
    former: what earlier releases wrote instead
    """

    def __init__(
        self,
        path: str,
        table: tuple[str, str],
        values: dict[str, str],
        former: dict[str, str] | None = None,
    ) -> None:
        super().__init__(path)
        self.table = table
        self.former = TomlFile(path, table, former) if former else None
        self.head = f"[{'.'.join(table)}]"
        lines = [f"{key} = {value}" for key, value in values.items()]
        self.block = "\n".join([self.head, *lines, ""])
        self.values = tomllib.loads("\n".join(lines))
        # If the outer table is written on one line, ours goes inside its braces.
        one = f"{table[1]} = {{ {', '.join(lines)} }}"
        self.inlined = (f", {one}", f" {one} ")

    def present(self, text: str) -> bool:
        holder = toml(text).get(self.table[0])
        return isinstance(holder, dict) and self.table[1] in holder

    def add(self, draft: Draft) -> list[str]:
        outer, inner = self.table
        before = toml(draft.text)
        holder = before.get(outer, {})
        if not isinstance(holder, dict):
            raise Refusal(f"{outer} is not a table", next=f"make {outer} a table")
        after = before | {outer: holder | {inner: self.values}}
        for place, text in self.candidates(draft.text):
            trial = Draft(draft.text)
            trial.insert(place, text)
            if means(trial.text, after):
                draft.insert(place, text)
                return [".".join(self.table)]
        raise Refusal(f"there is no place for {self.head} in it", next=f"write {self.head} by hand")

    def candidates(self, text: str) -> Iterator[tuple[int, str]]:
        yield len(text), gap_after(text) + self.block
        braces = [place for place, char in enumerate(text) if char == "}"]
        for place in reversed(braces[-MOST_TRIES:]):
            end = len(text[:place].rstrip())
            for piece in self.inlined:
                yield end, piece

    def strip(self, text: str, only: set[str] | None) -> str:
        """Remove the table if it is as we wrote it; otherwise leave it."""
        if only == set():
            return text
        if self.former:
            text = self.former.strip(text, only)
        outer, inner = self.table
        before = toml(text)
        holder = before.get(outer)
        if not isinstance(holder, dict) or holder.get(inner) != self.values:
            return text
        rest = {key: value for key, value in holder.items() if key != inner}
        wanted = [before | {outer: rest}]
        if not rest:
            wanted.append({key: value for key, value in before.items() if key != outer})
        for piece in (self.block, *self.inlined):
            piece = piece.replace("\n", Draft(text).newline)
            at = text.find(piece)
            if at < 0:
                continue
            without = cut_apart(text, at, at + len(piece))
            if any(means(without, meaning) for meaning in wanted):
                return without
        raise Refusal(f"{self.head} is not written as dibs writes it", next="remove it by hand")


def toml(text: str) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return settings.toml(text.removeprefix(BOM))
    except ValueError as error:
        # The parser says `… (at line 3, column 5)`.
        why, _, place = str(error).partition(" (at line ")
        digits = place.partition(",")[0]
        line = int(digits) if digits.isdigit() else None
        why = why[:1].lower() + why[1:]
        raise Refusal(why, line, "fix the file, then run dibs init again") from None


def means(text: str, meaning: dict[str, Any]) -> bool:
    def said(value: dict[str, Any]) -> str:
        # NaN equals nothing, not even itself.
        return json.dumps(value, sort_keys=True, default=repr)

    try:
        return said(toml(text)) == said(meaning)
    except Refusal:
        return False
