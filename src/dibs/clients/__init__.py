"""The agent clients that dibs knows. Everything about one client is in one file of this folder.

Clients are found by listing the folder: to add a client, add a file with a `CLIENT`. Files whose
names begin with an underscore are not clients. The file's name is the client's short name. It is
the word after `dibs hook` and `dibs init --client`. The client's environment variables begin with
it, in capitals, and so does a word of its name in MCP. So a command imports only the file of the
client in whose shell it runs, and what `dibs init` needs is imported only there.
"""

from __future__ import annotations

import os

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dibs.setup.targets import Target
    from dibs.surroundings.occasion import Answer, Environment, Occasion, Payload


class Unattended:
    """How a client works on a prompt without a person, and then exits.

    words: its command line; the prompt follows
    permits: what it may do, in words
    environment: additional environment variables
    """

    def __init__(self, words: Sequence[str], permits: str, **environment: str) -> None:
        self.words = tuple(words)
        self.permits = permits
        self.environment = environment


class Client:
    """One agent client. The values below are the defaults.

    For people and for `dibs init`:

    title: what people call it
    order: its place in lists of clients; clients without one come last
    commands: its programs; one of them on the PATH means that it is installed
    home: files in the user's home; one of them means that the user uses it
    traces: files in a repository; one of them means that it is used there
    after: what the user must do once, in words

    Its hooks:

    events: the client's events for which dibs is called; None if it has no hooks
    matches_tools: whether it can call hooks for certain tools only, which are those below
    meanings: its events in the words of dibs, if they have other names than in Claude Code but
        the same form
    hook_shell: what runs a hook that is a command line
    denies_by_exit: whether a denial is a text on standard error and exit code 2, not an answer
    fails_closed: whether it refuses a tool if its hook exits with any code other than 0
    edit_tools, remove_tools, shell_tools, read_tools: its tools that change the files they name,
        that delete them, that run a command, and that show the model a file
    patch_tools: its tools that take a patch, and the field with the patch
    other_tools: its other tools that may change something
    runs_git_hooks: whether git runs hooks in its shell
    tells_subagents: whether it tells its hooks which subagent acts

    Its sessions:

    session_variable: contains the session's name, in the environment of its commands
    shell_variable: set for its commands by a client that names no session; then its process id
        stands for the session
    shell_marks: other variables that show that a command runs in its shell
    server_variable: contains the session's name, in the environment of its MCP server; other
        clients name the session in MCP, or not at all
    pid_variable: contains its process id
    processes: the names of its process in the system
    clear_renames: whether `/clear` gives the hooks a new session name, while the MCP server
        keeps the old one
    clear_replaces: whether `/clear` begins a new session without telling hooks that the old one
        has ended
    """

    title = ""
    order = 100
    commands: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    after = ""

    events: Sequence[str] | None = None
    matches_tools = True
    meanings: Mapping[str, str] = {}
    hook_shell = "sh"
    denies_by_exit = False
    fails_closed = False
    edit_tools: tuple[str, ...] = ()
    remove_tools: tuple[str, ...] = ()
    shell_tools: tuple[str, ...] = ()
    read_tools: tuple[str, ...] = ()
    patch_tools: Mapping[str, str] = {}
    other_tools: tuple[str, ...] = ()
    runs_git_hooks = True
    tells_subagents = False

    session_variable = ""
    shell_variable = ""
    shell_marks: tuple[str, ...] = ()
    server_variable = ""
    pid_variable = ""
    processes: tuple[str, ...] = ()
    clear_renames = False
    clear_replaces = False

    @property
    def name(self) -> str:
        """Its short name: that of its file."""
        return self.__module__.rpartition(".")[2]

    @property
    def mark(self) -> str:
        """The variable that shows that a command runs in its shell; "" if there is none."""
        return self.session_variable or self.shell_variable

    def targets(self, top: str) -> list[Target]:
        """The files that dibs writes for it in a checkout, and what is in them."""
        return []

    def matcher(self, event: str) -> dict[str, str]:
        """The tools for which it calls dibs at an event, in its own syntax; nothing means all."""
        from dibs.surroundings.occasion import AFTER, ASKING, BEFORE, MEANINGS

        meaning = (self.meanings or MEANINGS).get(event)
        if not self.matches_tools or meaning not in (BEFORE, ASKING, AFTER):
            return {}
        tools = [*self.edit_tools, *self.remove_tools, *self.patch_tools, *self.shell_tools]
        if meaning == AFTER:
            tools += self.other_tools
            tools += () if event.endswith("Failure") else self.read_tools
        return {"matcher": "|".join(tools)}

    def read(self, payload: Payload, environment: Environment) -> Occasion:
        """What it tells its hook; raises a ValueError if that cannot be understood."""
        if self.events is None:
            raise InvalidError(f"{self.title} has no hooks")
        from dibs.surroundings.occasion import read_event

        return read_event(self, payload)

    def write(self, occasion: Occasion, answer: Answer) -> str:
        """An answer in its own format; "" for nothing."""
        from dibs.surroundings.occasion import write_event

        return write_event(occasion, answer)

    def example(self, event: str, session: str, cwd: str, file: str) -> dict[str, object]:
        """What it would tell its hook at an event about a file, to test the hook."""
        patch = f"*** Begin Patch\n*** Add File: {file}\n+\n*** End Patch\n"
        field = next(iter(self.patch_tools.values()), "")
        tool = self.edit_tools[0] if self.edit_tools else next(iter(self.patch_tools), "")
        tool_input = {"file_path": file} if self.edit_tools else {field: patch}
        return {
            "hook_event_name": event,
            "session_id": session,
            "cwd": cwd,
            "tool_name": tool,
            "tool_input": tool_input,
            "tool_use_id": session,
        }

    def can_wake(self, environment: Environment) -> bool:
        """Whether a hook that waits in the background can begin a turn."""
        return False

    def wake_command(self, session: str, words: Sequence[str]) -> list[str]:
        """The command that begins a turn of an idle session with the text that follows, if any.

        words: the command line of its process
        """
        return []

    def unattended(self, shell: bool) -> Unattended | None:
        """How to run it without a person; None if that is not known.

        shell: whether it may also run commands; otherwise it only edits files below its folder
        """
        return None

    def metering(self, url: str, token: str) -> dict[str, str]:
        """The environment in which it reports its usage to a daemon over OTLP; empty if it cannot.

        token: the token for that daemon
        """
        return {}

    def subagent(self, session: str, environment: Environment) -> str:
        """Its name for the subagent in whose shell a command runs; "" if there is none."""
        return ""


