"""Whether a commit may land: the commands of the bar, each compared with the base.

A command that fails on the base too, twice in a row, does not decide. A failure that happens there
only sometimes does not count. Neither does a command without a result there: a misspelt or missing
command fails everywhere, and one that hit the time limit did not finish. With a pattern for single
failures, a command may fail as long as no failure is new.

Results on a base are entries in the store, by commit and command. Anybody can write entries, and
one that says "it fails on the base" would lower the bar, so a conductor trusts only entries that it
wrote under its own name.
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.landing.bar import digest
from dibs.landing.verifying import Result
from dibs.records import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.dibs import Agent
    from dibs.landing.bar import Bar
    from dibs.landing.verifying import Runner, Worktree

NAMESPACE = "land"
REMEMBERED_S = 30 * 86_400
FAILURES_KEPT = 500


class Break(NamedTuple):
    """A command that stops a commit from landing, and how it ended."""

    command: str
    result: Result


class Known(NamedTuple):
    """What is known about the base."""

    passed: bool
    failures: frozenset[str] = frozenset()


class Gate:
    """The bar for one base.

    runs: how many commands have been run
    """

    def __init__(
        self,
        agent: Agent,
        bar: Bar,
        base: str,
        worktree: Worktree,
        runner: Runner,
        tell: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._bar = bar
        self._base = base
        self._worktree = worktree
        self._runner = runner
        self._tell = tell
        self._results: dict[tuple[str, str], Result] = {}
        self._known: dict[str, Known | None] = {}
        self.excused: dict[str, None] = {}
        """The commands that fail, but no more than on the base."""

    def breaks(self, commit: str) -> Break | None:
        """What stops a commit from landing."""
        for command in self._bar.verify:
            result = self._run(commit, command)
            if not result.passed and not self._is_excused(command, result):
                return Break(command, result)
        return None

    def learn_base(self, command: str) -> bool:
        """Find out whether a command fails on the base, unless that is known."""
        known = self._base_of(command)
        if known is None:
            result = self._run(self._base, command)
            if result.ran and not result.passed:
                again = self._try_out(self._base, command)
                fails = again.ran and not again.passed
                result = again._replace(passed=not fails, failures=result.failures & again.failures)
            known = self._known[command] = Known(result.passed or not result.ran, result.failures)
            self._remember(self._base, command, result)
        return not known.passed

    def keep(self, commit: str) -> None:
        """Remember the results of a landed commit: it is the next base."""
        for command in self._bar.verify:
            if (result := self._results.get((commit, command))) is not None:
                self._remember(commit, command, result)

    def _is_excused(self, command: str, result: Result) -> bool:
        if not result.ran:
            return False
        known = self._base_of(command)
        if self._bar.failures is not None and known is None:
            self.learn_base(command)
            known = self._base_of(command)
        if known is None or known.passed:
            return False
        if self._bar.failures is not None:
            crashed = known.failures and not result.failures
            if crashed or not result.failures <= known.failures:
                return False
        self.excused[command] = None
        return True

    def _run(self, commit: str, command: str) -> Result:
        key = commit, command
        if key not in self._results:
            self._results[key] = self._try_out(commit, command)
        return self._results[key]

    def _try_out(self, commit: str, command: str) -> Result:
        self._tell(f"verifying {commit[:12]}: {command}")
        return self._worktree.try_out(
            self._runner, commit, command, self._bar.time_limit_s, self._bar.failures,
            {"DIBS_LAND_BASE": self._base},
        )  # fmt: skip

    def _base_of(self, command: str) -> Known | None:
        if command not in self._known:
            entry = self._agent.state.get(NAMESPACE, key_of(self._base, command))
            said = entry.value if entry is not None else None
            mine = entry is not None and entry.author == self._agent.name
            self._known[command] = read(said) if mine else None
        return self._known[command]

    def _remember(self, commit: str, command: str, result: Result) -> None:
        said = {"passed": result.passed, "failures": sorted(result.failures)}
        if result.ran and len(result.failures) <= FAILURES_KEPT:
            key = key_of(commit, command)
            self._agent.state.set(NAMESPACE, key, said, force=True, ttl_s=REMEMBERED_S)


def key_of(commit: str, command: str) -> str:
    return f"{commit}:{digest([command])}"


def read(said: object) -> Known | None:
    match said:
        case {"passed": bool(passed), "failures": list(failures)}:
            return Known(passed, frozenset(one for one in failures if isinstance(one, str)))
    return None


def sound(gate: Gate, ends: Sequence[str]) -> tuple[int, Break | None]:
    """How many of these may land, one after the other, and what the next one breaks.

    ends: the commit after each
    """
    if not ends or (last := gate.breaks(ends[-1])) is None:
        return len(ends), None
    passes, fails = 0, len(ends)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        found = gate.breaks(ends[middle - 1])
        if found is None:
            passes = middle
        else:
            fails, last = middle, found
    if passes == 0 and gate.learn_base(last.command) and last.command not in gate.excused:
        again = gate.breaks(ends[0])
        if again is None or again.command != last.command:
            return sound(gate, ends)
    return passes, last


def broke(what: Break) -> str:
    """What failed, in words; its output follows."""
    return f"{called(what.command)} failed: {what.result.said}"
