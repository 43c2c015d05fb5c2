"""`dibs swarm`: run the user's agents on the tasks of this space, until all work is landed."""

from __future__ import annotations

import os
import shlex
import signal
from typing import NamedTuple

from dibs.arguments import NAME, Choice, Whole
from dibs.errors import DibsError, InvalidError, NotFoundError, NotYoursError
from dibs.landing.bar import digest
from dibs.landing.conducting import top_of
from dibs.operation import AGENT, EVERYBODY, PEOPLE
from dibs.records import called, quoted, span
from dibs.surroundings.running import SIGNALS
from dibs.surroundings.settings import load
from dibs.surroundings.wording import note, say, table, words
from dibs.swarm import limits
from dibs.swarm.attempt import SLOT, slug_of
from dibs.swarm.prompt import TEMPLATE
from dibs.swarm.supervisor import RUN, Orders, Swarm
from dibs.swarm.worktree import KEPT, current_branch, tip
from dibs.swarm.worktree import plain as git_says

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Agent, Dibs
    from dibs.surroundings.commands import Globals

BY = {
    "swarm": EVERYBODY,
    "swarm status": EVERYBODY,
    "swarm logs": EVERYBODY,
    "swarm drain": EVERYBODY,
    "swarm stop": PEOPLE,
    "swarm resume": PEOPLE,
}
DESTRUCTIVE = ("swarm drain", "swarm stop")
KINDS = {
    "tags": NAME,
    "until": Choice("empty", "stopped"),
    "ports": Whole(0, 20),
    "attempts": Whole(0, 100),
    "below": Whole(0),
    "tokens": Whole(0, limits.MOST_TOKENS),
    "lines": Whole(1, 100_000),
}
TEMPLATE_LIMIT = 64_000
ENDINGS = {
    "drain": "takes no more tasks; running agents finish theirs",
    "stop": "ends the running agents, and gives their tasks back",
}


def swarm(
    call: Globals,
    what: str = "",
    *command: str,
    agent: str = "",
    verify: Sequence[str] = (),
    onto: str = "",
    shell: bool = False,
    commit: bool = False,
    shared: bool = False,
    until: str = "empty",
    kind: str | None = None,
    tags: Sequence[str] = (),
    task_time_s: float = 3600,
    time_s: float = 0,
    attempts: int = 0,
    cost: str = "",
    task_cost: str = "",
    tokens: int = 0,
    plan: str = "",
    below: int = 0,
    ports: int = 1,
    template: str = "",
    show: bool = False,
) -> int:
    """Run agents on the tasks of this space, each in a worktree of its own, and land their work.

    Each agent gets one task, claimed before the agent starts, and a prompt that says what to do. It
    commits on its own branch; the commit is verified and landed (dibs land), and the task completes
    with it. If an agent fails, ends without a commit or takes too long, its task is tried again
    after a pause. Uncommitted work is kept on a branch dibs/kept/….

    A known client (--agent) edits files but runs no commands, and dibs commits its changes; --shell
    lets it run commands with your rights. Words after -- are added to its command. Without --agent,
    the command after -- is the agent: it gets the prompt on its standard input and in DIBS_PROMPT,
    with DIBS_TASK, DIBS_BRANCH, DIBS_PORT and DIBS_DATABASE in its environment, and commits by
    itself (or --commit). A line {"cost_usd": 0.12} in its output counts as its cost.

    Several supervisors share the limits of the space; the last ones given apply. The exit code is 0
    if the run went as planned, even if tasks are dead, and 1 if agents could not be run.

    what: how many agents at once, or the text of a task to add and work on
    command: the agent, or more words for the one named by --agent
    agent: claude, codex, gemini, opencode or gptme
    verify: a command that must succeed before work lands, in addition to those of the repository
    onto: the branch to land on; by default the one of the main worktree
    shell: let a known client run commands, with your rights
    commit: commit the changes of the command if it exits with 0
    shared: work in the checkout itself, without worktrees and landing
    until: empty (no task is left) or stopped
    kind: only tasks of this kind
    tags: what the agents can do; tasks that need more are left to others
    task_time_s: how long one attempt may take
    time_s: how long the swarm may take in all; then it drains
    attempts: how often a task may fail, if that is less than the limit of the task
    cost: how many dollars the agents may cost in all; then it drains
    task_cost: how many dollars a task may cost, all attempts together; then it is dead
    tokens: how many tokens they may use in all, cache reads not counted; then it drains
    plan: a planner, run when tasks run out (see dibs work refill)
    below: run the planner below this many available tasks; by default the number of agents
    ports: how many ports to lease for each agent
    template: a file with the prompt; {task}, {files}, {finish} and so on are filled in
    show: only print the command and what it may do
    example: 4 --agent claude --verify 'make test'
    """
    given = dict(locals())
    number_of(what)  # a mistyped `dibs swarm status` is said before what else is missing
    orders = Orders()
    preset(orders, agent, command, shell)
    orders.commit = orders.commit or commit
    if show:
        return show_command(call, orders, agent, shell)
    if not orders.command:
        raise InvalidError(
            "no agent was given", next="dibs swarm 4 --agent claude, or dibs swarm 4 -- COMMAND…"
        )
    if shared and orders.commit:
        raise InvalidError(
            "in a shared checkout dibs cannot tell whose changes are whose, so it commits nothing",
            next="leave out --shared, or use --shell without --commit, so that the agent commits",
        )
    for name in ("shared", "kind", "tags", "ports", "attempts", "plan", "below"):
        setattr(orders, name, given[name])
    orders.verify, orders.check, orders.task_s = tuple(verify), digest(verify), task_time_s
    orders.until_empty = until == "empty"
    orders.template = read_template(template)
    more = {"tokens": tokens or None, "task_cost_usd": dollars(task_cost)}
    return supervise(call, orders, what, agent, onto, cost, time_s, more=more)


