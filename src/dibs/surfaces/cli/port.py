"""`dibs port`: a free port under a lease, so that two agents do not start servers on one."""

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

    dibs release port:NUMBER gives it back.

    name: what it is for; asked again for the same, you get the same port
    range: which ports
    ttl_s: how long until it lapses unless it is renewed
    example: web --range 8000-8099
    """
    low, high = bounds(range)
    with call.open() as space:
        lease = find(call.join(space), name, low, high, ttl_s)
    port = number(lease.resource)
    return call.answer({"port": port, "lease": plain(lease)}, str(port))