def client_names() -> list[str]:
    """The short names of all clients, sorted."""
    files = [file for folder in __path__ for file in os.listdir(folder)]
    return sorted(file[:-3] for file in files if file.endswith(".py") and file[0] != "_")


def find_client(name: str) -> Client | None:
    """The client with this name, if there is one."""
    if name not in client_names():
        return None
    found: Client = __import__(f"{__name__}.{name}", fromlist=["CLIENT"]).CLIENT
    return found


def client_of(name: str) -> Client:
    """The client with this name."""
    client = find_client(name)
    if client is None:
        known = ", ".join(one.name for one in every_client())
        raise InvalidError(f"no client is called {name!r}", next=f"use one of: {known}")
    return client


def every_client() -> list[Client]:
    """All clients, in the order in which they are shown."""
    return sorted(map(client_of, client_names()), key=lambda client: client.order)


def clients_among(variables: Iterable[str]) -> list[Client]:
    """The clients to which some of these environment variables may belong."""
    there = list(variables)
    return [
        client_of(name)
        for name in client_names()
        if any(variable.startswith(name.upper()) for variable in there)
    ]


def is_agents(environment: Mapping[str, str]) -> bool:
    """Whether an agent started a process with this environment, whatever the agent's name."""
    if environment.get("DIBS_SESSION"):
        return True
    marks = (mark for one in clients_among(environment) for mark in (one.mark, *one.shell_marks))
    return any(environment.get(mark) for mark in marks)
