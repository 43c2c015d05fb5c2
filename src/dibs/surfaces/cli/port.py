"""`dibs port`: a free port under a lease, so that two agents do not start servers on one."""

from __future__ import annotations

from dibs.errors import HeldError, InvalidError, NotFoundError
from dibs.surroundings.commands import seconds, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent
    from dibs.records import Lease
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs port [NAME] [options]

Lease a port that nobody has leased and nothing listens on, and print its number.

  NAME                     what it is for; asked again for the same, you get the same port
  --range LOW-HIGH         which ports [3000-3999]
  --ttl TIME               how long until it lapses unless it is renewed [30m]

dibs release port:NUMBER gives it back.

example: dibs port web --range 8000-8099"""

HIGHEST = 65_535


class Options:
    def __init__(self) -> None:
        self.name = ""
        self.low, self.high = 3000, 3999
        self.ttl_s = 1800.0


def main(globals_: Globals, words: list[str]) -> int:
    options = parse(words)
    with globals_.open() as space:
        lease = find(globals_.join(space), options)
    if globals_.json:
        from dibs.records import plain
        from dibs.surroundings.wording import print_json

        print_json({"port": number(lease.resource), "lease": plain(lease)})
    else:
        print(number(lease.resource))
    return 0


def parse(words: list[str]) -> Options:
    options, words = Options(), list(words)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if not word.startswith("--"):
            if options.name:
                raise InvalidError(f"{word!r} is one word too many", next="see: dibs port --help")
            options.name = word
            continue
        if name not in ("--range", "--ttl"):
            raise unknown("option", name, ["--range", "--ttl"])
        if not equals:
            if not words:
                raise InvalidError(f"{name} needs a value")
            text = words.pop(0)
        if name == "--ttl":
            options.ttl_s = seconds(name, text)
        else:
            options.low, options.high = bounds(text)
    return options


def bounds(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    if dash and low.isascii() and low.isdecimal() and high.isascii() and high.isdecimal():
        first, last = int(low), int(high)
        if 0 < first <= last <= HIGHEST:
            return first, last
    raise InvalidError(f"{text!r} is not a range of ports", next="write --range 3000-3999")


def find(agent: Agent, options: Options) -> Lease:
    """The port this session has for that already, or else the first that is free."""
    for lease in agent.leases.list(session=agent.session):
        asked = lease.note == options.name != ""
        if asked and options.low <= number(lease.resource) <= options.high:
            return agent.leases.renew(lease.resource, ttl_s=options.ttl_s)[0]
    for port in range(options.low, options.high + 1):
        if is_free(port) and agent.leases.status(f"port:{port}")[0].free:
            try:
                grant = agent.leases.claim(f"port:{port}", ttl_s=options.ttl_s, note=options.name)
            except HeldError:
                continue  # somebody else was faster
            if not grant.kept:
                return grant.leases[0]
    raise NotFoundError(
        f"no port from {options.low} to {options.high} is free",
        next="give another --range, or dibs release port:NUMBER",
    )


def number(resource: str) -> int:
    """The port that a lease is on; 0 for every other resource."""
    scheme, _, port = resource.partition(":")
    return int(port) if scheme == "port" and port.isascii() and port.isdecimal() else 0


def is_free(port: int) -> bool:
    """Whether a server could listen there now, on this machine's own addresses."""
    import socket

    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a machine without this kind of address
        with probe:
            try:
                probe.bind((address, port))
            except OSError as error:
                import errno

                if error.errno != errno.EADDRNOTAVAIL:
                    return False
    return True
