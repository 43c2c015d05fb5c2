"""With dibs: the same two agents, and the budget is an entry with a version.

Each says which version it read. The first to write wins. The second is refused, and the refusal
carries what is there now, so it can decide again. Every version stays in the history.

    python examples/budget_with.py FOLDER
"""

from __future__ import annotations

import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dibs

BUDGET = 10_000
PRICE = 7_500
AGENTS = ("alice", "bob")


def buy(agent: str, store: str, both_have_read: Any) -> None:
    with dibs.open(store, space="example") as space, space.join(agent) as me:
        entry = me.state.get("budget", "q3")
        both_have_read.wait(60)  # as in the example without dibs
        while entry is not None and entry.value["left"] > 0:
            price = min(PRICE, entry.value["left"])
            wanted = {"left": entry.value["left"] - price, "paid": price}
            try:
                me.state.set("budget", "q3", wanted, expected_version=entry.version)
            except dibs.ConflictError as refusal:
                me.messages.send(refusal.message, to="lead")
                entry = refusal.current
            else:
                return


def main(folder: Path) -> None:
    store = str(folder / "budget.db")
    with dibs.open(store, space="example") as space, space.join("lead") as lead:
        lead.state.set("budget", "q3", {"left": BUDGET, "paid": 0})
        spawn = get_context("spawn")
        both_have_read = spawn.Barrier(len(AGENTS))
        agents = [spawn.Process(target=buy, args=(a, store, both_have_read)) for a in AGENTS]
        for process in agents:
            process.start()
        for process in agents:
            process.join()
        if any(process.exitcode for process in agents):
            sys.exit("an agent failed")
        tell(lead)


def tell(lead: dibs.Agent) -> None:
    """Print who paid what, who was refused, and the audit trail."""
    versions = lead.state.history("budget", "q3")[::-1]
    refusals = {message.sender: message.body for message in lead.messages.inbox()}
    for entry in versions[1:]:
        who, paid, left = entry.author, entry.value["paid"], entry.value["left"]
        if who in refusals:
            print(f"  {who:<6} was refused: {refusals[who]}.")
        print(f"  {who:<6} read {left + paid:>6,} left, and paid {paid:>6,}")
    spent = sum(entry.value["paid"] for entry in versions)
    print(f"  {spent:,} spent of {BUDGET:,}. Never more.")
    print()
    print("  The audit trail of budget/q3, from the store:")
    print("    seq  version  by      at             left")
    for event in lead.events.since(kind="entry.set", subject="budget/q3"):
        entry = versions[event.data["version"] - 1]
        at = time.strftime("%H:%M:%S", time.localtime(event.at / 1000)) + f".{event.at % 1000:03}"
        left = entry.value["left"]
        print(f"    {event.seq:>3}  {entry.version:>7}  {event.agent:<6}  {at}  {left:>6,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
