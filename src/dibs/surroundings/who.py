"""Which session a hook, a shell command or a git hook acts in.

A client names its session to its hooks, and to the commands that it runs in a shell; its MCP
server knows the same name. So all of them act as one session, found by that name, and bound to
the client's process: when that ends, however it ends, what the session holds is free. A
subagent is a session of its own. Nobody's argument says who they are.
"""

from __future__ import annotations

import os

from dibs.digest import sha256
from dibs.storage.clock import process_name
from dibs.storage.folder import write_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dibs.clients.occasion import Occasion
    from dibs.dibs import Agent, Dibs

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "env", "timeout", "sudo"}
RUNTIMES = {"node", "MainThread", "bun", "deno"}
"""What a client that is a script is called by the system."""
BY_VARIABLE = {"claude": "CLAUDE_CODE_SESSION_ID", "codex": "CODEX_SESSION_ID"}
"""How these clients name their session to the commands they run."""
BY_PROCESS = {"gemini": "GEMINI_CLI", "opencode": "OPENCODE"}
"""What these clients set for what they start; they name no session, so their process does."""
CLIENTS = (*BY_VARIABLE, *BY_PROCESS)
"""Clients whose process is found with certainty; the sessions of others end with their leases."""
DEPTH = 30


class Who:
    """Somebody who acts: an agent's name, and by what its session is found."""

    __slots__ = ("client", "name", "process", "root", "token")

    def __init__(
        self,
        name: str,
        client: str | None = None,
        process: str | None = None,
        token: str = "",
        root: str = "",
    ) -> None:
        self.name = name
        self.root = root or name
        """The agent that a subagent is a part of."""
        self.client = client
        self.process = process
        self.token = token

    def join(self, space: Dibs) -> Agent:
        if self.token:
            return space.resume(self.token)
        if self.client and self.client.startswith("claude:") and self.process:
            self._stay(space.scope.place.store_dir, self.process, self.client)
        return space.join(self.name, client=self.client, shell=True, process=self.process)

    def _stay(self, store_dir: str, process: str, client: str) -> None:
        """Keep to the first name that this process of Claude's gave its session.

        `/clear` gives the hooks another name, and leaves the MCP server with the old one; by
        two names, the agent would stand in its own way.
        """
        own, _, part = client.removeprefix("claude:").partition(":")
        first = first_name(store_dir, process, own)
        if first != own:
            self.client = f"claude:{first}:{part}" if part else f"claude:{first}"
            if is_made_up(self.name):
                self.name = f"claude-{spoken(self.client)}"

    def subagent(self, id: str, kind: str) -> Who:
        """A part of this agent that works by itself."""
        kind = "".join(sign for sign in kind.lower() if sign.isalnum() or sign in "-_")[:30]
        client = f"{self.client or self.name}:{id}"[:200]
        name = f"{self.name}/{kind or 'subagent'}-{spoken(client, 2)}"
        return Who(name, client, self.process, root=self.name)


def of_occasion(occasion: Occasion, environment: Mapping[str, str]) -> Who:
    """Whose hook this is."""
    who = of_client(occasion.client, occasion.session, environment)
    if occasion.subagent:
        return who.subagent(occasion.subagent, occasion.subagent_kind)
    return who


def of_environment(environment: Mapping[str, str]) -> Who | None:
    """In whose shell this process runs; None for a person's."""
    if token := environment.get("DIBS_SESSION"):
        return Who(environment.get("DIBS_AGENT", ""), token=token)
    client = nearest(environment)
    if client:
        session = environment.get(BY_VARIABLE.get(client, ""), "")
        who = of_client(client, session, environment)
        part = environment.get("DIBS_SUBAGENT", "") if client == "opencode" else ""
        if client == "codex" and environment.get("CODEX_THREAD_ID", session) != session:
            part = environment["CODEX_THREAD_ID"]
        return who.subagent(part, "") if part else who
    if name := environment.get("DIBS_AGENT"):
        return Who(name)
    return None


def nearest(environment: Mapping[str, str]) -> str:
    """The client in whose shell this process runs, "" if in none.

    One client may have started another, which then has the variables of both.
    """
    marks = BY_VARIABLE | BY_PROCESS
    possible = [client for client in CLIENTS if environment.get(marks[client])]
    if len(possible) > 1:
        for pid, name in ancestors():
            for client in possible:
                if is_client(client, pid, name):
                    return client
    return possible[0] if possible else ""


def of_client(client: str, session: str, environment: Mapping[str, str]) -> Who:
    process, sure = client_process(client, environment)
    if client in BY_PROCESS:
        # Their MCP server knows nothing else to go by.
        session = process
    key = f"{client}:{session or process}"
    name = environment.get("DIBS_AGENT") or f"{client}-{spoken(key)}"
    bound = process if sure and client in CLIENTS else None
    return Who(name, key, bound, environment.get("DIBS_SESSION", ""))


def client_process(client: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The client that has started this process, and whether that is sure."""
    said = environment.get({"claude": "CLAUDE_PID", "opencode": "OPENCODE_PID"}.get(client, ""), "")
    if said.isdigit():
        return process_name(int(said)), True
    above = list(ancestors())
    for pid, name in above:
        if is_client(client, pid, name):
            return process_name(pid), True
    guess = next((pid for pid, name in above if name not in SHELLS), os.getppid())
    return process_name(guess), False


def is_client(client: str, pid: int, name: str) -> bool:
    if name == client:
        return True
    if name not in RUNTIMES:
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            words = source.read().split(b"\0")
    except OSError:
        return False
    return any(word.rpartition(b"/")[2] == client.encode() for word in words)


def ancestors() -> Iterator[tuple[int, str]]:
    """The processes above this one, nearest first, and what the system calls them."""
    pid = os.getppid()
    for _ in range(DEPTH):
        try:
            with open(f"/proc/{pid}/stat", "rb") as source:
                text = source.read()
        except OSError:
            return  # the top, or a system that does not tell
        yield pid, os.fsdecode(text.partition(b"(")[2].rpartition(b")")[0])
        pid = int(text.rpartition(b")")[2].split()[1])


def first_name(store_dir: str, process: str, name: str) -> str:
    """What a client process called its session the first time; it is remembered."""
    file = name_file(store_dir, process)
    try:
        with open(file, encoding="utf-8") as source:
            return source.read()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        write_once(file, name.encode())
        return name


def name_file(store_dir: str, process: str) -> str:
    return os.path.join(store_dir, "hooks", "clients", process.replace(":", "-"))


def is_made_up(name: str) -> bool:
    """Whether a name is of the kind that sessions are given."""
    syllables = name.rpartition("-")[2]
    return (
        "-" in name
        and len(syllables) == 6
        and all(sign in CONSONANTS for sign in syllables[::2])
        and all(sign in VOWELS for sign in syllables[1::2])
    )


def spoken(text: str, length: int = 3) -> str:
    """A name one can say, the same for the same text: 14 × 5 syllables, three of them."""
    number = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    syllables = []
    for _ in range(length):
        number, syllable = divmod(number, len(CONSONANTS) * len(VOWELS))
        consonant, vowel = divmod(syllable, len(VOWELS))
        syllables.append(CONSONANTS[consonant] + VOWELS[vowel])
    return "".join(syllables)


def person() -> str:
    """What to call somebody who is no agent."""
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    # Not every user's name can be an agent's.
    return "".join(sign for sign in name if sign.isalnum() or sign in "._-") or "person"
