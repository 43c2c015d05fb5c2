"""What a target requires of the branches that land on it: `[land]` in `.dibs/config.toml`.

It is read from the target's own commit, never from a branch or a checkout, so a branch cannot lower
its own bar. A file that cannot be read stops every landing, because the bar is then unknown. A
change to `.dibs` always waits for a person.
"""

from __future__ import annotations

from functools import partial

from dibs.digest import sha256
from dibs.errors import InvalidError
from dibs.names import globs
from dibs.names.paths import is_glob
from dibs.surroundings.commands import seconds
from dibs.surroundings.git import elsewhere, git
from dibs.surroundings.settings import LIMIT, shown, toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from re import Pattern

    from dibs.surroundings.settings import Given

FILE = ".dibs/config.toml"
FOLDER = ".dibs"
TIME_LIMIT_S, TIME_LIMIT_MIN_S, TIME_LIMIT_MAX_S = 1_800.0, 1.0, 86_400.0
BATCH, BATCH_MAX = 32, 500
COMMANDS, COMMAND_LENGTH = 20, 4_000
PATTERN_LENGTH = 500


class Bar:
    """
    verify: commands that must succeed, each in a shell, in a checkout of the commit to be landed
    time_limit_s: how long each of them may take
    protected: paths and globs whose change waits for a person
    batch: how many branches may be verified together
    failures: a pattern for single failures in the output; with it, only new failures count
    problems: what cannot be read
    """

    def __init__(self, given: Given) -> None:
        given = dict(given)
        self.problems: list[str] = []
        self.verify = self._verify(given.pop("verify", []))
        self.time_limit_s = self._time_limit(given.pop("time_limit", TIME_LIMIT_S))
        self.protected = self._texts("protected", given.pop("protected", []))
        self.batch = self._batch(given.pop("batch", BATCH))
        self.failures = self._failures(given.pop("failures", ""))
        self.problems += [f"there is no setting {shown(name)} in [land]" for name in given]

    def protects(self, path: str) -> bool:
        """Whether a change to a path waits for a person."""
        if path.casefold().split("/")[0] == FOLDER:
            return True
        return any(covers(one, path) for one in self.protected)

    def _verify(self, given: object) -> tuple[str, ...]:
        found = self._texts("verify", [given] if isinstance(given, str) else given)
        if len(found) > COMMANDS or any(len(one) > COMMAND_LENGTH for one in found):
            self.problems.append(f"verify has more than {COMMANDS} commands, or a very long one")
        return tuple(one for one in found if one.strip())

    def _texts(self, name: str, given: object) -> tuple[str, ...]:
        if isinstance(given, list) and all(
            isinstance(one, str) and "\0" not in one for one in given
        ):
            return tuple(given)
        self.problems.append(f"{name} in [land] must be a list of texts")
        return ()

    def _time_limit(self, given: object) -> float:
        try:
            found = seconds("time_limit", given if isinstance(given, str) else shown(given))
        except InvalidError as error:
            self.problems.append(error.message)
            return TIME_LIMIT_S
        if not TIME_LIMIT_MIN_S <= found <= TIME_LIMIT_MAX_S:
            self.problems.append("time_limit in [land] must be between 1s and 24h")
        return found

    def _batch(self, given: object) -> int:
        if type(given) is int and 1 <= given <= BATCH_MAX:
            return given
        self.problems.append(f"batch in [land] must be a number from 1 to {BATCH_MAX}")
        return 1

    def _failures(self, given: object) -> Pattern[bytes] | None:
        import re

        if given == "":
            return None
        try:
            if isinstance(given, str) and len(given) <= PATTERN_LENGTH:
                return re.compile(given.encode(), re.MULTILINE)
            self.problems.append("failures in [land] must be a regular expression")
        except re.error as error:
            self.problems.append(f"failures in [land] is not a regular expression: {error}")
        return None


def covers(pattern: str, path: str) -> bool:
    """Whether a path is one of these, below one of these, or matches a glob."""
    pattern = pattern.removeprefix("./").strip("/")
    if is_glob(pattern):
        return globs.covers(pattern, path)
    return f"{path}/".startswith(f"{pattern}/")


def bar_of(top: str, commit: str, extra: Sequence[str] = ()) -> Bar:
    """The bar that a commit sets; raises an `InvalidError` if it cannot be read.

    extra: additional commands of the caller
    """
    call = partial(git, cwd=top, environment=elsewhere())
    listed = call("ls-tree", "-z", commit, "--", FILE).decode(errors="replace")
    given: Given = {}
    if listed:
        mode, kind, id = listed.partition("\t")[0].split(" ")
        problem = ""
        if kind != "blob" or mode == "120000":
            problem = "it is not a file"
        elif int(call("cat-file", "-s", id)) > LIMIT:
            problem = f"it is larger than {LIMIT >> 10} KiB"
        else:
            try:
                given = toml(call("cat-file", "blob", id).decode())
            except ValueError as error:
                problem = str(error)
        if problem:
            raise unreadable(commit, problem)
    land, protected = given.get("land", {}), given.get("protected", [])
    if not isinstance(land, dict):
        raise unreadable(commit, "land must be a table: [land]")
    bar = Bar(land)
    if isinstance(protected, list):
        bar.protected += tuple(one for one in protected if isinstance(one, str))
    if bar.problems:
        raise unreadable(commit, "; ".join(bar.problems))
    bar.verify = tuple(dict.fromkeys([*bar.verify, *extra]))
    return bar


def unreadable(commit: str, why: str) -> InvalidError:
    return InvalidError(
        f"{FILE} in {commit[:12]} cannot be read, so nothing can land: {why}",
        next=f"correct {FILE} on the target branch, and commit it there",
    )


def digest(commands: Sequence[str]) -> str:
    """A name for commands, by which a conductor recognises its own."""
    if not commands:
        return ""
    text: str = sha256("\0".join(commands).encode()).hexdigest()[:16]
    return text
