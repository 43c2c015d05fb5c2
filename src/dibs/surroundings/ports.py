"""Ports under a lease, so that no two agents start servers on the same one."""

from __future__ import annotations

from dibs.errors import HeldError, InvalidError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent
    from dibs.records import Lease

HIGHEST = 65_535


def bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if text.isascii() and low.isdecimal() and high.isdecimal():
        first, last = int(low), int(high)
        if 0 < first <= last <= HIGHEST:
            return first, last
    raise InvalidError(f"{text!r} is not a range of ports", next="write --range 3000-3999")


def find(agent: Agent, name: str, low: int, high: int, ttl_s: float) -> Lease:
    """The port this session already has for that purpose, or the first free one."""
    for lease in agent.leases.list(session=agent.session):
        if name and lease.note == name and low <= number(lease.resource) <= high:
            return agent.leases.renew(lease.resource, ttl_s=ttl_s)[0]
    for port in range(low, high + 1):
        if is_free(port) and agent.leases.status(f"port:{port}")[0].free:
            try:
                grant = agent.leases.claim(f"port:{port}", ttl_s=ttl_s, note=name)
            except HeldError:
                continue  # another agent was faster
            if not grant.kept:
                return grant.leases[0]
    raise NotFoundError(
        f"no port from {low} to {high} is free",
        next="give another --range, or dibs release port:NUMBER",
    )


def number(resource: str) -> int:
    """The port of a lease; 0 for any other resource."""
    scheme, _, port = resource.partition(":")
    return int(port) if scheme == "port" and port.isascii() and port.isdecimal() else 0


def is_free(port: int) -> bool:
    """Whether a server could listen there now, on this machine's own addresses."""
    import errno
    import socket

    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # this machine has no address of this kind
        with probe:
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    return False
    return True
