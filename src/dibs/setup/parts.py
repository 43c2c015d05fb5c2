"""What dibs puts into a JSON file: members of objects, hooks in lists, a name among others.

Each part knows whether it is there, how to add itself, and how to recognise itself when it is
taken out. A member that somebody wrote otherwise is theirs and stays. A hook is known by its
event, its matcher and its command; the rest of it, such as the timeout, is the user's to tune.

Every client starts `dibs mcp` for its tools. Those that have hooks run `dibs hook CLIENT` at the
events that they name. The command is always just `dibs`, found on the PATH: these files are
shared by git, and a path of one machine would be wrong on every other.
"""

from __future__ import annotations

from dibs.setup import jsonc
from dibs.setup.files import Draft, Refusal, line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.clients import Client
    from dibs.setup.jsonc import Element, Node

SERVER = {"command": "dibs", "args": ["mcp"]}
STDIO = {"type": "stdio", **SERVER}
TIMEOUT_S = 10


class Part:
    """Something at the end of a path of keys, and the containers on the way to it."""

    path: tuple[str, ...]

    @property
    def id(self) -> str:
        return ".".join(self.path)

    def present(self, value: Any) -> bool:
        raise NotImplementedError

    def add(self, draft: Draft) -> list[str]:
        """Add what is missing; the names of what was added, containers first."""
        raise NotImplementedError

    def strip(self, text: str, only: set[str] | None) -> str:
        """Take it out, and with it the containers that are empty then."""
        raise NotImplementedError


class JsonMember(Part):
    """A member of an object, such as our server among the servers."""

    def __init__(self, path: tuple[str, ...], value: Any, *, serves: str = "") -> None:
        self.path = path
        self.value = value
        # A member beside it that needs it: as long as that is there, ours stays.
        self.serves = serves

    def present(self, value: Any) -> bool:
        holder = look(value, self.path[:-1])
        return isinstance(holder, dict) and self.path[-1] in holder

    def add(self, draft: Draft) -> list[str]:
        if self.present(jsonc.parse(draft.text).value):
            return []
        made, node = descend(draft, self.path[:-1], dict)
        jsonc.add(draft, node, self.value, self.path[-1])
        return [*made, self.id]

    def strip(self, text: str, only: set[str] | None) -> str:
        if only is not None and self.id not in only:
            return text
        root = jsonc.parse(text)
        element = find(root, self.path)
        if element is None or element.node.value != self.value:
            return text
        if self.serves in root.value:
            return text
        return empty_out(jsonc.take(text, element), self.path[:-1], only)


class Hook(Part):
    """An item in the list of an event, with a command of ours."""

    def __init__(self, path: tuple[str, ...], item: dict[str, Any]) -> None:
        self.path = path
        self.item = item

    def present(self, value: Any) -> bool:
        items = look(value, self.path)
        return isinstance(items, list) and any(self.does_the_same(item) for item in items)

    def does_the_same(self, item: object) -> bool:
        if not isinstance(item, dict) or item.get("matcher", "") != self.item.get("matcher", ""):
            return False
        return any(words(one) == words(handlers(self.item)[0]) for one in handlers(item))

    def add(self, draft: Draft) -> list[str]:
        if self.present(jsonc.parse(draft.text).value):
            return []
        made, node = descend(draft, self.path, list)
        jsonc.add(draft, node, self.item)
        return [*made, f"{self.id}[]"]

    def strip(self, text: str, only: set[str] | None) -> str:
        if only is not None and f"{self.id}[]" not in only:
            return text
        before = text
        while True:
            element = find(jsonc.parse(text), self.path)
            place = None if element is None else self.ours(element.node)
            if place is None:
                return text if text == before else empty_out(text, self.path, only)
            text = jsonc.take(text, place)

    def ours(self, node: Node) -> Element | None:
        """Our item, or our command in an item with others."""
        for element in node.elements:
            inner = element.node.member("hooks") if element.node.is_object else None
            if inner is None:
                if is_ours(element.node.value):
                    return element
                continue
            mine = [one for one in inner.node.elements if is_ours(one.node.value)]
            if mine:
                return element if len(mine) == len(inner.node.elements) else mine[0]
        return None


class NoOthers(Part):
    """Nothing of ours at events that we do not ask for any more."""

    def __init__(self, path: tuple[str, ...], events: set[str]) -> None:
        self.path = path
        self.events = events

    def present(self, value: Any) -> bool:
        return not self.left_over(value)

    def left_over(self, value: Any) -> list[Hook]:
        holder = look(value, self.path)
        if not isinstance(holder, dict):
            return []
        return [
            Hook((*self.path, event), {})
            for event, items in holder.items()
            if event not in self.events and isinstance(items, list)
            if any(
                is_ours(one) for item in items if isinstance(item, dict) for one in handlers(item)
            )
        ]

    def add(self, draft: Draft) -> list[str]:
        return []

    def strip(self, text: str, only: set[str] | None) -> str:
        for hook in self.left_over(jsonc.parse(text).value):
            text = hook.strip(text, None)
        return text


