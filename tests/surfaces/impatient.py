"""`dibs` whose MCP sessions end after seconds: `python -m tests.surfaces.impatient idle …`.

With `idle` they end when nothing is heard of them for six seconds, not for half an hour; with
`gone`, four seconds after their stream has broken off, not ten.
"""

from __future__ import annotations

import sys

from dibs.surfaces.cli.main import main
from dibs.surfaces.http import mcp, seats


def hurry(what: str) -> None:
    if what == "gone":
        mcp.GONE_S = 4.0
    else:
        seats.IDLE_S, seats.BEAT_S, seats.TTL_S = 6.0, 0.5, 9.0
        vars(mcp).update(IDLE_S=seats.IDLE_S, BEAT_S=seats.BEAT_S)


if __name__ == "__main__":
    hurry(sys.argv.pop(1))
    sys.exit(main())
