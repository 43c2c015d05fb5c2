"""R3: a holder is frozen past its time, somebody takes over, and it comes back.

It renews, completes, releases and writes with the epoch it has; nothing of that is accepted.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import dibs
from tests.stress.procs import nursery, open_gate
from tests.stress.zombies import TTL_S


def test_a_few_frozen_holders_come_back_and_are_refused(
    url: str, space_name: str, tmp_path: Path
) -> None:
    freeze_holders(url, space_name, tmp_path, holders=2, pairs=5, rounds=1)


@pytest.mark.stress
def test_a_thousand_frozen_holders_come_back_and_are_refused(
    url: str, space_name: str, tmp_path: Path
) -> None:
    print("\n" + freeze_holders(url, space_name, tmp_path, holders=10, pairs=5, rounds=20))


def freeze_holders(
    url: str, space: str, folder: Path, *, holders: int, pairs: int, rounds: int
) -> str:
    where = {"url": url, "space": space, "user_dir": str(folder / "user")}
    gates = folder / "gates"
    gates.mkdir()
    dibs.open(url, space=space, user_dir=where["user_dir"]).close()
    with nursery(folder / "logs") as place:
        frozen = [
            place.start(
                "zombies:holder",
                name=f"holder-{number}",
                gates=str(gates),
                pairs=pairs,
                rounds=rounds,
                **where,
            )
            for number in range(holders)
        ]
        for worker in frozen:
            worker.wait_for("joined")
        for number in range(rounds):
            open_gate(gates / f"claim-{number}")
            held = [worker.wait_for("holding", times=number + 1) for worker in frozen]
            for worker in frozen:
                worker.freeze()
            # The time that passes here is the test: the holders' own, while they stand still.
            time.sleep(TTL_S + 0.05)
            names = [name for line in held for name in line["leases"]]
            until = gates / f"give-back-{number}"
            taker = place.start(
                "zombies:taker", name=f"taker-{number}", names=names, until=str(until), **where
            )
            taker.wait_for("done")
            took = {line["name"]: line for line in taker.log() if line["says"] == "took"}
            for line in held:
                for name, epoch in line["leases"].items():
                    assert took[name]["lease"] > epoch
                    assert took[name]["task"] > line["tasks"][name]
            open_gate(gates / f"act-{number}")
            for worker in frozen:
                worker.thaw()
            for worker in frozen:
                worker.wait_for("round over", times=number + 1)
            open_gate(until)
            taker.wait()
        for worker in frozen:
            worker.wait()
        acted = [line for worker in frozen for line in worker.log() if line["says"] == "acted"]
    assert len(acted) == holders * pairs * rounds
    accepted = [(line["name"], what) for line in acted for what in line["accepted"]]
    assert not accepted, accepted[:10]
    with dibs.open(url, space=space, user_dir=where["user_dir"]) as seen:
        assert seen.state.list("zombies") == ()
        kept = [name for number, name in enumerate(names) if number % 2]
        assert [seen.work.show(f"task:{name}").result for name in kept] == ["taker"] * len(kept)
    database = "postgres" if url.startswith("postgresql") else "sqlite"
    tried = sum(line["tried"] for line in acted)
    return (
        f"R3 {database}: {len(acted):,} frozen holders came back, {tried:,} attempts "
        f"with their old epochs, {len(accepted)} accepted"
    )
