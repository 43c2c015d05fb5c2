"""Landing what is queued for a target, by the holder of its lease.

    queued ──> claimed ──> merged ──> verified ──> the target moves ──> completed
                   │           │           │
                   │           └─ conflict ┴─ fails ──> dead, the task is returned with the reason
                   └─ changes protected files ──> asks a person

A claim is the intent, and git is the truth. A conductor that claims a landing first checks whether
its commit is already on the target; if so, the landing completes, and nothing is merged again. No
other recovery is needed, wherever a conductor died. The target moves by compare-and-set, from
exactly the commit on which the new one was verified. So a conductor that was frozen and wakes up
while another conducts does no harm: either its result was verified on the current target, or the
target does not move.
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
    from dibs.names.paths import Place
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

TTL_S = 60.0


class Options:
    """How to conduct.

    verify: commands of the caller, in addition to those of the bar
    resolve: a command that may resolve conflicts
    repair: a command that may repair a failed verification
    tell: reports what happens, line by line
    pause: waits so many seconds, and returns the signal that tells the caller to end
    mask: the signal mask of commands
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
    """The landings of a batch, renewed together; one that was lost is left out."""

    def __init__(self, agent: Agent, tasks: Sequence[Task]) -> None:
        super().__init__(agent.scope, TTL_S, agent.beating)
        self._work = agent.work
        self._tasks = {task.id: task for task in tasks}

    def __enter__(self) -> Claims:
        self._begin("your claim of the landings", self._now(), TTL_S, waited=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._renewal.stop()

    def settled(self, id: str) -> None:
        """Stop renewing a landing that has ended."""
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
    place = space.scope.settled()
    if place.checkout.kind != "repository":
        raise InvalidError("this is not a git repository", next="cd into one")
    refuse_guest(place)
    if not os.path.lexists(f"{place.top}/.git"):
        raise InvalidError(
            "this repository is bare, so nothing is checked out here",
            next="cd into one of its worktrees",
        )
    return place.top


def refuse_guest(place: Place) -> None:
    """Refuse a repository whose branches would be in the queue of another one."""
    if place.label:
        raise InvalidError(
            f"this space belongs to {called(place.home)}, and only its branches are landed here",
            next=f"use a space of your own: --space {called(place.repository)}",
        )


def target_of(onto: str) -> str:
    """The lease for landing onto a branch, and the tag of its landings."""
    return f"land:{onto}"


def commit_of(top: str, branch: str) -> str:
    """The commit that a branch points to; raises an `InvalidError` if there is no such branch."""
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
    """Queue the current commit of a branch, and hand in its task.

    check: commands of the caller that must succeed too: only a conductor with the same commands
        takes the landing
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
    """Refuse to complete a task with a commit that no landing brought onto the target."""
    try:
        agent.work.show(landing_id(onto, branch, commit))
    except NotFoundError:
        raise StateError(
            f"{called(branch)} has no commit that {called(onto)} does not have, "
            f"so {called(task)} stays yours",
            next=f"commit your work and land it again; if all of it is already on {called(onto)}: "
            f"dibs work complete {task}",
        ) from None


def conduct(
    call: Globals,
    agent: Agent,
    top: str,
    onto: str,
    options: Options,
    until: Callable[[], bool] | None = None,
) -> Outcome:
    """Land what is queued for a branch, until nothing more can be landed now.

    If another agent conducts, do nothing; the outcome says who it is.

    top: a checkout of the repository
    until: called after each batch; says whether to stop
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
        # An agent that queued something just before we released the lease relies on us to land it.
        if over or not is_queued(agent, tags_of(onto, options)):
            return outcome


def tags_of(onto: str, options: Options) -> list[str]:
    """The tags of a conductor."""
    own = digest(options.verify)
    return [target_of(onto), *([f"check:{own}"] if own else [])]


def is_queued(space: Dibs, tags: list[str]) -> bool:
    """Whether anything is queued that a conductor with these tags can land."""
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
        worktree.remove()  # it is named after our session, so it is ours


def refuse_old_git(top: str) -> None:
    said = git("version", cwd=top, environment=elsewhere()).decode()
    if not can_merge(said):
        raise InvalidError(
            f"landing needs git 2.38 or newer, and this is {said.strip()}", next="update git"
        )
