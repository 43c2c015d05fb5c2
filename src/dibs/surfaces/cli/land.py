"""`dibs land [BRANCH]`: queue a branch, and land the queue unless another command does."""

from __future__ import annotations

import os
import signal

from dibs.arguments import LINE, NAME, TASK
from dibs.dibs import operations
from dibs.errors import InvalidError, TimeoutError
from dibs.landing.conducting import Options, commit_of, conduct, submit, target_of, top_of
from dibs.landing.moving import tip_of
from dibs.names.checkouts import git_directory
from dibs.nouns.work.landings import LANDING
from dibs.operation import EVERYBODY
from dibs.records import called, plain, visible
from dibs.surroundings.git import elsewhere, git
from dibs.surroundings.running import SIGNALS
from dibs.surroundings.wording import note, print_json, table, words
from dibs.system import next_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.dibs import Agent, Dibs
    from dibs.landing.batch import Outcome
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
KINDS = {
    "branch": NAME, "onto": NAME, "verify": LINE, "task": TASK, "ack": TASK, "refuse": TASK,
}  # fmt: skip
OPEN = ("available", "claimed", "blocked", "failed", "dead")
ENDED = ("completed", "dead", "cancelled")
LOOK_S = 2.0
LOOP_S = 60.0
LATER = 75
SHOWN = 400
"""How many characters of a line of a verification's output are shown."""
USUAL = ("main", "master")


def main(
    call: Globals,
    branch: str | None = None,
    *,
    onto: str | None = None,
    verify: Sequence[str] = (),
    resolve: str = "",
    repair: str = "",
    task: str | None = None,
    wait: bool = False,
    queue: bool = False,
    run: bool = False,
    loop: bool = False,
    ack: str | None = None,
    refuse: str | None = None,
) -> int:
    """Verify a branch and merge it into another, in turn with all others in the queue.

    What the target requires is in [land] of .dibs/config.toml, as committed in the target. The
    branch is queued as a task. If no other command lands onto the target now, this one does: it
    merges what is queued, verifies it in a worktree of its own, and moves the target. Otherwise
    the other command lands this branch too.

    The exit code is 0 if the branch has landed or is queued, 1 if it came back, and 75 if it has to
    wait.

    branch: what to land; by default the branch that is checked out here
    onto: the target; by default the branch that is checked out in the main worktree
    verify: another command that must succeed, in addition to those of the target
    resolve: a command that resolves conflicts, run in a checkout that has them
    repair: a command that repairs what fails its verification
    task: a task that you have claimed; it completes when the branch has landed
    wait: wait until the branch has landed or has come back
    queue: only show what is queued
    run: only land what is queued
    loop: with --run: keep running, and land what is queued later
    ack: for people: allow a landing that changes protected files
    refuse: for people: send it back
    example: --verify 'make test' --wait
    """
    with call.open() as space:
        if ack is not None or refuse is not None:
            return decide(call, space, ack, refuse)
        top = top_of(space)
        if queue:
            return show(call, space, onto)
        if run:
            if branch is not None:
                raise InvalidError("--run lands what is queued", next="leave the branch out")
            target = onto or default_target(space, top)
        else:
            branch = branch or current(top)
            target = onto or default_target(space, top, branch)
        who = call.join(space, people=True)
        landing = None
        if not run and branch is not None:
            landing = submit(who, top, branch, target, task, check=verify)
            commit_of(top, target)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        options = Options(
            verify, resolve, repair, Once(), lambda s: next_signal(SIGNALS, s, typed=True), mask
        )
        with space.join(who.name, status=f"lands onto {target}") as agent:
            work = Conducting(call, agent, top, target, options, mask)
            if landing is None:
                return work.all(loop)
            return work.one(landing, wait)


class Once:
    """Prints each line, but does not repeat the last two while a command waits."""

    def __init__(self) -> None:
        self._last: list[str] = []

    def __call__(self, line: str) -> None:
        if line not in self._last:
            note(line)
        self._last = [*self._last, line][-2:]


