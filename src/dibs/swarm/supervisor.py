"""The supervisor: workers in slots, a conductor for the landings, and a planner.

The main thread listens for signals, reads the limits, and starts what is missing. Workers are
threads; the conductor and the planner are dibs commands in separate processes (`dibs land --run`,
`dibs work refill`), so a long verification delays no worker. All of them end with this process,
however it ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from dibs.errors import DibsError, EmptyError, HeldError, UnavailableError
from dibs.landing.conducting import target_of
from dibs.link import living, served_name
from dibs.nouns.work.landings import LANDING
from dibs.records import called
from dibs.storage.user_dir import default_user_dir
from dibs.surroundings.running import ENDING, SIGNALS, TTL_S, attend_group, execute
from dibs.surroundings.wording import note
from dibs.swarm import limits, logs
from dibs.swarm.attempt import SLOT, Worker, end_left, told_of
from dibs.swarm.worktree import by_slot, drop_landed, tip
from dibs.system import next_signal
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.clients import Client
    from dibs.dibs import Agent, Dibs
    from dibs.names.paths import Place
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

RUN = "swarm:run"
"""What all supervisors of a space share."""
DIBS = (sys.executable, "-m", "dibs")
STEP_S = 0.25
AGAIN_S, AGAIN_MAX_S = 5.0, 60.0
"""How long to wait before a failed conductor or planner is restarted; doubled each time."""


class Orders:
    """The options with which a person starts a supervisor.

    command: what to run for each task, with the additional `environment`
    metered: the client, if it should report its usage to a daemon
    by_argument: whether the prompt is the last argument; it is on standard input in any case
    commit: whether dibs commits what the command leaves
    onto: the target branch; `check` is the digest of `verify`
    only: the one task to work on
    attempts: how often a task may fail, if less than the task's own limit; 0 for that limit
    """

    def __init__(self) -> None:
        self.command: tuple[str, ...] = ()
        self.metered: Client | None = None
        self.environment: dict[str, str] = {}
        self.by_argument = False
        self.commit = False
        self.onto = ""
        self.verify: tuple[str, ...] = ()
        self.check = ""
        self.shared = False
        self.only = ""
        self.kind: str | None = None
        self.tags: Sequence[str] = ()
        self.template = ""
        self.ports = 1
        self.task_s = 3600.0
        self.attempts = 0
        self.plan = ""
        self.below = 0
        self.until_empty = False


def gone(onto: str) -> UnavailableError:
    return UnavailableError(
        f"the branch {called(onto)} is gone, so nothing can be landed on it",
        next="create it again, then dibs swarm resume; what was handed in is still queued",
    )


class Companion(threading.Thread):
    """A dibs command that runs beside the workers.

    failed: how often it had failed in a row when it was started
    """

    def __init__(self, swarm: Swarm, failed: int, *words: str) -> None:
        super().__init__(daemon=True)
        self._swarm = swarm
        self._words = [*DIBS, *words]
        self._began = time.monotonic()
        self.failed = failed
        self.code: int | None = None

    @property
    def may_be_followed(self) -> bool:
        """Whether it has ended and, if it failed, the pause has passed."""
        pause_s = min(AGAIN_S * 2**self.failed, AGAIN_MAX_S)
        return not self.is_alive() and (self.code == 0 or time.monotonic() - self._began > pause_s)

    def run(self) -> None:
        swarm = self._swarm
        self.code = execute(
            swarm.call, swarm.agent, self._words, swarm.mask, self._attend, GroupTether(),
            {"DIBS_SWARM": swarm.name}, stdin=subprocess.DEVNULL, stdout=2, cwd=swarm.place.top,
        )  # fmt: skip

    def _attend(self, child: subprocess.Popen[bytes]) -> int:
        return attend_group(child, None, self._listen)[0]

    def _listen(self, seconds: float) -> int:
        self._swarm.over.wait(seconds)
        return signal.SIGTERM if self._swarm.over.is_set() else 0


class Swarm:
    """One supervisor, as it runs.

    mask: the signal mask of its commands
    stopped: whether running attempts must end
    over: set when nothing may run any more
    """

    def __init__(
        self,
        call: Globals,
        space: Dibs,
        agent: Agent,
        orders: Orders,
        mask: set[signal.Signals] | set[int],
        patterns: Sequence[str] = (),
    ) -> None:
        self.call = call
        self.space = space
        self.agent = agent
        self.name = agent.name
        self.place: Place = space.scope.place
        self.orders = orders
        self.mask = mask
        self.patterns = patterns
        self.over = threading.Event()
        self.stopped = False
        self._told = 0
        self._ending = ""
        self._troubles: list[str] = []
        self._workers: dict[int, Worker] = {}
        self._done = False
        self._empty: EmptyError | None = None
        self._companions: dict[str, Companion] = {}
        self._now = limits.now(space)

    @property
    def until_empty(self) -> bool:
        """Whether a worker that finds nothing to do may end."""
        if not self.orders.until_empty:
            return False
        # The planner may bring more, unless it has said that there is nothing.
        return not self.orders.plan or self.space.state.get("work", "refill") is not None

    @property
    def target(self) -> str:
        """The branch that the work goes onto, even if a tag has the same name."""
        return f"refs/heads/{self.orders.onto}"

    def pause(self, seconds: float) -> None:
        self.over.wait(seconds)

    def too_costly(self, cost_usd: float) -> bool:
        """Whether a task has cost more than one may."""
        limit = self._now.task_cost_usd
        return limit is not None and cost_usd >= limit

    def metering(self, agent: Agent) -> dict[str, str]:
        """What lets the client that is started tell a daemon of the space what it uses.

        The token is that of the session, which it has anyway.
        """
        client = self.orders.metered
        if client is None or self.space.scope.daemon is not None:
            return {}
        serves = served_name(self.space.scope)
        for word in living(default_user_dir()).values():
            url = str(word["url"])
            if word.get("serves") == serves and url.startswith("http://"):
                return client.metering(url, agent.token)
        return {}

    def wants(self, worker: Worker) -> bool:
        """Whether a worker may take another task."""
        return not self._ending and not self.stopped and worker.number <= self._now.agents

    def _say_why_it_ends(self) -> None:
        """Say why no task is left for it, which may be another reason than that all are done."""
        if self._empty is not None and not (self._ending or self.stopped):
            note(f"dibs: {self._empty.message}")
            note(f"next: {self._empty.next}")

    def trouble(self, why: DibsError | OSError | str) -> None:
        """Something is wrong that another task would meet, too: take no more."""
        said = why.message if isinstance(why, DibsError) else str(why)
        if said not in self._troubles:
            note(f"dibs: {said}")
            if isinstance(why, DibsError) and why.next:
                note(f"next: {why.next}")
        self._troubles.append(said)

    def tell(self, worker: Worker, task: Task, kept: str | None) -> None:
        note(f"dibs: w{worker.number}: {told_of(task, kept)}")

    def run(self) -> int:
        """Work until nothing is left, or until told to end; return the exit code."""
        try:
            with self.agent.lease(RUN, mode="shared", ttl_s=TTL_S, note="runs agents") as lease:
                self._tidy()
                while not self._finished():
                    came = next_signal(SIGNALS, STEP_S, typed=True)
                    if came in ENDING:
                        self._told, self.stopped = came, True
                    if lease.lost is not None:
                        self.trouble(lease.lost)
                        self.stopped = True
                    self._step()
                self.over.set()
                for companion in self._companions.values():
                    companion.join()
                self._tidy()
                self._say_why_it_ends()
        finally:
            self.over.set()
        if self._told:
            return 128 + self._told
        return 1 if self._troubles else 0

    def _step(self) -> None:
        """Check the limits, and start what is missing."""
        self._now = limits.now(self.space)
        if self._now.ending == "stop":
            self.stopped = True
        why = self._troubles[0] if self._troubles else self._now.exhausted
        if why and not self._ending:
            self._ending = why
            note(f"dibs: takes no more tasks: {why}")
        for number, worker in list(self._workers.items()):
            if not worker.is_alive():
                self._done = self._done or worker.done
                self._empty = worker.empty or self._empty
                del self._workers[number]
        if not self._ending and not self.stopped and not self._done:
            self._hire()
        if self._done and self._more():
            self._done, self._empty = False, None
        self._conduct()
        if self.orders.plan and not self._ending and not self.stopped:
            below = str(self.orders.below or self._now.agents)
            words = ("work", "refill", "--below", below, "--loop", "--", "sh", "-c")
            self._keep_running("planner", *words, self.orders.plan)

    def _hire(self) -> None:
        """Start a worker in each free slot."""
        missing = [one for one in range(1, self._now.agents + 1) if one not in self._workers]
        if not missing:
            return
        slots = self.space.leases.status(*(f"{SLOT}{number}" for number in missing))
        for number, slot in zip(missing, slots, strict=True):
            if slot.free:
                self._workers[number] = Worker(self, number)
                self._workers[number].start()

    def _more(self) -> bool:
        """Whether there is something to do for our workers, after one of them found nothing."""
        orders = self.orders
        return not orders.only and any(
            task.kind != LANDING and set(orders.tags).issuperset(task.tags)
            for task in self.space.work.list(state="available", kind=orders.kind, limit=1000)
        )

    def _train(self, *states: str) -> list[Task]:
        """The landings in these states that our conductor can handle."""
        able = {target_of(self.orders.onto), f"check:{self.orders.check}"}
        return [
            task
            for state in states
            for task in self.space.work.list(state=state, kind=LANDING, limit=1000)
            if able.issuperset(task.tags)
        ]

    def _conduct(self) -> None:
        """Keep a conductor running while there are landings for it."""
        if self.orders.shared or self.stopped:
            return
        if self._train("available"):
            last = self._companions.get("conductor")
            if last is not None and last.code and not tip(self.place.root, self.target):
                self.trouble(gone(self.orders.onto))
                return
            words = ["land", "--run", "--onto", self.orders.onto]
            words += [word for command in self.orders.verify for word in ("--verify", command)]
            self._keep_running("conductor", *words)

    def _keep_running(self, what: str, *words: str) -> None:
        last = self._companions.get(what)
        if last is None or last.may_be_followed:
            failed = 0 if last is None or last.code == 0 else last.failed + 1
            self._companions[what] = Companion(self, failed, *words)
            self._companions[what].start()

    def _finished(self) -> bool:
        if self._workers:
            return False
        if self.stopped or self._troubles:
            return True
        if not (self._ending or self._done):
            return False
        # No more tasks are taken; what was handed in is landed before the end.
        return not self._train("available", "claimed", "failed")

    def _tidy(self) -> None:
        """Keep the work of dead workers, and remove unused worktrees."""
        logs.remove_old(self.place.store_dir)
        if self.orders.shared:
            return
        for number, worktrees in by_slot(self.place).items():
            try:
                with self.agent.lease(f"{SLOT}{number}", ttl_s=TTL_S, note="tidies up"):
                    end_left(self.place, number)
                    for worktree in worktrees:
                        kept = worktree.free()
                        if kept:
                            note(f"dibs: kept uncommitted work from w{number}: {called(kept)}")
                        if not worktree.remove():
                            note(f"dibs: {called(worktree.path, limit=300)} was left as it is")
            except HeldError:
                continue  # somebody works there
            except (DibsError, OSError) as error:
                note(f"dibs: the worktree of w{number} is kept: {error}")
        try:
            if tip(self.place.root, self.target):
                drop_landed(self.place.root, self.target)
        except DibsError as error:
            note(f"dibs: {error.message}")
