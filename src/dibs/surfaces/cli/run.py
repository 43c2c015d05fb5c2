"""`dibs run --as NAME [--claim PATH]… -- COMMAND…`: a command as a session of its own."""

from __future__ import annotations

from dibs.arguments import RESOURCE, Choice
from dibs.errors import InvalidError
from dibs.operation import EVERYBODY
from dibs.surroundings.running import QUEUE_S, TTL_S, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {"claim": RESOURCE, "on_loss": Choice("warn", "kill")}


def main(
    call: Globals,
    *command: str,
    claim: Sequence[str] = (),
    shared: bool = False,
    wait_s: float = QUEUE_S,
    ttl_s: float = TTL_S,
    note: str = "",
    on_loss: str = "warn",
) -> int:
    """Run a command in a session of its own; its claims end when the command ends.

    The exit code is the command's own; 1 if the claim was refused. The command finds the epoch of
    its lease in DIBS_EPOCH.

    command: what to run
    claim: claim this first; a second dibs run that wants it waits for its turn
    shared: share it with others who also share it
    wait_s: how long to wait in the queue
    ttl_s: how long the lease lasts if this process freezes
    note: what it is for, shown to others who want it
    on_loss: what to do if the lease is lost while the command runs
    example: --as ci --claim db:migrations -- make migrate
    """
    if not command:
        raise InvalidError("no command was given", next="dibs run --as NAME -- COMMAND…")
    facts: dict[str, Any] = {"ttl_s": ttl_s, "mode": "shared" if shared else "exclusive"}
    if note:
        facts["note"] = note
    return perform(call, call.agent or "", command, claim, wait_s, on_loss=on_loss, **facts)
