"""A worker: one slot, in which attempts run one after the other.

An attempt has its own session, NAME/wN, which holds the slot and the task. The task is claimed
before the agent is started. How the command ends decides what happens to the task:

    exit code 0, and committed     handed in: it waits for its landing, and completes with it
    anything else, or too late     failed with the end of its log, and retried after a pause
    told to stop, claim lost       given back; this does not count as an attempt

Whatever the command leaves uncommitted is saved on a separate branch before the task is settled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time

from dibs.dibs import Agent
from dibs.digest import sha256
from dibs.errors import (
    DibsError,
    EmptyError,
    HeldError,
    LaterError,
    NotFoundError,
    StaleError,
    StateError,
)
from dibs.landing.moving import is_within
from dibs.names.checkouts import Checkout
from dibs.names.paths import Place
from dibs.records import called, quoted, span
from dibs.surroundings.git import LOCAL
from dibs.surroundings.ports import find, number
from dibs.surroundings.running import TTL_S, attend_group, environment, execute
from dibs.surroundings.wording import note
from dibs.swarm import limits
from dibs.swarm.logs import Log
from dibs.swarm.prompt import prompt_for
from dibs.swarm.spending import Spending
from dibs.swarm.worktree import WORK, Worktree, include, left_of, own_commit, tip
from dibs.system import started_with
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.keeping import HeldLease, HeldTask
    from dibs.records import Task
    from dibs.swarm.supervisor import Swarm

SLOT = "swarm:slot:"
"""The prefix of slot leases: the holder may run an agent."""
MAKING = "swarm:worktrees"
"""The lease held while a worktree is created: git cannot do two at a time."""
MAKING_S = 600
LOOK_S = 1.0
STEP_S = 0.1
SLOT_VARIABLE = "DIBS_SLOT"
ROUNDS, SHORT_S = 20, 0.02
"""How often to look for processes that an agent left running, since they may start others."""
PORTS = (20_000, 29_999)
ENDED = ("completed", "cancelled", "dead")
TAKEN = {
    "completed": "was completed",
    "cancelled": "was cancelled",
    "available": "was given back",
    "failed": "was failed",
    "dead": "was failed",
}
"""What happened to a task that its worker no longer holds."""


class Worker(threading.Thread):
    """The attempts in one slot.

    done: whether it ended because no task was left for it
    empty: how it was told so
    """

    def __init__(self, swarm: Swarm, number: int) -> None:
        super().__init__(name=f"dibs-worker-{number}", daemon=True)
        self.swarm = swarm
        self.number = number
        self.done = False
        self.empty: EmptyError | None = None
        self.task = ""

    def run(self) -> None:
        try:
            while self.swarm.wants(self) and self._attempt():
                pass
        except HeldError:
            pass  # another supervisor has this slot
        except DibsError as error:
            self.swarm.trouble(error)
        except OSError as error:
            self.swarm.trouble(error)

    def _attempt(self) -> bool:
        """Take a task and work on it; return whether another may follow."""
        swarm = self.swarm
        name = f"{swarm.name}/w{self.number}"
        with (
            swarm.space.join(name, status="waits for a task") as agent,
            agent.lease(f"{SLOT}{self.number}", ttl_s=TTL_S, note="runs an agent") as slot,
        ):
            worktree = None if swarm.orders.shared else Worktree(swarm.place, self.number)
            here = agent if worktree is None else seen_from(agent, place_of(swarm, worktree))
            task = self._take(here)
            if task is None:
                return False
            self.task = task.id
            try:
                return Attempt(self, agent, here, slot, worktree).perform(task)
            finally:
                self.task = ""

    def _take(self, agent: Agent) -> Task | None:
        orders = self.swarm.orders
        while self.swarm.wants(self):
            try:
                if orders.only:
                    return agent.work.claim(orders.only, ttl_s=TTL_S)
                return agent.work.next(
                    kind=orders.kind, tags=orders.tags, ttl_s=TTL_S, wait_s=LOOK_S
                )
            except (HeldError, StateError):
                # It pauses, waits for its landing, or another worker has it.
                if agent.work.show(orders.only).state in ENDED:
                    self.done = True
                    return None
                self.swarm.pause(LOOK_S)
            except EmptyError as empty:
                if isinstance(empty, LaterError):
                    continue
                if self.swarm.until_empty:
                    self.done, self.empty = True, empty
                    return None
                self.swarm.pause(LOOK_S)
        return None


def seen_from(agent: Agent, place: Place) -> Agent:
    """The same session, with names relative to another place."""
    here = Agent(agent.scope.at(place))
    here.beating = agent.beating
    return here


def place_of(swarm: Swarm, worktree: Worktree) -> Place:
    """The place of a worktree that may not exist yet."""
    checkout = Checkout(swarm.place.root, worktree.path)
    return Place(checkout, swarm.place.store_dir, start=worktree.path)


class Attempt:
    """The command at work on one task."""

    def __init__(
        self, worker: Worker, agent: Agent, here: Agent, slot: HeldLease, worktree: Worktree | None
    ) -> None:
        """
        here: the agent's session, with names relative to its worktree
        """
        self._worker = worker
        self._swarm = worker.swarm
        self._orders = worker.swarm.orders
        self._agent = agent
        self._here = here
        self._slot = slot
        self._worktree = worktree
        self._folder = worker.swarm.place.root if worktree is None else worktree.path
        self._branch = ""
        self._base = ""
        self._kept: str | None = None
        self._started = False
        self._ended_by = ""
        self._commit = ""

    def perform(self, task: Task) -> bool:
        """Work on the task; return whether this worker may go on."""
        try:
            with self._here.task(task.id, ttl_s=TTL_S) as held:
                try:
                    self._prepare(held.task)
                except (DibsError, OSError) as error:
                    held.abandon(f"no agent could be started: {error}"[:500])
                    self._swarm.trouble(error)
                    return False
                try:
                    self._run(held)
                    self._settle(held)
                    self._free()
                    self._point(held.task)
                finally:
                    self._log.close()
            self._swarm.tell(self._worker, held.task, self._kept)
        except (StaleError, StateError, NotFoundError):
            self._taken(task)
            self._free()
        return self._started

    def _prepare(self, task: Task) -> None:
        """Prepare everything: worktree, files, branch, ports, log, prompt."""
        swarm, orders = self._swarm, self._orders
        slug = f"{slug_of(task.id)}-{task.epoch}"
        self._log = Log(swarm.place.store_dir, slug)
        end_left(swarm.place, self._worker.number)  # left by a worker that died in this slot
        self._base = tip(swarm.place.root, "HEAD" if orders.shared else swarm.target)
        if self._worktree is not None:
            self._branch = f"{WORK}/{slug}"
            with self._agent.lease(MAKING, ttl_s=TTL_S, wait_s=MAKING_S, note="creates a worktree"):
                kept = self._worktree.ready(self._base)
            if kept:
                note(f"dibs: uncommitted work of a dead worker is kept on {kept}")
            self._folder = self._worktree.path
            left = include(swarm.place, self._folder, swarm.patterns)
            for name in left[:10]:
                note(f"dibs: {called(name)} leads out of the repository and was not copied")
            self._worktree.begin(self._branch)
        self._ports = [
            number(find(self._agent, f"worker {place}", *PORTS, TTL_S * 1440).resource)
            for place in range(1, orders.ports + 1)
        ]
        self._prompt = prompt_for(
            task,
            agent=self._agent.name,
            folder=self._folder,
            branch=self._branch or orders.onto,
            onto=orders.onto,
            commits=not orders.commit,
            template=orders.template,
            earlier=self._earlier(task),
        )
        self._spending = Spending(self._agent, task.id)
        self._point(task)
        self._agent.agents.beat(status=f"{task.id}: {task.title or 'at work'}"[:200])

    def _earlier(self, task: Task) -> str:
        """Where earlier attempts have left something."""
        left = left_of(self._swarm.place.root, slug_of(task.id))
        there = [one for one in left if tip(self._swarm.place.root, one) != self._base]
        there = [one for one in there if one != self._branch]
        if not there:
            return ""
        return f"Work from earlier attempts is on: {', '.join(map(called, there[-5:]))}."

    def _point(self, task: Task) -> None:
        """Record in the store where the log of the attempt is."""
        value = {
            "log": self._log.path,
            "attempt": task.attempts,
            "epoch": task.epoch,
            "worker": self._agent.name,
            "branch": self._branch,
            "kept": self._kept,
            "cost_usd": self._spending.cost_usd,
            "spent_usd": self._spending.of_task_usd,
        }
        self._agent.state.set(limits.TASKS, task.id, value, force=True)

    def _environment(self, task: Task) -> dict[str, str | None]:
        orders, number = self._orders, self._worker.number
        told: dict[str, str | None] = dict.fromkeys(LOCAL)
        told |= environment(task) | orders.environment
        told |= {
            "DIBS_TASK": task.id,
            "DIBS_SWARM": self._swarm.name,
            "DIBS_WORKER": str(number),
            SLOT_VARIABLE: slot_of(self._swarm.place, number),
            "DIBS_BRANCH": self._branch,
            "DIBS_ONTO": orders.onto,
            "DIBS_LOG": self._log.path,
            "DIBS_PROMPT": self._prompt,
            "DIBS_DATABASE": f"{slug_of(os.path.basename(self._swarm.place.root))}_w{number}",
            "DIBS_PORTS": " ".join(map(str, self._ports)),
        }
        told |= self._swarm.metering(self._agent)
        if self._ports:
            told["DIBS_PORT"] = str(self._ports[0])
        if self._worktree is None:
            # This marks the commits of this attempt among those of others in one checkout.
            told["GIT_REFLOG_ACTION"] = self._mark(task)
        return told

    def _mark(self, task: Task) -> str:
        return f"dibs {slug_of(task.id)}-{task.epoch}"

    def _run(self, held: HeldTask) -> None:
        swarm, orders = self._swarm, self._orders
        words = [*orders.command, *([self._prompt] if orders.by_argument else [])]
        with tempfile.TemporaryFile() as given:
            given.write(self._prompt.encode())
            given.seek(0)
            self._code = execute(
                swarm.call, self._agent, words, swarm.mask, lambda child: self._attend(child, held),
                GroupTether(), self._environment(held.task), stdin=given, stdout=self._log.handle,
                stderr=subprocess.STDOUT, cwd=self._folder,
            )  # fmt: skip
        self._spending.settle(self._log.cost_usd)

    def _attend(self, child: subprocess.Popen[bytes], held: HeldTask) -> int:
        self._started = True
        self._until = time.monotonic() + self._orders.task_s
        code, _ = attend_group(child, held, self._listen)
        end_left(self._swarm.place, self._worker.number)
        return code

    def _listen(self, seconds: float) -> int:
        """Whether the command must end now: because of its limits, the slot or the swarm."""
        self._swarm.pause(min(seconds, STEP_S))
        self._spending.look_now_and_then()
        if self._swarm.stopped:
            self._ended_by = "stop"
        elif self._slot.lost is not None:
            self._ended_by = "slot"
        elif time.monotonic() > self._until:
            self._ended_by = "time"
        elif self._log.too_long:
            self._ended_by = "log"
        elif self._swarm.too_costly(self._spending.of_task_usd):
            self._ended_by = "cost"
        return signal.SIGTERM if self._ended_by else 0

    def _settle(self, held: HeldTask) -> None:
        """Settle the task according to how the command ended."""
        task, log = held.task, self._log
        if not self._started:
            held.abandon(f"{self._orders.command[0]} could not be run")
            self._swarm.trouble(f"{self._orders.command[0]} could not be run")
        elif self._ended_by == "stop":
            held.abandon("its worker was told to stop")
        elif self._ended_by == "slot" or held.lost is not None:
            held.abandon("its claim was lost for a time")
        elif self._ended_by == "time":
            self._fail(held, f"it did not end within {span(int(self._orders.task_s * 1000))}")
        elif self._ended_by == "cost":
            self._fail(
                held, f"it cost ${self._spending.of_task_usd:.2f}, more than a task may cost"
            )
        elif self._ended_by == "log":
            self._fail(held, "it printed more than its log can hold")
        elif self._code:
            self._fail(held, f"exit code {self._code}")
        else:
            try:
                self._commit = self._found_commit(task)
            except DibsError as error:
                self._fail(held, error.message[:300])
                return
            if not self._commit:
                gone = self._worktree is not None and not self._worktree.is_there()
                then = ", and its worktree is gone" if gone else ""
                self._fail(held, f"it ended without a commit on its branch{then}")
            elif self._worktree is None:
                held.result = {"commit": self._commit, "log": log.path}
            else:
                held.hand_in(self._branch, self._commit, self._orders.onto, self._orders.check)

    def _fail(self, held: HeldTask, what: str) -> None:
        most = self._orders.attempts
        again = not most or held.task.attempts < most
        again = again and not self._swarm.too_costly(self._spending.of_task_usd)
        tail = self._log.tail
        held.fail(f"{what}: {tail}" if tail.strip() else what, retry=again)

    def _found_commit(self, task: Task) -> str:
        """The commit that the command made; "" if there is none."""
        if self._worktree is None:
            return own_commit(self._folder, self._mark(task))
        if not self._worktree.is_there():
            # It removed its own folder, but its commits are still on its branch.
            head = tip(self._swarm.place.root, f"refs/heads/{self._branch}")
            return "" if head == self._base else head
        if self._orders.commit:
            self._worktree.commit(f"{task.title or task.id}\n\nTask: {task.id}")
        head = self._worktree.head()
        if head == self._base:
            return ""
        onto = tip(self._folder, self._swarm.target)
        if not self._worktree.has_committed() and is_within(self._folder, head, onto):
            return ""  # it has only merged what others landed meanwhile
        # It may have left its branch, but it cannot hand in another branch.
        self._worktree.point_branch(self._branch, head)
        return head

    def _free(self) -> None:
        """Keep what was not committed, and free the worktree for the next attempt."""
        if self._worktree is not None:
            try:
                self._kept = self._worktree.free() or self._kept
                if not self._worktree.is_there():
                    self._worktree.drop(self._branch, self._base)
            except (DibsError, OSError) as error:
                note(f"dibs: {called(self._folder, limit=300)} was left as it is: {error}")

    def _taken(self, task: Task) -> None:
        """Report that somebody else, or the agent itself, has settled the task."""
        try:
            now = self._agent.work.show(task.id)
        except NotFoundError:
            what = "was removed"
        else:
            what = TAKEN.get(now.state, "was taken away")
            self._land_anyway(now)
        note(f"dibs: w{self._worker.number}: {called(task.id)} {what} while its agent ran")

    def _land_anyway(self, now: Task) -> None:
        """Land the commits of an agent that completed its task itself."""
        if self._worktree is None or not self._commit:
            return
        if (now.state, now.agent) == ("completed", self._agent.name):
            orders = self._orders
            self._agent.work.land(
                self._branch, commit=self._commit, onto=orders.onto, check=orders.check
            )


def slot_of(place: Place, number: int) -> str:
    """A value in the environment of everything that a worker starts, and of nothing else."""
    return f"{place.store_dir}/w{number}"


def end_left(place: Place, number: int) -> None:
    """End what was left running in a slot, even outside its group; the caller holds the slot."""
    for _ in range(ROUNDS):
        left = started_with(f"{SLOT_VARIABLE}={slot_of(place, number)}")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has already ended
        if not left:
            return
        time.sleep(SHORT_S)


def slug_of(text: str) -> str:
    """A name that can be part of a branch, a file and a database."""
    kept = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text.lower())
    slug = "-".join(part for part in kept.split("-") if part) or "task"
    return slug if len(slug) <= 40 else f"{slug[:33]}-{sha256(text.encode()).hexdigest()[:6]}"


def told_of(task: Task, kept: str | None) -> str:
    """A line about how an attempt ended."""
    pause = f", next attempt in {span(task.due_in_ms)}" if task.due_in_ms else ""
    states = {"available": "given back", "blocked": "handed in, and waits to be landed"}
    why = f": {quoted(task.reason, 200)}" if task.reason and task.state != "blocked" else ""
    where = f" (uncommitted work is kept on {kept})" if kept else ""
    return f"{called(task.id)} is {states.get(task.state, task.state)}{pause}{where}{why}"
