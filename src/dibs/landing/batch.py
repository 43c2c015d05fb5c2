"""One batch of landings: merge, verify, move the target, complete; then the rest."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from dibs.arguments import TEXT_LIMIT
from dibs.errors import DibsError, NotFoundError, StaleError
from dibs.landing.bar import bar_of
from dibs.landing.gate import Gate, broke, sound
from dibs.landing.moving import InTheWayError, check, move, tip_of
from dibs.landing.resolving import repaired, resolved
from dibs.landing.train import CONFLICT, CONTAINED, LANDED, UNRELATED, Train
from dibs.records import called, quoted, visible
from dibs.surroundings.git import elsewhere, git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.dibs import Agent
    from dibs.landing.bar import Bar
    from dibs.landing.conducting import Claims, Options
    from dibs.landing.gate import Break
    from dibs.landing.train import Step
    from dibs.landing.verifying import Runner, Worktree
    from dibs.records import Task

ROUNDS = 10
"""How often a batch starts again because the target has moved."""
FILES_NAMED = 10
TRAILERS = ("Dibs-Landing", "Dibs-Agent", "Dibs-Task")


class Outcome:
    """What a conductor has done.

    landed, returned, asked: landings by their outcome
    conductor: who conducts, if it is another agent
    stopped: why it ended before everything was done
    told: the signal that ended it
    """

    def __init__(self) -> None:
        self.landed: list[Task] = []
        self.returned: list[Task] = []
        self.asked: list[Task] = []
        self.conductor = ""
        self.stopped = ""
        self.told = 0


class Merged(NamedTuple):
    """A landing that is in the train.

    end: the train's last commit with it
    """

    task: Task
    end: str
    files: tuple[str, ...]


class Batch:
    def __init__(
        self,
        agent: Agent,
        top: str,
        onto: str,
        options: Options,
        runner: Runner,
        worktree: Worktree,
        claims: Claims,
        outcome: Outcome,
        tasks: Sequence[Task],
    ) -> None:
        self._agent, self._top, self._onto = agent, top, onto
        self._options, self._runner, self._worktree = options, runner, worktree
        self._claims, self._outcome = claims, outcome
        self._left = {task.id: task for task in tasks}
        self._tell = options.tell
        self._git = partial(git, cwd=top, environment=elsewhere())
        self._repaired: set[str] = set()

    def land(self) -> None:
        """Land everything that can be landed; settle the rest, or give it back."""
        moved = 0
        try:
            self._drop_missing()
            while self._left and moved < ROUNDS:
                self._runner.check()
                base = tip_of(self._top, self._onto)
                self._round(base)
                moved += tip_of(self._top, self._onto) != base and not self._progress
            if self._left:
                self._stop(f"{called(self._onto)} moved {ROUNDS} times while it was verified")
        except InTheWayError as error:
            self._stop(error.message, error.next or "")
        finally:
            self._give_back("its conductor stopped")

    def _stop(self, why: str, then: str = "") -> None:
        self._outcome.stopped = why
        self._tell(f"dibs: {why}")
        if then:
            self._tell(f"next: {then}")
        self._give_back(why)

    def _round(self, base: str) -> None:
        """Try the remaining landings on a base: some are settled, or the base has moved."""
        self._progress = False
        bar = bar_of(self._top, base, self._options.verify)
        commits = [commit_in(task) for task in self._left.values()]
        with Train(self._top, base, commits) as train:
            merged = self._merge(train, bar)
            if merged is None:
                self._progress = True
                return
            train.write()
        if merged[-1].end != base:
            check(self._top, self._onto, base, merged[-1].end)
        gate = Gate(
            self._agent, bar, base, self._worktree, self._runner,
            lambda text: self._tell(f"dibs: {text}"),
        )  # fmt: skip
        count, why = sound(gate, [one.end for one in merged])
        good = merged[:count]
        if why is not None and (better := self._repair(gate, bar, merged, count, why, base)):
            good, why = [*good, better], None
        if good and not self._move(base, good, gate, bar):
            return
        if why is not None:
            self._progress = True
            failed = merged[count].task
            self._fail(failed, f"{broke(why)}\n{why.result.tail}", f"its log: {why.result.log}")

    def _merge(self, train: Train, bar: Bar) -> list[Merged] | None:
        """Merge the remaining landings; None if one that others were merged with was settled."""
        merged, asked = [], False
        for task in list(self._left.values()):
            commit, text = commit_in(task), message(task, self._onto)
            step = train.merge(commit, text)
            if step.how == LANDED:
                end = self._merge_of(commit, train.base)
                self._complete([task], {task.id: {"merge": end}}, already=True)
                continue
            if step.how == UNRELATED:
                onto = called(self._onto)
                then = f"rebase it onto {onto}, and land it again"
                self._fail(task, f"it has no commit in common with {onto}", then)
                continue
            if step.how == CONFLICT:
                found = self._resolve(train, task, step.files, text)
                if found is None:
                    continue
                step = found
            files = [file for file in step.files if bar.protects(file)]
            if files and step.how != CONTAINED:
                # An answer to another question does not count: anybody may have asked that one.
                question = about_protected(task, files)
                if task.acked is None or task.asked != question:
                    self._ask(task, question)
                    asked = True
            merged.append(Merged(task, step.commit, step.files))
        return None if asked or not merged else merged

    def _move(self, base: str, good: list[Merged], gate: Gate, bar: Bar) -> bool:
        """Move the target to the last of these, and complete them; False if it has moved."""
        self._claims.check()
        if any(not self._claims.has(one.task.id) for one in good):
            for one in good:
                if not self._claims.has(one.task.id):
                    self._left.pop(one.task.id, None)  # somebody has cancelled it
            self._progress = True
            return False
        self._runner.held.check()
        end = good[-1].end
        if base != end and not move(self._top, self._onto, base, end):
            return False
        self._progress = True
        verified = [one for one in bar.verify if one not in gate.excused]
        said = {"verified": verified}
        if gate.excused:
            said["fails_on_base"] = list(gate.excused)
        self._complete(
            [one.task for one in good], {one.task.id: {"merge": one.end, **said} for one in good}
        )
        for command in gate.excused:
            fails = f"{called(command)} fails on {called(self._onto)} too"
            self._tell(f"dibs: {fails}, so it did not decide")
        if not bar.verify:
            self._tell("dibs: nothing was verified: [land] in .dibs/config.toml has no verify")
        gate.keep(end)
        return True

    def _complete(
        self, tasks: list[Task], results: dict[str, dict[str, Any]], already: bool = False
    ) -> None:
        """
        already: they were already on the target
        """
        items = [
            {
                "id": task.id,
                "epoch": task.epoch,
                "result": {"commit": commit_in(task), "onto": self._onto, **results[task.id]},
            }
            for task in tasks
        ]
        for task, answer in zip(
            tasks, self._agent.work.complete_many(items, each=True), strict=True
        ):
            self._settled(task)
            if isinstance(answer, DibsError):
                self._tell(f"dibs: {branch_in(task)} has landed; {answer.message}")
            else:
                self._outcome.landed.append(answer)
                end = str(results[task.id]["merge"])[:12]
                name, onto = branch_in(task), called(self._onto)
                said = f"{name} was already on {onto}" if already else f"landed {name} onto {onto}"
                self._tell(f"dibs: {said} ({end})")

    def _fail(self, task: Task, why: str, then: str = "") -> None:
        """End a landing that a retry cannot land."""
        advice = then or "fix it, commit, and land it again"
        reason = f"{why[: TEXT_LIMIT - len(advice) - 2]}\n{advice}"
        self._settled(task)
        try:
            answer = self._agent.work.fail(task.id, reason=reason, retry=False, epoch=task.epoch)
        except (StaleError, NotFoundError):
            return  # somebody has cancelled it
        self._outcome.returned.append(answer)
        self._tell(f"dibs: {branch_in(task)} is returned: {visible(why.splitlines()[0])}")

    def _ask(self, task: Task, question: str) -> None:
        """Let a person decide about a change to protected files."""
        self._settled(task)
        try:
            asked = self._agent.work.ask(task.id, question, epoch=task.epoch)
        except (StaleError, NotFoundError):
            return
        self._outcome.asked.append(asked)
        self._tell(f"dibs: {question}")
        self._tell(f"next: a person decides: dibs land --ack {task.id}, or --refuse {task.id}")

    def _settled(self, task: Task) -> None:
        self._left.pop(task.id, None)
        self._claims.settled(task.id)

    def _give_back(self, why: str) -> None:
        for task in list(self._left.values()):
            self._settled(task)
            try:
                self._agent.work.abandon(task.id, reason=why[:TEXT_LIMIT], epoch=task.epoch)
            except DibsError:
                pass  # by now it is somebody else's, or it will expire

    def _drop_missing(self) -> None:
        """End the landings whose commit this repository does not have."""
        asked = "".join(f"{commit_in(task)}\n" for task in self._left.values())
        said = self._git("cat-file", "--batch-check", input=asked.encode()).decode().splitlines()
        for task, line in zip(list(self._left.values()), said, strict=True):
            if line.split(" ")[1:2] != ["commit"]:
                self._fail(task, f"this repository has no commit {commit_in(task)[:12]}")

    def _resolve(self, train: Train, task: Task, files: tuple[str, ...], text: str) -> Step | None:
        """Let the resolver try to resolve a conflict; if it cannot, end the landing."""
        train.write()
        log = ""
        if self._options.resolve:
            self._tell(f"dibs: resolving {branch_in(task)}: {self._options.resolve}")
            tree, log = resolved(
                self._worktree, self._runner, self._options.resolve, train.tip, commit_in(task),
                files, self._told(task),
            )  # fmt: skip
            if tree:
                return train.take(commit_in(task), text, tree)
        few = ", ".join(map(called, files[:FILES_NAMED]))
        why = f"it conflicts with {called(self._onto)} in {few}"
        others = self._others(train.tip, files)
        why += "".join(f"\n{one}" for one in others)
        if log:
            why += f"\nthe resolver could not resolve it: {log}"
        name = branch_in(task)
        self._fail(task, why, f"merge {called(self._onto)} into {name}, commit, and land it again")
        return None

    def _others(self, tip: str, files: tuple[str, ...]) -> list[str]:
        """The landings or commits on the other side of a conflict."""
        found = []
        for file in files[:FILES_NAMED]:
            said = self._git(
                "log", "-1", "--first-parent", "--format=%H%n%an%n%B", tip, "--",
                f":(top,literal){file}",
            ).decode("utf-8", "replace").splitlines()  # fmt: skip
            if len(said) < 2:
                continue
            facts = dict(line.partition(": ")[::2] for line in said if line.startswith("Dibs-"))
            who = f"{called(facts.get('Dibs-Agent') or said[1])}"
            what = quoted(said[2] if len(said) > 2 else "")
            task = f", task {called(facts['Dibs-Task'])}" if facts.get("Dibs-Task") else ""
            found.append(f"{called(file)} was changed by {said[0][:12]} {what} ({who}{task})")
        return found

    def _repair(
        self, gate: Gate, bar: Bar, merged: list[Merged], count: int, why: Break, base: str
    ) -> Merged | None:
        """Let a command repair a failure once; return the landing with its work, if that passes."""
        one = merged[count]
        if not self._options.repair or one.task.id in self._repaired:
            return None
        self._repaired.add(one.task.id)
        self._tell(f"dibs: repairing {branch_in(one.task)}: {self._options.repair}")
        before = merged[count - 1].end if count else base
        end, files = repaired(
            self._worktree, self._runner, self._options.repair, one.end, before,
            commit_in(one.task), message(one.task, self._onto),
            {**self._told(one.task), "DIBS_LAND_COMMAND": why.command,
             "DIBS_LAND_LOG": why.result.log},
        )  # fmt: skip
        if not end or any(bar.protects(file) for file in files if file not in one.files):
            return None
        return Merged(one.task, end, files) if gate.breaks(end) is None else None

    def _told(self, task: Task) -> dict[str, str | None]:
        """What a command is told about its landing."""
        return {
            "DIBS_LAND_BRANCH": task.payload["branch"],
            "DIBS_LAND_ONTO": self._onto,
            "DIBS_LAND_TASK": task.payload.get("task") or "",
        }

    def _merge_of(self, commit: str, tip: str) -> str:
        """The first merge that brought a commit onto the target; the commit if there is none."""
        since = f"{commit}..{tip}"
        after = set(self._git("rev-list", "--ancestry-path", since).decode().split())
        along = self._git("rev-list", "--first-parent", "--reverse", since).decode().split()
        return next((one for one in along if one in after), commit)


def about_protected(task: Task, files: list[str]) -> str:
    """The question to a person about a landing; always the same for the same files."""
    few = ", ".join(map(called, files[:FILES_NAMED]))
    more = f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else ""
    return f"{branch_in(task)} changes protected files: {few}{more}. May it land?"[:TEXT_LIMIT]


def commit_in(task: Task) -> str:
    return str(task.payload["commit"])


def branch_in(task: Task) -> str:
    return called(str(task.payload["branch"]))


def message(task: Task, onto: str) -> str:
    """The message of a merge, including who requested it, and what for."""
    branch, agent, of = (task.payload.get(name) for name in ("branch", "agent", "task"))
    into = "" if onto in ("main", "master") else f" into {onto}"
    said = [task.id, agent, of]
    lines = [f"{name}: {one}" for name, one in zip(TRAILERS, said, strict=True) if one]
    return f"Merge branch '{branch}'{into}\n\n" + "\n".join(lines)
