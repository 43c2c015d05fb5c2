"""`dibs` whose MCP sessions end after seconds: `python -m tests.surfaces.impatient idle …`.

With `idle` they end when nothing is heard of them for six seconds, not for half an hour; with
`gone`, four seconds after their stream has broken off, not ten.
"""

from __future__ import annotations

import sys

from dibs.surfaces.cli.main import main
from dibs.surfaces.http import mcp_sessions


def hurry(what: str) -> None:
    if what == "gone":
        mcp_sessions.GONE_S = 4.0
    else:
        vars(mcp_sessions).update(IDLE_S=6.0, BEAT_S=0.5, TTL_S=9.0)


if __name__ == "__main__":
    hurry(sys.argv.pop(1))
    sys.exit(main())
