"""Without dibs: two agents share a budget in a file, and overcommit it.

Each reads what is left, decides, buys, and writes back what is left then. Nothing is wrong with
either of them. Together they spend money that is not there.

    python examples/budget_without.py FOLDER
"""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

BUDGET = 10_000
PRICE = 7_500
AGENTS = ("alice", "bob")


def buy(agent: str, folder: Path, both_have_read: Any) -> None:
    budget = folder / "budget.json"
    left = json.loads(budget.read_text())["left"]
    both_have_read.wait(60)  # in life this is chance; here it happens every time
    if left >= PRICE:
        (folder / f"invoice-{agent}.json").write_text(json.dumps({"paid": PRICE}))
        budget.write_text(json.dumps({"left": left - PRICE}))


def main(folder: Path) -> None:
    (folder / "budget.json").write_text(json.dumps({"left": BUDGET}))
    spawn = get_context("spawn")
    both_have_read = spawn.Barrier(len(AGENTS))
    agents = [spawn.Process(target=buy, args=(a, folder, both_have_read)) for a in AGENTS]
    for process in agents:
        process.start()
    for process in agents:
        process.join()
    if any(process.exitcode for process in agents):
        sys.exit("an agent failed")

    spent = 0
    for agent in AGENTS:
        paid = json.loads((folder / f"invoice-{agent}.json").read_text())["paid"]
        spent += paid
        print(f"  {agent:<6} read {BUDGET:>6,} left, and paid {paid:>6,}")
    left = json.loads((folder / "budget.json").read_text())["left"]
    print(f"  The file says {left:,} are left. The invoices say otherwise:")
    print(f"  {spent:,} spent of {BUDGET:,}. Nobody was told.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
