"""Which session a hook, a shell command or a git hook acts in.

A client names its session to its hooks, and to the commands that it runs in a shell; its MCP
server knows the same name. So all of them act as one session, found by that name, and bound to
the client's process: when that ends, however it ends, what the session holds is free. A
subagent has its own session. No caller says in an argument who it is. Behind a daemon, with the
token of an agent, these sessions are parts of that agent: alice/claude-bagido.
"""

from __future__ import annotations

import os

from dibs.arguments import NAME_LIMIT
from dibs.digest import sha256
from dibs.storage.folder import Own
from dibs.system import ancestors, process_name, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.clients import Client
    from dibs.dibs import Agent, Dibs

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "env", "timeout", "sudo"}
RUNTIMES = {"node", "MainThread", "bun", "deno"}
"""What a client that is a script is called by the system."""


class Who:
    """Somebody who acts: an agent's name, and by what its session is found.

    client: the client's short name, its own name for the session, and its name for the subagent
        if it is one, with colons between them
    process: the client's process, which the session ends with
    token: that of a session, which then is the one
    root: the agent that a subagent is a part of
    stays: whether the process keeps to the first name that it gave its session
    alone: whether the name must be nobody else's
    """

    def __init__(
        self,
        name: str,
        client: str | None = None,
        process: str | None = None,
        token: str = "",
        root: str = "",
        stays: bool = False,
        alone: bool = False,
    ) -> None:
        self.name = name
        self.alone = alone
        self.root = root or name
        self.stays = stays
        self.client = client
        self.process = process
        self.token = token

    def join(self, space: Dibs) -> Agent:
        if self.token:
            return space.resume(self.token)
        self._stay(space)
        self._belong(space)
        return space.join(
            self.name, client=self.client, shell=True, process=self.process, alone=self.alone
        )

    def find(self, space: Dibs) -> Agent | None:
        """The session, if there is one already."""
        self._stay(space)
        return space.find(self.name, client=self.client)

    def _stay(self, space: Dibs) -> None:
        """Keep to the first name that this process gave its session.

        `/clear` gives the hooks another name, and leaves the MCP server with the old one; under
        two names, the agent would block itself.
        """
        if not (self.stays and self.client and self.process):
            return
        kind, own, *part = self.client.split(":", 2)
        first = first_name(space.scope.place.store_dir, self.process, own)
        if first != own:
            self.client = ":".join((kind, first, *part))
            if is_made_up(self.name):
                self.name = f"{kind}-{spoken(self.client)}"

    def _belong(self, space: Dibs) -> None:
        """Be a part of the agent whose token this is: it lets in nobody else.

        Only by a name that was made up. Who has chosen another's is refused, and told so.
        """
        owner = space.scope.owner
        if (
            owner
            and self.client
            and is_made_up(self.root)
            and not self.root.startswith(f"{owner}/")
        ):
            self.root, self.name = f"{owner}/{self.root}", f"{owner}/{self.name}"

    def subagent(self, id: str, kind: str) -> Who:
        """A part of this agent that works by itself."""
        kind = "".join(sign for sign in kind.lower() if sign.isalnum() or sign in "-_")[:30]
        client = f"{self.client or self.name}:{id}"[:200]
        name = f"{self.name}/{kind or 'subagent'}-{spoken(client, 2)}"
        return Who(name, client, self.process, root=self.name, stays=self.stays)

    def called(self, name: str) -> Who:
        """Who acts in this agent's shell by another name: never somebody who is there already."""
        if name == self.name and not self.token:
            return self
        own = self.client or sha256(self.token.encode()).hexdigest()[:16]
        return Who(name, f"{own}:as:{name}"[:NAME_LIMIT], self.process, alone=True)


def of_environment(environment: Mapping[str, str]) -> Who | None:
    """In whose shell this process runs; None for a person's."""
    if token := environment.get("DIBS_SESSION"):
        return Who(environment.get("DIBS_AGENT", ""), token=token)
    client = nearest(environment)
    if client is not None:
        session = environment.get(client.session_variable, "")
        who = of_client(client.name, session, environment)
        part = client.subagent(session, environment)
        return who.subagent(part, "") if part else who
    if name := environment.get("DIBS_AGENT"):
        return Who(name)
    return None


def nearest(environment: Mapping[str, str]) -> Client | None:
    """The client in whose shell this process runs, if it is one's.

    One client may have started another, which then has the variables of both.
    """
    from dibs.clients import clients_among

    possible = [one for one in clients_among(environment) if environment.get(one.mark)]
    if len(possible) > 1:
        for pid, name in ancestors():
            for client in possible:
                if is_client(client, pid, name):
                    return client
    return possible[0] if possible else None


def of_client(name: str, session: str, environment: Mapping[str, str]) -> Who:
    """Who acts in a session of this client."""
    from dibs.clients import client_of

    client = client_of(name)
    process, sure = client_process(client, environment)
    if client.shell_variable:
        # Its MCP server knows nothing else to go by.
        session = process
    key = f"{name}:{session or process}"
    # The process of a client without a mark is not found with certainty; its sessions end with
    # their leases.
    return Who(
        environment.get("DIBS_AGENT") or f"{name}-{spoken(key)}",
        key,
        process if sure and client.mark else None,
        environment.get("DIBS_SESSION", ""),
        stays=client.clear_renames,
    )


def client_process(client: Client, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The client that has started this process, and whether that is sure."""
    said = environment.get(client.pid_variable, "")
    if said.isdigit():
        return process_name(int(said)), True
    above = list(ancestors())
    for pid, name in above:
        if is_client(client, pid, name):
            return process_name(pid), True
    guess = next((pid for pid, name in above if name not in SHELLS), os.getppid())
    return process_name(guess), False


def is_client(client: Client, pid: int, name: str) -> bool:
    if name in client.processes:
        return True
    if name not in RUNTIMES:
        return False
    return any(word.rpartition("/")[2] in client.processes for word in words(pid))


def first_name(store_dir: str, process: str, name: str) -> str:
    """What a client process called its session the first time; it is remembered."""
    own, file = Own(store_dir), name_file(process)
    known = own.read(file)
    if known is None:
        own.once(file, name.encode())
        return name
    return known.decode("utf-8", "replace")


def name_file(process: str) -> str:
    return f"hooks/clients/{process.replace(':', '-')}"


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


def worker_name(starter: str) -> str:
    """A name for a worker without one: a part of the agent or person that started it."""
    return f"{starter}/{spoken(process_name(os.getpid()))}"


def person() -> str:
    """The login name of somebody who is no agent; `Globals.named` says when it counts."""
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    # Not every user's name can be an agent's.
    return "".join(sign for sign in name if sign.isalnum() or sign in "._-") or "person"
