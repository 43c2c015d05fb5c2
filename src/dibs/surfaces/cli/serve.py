"""`dibs serve`: the daemon."""

from __future__ import annotations

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.cli.main import Globals

HELP = """usage: dibs serve [--host ADDRESS] [--port NUMBER]

Serve this space over HTTP, with a live dashboard, to agents elsewhere and to people.

  --host ADDRESS  where to listen (127.0.0.1)
  --port NUMBER   at which port (4242)

example: dibs serve --port 4242"""


def main(globals_: Globals, words: list[str]) -> int:
    options = {"--host": "127.0.0.1", "--port": "4242"}
    words = [part for word in words for part in word.split("=", 1)]
    while words:
        name = words.pop(0)
        if name not in options or not words:
            raise InvalidError(f"dibs serve does not understand {name}", next="dibs serve --help")
        options[name] = words.pop(0)
    if not options["--port"].isdigit():
        raise InvalidError("the port must be a number")
    from dibs.surfaces.http.serve import serve

    space = globals_.open()
    serve(space, options["--host"], int(options["--port"]), globals_.user_dir)
    return 0
