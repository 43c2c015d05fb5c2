"""A process that goes on with a store which went back in time: what each operation tells it.

Run as a program, it reads one JSON line per request and answers with one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import dibs
from dibs.dibs import operations

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "leases.report": ("lock:a",),
    "leases.transfer": ("lock:a",),
    "messages.send": ("hello",),
    "messages.send_many": ([{"body": "hello"}],),
    "messages.announce": ("hello",),
    "messages.ack": (1,),
    "messages.delivery": (1,),
    "messages.search": ("hello",),
    "state.get": ("n", "k"),
    "state.set": ("n", "k", 1),
    "state.delete": ("n", "k"),
    "state.clear": ("n",),
    "state.list": ("n",),
    "state.history": ("n", "k"),
    "state.export": ("n",),
    "state.watch": ("n", "k"),
    "work.ask": ("t", "May I?"),
    "work.add_many": ([{"id": "t"}],),
    "work.put_many": ([{"id": "t"}],),
    "work.next_many": (2,),
    "work.complete_many": ([{"id": "t"}],),
    "agents.rename": ("zoe",),
    "agents.add_token": ("ci",),
    "agents.revoke_token": (1,),
    "events.watch": (0,),
    "events.replay": (),
    "events.diff": (0, 1),
}
NAMED: dict[str, dict[str, Any]] = {
    "leases.transfer": {"to": "bob"},
    "messages.send": {"to": "bob"},
    "state.set": {"force": True},
    "events.watch": {"wait_s": 0.1},
    "state.watch": {"wait_s": 0.1},
    "leases.wait": {"wait_s": 0.1},
    "work.wait": {"wait_s": 0.1},
    "work.land": {"commit": "1" * 40},
    "events.replay": {"at": 0},
}


CONNECTIONS = 4
"""How many a process may have that a promotion breaks: each is found broken once."""


def attempt(agent: dibs.Agent) -> dict[str, str]:
    """What each operation says: the code of its error, or `done`."""
    heard = {}
    for name, operation in sorted(operations().items(), key=lambda one: one[0] == "agents.leave"):
        default: tuple[Any, ...] = ("lock:a",) if operation.noun == "leases" else ("t",)
        takes = operation.many is not None or any(
            one.required for one in operation.arguments().values()
        )
        words = ARGUMENTS.get(name, default if takes else ())
        if name == "events.check_seal":
            words = (f"dibs-seal 1 {'0' * 32} 2026-11-16T12:00:00Z {agent.space}",)
        method = getattr(getattr(agent, operation.noun), operation.verb)
        for _ in range(CONNECTIONS):
            try:
                method(*words, **NAMED.get(name, {}))
                heard[name] = "done"
            except dibs.DibsError as error:
                heard[name] = error.code
            except TypeError as error:
                heard[name] = f"TypeError: {error}"
            if heard[name] != "disconnected":
                break
    return heard


def main() -> None:
    space: dibs.Dibs | None = None
    agent: dibs.Agent | None = None
    for line in sys.stdin:
        said = json.loads(line)
        answer: Any
        if said["do"] == "join":
            space = dibs.open(said["url"], space=said["space"], user_dir=said["user"])
            agent = space.join("alice", ttl_s=300)
            epochs = [agent.leases.claim(f"lock:{number}").epoch for number in range(5)]
            epochs.append(agent.work.claim(f"task-{epochs[0]}").epoch or 0)
            answer = epochs
        elif said["do"] == "claim":
            assert agent is not None
            answer = [agent.leases.claim(f"lock:lost-{n}").epoch for n in range(5)]
        else:
            assert agent is not None and space is not None
            answer = attempt(agent)
            space.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
