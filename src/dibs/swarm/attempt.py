"""A worker: one slot, and in it one attempt after the other.

An attempt is a session of its own, NAME/wN, that holds the slot and the task. The task is claimed
before the agent is started. How the command ends decides what becomes of it:

    ended with 0, and committed    handed in: it waits for its landing, and completes with that
    anything else, or too late     failed with the end of its log, and tried again after a pause
    told to stop, claim lost       given back; that was no attempt of the agent's

Whatever the command leaves uncommitted is on a branch of its own then, before the task is settled.
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
from dibs.swarm.worktree import WORK, Worktree, include, left_of, own_commit, tip
from dibs.system import started_with
from dibs.system.portable import GroupTether

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.keeping import HeldLease, HeldTask
    from dibs.records import Task
    from dibs.swarm.supervisor import Swarm

SLOT = "swarm:slot:"
"""Before the number of a slot: who holds the lease may run an agent."""
MAKING = "swarm:worktrees"
"""What is held while a worktree is made: git does not like two at a time."""
MAKING_S = 600
LOOK_S = 1.0
STEP_S = 0.1
SLOT_VARIABLE = "DIBS_SLOT"
ROUNDS, SHORT_S = 20, 0.02
"""How often to look for what an agent has left running, since that may start others."""
PORTS = (20_000, 29_999)
ENDED = ("completed", "cancelled", "dead")
TAKEN = {
    "completed": "was completed",
    "cancelled": "was cancelled",
    "available": "was given back",
    "failed": "was failed",
    "dead": "was failed",
}
"""What has become of a task that its worker does not hold any more."""


class Worker(threading.Thread):
    """The attempts in one slot.

    done: whether it ended because no task is left for it
    """

    def __init__(self, swarm: Swarm, number: int) -> None:
        super().__init__(name=f"dibs-worker-{number}", daemon=True)
        self.swarm = swarm
        self.number = number
        self.done = False
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
        """Take a task and work on it; say whether another may follow."""
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
                # It pauses, waits for its landing, or another works on it.
                if agent.work.show(orders.only).state in ENDED:
                    self.done = True
                    return None
                self.swarm.pause(LOOK_S)
            except EmptyError as empty:
                if isinstance(empty, LaterError):
                    continue
                if self.swarm.until_empty:
                    self.done = True
                    return None
                self.swarm.pause(LOOK_S)
        return None


def seen_from(agent: Agent, place: Place) -> Agent:
    """The same session, whose names are read from another place."""
    here = Agent(agent.scope.at(place))
    here.beating = agent.beating
    return here


def place_of(swarm: Swarm, worktree: Worktree) -> Place:
    """The place of a worktree that need not be there yet."""
    checkout = Checkout(swarm.place.root, worktree.path)
    return Place(checkout, swarm.place.store_dir, start=worktree.path)


class Attempt:
    """The command at work on one task."""

    def __init__(
        self, worker: Worker, agent: Agent, here: Agent, slot: HeldLease, worktree: Worktree | None
    ) -> None:
        """
        here: the agent's session, with names read from its worktree
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
        """Work on the task; say whether this worker may go on."""
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
        """Make everything ready: worktree, files, branch, ports, log, prompt."""
        swarm, orders = self._swarm, self._orders
        slug = f"{slug_of(task.id)}-{task.epoch}"
        self._log = Log(swarm.place.store_dir, slug)
        end_left(swarm.place, self._worker.number)  # of one who died in this slot
        self._base = tip(swarm.place.root, "HEAD" if orders.shared else swarm.target)
        if self._worktree is not None:
            self._branch = f"{WORK}/{slug}"
            with self._agent.lease(MAKING, ttl_s=TTL_S, wait_s=MAKING_S, note="makes a worktree"):
                kept = self._worktree.ready(self._base)
            if kept:
                note(f"dibs: what a dead worker had not committed is kept on {kept}")
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
        self._point(task)
        self._agent.agents.beat(status=f"{task.id}: {task.title or 'at work'}"[:200])

    def _earlier(self, task: Task) -> str:
        """Where earlier attempts have left something."""
        left = left_of(self._swarm.place.root, slug_of(task.id))
        there = [one for one in left if tip(self._swarm.place.root, one) != self._base]
        there = [one for one in there if one != self._branch]
        if not there:
            return ""
        return f"What earlier attempts have left is on: {', '.join(map(called, there[-5:]))}."

    def _point(self, task: Task) -> None:
        """Say in the store where the log of the attempt is."""
        value = {
            "log": self._log.path,
            "attempt": task.attempts,
            "epoch": task.epoch,
            "worker": self._agent.name,
            "branch": self._branch,
            "kept": self._kept,
            "cost_usd": self._log.cost_usd,
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
        if self._ports:
            told["DIBS_PORT"] = str(self._ports[0])
        if self._worktree is None:
            # By this, the commits of this attempt are told from those of others in one checkout.
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
        limits.spend(self._agent, self._log.cost_usd)

    def _attend(self, child: subprocess.Popen[bytes], held: HeldTask) -> int:
        self._started = True
        self._until = time.monotonic() + self._orders.task_s
        code, _ = attend_group(child, held, self._listen)
        end_left(self._swarm.place, self._worker.number)
        return code

    def _listen(self, seconds: float) -> int:
        """Whether the command has to end now: by its limits, by the slot, or by the swarm."""
        self._swarm.pause(min(seconds, STEP_S))
        if self._swarm.stopped:
            self._ended_by = "stop"
        elif self._slot.lost is not None:
            self._ended_by = "slot"
        elif time.monotonic() > self._until:
            self._ended_by = "time"
        elif self._log.too_long:
            self._ended_by = "log"
        return signal.SIGTERM if self._ended_by else 0

    def _settle(self, held: HeldTask) -> None:
        """Say what becomes of the task, by how the command has ended."""
        task, log = held.task, self._log
        if not self._started:
            held.abandon(f"{self._orders.command[0]} could not be run")
            self._swarm.trouble(f"{self._orders.command[0]} could not be run")
        elif self._ended_by == "stop":
            held.abandon("its worker was told to stop")
        elif self._ended_by == "slot" or held.lost is not None:
            held.abandon("its claim was lost for a while")
        elif self._ended_by == "time":
            self._fail(held, f"it did not end within {span(int(self._orders.task_s * 1000))}")
        elif self._ended_by == "log":
            self._fail(held, "it printed more than its log may have")
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
        tail = self._log.tail
        held.fail(f"{what}: {tail}" if tail.strip() else what, retry=again)

    def _found_commit(self, task: Task) -> str:
        """The commit that the command has left, "" if there is none."""
        if self._worktree is None:
            return own_commit(self._folder, self._mark(task))
        if not self._worktree.is_there():
            # It has removed its own folder; what it has committed is still on its branch.
            head = tip(self._swarm.place.root, f"refs/heads/{self._branch}")
            return "" if head == self._base else head
        if self._orders.commit:
            self._worktree.commit(f"{task.title or task.id}\n\nTask: {task.id}")
        head = self._worktree.head()
        if head == self._base:
            return ""
        onto = tip(self._folder, self._swarm.target)
        if not self._worktree.has_committed() and is_within(self._folder, head, onto):
            return ""  # it has only merged what others have landed meanwhile
        # It may have left the branch, but it cannot hand in another one's.
        self._worktree.point_branch(self._branch, head)
        return head

    def _free(self) -> None:
        """Keep what was not committed, and let the next attempt have the worktree."""
        if self._worktree is not None:
            try:
                self._kept = self._worktree.free() or self._kept
                if not self._worktree.is_there():
                    self._worktree.drop(self._branch, self._base)
            except (DibsError, OSError) as error:
                note(f"dibs: {called(self._folder, limit=300)} is kept as it is: {error}")

    def _taken(self, task: Task) -> None:
        """Somebody else, or the agent by itself, has decided about the task."""
        try:
            now = self._agent.work.show(task.id)
        except NotFoundError:
            what = "was removed"
        else:
            what = TAKEN.get(now.state, "was taken away")
            self._land_anyway(now)
        note(f"dibs: w{self._worker.number}: {called(task.id)} {what} while its agent ran")

    def _land_anyway(self, now: Task) -> None:
        """Land what an agent has committed that has completed its task by itself."""
        if self._worktree is None or not self._commit:
            return
        if (now.state, now.agent) == ("completed", self._agent.name):
            orders = self._orders
            self._agent.work.land(
                self._branch, commit=self._commit, onto=orders.onto, check=orders.check
            )


def slot_of(place: Place, number: int) -> str:
    """What all that a worker starts has in its environment, and nothing else has."""
    return f"{place.store_dir}/w{number}"


def end_left(place: Place, number: int) -> None:
    """End what was left running in a slot, also outside its group; only for who holds the slot."""
    for _ in range(ROUNDS):
        left = started_with(f"{SLOT_VARIABLE}={slot_of(place, number)}")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended by itself
        if not left:
            return
        time.sleep(SHORT_S)


def slug_of(text: str) -> str:
    """A name that can be a part of a branch, a file and a database."""
    kept = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text.lower())
    slug = "-".join(part for part in kept.split("-") if part) or "task"
    return slug if len(slug) <= 40 else f"{slug[:33]}-{sha256(text.encode()).hexdigest()[:6]}"


def told_of(task: Task, kept: str | None) -> str:
    """A line about how an attempt has ended."""
    pause = f", and is tried again in {span(task.due_in_ms)}" if task.due_in_ms else ""
    states = {"available": "given back", "blocked": "handed in, and waits for its landing"}
    why = f": {quoted(task.reason, 200)}" if task.reason and task.state != "blocked" else ""
    where = f" (not committed, kept on {kept})" if kept else ""
    return f"{called(task.id)} is {states.get(task.state, task.state)}{pause}{where}{why}"