class Name(Part):
    """A name among others: as a list, or, where there is only one, as a plain text."""

    def __init__(self, path: tuple[str, ...], name: str, default: list[str]) -> None:
        self.path = path
        self.name = name
        self.default = default

    def present(self, value: Any) -> bool:
        found = look(value, self.path)
        return found == self.name or (isinstance(found, list) and self.name in found)

    def add(self, draft: Draft) -> list[str]:
        if self.present(jsonc.parse(draft.text).value):
            return []
        made, node = descend(draft, self.path[:-1], dict)
        there = node.member(self.path[-1])
        if there is None:
            jsonc.add(draft, node, self.default, self.path[-1])
        elif isinstance(there.node.value, list):
            jsonc.add(draft, there.node, self.name)
        elif isinstance(there.node.value, str):
            draft.insert(there.node.end, f', "{self.name}"]')
            draft.insert(there.node.start, "[")
        else:
            raise wrong(draft.text, there.node, self.path, "a list of names")
        return [*made, self.id]

    def strip(self, text: str, only: set[str] | None) -> str:
        element = find(jsonc.parse(text), self.path)
        if element is None or (only is not None and self.id not in only):
            return text
        if element.node.value == self.default:
            return empty_out(jsonc.take(text, element), self.path[:-1], only)
        if only is None or not isinstance(element.node.value, list):
            return text  # nobody knows any more whose it is
        mine = next((one for one in element.node.elements if one.node.value == self.name), None)
        return text if mine is None else jsonc.take(text, mine)


def groups(
    client: Client, handler: dict[str, Any], *above: str, **special: dict[str, Any]
) -> list[Part]:
    """Hooks in the shape of Claude Code: for each event a list of matchers with commands.

    special: what is different in the handler of an event
    """
    return hooks(client, above, lambda event: {"hooks": [handler | special.get(event, {})]})


def flat(client: Client, handler: dict[str, Any], *above: str) -> list[Part]:
    """Hooks where an event has a list of commands, each with its own matcher."""
    return hooks(client, above, lambda event: handler)


def hooks(
    client: Client, above: tuple[str, ...], item: Callable[[str], dict[str, Any]]
) -> list[Part]:
    events = client.events or {}
    found = [
        Hook((*above, event), ({"matcher": matcher} if matcher else {}) | item(event))
        for event, matcher in events.items()
    ]
    return [*found, NoOthers(above, set(events))]


def shell(client: Client, timeout: int = TIMEOUT_S) -> dict[str, Any]:
    """A hook that is a line for a shell."""
    return {"type": "command", "command": f"dibs hook {client.name}", "timeout": timeout}


def handlers(item: dict[str, Any]) -> list[Any]:
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
    said = words(handler)
    return said[:2] == ["dibs", "hook"] or said[-4:-1] == ["exec", "dibs", "hook"]


def look(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def find(node: Node, path: tuple[str, ...]) -> Element | None:
    element = None
    for key in path:
        element = node.member(key) if node.is_object else None
        if element is None:
            return None
        node = element.node
    return element


def descend(draft: Draft, path: tuple[str, ...], holder: type) -> tuple[list[str], Node]:
    """Go along a path, making what is missing; what was made, and the node at its end."""
    made: list[str] = []
    for depth in range(len(path) + 1):
        node = jsonc.parse(draft.text)
        above = find(node, path[:depth])
        node = above.node if above else node
        kind = holder if depth == len(path) else dict
        if not isinstance(node.value, kind):
            raise wrong(draft.text, node, path[:depth], "a list" if kind is list else "an object")
        if depth < len(path) and node.member(path[depth]) is None:
            jsonc.add(draft, node, holder() if depth == len(path) - 1 else {}, path[depth])
            made.append(".".join(path[: depth + 1]))
    return made, node


def empty_out(text: str, path: tuple[str, ...], only: set[str] | None) -> str:
    """Take out the containers along a path that hold nothing any more, innermost first."""
    for depth in range(len(path), 0, -1):
        element = find(jsonc.parse(text), path[:depth])
        if element is None or element.node.value:
            return text
        if only is None or ".".join(path[:depth]) in only:
            inside = text[element.node.start + 1 : element.node.end - 1]
            if not inside.strip():  # else there is a comment of somebody's
                text = jsonc.take(text, element)
                continue
        return jsonc.collapse(text, element.node)
    return text


def wrong(text: str, node: Node, path: tuple[str, ...], kind: str) -> Refusal:
    what = f'"{".".join(path)}"' if path else "the whole"
    return Refusal(f"{what} is not {kind}", line_of(text, node.start), f"make it {kind}")