class Conducting:
    """Landing the queue, as a command."""

    def __init__(
        self,
        call: Globals,
        agent: Agent,
        top: str,
        onto: str,
        options: Options,
        mask: set[signal.Signals] | set[int],
    ) -> None:
        self._call, self._agent = call, agent
        self._top, self._onto = top, onto
        self._options, self._mask = options, mask

    def _conduct(self) -> Outcome:
        return conduct(self._call, self._agent, self._top, self._onto, self._options)

    def all(self, loop: bool) -> int:
        """Land what is queued."""
        landed = returned = 0
        while True:
            seq = self._agent.events.last()
            outcome = self._conduct()
            landed, returned = landed + len(outcome.landed), returned + len(outcome.returned)
            if outcome.told:
                return 128 + outcome.told
            if not loop:
                break
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)  # a signal ends this process now
            self._agent.events.watch(seq, kind="task", limit=1, wait_s=LOOP_S)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if outcome.conductor:
            note(f"dibs: {called(outcome.conductor)} lands onto {called(self._onto)} now")
        if self._call.json:
            parts = ("landed", "returned", "asked")
            print_json({name: plain(getattr(outcome, name)) for name in parts})
        elif not (landed or returned or outcome.stopped or outcome.conductor):
            note(f"dibs: nothing is queued for {called(self._onto)} that can land now")
            tags = [target_of(self._onto)]
            if self._agent.work.list(state="available", kind=LANDING, tags=tags):
                note("next: give the --verify that the branches were queued with")
        return LATER if outcome.stopped or outcome.conductor else 1 if returned else 0

    def one(self, landing: Task, wait: bool) -> int:
        """Land what is queued, until a certain landing has ended."""
        told = False
        while landing.state not in ENDED:
            outcome = self._conduct()
            landing = self._agent.work.show(landing.id)
            if outcome.told:
                return 128 + outcome.told
            if not wait or landing.state in ENDED:
                if outcome.conductor and landing.state not in ENDED and not self._call.json:
                    note(f"dibs: queued; {called(outcome.conductor)} lands it")
                break
            if outcome.conductor and not told:
                told = True
                note(f"dibs: queued; {called(outcome.conductor)} lands it; waiting")
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            try:
                self._agent.work.wait(landing.id, wait_s=LOOK_S)
            except TimeoutError:
                pass  # the process that lands the queue may have died: look again
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            landing = self._agent.work.show(landing.id)
        if self._call.json:
            print_json(plain(landing))
        elif landing.state == "dead":
            # Each line that a verification printed is marked.
            lines = [f"  > {visible(line[:SHOWN])}" for line in landing.reason.splitlines() if line]
            note("\n".join([f"dibs: {called(landing.id)} came back:", *lines]))
        elif landing.state == "completed":
            merge = str((landing.result or {}).get("merge", ""))[:12]
            note(f"dibs: {called(landing.payload['branch'])} is on {called(self._onto)} ({merge})")
        if landing.state in ("dead", "cancelled"):
            return 1
        return LATER if landing.state != "completed" and outcome.stopped else 0


def decide(call: Globals, space: Dibs, ack: str | None, refuse: str | None) -> int:
    if ack is not None and refuse is not None:
        raise InvalidError("give --ack or --refuse, not both")
    operations()["work.ack"].permit(call.party(), "dibs land")
    task = call.join(space, people=True).work.ack(ack or refuse or "", refuse=refuse is not None)
    if call.json:
        print_json(plain(task))
    elif refuse is not None:
        note(f"dibs: {called(task.id)} came back")
    else:
        note(f"dibs: {called(task.id)} may land; dibs land --run lands it")
    return 0


def show(call: Globals, space: Dibs, onto: str | None) -> int:
    """Show the landings that have not ended, and those that came back."""
    found = [
        task
        for task in space.work.list(kind=LANDING, everything=True)
        if task.state in OPEN and (onto is None or target_of(onto) in task.tags)
    ]
    if call.json:
        print_json(plain(found))
        return 0
    rows = []
    for task in found:
        said = task.payload if isinstance(task.payload, dict) else {}
        waits = task.state == "blocked" and task.asked is not None
        state = "asks" if waits else task.state
        why = task.asked if waits else task.reason if task.state in ("dead", "failed") else ""
        names = [called(str(said.get(name, ""))) for name in ("branch", "onto", "agent")]
        rows.append([*names, state, str(said.get("commit", ""))[:12], words(why or "")])
    if rows:
        table(rows, ["branch", "onto", "agent", "state", "commit", "why"])
    else:
        note("nothing is queued to be landed")
    return 0


def current(top: str) -> str:
    """The branch that is checked out somewhere."""
    found = head(top)
    if not found:
        raise InvalidError("no branch is checked out here", next="name it: dibs land BRANCH")
    return found


def head(top: str, git_dir: str = "") -> str:
    environment = elsewhere() | ({"GIT_DIR": git_dir} if git_dir else {})
    said = git("symbolic-ref", "-q", "HEAD", cwd=top, environment=environment, codes=(0, 1))
    # Not --short: if a tag has the same name, that prints heads/NAME.
    return os.fsdecode(said).strip().removeprefix("refs/heads/")


def default_target(space: Dibs, top: str, branch: str = "") -> str:
    """The branch of the main worktree; if that is the one to land, a usual name."""
    root = space.scope.place.root
    inside = os.path.isdir(root) and os.path.lexists(f"{root}/.git")
    found = head(root) if inside else head(top, git_directory(root))
    if found and found != branch:
        return found
    for name in USUAL:
        if name != branch and git(
            "rev-parse", "-q", "--verify", f"refs/heads/{name}", cwd=top,
            environment=elsewhere(), codes=(0, 1),
        ):  # fmt: skip
            return name
    if not tip_of(top, branch or found):
        raise InvalidError(
            f"{called(branch or found)} has no commit yet", next="commit something first"
        )
    if branch:
        raise InvalidError(
            f"{called(branch)} cannot be landed onto itself",
            next="name the branch to land: dibs land BRANCH; or another target: --onto BRANCH",
        )
    raise InvalidError(
        "no branch is checked out in the main worktree, so the target is unknown",
        next="name it: --onto BRANCH",
    )
