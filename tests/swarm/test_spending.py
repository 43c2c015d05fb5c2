"""The limits of a swarm on what its agents use, as a daemon is told it."""

from __future__ import annotations

import subprocess
import time

import dibs
from dibs.space.scope import AGENTS
from dibs.swarm import limits
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell, finish, until
from tests.swarm.test_swarm import AGENT, add, task
from tests.telemetry.receiver import COST, TOKENS, counted


def start(shell: Shell, *words: str) -> subprocess.Popen[str]:
    return shell.start("swarm", *words, "--", AGENT)


def use(daemon: Daemon, shell: Shell, session: int, dollars: float, tokens: int = 0) -> None:
    """Have a session tell the daemon what it used, with a token of the daemon's owner."""
    now = time.time_ns()
    body = counted(COST, dollars, now, now - 1, session__id="")
    counted(TOKENS, tokens, now, now - 1, request=body, session__id="", type="output")
    with dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space:
        [one] = [one for presence in space.agents.list() for one in presence.sessions
                 if one.id == session]  # fmt: skip
        with space.scope.store.read() as tx:
            row = tx.rows(AGENTS.one, session=one.id)[0]
        token = space.scope.keys.session_token(one.id, row["nonce"])
    reply = daemon.client(token=token).request(
        "POST", "/v1/metrics", body.SerializeToString(), {"Content-Type": "application/x-protobuf"}
    )
    assert reply.status == 200, reply


def working(shell: Shell) -> int:
    """The session of the one worker that works on a task."""

    def found() -> list[int]:
        workers = shell.json("swarm", "status")["workers"]
        return [int(one["session"]) for one in workers if one["task"]]

    return int(until(found, "a worker at work")[0])


def test_a_task_that_costs_more_than_one_may_is_ended_and_not_tried_again(shell: Shell) -> None:
    add(shell, "a", title="hang: something")
    with serving(shell) as daemon:
        running = start(shell, "1", "--task-cost", "2")
        session = working(shell)
        use(daemon, shell, session, 1.5)
        time.sleep(1.5)
        assert task(shell, "a")["state"] == "claimed", "it may go on"
        use(daemon, shell, session, 0.75)
        answer = finish(running, 60)
    assert answer.code == 0, answer
    done = task(shell, "a")
    assert done["state"] == "dead"
    assert done["reason"].startswith("it cost $2.25, more than a task may cost"), done["reason"]
    status = shell.json("swarm", "status")
    assert status["limits"]["spent_usd"] == 2.25


def test_what_is_booked_counts_at_once_and_what_is_said_after_it_counts_once(shell: Shell) -> None:
    add(shell, "a", "b", title="cost: something")
    with serving(shell) as daemon:
        running = start(shell.with_(AGENT_TAKES_S="4"), "1", "--tokens", "1000")
        use(daemon, shell, working(shell), 0.5, 1_500)
        answer = finish(running, 60)
    assert "takes no more tasks: 1,500 of 1,000 tokens are used" in answer.err, answer
    assert task(shell, "b")["state"] == "available"
    status = shell.json("swarm", "status")["limits"]
    # It has said that it cost 0.75, of which 0.50 were booked.
    assert (status["spent_usd"], status["used_tokens"]) == (0.75, 1_500)


def test_whoever_says_to_have_used_more_than_there_is_does_not_undo_the_limit(shell: Shell) -> None:
    with dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space:
        agent = space.join("lead")
        limits.declare(agent, 1, 5.0, 0, True, tokens=1000)
        for _ in range(2):
            limits.spend(agent, limits.MOST_USD, limits.MOST_TOKENS)
        now = limits.now(space)
    assert now.exhausted
    assert (now.spent_usd, now.used_tokens) == (limits.MOST_USD, limits.MOST_TOKENS)


def test_an_amount_that_no_float_can_hold_is_none() -> None:
    for amount in (10**400, 1e400, float("nan"), -1, True, "1"):
        assert limits.dollars(amount) is None
