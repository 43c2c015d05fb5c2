"""With dibs: the same four workers take orders from the store, and one of them is killed.

`work.next` gives each order to one worker. `work.complete` stores the shipment in the same
transaction that ends the order, so there is never one without the other. Dave dies in the
middle, with an order in his hands; the store notices, and somebody else ships it.

What dibs cannot do is to undo what a worker did outside the store before it died. Work is at
least once; an effect that is written with `complete` happens once.

    python examples/orders_with.py FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dibs

ORDERS = 40
WORKERS = ("alice", "bob", "carol", "dave")


def work(worker: str, store: str, all_are_busy: Any) -> None:
    with dibs.open(store, space="example") as space, space.join(worker) as me:
        task = me.work.next()
        all_are_busy.wait(60)
        if worker == "dave":
            time.sleep(120)  # a large order; dave will not live to ship it
        while True:
            shipment = {"namespace": "shipped", "key": task.id, "value": {"by": worker}}
            me.work.complete(task.id, entry=shipment, epoch=task.epoch)
            while True:
                try:
                    task = me.work.next(wait_s=0.2)
                    break
                except dibs.LaterError:
                    pass  # another worker has the rest; it may die
                except dibs.AllDoneError:
                    return


def main(folder: Path) -> None:
    store = str(folder / "orders.db")
    with dibs.open(store, space="example") as space, space.join("shop") as shop:
        for number in range(1, ORDERS + 1):
            shop.work.add(f"order-{number:02}", kind="shipping")
        spawn = get_context("spawn")
        all_are_busy = spawn.Barrier(len(WORKERS))
        workers = {
            name: spawn.Process(target=work, args=(name, store, all_are_busy), daemon=True)
            for name in WORKERS
        }
        for process in workers.values():
            process.start()
        wait_for_completed(shop, ORDERS // 2)
        dave = workers.pop("dave")
        assert dave.pid is not None
        os.kill(dave.pid, signal.SIGKILL)
        dave.join()
        for process in workers.values():
            process.join()
        if any(process.exitcode for process in workers.values()):
            sys.exit("a worker failed")
        tell(shop)


def wait_for_completed(shop: dibs.Agent, number: int) -> None:
    seq, seen, give_up = 0, 0, time.monotonic() + 60
    while seen < number:
        if time.monotonic() > give_up:
            sys.exit("the workers did not get half of the orders done within a minute")
        for event in shop.events.watch(seq, kind="task.completed", wait_s=1):
            seq, seen = event.seq, seen + 1


def tell(shop: dibs.Agent) -> None:
    """Print the figures, and what became of the order that dave had."""
    shipped = shop.state.list("shipped")
    done = Counter(event.subject for event in shop.events.since(kind="task.completed"))
    print(f"  {ORDERS} orders, {len(shipped)} shipments, {done.total()} completions.")
    print(f"  {sum(number > 1 for number in done.values())} orders were shipped more than once.")
    print()
    print("  dave was killed (SIGKILL) with an order in his hands. The journal of that order:")
    lost = next(event.subject for event in shop.events.since(kind="task.claimed", agent="dave"))
    for event in shop.events.since(kind="task", subject=lost):
        epoch = f"epoch {event.data['epoch']}" if "epoch" in event.data else ""
        what = event.kind.partition(".")[2]
        print(f"    seq {event.seq:>3}  {lost}  {what:<9}  {event.agent:<5}  {epoch}".rstrip())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
