"""Without dibs: four workers share a folder of orders, and ship some of them twice.

Each looks which orders are open, picks one of them at random so as not to meet the others,
ships it, and crosses it off. Between looking and crossing off, another has looked too.

    python examples/orders_without.py FOLDER
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ORDERS = 40
WORKERS = ("alice", "bob", "carol", "dave")


def work(worker: str, folder: Path, together: Any) -> None:
    chance = random.Random(worker)
    while True:
        together.wait(60)  # in life they meet now and then; here they look at the same moments
        still_open = sorted(path.name for path in (folder / "open").iterdir())
        together.wait(60)
        if not still_open:
            return
        order = chance.choice(still_open)
        with (folder / "parcels.txt").open("a") as parcels:
            parcels.write(f"{order} {worker}\n")
        (folder / "open" / order).unlink(missing_ok=True)


def main(folder: Path) -> None:
    (folder / "open").mkdir()
    for number in range(1, ORDERS + 1):
        (folder / "open" / f"order-{number:02}").touch()
    spawn = get_context("spawn")
    together = spawn.Barrier(len(WORKERS))
    workers = [spawn.Process(target=work, args=(w, folder, together)) for w in WORKERS]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    if any(process.exitcode for process in workers):
        sys.exit("a worker failed")

    lines = (folder / "parcels.txt").read_text().splitlines()
    parcels = Counter(line.split()[0] for line in lines)
    several = [order for order, number in parcels.items() if number > 1]
    print(f"  {ORDERS} orders, {parcels.total()} parcels.")
    print(f"  {len(several)} orders were shipped more than once, such as {min(several)}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
