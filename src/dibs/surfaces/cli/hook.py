"""`dibs hook CLIENT`: what a client's hooks run. `dibs hook git NAME …`: what git's hooks run."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

USAGE = """usage: dibs hook CLIENT
       dibs hook git NAME [ARGUMENT]…

Answer one event of an agent client or of git; `dibs init` writes the hooks that call this.

{clients}

example: dibs hook claude < event.json"""


def help_text() -> str:
    from textwrap import fill

    from dibs.clients import every_client

    *names, last = [client.name for client in every_client() if client.events is not None]
    says = (
        "The event comes on standard input, as the client sends it, and the answer goes to "
        "standard output in the client's own form. CLIENT is "
    )
    return USAGE.format(clients=fill(f"{says}{', '.join(names)} or {last}.", 93))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """`HELP` names all clients: it is made only where somebody asks for it."""
        if name == "HELP":
            return help_text()
        raise AttributeError(f"{__name__} has no {name}")


def main(globals_: Globals, words: list[str]) -> int:
    if words[:1] == ["git"] and len(words) > 1:
        from dibs.surfaces.hooks.git import hook as git

        return git.run(globals_, words[1], words[2:])
    if len(words) != 1:
        # Not 2: to clients that means that the tool must not run.
        print("dibs hook: which client? see: dibs hook --help", file=sys.stderr)
        return 1
    from dibs.surfaces.hooks.hook import run

    return run(globals_, words[0])
