"""`dibs port`: a free port under a lease, so that no two agents use the same one."""

from __future__ import annotations

from dibs.operation import EVERYBODY
from dibs.records import plain
from dibs.surroundings.ports import bounds, find, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

BY = EVERYBODY


def main(call: Globals, name: str = "", *, range: str = "3000-3999", ttl_s: float = 1800) -> int:
    """Lease a port that nobody has leased and nothing listens on, and print its number.

    Give it back with dibs release port:NUMBER.

    name: what it is for; the same name gets the same port again
    range: the ports to choose from
    ttl_s: how long until the lease expires unless it is renewed
    example: web --range 8000-8099
    """
    low, high = bounds(range)
    with call.open() as space:
        lease = find(call.join(space), name, low, high, ttl_s)
    port = number(lease.resource)
    return call.answer({"port": port, "lease": plain(lease)}, str(port))
