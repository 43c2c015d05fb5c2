"""What a client tells its hook, in the words of dibs, and what the hook answers.

Each client has a dialect (`dialects/`) that reads its payload into an `Occasion` and writes an
`Answer` in its own form. Everything between the two knows no client.
"""

from __future__ import annotations

START, PROMPT, BEFORE, AFTER, STOP, END, SUBAGENT_END, OTHER = (
    "start prompt before after stop end subagent_end other".split()
)


class Edit:
    """One path that a tool is going to change, or has changed.

    kind: `write` for a file whose content changes or appears, `remove` for what disappears (a
        deleted file or directory, the source of a move), `tree` for a command that may rewrite
        any file of the checkout around `path` (`git stash`, `git checkout main`)
    texts: what the tool puts into the file, as far as it says, to see that it is there afterwards
    """

    __slots__ = ("kind", "path", "texts")

    def __init__(self, path: str, kind: str = "write", texts: tuple[str, ...] = ()) -> None:
        self.path = path
        self.kind = kind
        self.texts = texts

    def __repr__(self) -> str:
        return f"Edit({self.path!r}, {self.kind!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and (self.path, self.kind) == (other.path, other.kind)

    def __hash__(self) -> int:
        return hash((self.path, self.kind))


class Occasion:
    """One call of a hook.

    client: the client's short name, such as `claude`
    event: one of the words above; `other` if there is nothing to do
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
    again: whether this stop comes after one that the hook has turned into going on
    afresh: whether this start follows another session of the same process (`/clear`)
    deaf: whether the model is shown nothing of what is said here
    """

    __slots__ = (
        "afresh", "again", "call", "client", "command", "cwd", "deaf", "edits", "event", "lines",
        "reads", "session", "shown", "subagent", "subagent_kind", "tool",
    )  # fmt: skip

    def __init__(
        self,
        client: str,
        event: str,
        *,
        session: str = "",
        subagent: str = "",
        subagent_kind: str = "",
        cwd: str = "",
        tool: str = "",
        call: str = "",
        edits: tuple[Edit, ...] = (),
        reads: tuple[str, ...] = (),
        shown: str = "",
        lines: int = 0,
        command: str = "",
        again: bool = False,
        afresh: bool = False,
        deaf: bool = False,
    ) -> None:
        self.client = client
        self.event = event
        self.session = session
        self.subagent = subagent
        self.subagent_kind = subagent_kind
        self.cwd = cwd
        self.tool = tool
        self.call = call
        self.edits = edits
        self.reads = reads
        self.shown = shown
        self.lines = lines
        self.command = command
        self.again = again
        self.afresh = afresh
        self.deaf = deaf


class Answer:
    """What the hook says: nothing, a refusal of the tool, or something the model should know.

    deny: why the tool must not run; the model reads it
    context: what the model is told; on `stop` it makes the model go on
    """

    __slots__ = ("context", "deny")

    def __init__(self, deny: str = "", context: str = "") -> None:
        self.deny = deny
        self.context = context