def preset(orders: Orders, agent: str, command: Sequence[str], shell: bool) -> None:
    """Fill in the command: that of a client that dibs knows, or the one that was given."""
    orders.command = tuple(command)
    if not agent:
        return
    from dibs.clients import client_of, every_client

    client = client_of(agent)
    if "OTEL_METRICS_EXPORTER" not in os.environ:  # otherwise the user has chosen another receiver
        orders.metered = client
    how = client.unattended(shell)
    if how is None:
        known = ", ".join(one.name for one in every_client() if one.unattended(False))
        raise InvalidError(
            f"dibs does not know how to run {client.title} without a person",
            next=f"one of: {known}; or give its command after --",
        )
    # The prompt comes after the last word.
    orders.command = (*how.words[:-1], *command, how.words[-1])
    orders.environment = how.environment
    orders.by_argument = True
    orders.commit = True


def show_command(call: Globals, orders: Orders, agent: str, shell: bool) -> int:
    from dibs.clients import client_of

    variables = [f"{name}={shlex.quote(text)}" for name, text in orders.environment.items()]
    line = " ".join([*variables, *map(shlex.quote, orders.command)])
    line += " PROMPT" if orders.by_argument else ""
    how = client_of(agent).unattended(shell) if agent else None
    permits = how.permits if how else "anything that the command does with your rights"
    value = {"command": list(orders.command), "environment": orders.environment}
    commits = "dibs commits its changes" if orders.commit else "it commits by itself"
    return call.answer(
        value | {"permits": permits, "commit": orders.commit}, f"{line}\n{permits}; {commits}"
    )


def read_template(path: str) -> str:
    if not path:
        return TEMPLATE
    try:
        with open(path, encoding="utf-8") as source:
            return source.read(TEMPLATE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"the template cannot be read: {error}") from None


