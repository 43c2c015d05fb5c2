"""Landing what is queued for a target, by whoever holds its lease.

    queued ──> claimed ──> merged ──> verified ──> the target moves ──> completed
                   │           │           │
                   │           └─ conflict ┴─ fails ──> dead, the task goes back with the reason
                   └─ changes what is protected ──> asks a person

A claim is the intent, and git is the truth. Whoever claims a landing looks first whether its
commit is on the target already; then it completes, and nothing is merged again. This is all of the
recovery, wherever a conductor has died. The target moves by compare-and-set, from exactly the
commit that the verified one was made from. So one that was frozen and wakes up again, while another
conducts, can do no harm: what it moves was verified on what is there, or it does not move.
"""

from __future__ import annotations

import os

from dibs.errors import EmptyError, HeldError, InvalidError, NotFoundError, StaleError, StateError
from dibs.keeping import Held
from dibs.landing.bar import bar_of, digest
from dibs.landing.batch import Batch, Outcome
from dibs.landing.moving import is_within, recover, tip_of
from dibs.landing.verifying import Runner, StoppedError, Worktree
from dibs.nouns.work.handing import landing_id
from dibs.nouns.work.landings import LANDING
from dibs.records import called
from dibs.surroundings.git import can_merge, elsewhere, git
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from dibs.dibs import Agent, Dibs
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

TTL_S = 60.0


class Options:
    """How to conduct.

    verify: commands of the caller, on top of those of the bar
    resolve: a command that may resolve conflicts
    repair: a command that may repair what fails its verification
    tell: says what happens, a line at a time
    pause: waits so many seconds, and returns the signal by which the caller is told to end
    mask: the signals that commands are started with
    """

    def __init__(
        self,
        verify: Sequence[str] = (),
        resolve: str = "",
        repair: str = "",
        tell: Callable[[str], None] = note,
        pause: Callable[[float], int] | None = None,
        mask: set[signal.Signals] | set[int] | None = None,
    ) -> None:
        self.verify = tuple(verify)
        self.resolve, self.repair = resolve, repair
        self.tell = tell
        self.pause, self.mask = pause, mask


