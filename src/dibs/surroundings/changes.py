"""What a git command would change: git is asked before the command runs.

The questions are those of `git_questions`. Asking runs no program of the repository and writes
nothing (`surroundings.git`), contacts no other machine, and ends: all answers together have a time
limit.

A name that git does not know changes nothing, because the command will fail. If there is no answer
in time, it depends on the risk. A command that discards uncommitted work (`TAKING`) counts as
changing everything. Any other counts as changing nothing known: it replaces only committed files,
and changes to files of others are found after it has run.

What a fetch would bring is not asked, because it is unknown before: `git pull` is judged by the
branch that was fetched last.
"""

from __future__ import annotations

import os
from time import monotonic

from dibs.errors import InvalidError, UnavailableError
from dibs.names.checkouts import git_directory, read_bytes
from dibs.surroundings.git import elsewhere, git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Asks = tuple[tuple[str, ...], ...]

TAKING = frozenset(("dirty", "staged", "unstaged", "absent", "paths", "tracked", "untracked"))
COMPARED = ("-z", "--name-only", "--no-renames", "--no-relative", "--no-color")
PATHSPECS = 100
"""With more of them than this, git is slower than without."""
LISTED = 200
TODO_BYTES = 1 << 20
PICKS = frozenset("pick p reword r edit e squash s fixup f revert".split())
ORIGINALS = ("rebase-merge/orig-head", "rebase-apply/orig-head", "sequencer/head", "BISECT_START")
TODOS = ("rebase-merge/git-rebase-todo", "sequencer/todo")
SETTINGS = r"^(pull\.rebase|rebase\.autostash|merge\.autostash|branch\..*\.rebase)$"
UNMERGED = frozenset("DD AU UD UA DU AA UU".split())
YES = frozenset(("true", "yes", "on", "1", "", "merges", "m", "interactive", "i"))