def supervise(
    call: Globals,
    orders: Orders,
    what: str,
    preset: str,
    onto: str,
    cost: str = "",
    time_s: float = 0,
    resumed: bool = False,
    more: dict[str, Any] | None = None,
) -> int:
    """Run a supervisor in this process.

    resumed: keep the limits, and what has been spent of them
    more: more limits
    """
    if os.environ.get("DIBS_SWARM"):
        raise NotYoursError(
            "a worker of a swarm cannot start another swarm",
            next="add tasks with dibs work add; the swarm takes them within its limits",
        )
    agents = number_of(what)
    amount = dollars(cost)
    # Threads inherit the blocked signals, so that no signal is lost to one of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with call.open() as space:
        place = space.scope.place
        top = top_of(space)
        orders.onto = onto or current_branch(place.root)
        if not orders.onto or not tip(place.root, f"refs/heads/{orders.onto}"):
            why = "the main worktree has no branch or no commit"
            raise InvalidError(
                f"there is no branch {called(onto)}" if onto
                else f"there is no branch to work on: {why}",
                next="git branch lists all branches" if onto
                else "commit something, or name a branch with --onto",
            )  # fmt: skip
        if orders.commit and not git_says("var", "GIT_COMMITTER_IDENT", cwd=top, codes=(0, 128)):
            raise InvalidError(
                "git has no name and address to commit the work of the agents with",
                next="git config user.name 'Your Name' && git config user.email you@example.com",
            )
        name = call.agent or f"{call.named(space, people=True)}-swarm"
        with space.join(name, status=f"runs agents onto {orders.onto}") as agent:
            fresh = space.leases.status(RUN)[0].free
            if not fresh and call.party() == AGENT:
                note("dibs: a swarm is already running; its limits apply")
            elif not resumed and (fresh or agents is not None):
                limits.declare(agent, agents, amount, time_s, fresh, **more or {})
            limits.forget(agent, "ending")
            agent.state.set(
                limits.NAMESPACE, "run", {"agent": preset, "onto": orders.onto}, force=True
            )
            if what and agents is None:
                orders.only = add(agent, what)
            patterns = load(place).include
            return Swarm(call, space, agent, orders, mask, patterns).run()


def number_of(what: str) -> int | None:
    """How many agents are asked for; None if it is the text of a task, or nothing."""
    agents = int(what) if what.isascii() and what.isdecimal() and len(what) < 5 else None
    if agents is not None and not 1 <= agents <= limits.MOST_AGENTS:
        raise InvalidError(
            f"the number of agents must be between 1 and {limits.MOST_AGENTS}",
            next="dibs swarm 4 …",
        )
    if what and agents is None and not any(sign.isspace() for sign in what.strip()):
        raise InvalidError(
            f"{called(what)} is neither a number of agents nor the text of a task",
            next="dibs swarm 4 …, or dibs swarm 'fix the tests' …; "
            "see also dibs swarm status, logs, drain, stop and resume",
        )
    return agents


def dollars(cost: str) -> float | None:
    if not cost:
        return None
    try:
        amount = limits.dollars(float(cost.removeprefix("$")))
    except ValueError:
        amount = None
    if amount is None:
        raise InvalidError(f"{cost!r} is not an amount of dollars", next="write --cost 12.50")
    return amount


def add(agent: Agent, text: str) -> str:
    """Add a task from the text that a person typed."""
    id = f"swarm:{slug_of(text)}-{os.urandom(3).hex()}"
    return agent.work.add(id, title=text).id


class Worker(NamedTuple):
    """A worker, as others see it."""

    slot: int
    agent: str
    session: int
    task: str
    status: str
    since_at: int


def workers(space: Dibs) -> list[Worker]:
    sessions = {
        session.id: session
        for presence in space.agents.list()
        for session in presence.sessions
        if session.alive
    }
    tasks = {task.session: task.id for task in space.work.list(state="claimed", limit=1000)}
    return [
        Worker(
            slot=int(lease.resource.removeprefix(SLOT)),
            agent=lease.agent,
            session=lease.session,
            task=tasks.get(lease.session, ""),
            status=sessions[lease.session].status,
            since_at=lease.granted_at,
        )
        for lease in space.leases.list()
        if lease.resource.startswith(SLOT) and lease.session in sessions
    ]


def status(call: Globals) -> int:
    """Show the workers of this space, their tasks, the limits, and kept work."""
    with call.open() as space:
        now, found = limits.now(space), workers(space)
        counts = space.agents.overview(limit=1).counts
        kept = kept_branches(space.scope.place.root)
    if call.json:
        value = {"limits": now._asdict(), "workers": [one._asdict() for one in found]}
        return call.answer(value | {"tasks": counts, "kept": kept}, "")
    rows = [
        [f"w{one.slot}", called(one.agent), called(one.task), words(one.status)] for one in found
    ]
    table(rows, ["slot", "worker", "task", "status"])
    if not rows:
        say("no agent runs")
    spent = f"${now.spent_usd:.2f}" + (f" of ${now.cost_usd:.2f}" if now.cost_usd else "")
    if now.tokens is not None or now.used_tokens:
        limit = "" if now.tokens is None else f" of {now.tokens:,}"
        spent += f" and {now.used_tokens:,}{limit} tokens"
    left = f", {span(int(now.seconds * 1000))} left" if now.seconds else ""
    say(f"at most {now.agents} at once, {spent} spent{left}")
    say("tasks: " + (", ".join(f"{number} {state}" for state, number in counts.items()) or "none"))
    if now.exhausted:
        say(f"takes no more tasks: {quoted(now.exhausted)}")
    if kept:
        say(f"kept, not committed yet: {', '.join(map(called, kept[:20]))}")
    return 0


