"""What a client tells its hook, in the words of dibs, and what the hook answers.

Each client (`dibs.clients`) reads its payload into an `Occasion` and writes an `Answer` in its own
format. Everything in between is independent of the client. The format of Claude Code, which other
clients use with other tools, is also here (`read_event`, `write_event`).
"""

from __future__ import annotations

from dibs.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.clients import Client

    Environment = Mapping[str, str]

EVENTS = "start prompt before asking refused after stop end subagent_end planned done other".split()
START, PROMPT, BEFORE, ASKING, REFUSED, AFTER, STOP, END, SUBAGENT_END, PLANNED, DONE, OTHER = (
    EVENTS
)

PROVE, SEEN = "DIBS_PROVE", "dibs has seen"
"""`dibs doctor --prove` sets this variable for a hook and looks for this text."""


class Edit:
    """One path that a tool is going to change, or has changed.

    kind: `write` for a file whose content changes or appears, `remove` for what disappears (a
        deleted file or directory, the source of a move), `tree` for a command that may rewrite
        any file of the checkout around `path` (`git stash`, `git checkout main`), `passing` for
        a file that such a command would change, as git has said
    texts: what the tool writes into the file, if known, to check that it is there afterwards
    asks: questions to git about which files at `path` change (`Asking` in
        `surroundings.changes`), each a word and its arguments; empty if git cannot be asked
    """

    __slots__ = ("asks", "kind", "path", "texts")

    def __init__(
        self,
        path: str,
        kind: str = "write",
        texts: tuple[str, ...] = (),
        asks: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.path = path
        self.kind = kind
        self.texts = texts
        self.asks = asks

    def __repr__(self) -> str:
        return f"Edit({self.path!r}, {self.kind!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.path, self.kind, self.asks


class Occasion:
    """One call of a hook.

    client: the client's short name, such as `claude`
    event: one of the words above; `asking` if the client asks its user whether a tool may run,
        `refused` if it will not run, or none of the turn will; `planned` and `done` if a task
        came to the client's own list, or is completed; `other` if there is nothing to do
    name: what the client calls the event, for clients whose answers repeat it
    session: the client's own name for its session, "" if it says none
    subagent: the client's own name for the subagent that acts, "" if it is the agent itself
    subagent_kind: what kind of subagent that is, such as `Explore`
    cwd: the directory the tool runs in
    tool: the tool's name in the client
    call: the client's name for this use of the tool, the same before and after it, or ""
    edits: what an edit tool changes; paths as the client gave them
    reads: files whose content the tool has shown to the model
    shown: what the model was shown of the one file it read, "" if the client does not say
    lines: how many lines that file had then, 0 if the client does not say
    command: the text of a shell command, "" for every other tool
    purpose: what the agent said that the command is for, "" if the client does not ask for that
    task, title: the task on the client's own list: its name there, and its text
    team: the owner of that list, "" if it is the session itself
    again: whether the hook has already kept the agent from stopping once
    afresh: whether this start follows another session of the same process (`/clear`)
    deaf: whether the client shows the model nothing of the answer
    """

    name = ""
    session = ""
    subagent = ""
    subagent_kind = ""
    cwd = ""
    tool = ""
    call = ""
    edits: tuple[Edit, ...] = ()
    reads: tuple[str, ...] = ()
    shown = ""
    lines = 0
    command = ""
    purpose = ""
    task = ""
    title = ""
    team = ""
    again = False
    afresh = False
    deaf = False

    def __init__(self, client: str, event: str) -> None:
        self.client = client
        self.event = event


class Answer:
    """The answer of the hook: nothing, a refusal of the tool, or a text for the model.

    deny: why the tool must not run; the model reads it
    context: what the model is told; on `stop` it makes the model go on
    """

    def __init__(self, deny: str = "", context: str = "") -> None:
        self.deny = deny
        self.context = context


PATHS = ("file_path", "filePath", "notebook_path", "path", "target_file")
"""The names of the field with the file that a tool works on."""
NEW = ("content", "new_string", "newString", "file_text", "new_str")
"""The names of the field with the text that a tool writes into a file."""
SEVERAL = ("files", "edits", "replacements")
"""The names of the field with a list of files, or of changes to a file each."""


class Payload(dict[str, object]):
    """The payload of a client; fields that are missing or of another type count as absent."""

    def text(self, *names: str) -> str:
        """The first of these fields that is a non-empty text."""
        found = (self.get(name) for name in names)
        return next((one for one in found if one and isinstance(one, str)), "")

    def event(self, *names: str) -> str:
        """The first of these fields; a payload without any of them is refused."""
        if name := self.text(*names):
            return name
        raise ValueError("the payload names no event")

    def record(self, name: str) -> Payload:
        found = self.get(name)
        return Payload(found if isinstance(found, dict) else {})

    def several(self, name: str) -> list[object]:
        """The items of a list, those that are objects as payloads."""
        found = self.get(name)
        items = found if isinstance(found, list) else []
        return [Payload(one) if isinstance(one, dict) else one for one in items]

    def files(self) -> tuple[str, ...]:
        """The files that the input of a tool names, each once."""
        found = [self.text(*PATHS)]
        for entry in (entry for name in SEVERAL for entry in self.several(name)):
            if isinstance(entry, str):
                found.append(entry)
            elif isinstance(entry, Payload):
                found.append(entry.text(*PATHS))
        return tuple(dict.fromkeys(filter(None, found)))


def edited(tool: str, tool_input: Payload, kind: str = "write") -> tuple[Edit, ...]:
    """What an edit tool changes."""
    found = tool_input.files()
    if not found:
        # Going on would leave the file unprotected without a warning.
        raise ValueError(f"the input of {tool} names no file")
    if len(found) > 1:
        return tuple(Edit(path, kind) for path in found)
    said = [tool_input, *tool_input.several("edits")]
    texts = (one.text(*NEW) for one in said if isinstance(one, Payload))
    return (Edit(found[0], kind, tuple(filter(None, texts))),)


def name_of_call(tool: str, tool_input: Payload) -> str:
    """A name for this use of a tool, for clients without one: the same before and after."""
    import json  # late: the shell reader imports this module, and does not need it

    said = json.dumps(tool_input, sort_keys=True)
    return f"{tool}:{sha256(said.encode()).digest()[:8].hex()}"


# The format of hooks that Claude Code introduced.

MEANINGS = {
    "SessionStart": START,
    "SubagentStart": START,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": BEFORE,
    "PermissionRequest": ASKING,
    "PermissionDenied": REFUSED,
    "Interrupt": REFUSED,
    "StopFailure": REFUSED,
    "PostToolUse": AFTER,
    "PostToolUseFailure": AFTER,
    "Stop": STOP,
    "SubagentStop": SUBAGENT_END,
    "TaskCreated": PLANNED,
    "TaskCompleted": DONE,
    "SessionEnd": END,
}


def read_event(client: Client, payload: Payload) -> Occasion:
    """What a payload says."""
    name = payload.event("hook_event_name", "hookEventName")
    occasion = Occasion(client.name, (client.meanings or MEANINGS).get(name, OTHER))
    occasion.name = name
    occasion.session = payload.text("session_id", "sessionId")
    occasion.subagent = payload.text("agent_id")
    occasion.subagent_kind = payload.text("agent_type")
    occasion.cwd = payload.text("cwd")
    occasion.tool = payload.text("tool_name")
    occasion.call = payload.text("tool_use_id")
    occasion.again = payload.get("stop_hook_active") is True
    occasion.afresh = name == "SessionStart" and payload.get("source") == "clear"
    if occasion.event in (PLANNED, DONE):
        occasion.task, occasion.title = payload.text("task_id"), payload.text("task_subject")
        occasion.team = payload.text("team_name")
    if occasion.event in (BEFORE, ASKING, AFTER):
        read_tool(client, occasion, payload.record("tool_input"))
        if name.endswith("Failure"):
            occasion.reads = ()
        if occasion.reads:
            file = payload.record("tool_response").record("file")
            occasion.shown = file.text("content")
            lines = file.get("totalLines")
            occasion.lines = lines if isinstance(lines, int) else 0
    return occasion


def read_tool(client: Client, occasion: Occasion, tool_input: Payload) -> None:
    """What the tool does to files, as far as its input shows."""
    tool = occasion.tool
    if tool in client.edit_tools:
        occasion.edits = edited(tool, tool_input)
    elif tool in client.remove_tools:
        occasion.edits = edited(tool, tool_input, "remove")
    elif tool in client.patch_tools:
        from dibs.surroundings.patch import names

        patch = tool_input.text(client.patch_tools[tool])
        occasion.edits = tuple(names(patch, occasion.cwd or "."))
        if not occasion.edits:
            raise ValueError(f"the input of {tool} is not a patch that names a file")
    elif tool in client.shell_tools:
        occasion.command = tool_input.text("command", "command_line")
        occasion.purpose = tool_input.text("description")
    elif tool in client.read_tools and occasion.event == AFTER:
        occasion.reads = tool_input.files()


def write_event(occasion: Occasion, answer: Answer) -> str:
    if not answer.deny and (not answer.context or occasion.deaf or occasion.event == END):
        return ""
    import json  # late: most answers are empty

    if answer.deny:
        decision = {"permissionDecision": "deny", "permissionDecisionReason": answer.deny}
        return json.dumps({"hookSpecificOutput": {"hookEventName": occasion.name, **decision}})
    if occasion.event in (STOP, SUBAGENT_END):
        return json.dumps({"decision": "block", "reason": answer.context})
    said = {"hookEventName": occasion.name, "additionalContext": answer.context}
    return json.dumps({"hookSpecificOutput": said})