class Asking:
    """One checkout, and the time left to ask about it.

    top: its directory, where names begin
    head: the commit that is checked out, or will be when the next command runs
    within: the only names, from the top, whose uncommitted work matters; empty for all
    """

    def __init__(self, top: str, limit_s: float, within: tuple[str, ...] = ()) -> None:
        self.top = top
        self.head = "HEAD"
        self.within = within
        self._branch = ""
        self._end = monotonic() + limit_s
        self._git_dir = git_directory(top)
        self._found: dict[tuple[str, str], str] = {}
        self._states: dict[tuple[str, ...], dict[str, str]] = {}
        self._settings: dict[str, str] | None = None

    def changed(self, asks: Asks, path: str, below: bool) -> set[str] | None:
        """The names of the files that change, from the top; None if it may be any file.

        path: where the command runs
        below: whether only files at or below that path change
        """
        found: set[str] = set()
        for word, *files in asks:
            if word in ("during", "unless") and self._has(files) == (word == "unless"):
                return found
        for word, *about in asks:
            try:
                found |= self._answer(word, about, path)
            except UnavailableError:
                if word in TAKING:
                    return None
        return {name for name in found if not below or self._is_below(path, name)}

    def _has(self, files: list[str]) -> bool:
        return any(os.path.lexists(os.path.join(self._git_dir, file)) for file in files)

    def _is_below(self, path: str, name: str) -> bool:
        inside = os.path.relpath(os.path.realpath(path), self.top)
        return inside == "." or f"{name}/".startswith(f"{inside}/")

    def _answer(self, word: str, about: list[str], path: str) -> set[str]:
        if word == "to":
            return self._between(self.head, self.commit(about[0]))
        if word == "between":
            return self._between(self.commit(about[0]), self.commit(about[1]))
        if word == "merge":
            return self.merged(*about)
        if word == "commits":
            return self._commits(about)
        if word == "stash":
            return self._stash(about[0])
        if word == "dirty":
            return {*self._state()}
        if word == "staged":
            return {name for name, state in self._state().items() if state[0] != " "}
        if word == "unstaged":
            return unstaged(self._state())
        if word == "absent":
            return {name for name, state in self._state().items() if state[1] == "D"}
        if word == "paths":
            return self._paths(about[0])
        if word == "untracked":
            return self._untracked(about, path)
        if word == "tracked":
            return self._names("ls-files", "-z", "--", path)
        if word == "modules":
            return self._modules()
        if word == "original":
            return self._between(self.head, self.commit(self._first_line(ORIGINALS)))
        if word == "todo":
            return self._todo()
        if word == "bisect":
            return self._bisect(*about)
        if word == "moves" and (commit := self.commit(about[0])):
            self.head, self._branch = commit, about[0]
        if word == "autostash":
            return {*self._state()} if self._stashes(about[0]) else set()
        return set()

    def refuses(
        self, asks: Asks, path: str, changed: set[str], counts: Callable[[str], bool]
    ) -> bool:
        """Whether git will refuse to change anything, because of uncommitted work.

        counts: whether the work in a file is certain to be there when the command runs
        """
        said = {word: [*about, ""][0] for word, *about in asks}
        try:
            if "refuses" not in said or self._stashes(said.get("autostash", "no")):
                return False
            return self._is_stopped(said["refuses"], path, changed, counts)
        except UnavailableError:
            return False

    def _is_stopped(
        self, when: str, path: str, changed: set[str], counts: Callable[[str], bool]
    ) -> bool:
        state = {name: one for name, one in self._state(()).items() if counts(name)}
        unmerged = [name for name, one in state.items() if one in UNMERGED]
        if when == "unstaged":
            return not changed.isdisjoint(unstaged(state))
        if when == "below":
            return any(self._is_below(path, name) for name in unmerged)
        if unmerged or when == "unmerged":
            return bool(unmerged)
        if when == "pull":
            when = "any" if self._is_set(when) else "staged"
        staged = any(one[0] != " " for one in state.values())
        if (when == "any" and state) or (when == "staged" and staged):
            return True
        if not changed.isdisjoint(state):
            return True
        # An untracked file is in the way as well, unless it is ignored.
        new = [name for name in changed if os.path.lexists(f"{self.top}/{name}")]
        new = [name for name in new if counts(name)][:LISTED]
        words = ("ls-files", "-z", "--others", "--exclude-standard", "--", *new)
        return bool(new and self._names(*words))

    def merged(self, rev: str, onto: str = "", when: str = "") -> set[str]:
        """What merging a revision changes, or rebasing the commits that are not in it onto another.

        when: `ff` if it only fast-forwards
        """
        theirs = self.commit(rev)
        target = self.commit(onto) if onto else theirs
        said = self._git("merge-base", self.head, theirs, codes=(0, 1, 128)) if theirs else b""
        base = said.decode().strip()
        if not base or (when == "ff" and base != self.commit(self.head)):
            return set()
        # Files that only our side has changed stay; so do those that are equal on both sides.
        differs = self._between(self.head, target)
        return differs and differs & self._between(base, target)

    def commit(self, rev: str) -> str:
        """The hash of the commit with that name, "" if there is none."""
        if not rev:
            return ""
        key = self.head, rev
        if key not in self._found:
            self._found[key] = self._find(self._rev(rev))
        return self._found[key]

    def _find(self, rev: str) -> str:
        one, dots, other = rev.partition("...")
        if dots:  # as in `git diff main...topic`: where they parted
            both = ("--end-of-options", one or self.head, other or self.head)
            return self._git("merge-base", *both, codes=(0, 1, 128)).decode().strip()
        said = self._verify(rev)
        if not said and rev[:1] != "-" and not set(rev) & set("~^:@{ *?[\\"):
            # Git takes it for the branch of a remote, if only one has it.
            words = ("for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{rev}")
            found = self._git(*words, codes=(0, 128)).decode().split()
            said = found[0] if len(found) == 1 else ""
        return said

    def _verify(self, rev: str) -> str:
        words = ("rev-parse", "-q", "--verify", "--end-of-options", f"{rev}^{{commit}}")
        return self._git(*words, codes=(0, 1, 128)).decode().strip()

    def _rev(self, rev: str) -> str:
        """A revision, as the command will resolve it."""
        if self.head == "HEAD":
            return rev
        if rev == "@{upstream}":
            return self._branch + rev
        for name in ("HEAD", "@"):
            if rev == name or rev.startswith((f"{name}~", f"{name}^")):
                return self.head + rev[len(name) :]
        return rev

    def _between(self, one: str, other: str) -> set[str]:
        if not one or not other:
            return set()
        return self._names("diff", *COMPARED, one, other, "--", codes=(0, 128))

    def _commits(self, revs: list[str], *further: str) -> set[str]:
        """What commits change; no given range or name can be an option of git."""
        named = [self._rev(rev) for rev in revs]
        if not named or not all(named):
            return set()
        words = ("--no-walk", "-m", "--format=", *COMPARED, *further, "--end-of-options", *named)
        found = self._names("log", *words, "--", codes=(0, 128))
        return {name.lstrip("\n") for name in found} - {""}

    def _stash(self, stash: str) -> set[str]:
        kept = self._verify(stash)
        if not kept:
            return set()
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", f"{kept}^3")
        return self._between(f"{kept}^1", kept) | self._names(*words, codes=(0, 128))

    def _bisect(self, word: str, *revs: str) -> set[str]:
        """What the next step of a bisection changes; for several steps, any file that they may."""
        bad, known = "refs/bisect/bad", ("--glob=refs/bisect/good-*",)
        if word not in ("start", "good", "old", "bad", "new"):
            return self._between(self.head, self.commit(bad)) | self._commits(
                [bad], "--not", *known
            )
        if word in ("good", "old"):
            good = [self.commit(rev) for rev in revs or ("HEAD",)]
        else:
            bad, good = (revs or ("HEAD",))[0], [self.commit(rev) for rev in revs[1:]]
        last = self.commit(bad)
        if not last or not all(good):
            return set()
        limits = good if word == "start" else [*good, *known]
        said = self._git("rev-list", "--bisect", last, "--not", *limits, codes=(0, 128))
        step = said.decode().strip()
        return set() if step == last else self._between(self.head, step)

    def _paths(self, rev: str) -> set[str]:
        """What differs from a revision, or from the index."""
        if rev and not (commit := self.commit(rev)):
            return set()
        found = {name for name, state in self._state().items() if rev or state[1] != " "}
        if rev:
            found |= self._between(self.head, commit)
        return found

    def applies(self, patch: str, folder: str, options: tuple[str, ...]) -> bool:
        """Whether a patch applies at all."""
        try:
            self._git("apply", *options, "--", patch, cwd=folder)
        except UnavailableError:
            return False
        return True

    def _untracked(self, flags: list[str], path: str) -> set[str]:
        from dibs.surroundings.patch import unquoted

        folder, about = (path, "") if os.path.isdir(path) else os.path.split(path)
        words = ["clean", "-n", *flags, *(["--", about] if about else [])]
        said = self._git("-c", "core.quotePath=false", *words, cwd=folder)
        found = set()
        for line in os.fsdecode(said).splitlines():
            what, _, name = line.partition(" remove ")
            if what == "Would":
                file = os.path.normpath(os.path.join(os.path.realpath(folder), unquoted(name)))
                found.add(os.path.relpath(file, self.top))
        return found

    def _modules(self) -> set[str]:
        words = ("diff-files", "-z", "--raw", "--ignore-submodules=dirty")
        fields = list(names(self._git(*words)))
        pairs = zip(fields[::2], fields[1::2], strict=False)
        return {name for said, name in pairs if said.startswith(":160000")}

    def _todo(self) -> set[str]:
        lines = [line.split(" ") for line in self._text(TODOS).splitlines()]
        picks = [line[1] for line in lines if line[0] in PICKS and len(line) > 1]
        return self._commits([pick for pick in picks if pick.isalnum()][:LISTED])

    def _first_line(self, files: Sequence[str]) -> str:
        return (self._text(files).splitlines() or [""])[0].strip()

    def _text(self, files: Sequence[str]) -> str:
        """The content of the first of these files of git that exists."""
        for file in files:
            try:
                found = read_bytes(os.path.join(self._git_dir, file), TODO_BYTES)
                return found.decode("utf-8", "replace")
            except (OSError, InvalidError):
                continue
        return ""

    def _state(self, within: tuple[str, ...] | None = None) -> dict[str, str]:
        """The state of each tracked file that has uncommitted changes: in the index, on disk."""
        within = self.within if within is None else within
        within = within if len(within) <= PATHSPECS else ()
        if within not in self._states:
            said = self._git(
                "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no",
                "--ignore-submodules=all", "--", *within,
            )  # fmt: skip
            self._states[within] = {entry[3:]: entry[:2] for entry in names(said)}
        return self._states[within]

    def _stashes(self, how: str) -> bool:
        """Whether the command stashes uncommitted work while it runs."""
        if how == "pull":
            how = "rebase.autostash" if self._is_set(how) else "merge.autostash"
        return self._is_set(how)

    def _is_set(self, how: str) -> bool:
        """Whether a setting says yes; `pull` is whether a pull rebases."""
        if how in ("yes", "no"):
            return how == "yes"
        if self._settings is None:
            said = self._git("config", "-z", "--get-regexp", SETTINGS, codes=(0, 1))
            entries = [os.fsdecode(one).partition("\n") for one in said.split(b"\0") if one]
            self._settings = {key: value.lower() for key, _, value in entries}
        if how != "pull":
            return self._settings.get(how, "false") in YES
        rebases = [value for key, value in self._settings.items() if key.endswith(".rebase")]
        return any(value in YES for value in rebases)

    def _names(self, *words: str, codes: tuple[int, ...] = (0,)) -> set[str]:
        return {*names(self._git(*words, codes=codes))}

    def _git(self, *words: str, codes: tuple[int, ...] = (0,), cwd: str = "") -> bytes:
        environment = elsewhere() | {"GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}
        left = self._end - monotonic()
        if left <= 0:
            raise UnavailableError("git took too long to say what would change")
        try:
            return git(*words, cwd=cwd or self.top, environment=environment, codes=codes,
                       timeout_s=left)  # fmt: skip
        except ValueError:  # such as a character that no file name can have
            raise UnavailableError("git does not accept this") from None


def unstaged(state: dict[str, str]) -> set[str]:
    """The files with unstaged changes and without a conflict."""
    return {name for name, one in state.items() if one[1] != " " and one not in UNMERGED}