class Claims(Held):
    """The landings of a batch, renewed together; one that was taken away is left out."""

    def __init__(self, agent: Agent, tasks: Sequence[Task]) -> None:
        super().__init__(agent.scope, TTL_S, agent.beating)
        self._work = agent.work
        self._tasks = {task.id: task for task in tasks}

    def __enter__(self) -> Claims:
        self._begin("your claim of the landings", self._now(), TTL_S, waited=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._beating.stop()

    def settled(self, id: str) -> None:
        """A landing has ended, and is renewed no more."""
        self._tasks.pop(id, None)

    def has(self, id: str) -> bool:
        """Whether a landing is still ours."""
        return id in self._tasks

    def _renew(self) -> float:
        for task in list(self._tasks.values()):
            try:
                self._work.renew(task.id, epoch=task.epoch)
            except (StaleError, NotFoundError):
                self._tasks.pop(task.id, None)
        return TTL_S


def top_of(space: Dibs) -> str:
    """The checkout to run git in."""
    place = space.scope.place
    if place.checkout.kind != "repository":
        raise InvalidError("this is no git repository", next="cd into one")
    if not os.path.lexists(f"{place.top}/.git"):
        raise InvalidError(
            "this repository is bare, so nothing is checked out here",
            next="cd into one of its worktrees",
        )
    return place.top


def target_of(onto: str) -> str:
    """The lease that whoever lands onto a branch holds, and the tag of what is to be landed."""
    return f"land:{onto}"


def commit_of(top: str, branch: str) -> str:
    """The commit that a branch is at; an `InvalidError` if there is no such branch."""
    commit = tip_of(top, branch)
    if not commit:
        raise InvalidError(
            f"there is no branch {called(branch)}", next="git branch lists all branches"
        )
    return commit


def submit(
    agent: Agent,
    top: str,
    branch: str,
    onto: str,
    task: str | None = None,
    epoch: int | None = None,
    check: Sequence[str] = (),
    priority: int = 0,
) -> Task:
    """Queue the commit that a branch is at now, and hand in the task that it is for.

    check: commands of the caller that must succeed too: only a conductor that was given the same
        ones takes the landing
    """
    if branch == onto:
        raise InvalidError(f"{called(branch)} cannot be landed onto itself", next="name another")
    tip, commit = commit_of(top, onto), commit_of(top, branch)
    if task is not None and is_within(top, commit, tip):
        refuse_nothing(agent, branch, commit, onto, task)
    return agent.work.land(
        branch, commit=commit, onto=onto, task=task, epoch=epoch, check=digest(check),
        priority=priority,
    )  # fmt: skip


def refuse_nothing(agent: Agent, branch: str, commit: str, onto: str, task: str) -> None:
    """Refuse to complete a task with a commit that no landing has brought onto the target."""
    try:
        agent.work.show(landing_id(onto, branch, commit))
    except NotFoundError:
        raise StateError(
            f"{called(branch)} has no commit that {called(onto)} does not have, "
            f"so {called(task)} stays yours",
            next=f"commit your work and land it again; if all of it is on {called(onto)} already: "
            f"dibs work complete {task}",
        ) from None


def conductor_of(space: Dibs, onto: str) -> str:
    """The agent that lands onto a branch now; "" if nobody does."""
    (state,) = space.leases.status(target_of(onto))
    return next((one.agent for one in state.blockers if not one.waiting), "")


def conduct(
    call: Globals,
    agent: Agent,
    top: str,
    onto: str,
    options: Options,
    until: Callable[[], bool] | None = None,
) -> Outcome:
    """Land what is queued for a branch, until nothing is left that can be landed now.

    If another conducts, nothing is done, and the outcome says who it is.

    top: a checkout of the repository
    until: asked after each batch whether that is enough
    """
    refuse_old_git(top)
    commit_of(top, onto)
    outcome = Outcome()
    while True:
        held = agent.lease(target_of(onto), ttl_s=TTL_S, note=f"lands branches onto {onto}")
        try:
            held.__enter__()
        except HeldError as error:
            blockers = error.details.get("blockers") or ()
            outcome.conductor = blockers[0].agent if blockers else "another"
            return outcome
        try:
            _conduct(call, agent, top, onto, options, until, held, outcome)
        except StoppedError as stopped:
            outcome.told = stopped.number
        finally:
            try:
                held.__exit__(None)
            except StaleError as lost:
                outcome.stopped = lost.message
        over = outcome.stopped or outcome.told or (until is not None and until())
        # Who queued something in the moment before we let go has seen that we conduct, and left.
        if over or not is_queued(agent, tags_of(onto, options)):
            return outcome


def tags_of(onto: str, options: Options) -> list[str]:
    """What a conductor can do."""
    own = digest(options.verify)
    return [target_of(onto), *([f"check:{own}"] if own else [])]


def is_queued(space: Dibs, tags: list[str]) -> bool:
    """Whether something is queued that a conductor with these tags can land."""
    queued = space.work.list(state="available", kind=LANDING, tags=tags[:1], everything=True)
    return any(set(task.tags) <= set(tags) for task in queued)


def _conduct(
    call: Globals,
    agent: Agent,
    top: str,
    onto: str,
    options: Options,
    until: Callable[[], bool] | None,
    held: Held,
    outcome: Outcome,
) -> None:
    recover(top, onto)
    worktree = Worktree(top, agent.scope.place.store_dir, onto, agent.session)
    worktree.sweep()
    runner = Runner(call, held, options.pause, options.mask)
    tags = tags_of(onto, options)
    try:
        while not outcome.stopped:
            runner.check()
            size = bar_of(top, commit_of(top, onto), options.verify).batch
            try:
                tasks = agent.work.next_many(size, kind=LANDING, tags=tags, ttl_s=TTL_S)
            except EmptyError:
                return
            with Claims(agent, tasks) as claims:
                batch = Batch(agent, top, onto, options, runner, worktree, claims, outcome, tasks)
                batch.land()
            if until is not None and until():
                return
    except StaleError as lost:
        outcome.stopped = lost.message
    finally:
        worktree.remove()  # its name is our session's, so it is nobody else's


def refuse_old_git(top: str) -> None:
    said = git("version", cwd=top, environment=elsewhere()).decode()
    if not can_merge(said):
        raise InvalidError(
            f"landing needs git 2.38 or newer, and this is {said.strip()}", next="update git"
        )