def kept_branches(root: str) -> list[str]:
    try:
        said = git_says(
            "for-each-ref", "--format=%(refname:short)", f"refs/heads/{KEPT}/", cwd=root
        )
    except DibsError:
        return []  # no repository
    return said.splitlines()


def logs(call: Globals, task: str = "", *, lines: int = 50) -> int:
    """Show the end of the log of a task's last attempt; without a task, where all logs are.

    task: the task
    lines: how many of the last lines
    example: fix-login --lines 100
    """
    with call.open() as space:
        if not task:
            return list_logs(call, space)
        entry = space.state.get(limits.TASKS, task)
        folder = f"{space.scope.place.store_dir}/logs/"
    said = entry.value if entry is not None and isinstance(entry.value, dict) else {}
    path = str(said.get("log", ""))
    # Anybody can write an entry, so the path must be below the folder of logs.
    if os.path.dirname(path) + "/" != folder or os.path.islink(path) or not os.path.isfile(path):
        raise NotFoundError(
            f"there is no log of {called(task)} on this machine", next="dibs swarm logs"
        )
    with open(path, "rb") as source:
        source.seek(max(0, os.path.getsize(path) - 1_000_000))
        text = source.read().decode("utf-8", "replace")
    end = text.splitlines()[-lines:]
    return call.answer({**said, "lines": end}, "\n".join([*end, f"({path})"]))


def list_logs(call: Globals, space: Dibs) -> int:
    entries = space.state.list(limits.TASKS)
    if call.json:
        found: dict[str, Any] = {entry.key: entry.value for entry in entries}
        return call.answer({"logs": found}, "")
    rows = [
        [called(entry.key), str(entry.value.get("attempt")), quoted(str(entry.value.get("log")))]
        for entry in entries
        if isinstance(entry.value, dict)
    ]
    table(rows, ["task", "attempt", "log"])
    return 0


def drain(call: Globals) -> int:
    """Take no more tasks; running agents finish, and their work is landed."""
    return ask_to_end(call, "drain")


def stop(call: Globals) -> int:
    """End all agents of this space now; their tasks are free, and uncommitted work is kept."""
    return ask_to_end(call, "stop")


def ask_to_end(call: Globals, how: str) -> int:
    with call.open() as space:
        name = call.agent or call.named(space, people=True)
        with space.join(name) as agent:
            limits.end(agent, how, name)
            running = not agent.leases.status(RUN)[0].free
    said = ENDINGS[how] if running else "no swarm is running"
    return call.answer({"running": running, "ending": how}, said)


def resume(
    call: Globals,
    *command: str,
    agent: str = "",
    verify: Sequence[str] = (),
    shell: bool = False,
    commit: bool = False,
    until: str = "empty",
    task_time_s: float = 3600,
) -> int:
    """Continue after a drain, a stop or a crash, within the same limits.

    The limits, the client and the target branch are remembered. Commands are not, because agents
    can write to the store: give --verify, and the words after --, again.

    command: the agent, or more words for the client
    agent: another client
    verify: a command that must succeed before work lands, in addition to those of the repository
    shell: let a known client run commands, with your rights
    commit: commit the changes of the command if it exits with 0
    until: empty (no task is left) or stopped
    task_time_s: how long one attempt may take
    example: --verify 'make test'
    """
    with call.open() as space:
        now = limits.now(space)
    if not now.run:
        raise NotFoundError("no swarm has run here", next="dibs swarm 4 --agent claude")
    from dibs.clients import client_names

    last = now.run.get("agent")
    if not agent and not command and last in client_names():
        agent = str(last)
    onto = str(now.run.get("onto") or "")
    orders = Orders()
    preset(orders, agent, command, shell)
    orders.commit = orders.commit or commit
    if not orders.command:
        raise InvalidError(
            "the last swarm ran a command of its own, which is not remembered",
            next="dibs swarm resume -- COMMAND…",
        )
    orders.verify, orders.check, orders.task_s = tuple(verify), digest(verify), task_time_s
    orders.until_empty = until == "empty"
    orders.template = TEMPLATE
    return supervise(call, orders, "", agent, onto, resumed=True)
