"""A train of merges in git's object database, without a working tree.

Each branch is merged into the result of the branches before it: a commit with two parents, and the
tree that `git merge --no-ff` would produce, branch after branch in the same order.

Most branches change other paths than those before them. Then the tree of the merge is the previous
tree with the changed paths inserted, and no merge needs to be computed (`_overlay`). Git itself
merges the rest (`git merge-tree`): a path that both sides change, a file where the other side has a
directory, several merge bases, and files added to a directory that the other side has moved.
Without such a directory, a rename makes no difference: the other side would have to change both of
its paths too.

No command from the repository's settings is run. A file with a custom merge driver is a conflict,
and so is a submodule that both sides move.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dibs.landing.objects import COMMIT, NOTHING, TREE, Change, Objects
from dibs.names.checkouts import git_directory
from dibs.surroundings.git import elsewhere, git, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

MERGED, LANDED, CONTAINED = "merged", "landed", "contained"
CONFLICT, UNRELATED = "conflict", "unrelated"
ATTRIBUTES = ".gitattributes"
DIRECTORY, LINK = b"40000", "120000"
DIED = -6
"""Git's exit code for an internal error."""
NOBODY = "dibs <dibs@localhost>"


class Step(NamedTuple):
    """The outcome for one branch.

    how: `merged`, `landed` (already in the base), `contained` (in the train), `conflict`, or
        `unrelated` (it has no commit in common with the target)
    commit: the end of the train after it
    files: the paths that the merge changes, or those in conflict
    """

    how: str
    commit: str
    files: tuple[str, ...] = ()


class Paths:
    """Paths that one side has changed, and the directories above them."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.all: set[str] = set()
        self.above: set[str] = set()
        self.above_added: set[str] = set()
        self.above_removed: set[str] = set()
        self.add(changes)

    def add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.all.add(change.path)
            above = set(directories(change.path))
            self.above |= above
            if change.was == NOTHING:
                self.above_added |= above
            elif change.mode == NOTHING:
                self.above_removed |= above


class Node:
    """A tree: its raw entries, in order."""

    def __init__(self, data: bytes, id_bytes: int) -> None:
        self.lines: dict[bytes, bytes] = {}
        at = 0
        while at < len(data):
            name = data.index(b"\0", at)
            end = name + 1 + id_bytes
            line = data[at:end]
            mode, _, called = data[at:name].partition(b" ")
            self.lines[called + b"/" if mode == DIRECTORY else called] = line
            at = end
        self.keys = list(self.lines)

    def put(self, mode: bytes, name: bytes, id: str) -> None:
        key = name + b"/" if mode == DIRECTORY else name
        if key not in self.lines:
            insort(self.keys, key)
        self.lines[key] = mode + b" " + name + b"\0" + bytes.fromhex(id)

    def drop(self, key: bytes) -> None:
        if self.lines.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def find(self, key: bytes) -> str | None:
        """The id of an entry; a directory's name ends with a slash."""
        line = self.lines.get(key)
        return None if line is None else line[line.index(b"\0") + 1 :].hex()

    def data(self) -> bytes:
        return b"".join([self.lines[key] for key in self.keys])


class Nest:
    """Changes by directory."""

    def __init__(self) -> None:
        self.files: dict[bytes, Change] = {}
        self.inside: dict[bytes, Nest] = {}

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Nest:
        top = cls()
        for change in changes:
            *parts, name = os.fsencode(change.path).split(b"/")
            nest = top
            for part in parts:
                nest = nest.inside.setdefault(part, cls())
            nest.files[name] = change
        return top


class Train:
    """The merges onto one commit.

    base: that commit
    tip: the last merge
    """

    def __init__(self, top: str, base: str, commits: Sequence[str] = ()) -> None:
        """
        top: a checkout of the repository
        commits: the tips of the branches to merge, so that all of them can be examined
            together
        """
        self.tip = base
        self.base = base
        self._top = top
        self._environment = elsewhere() | {"GIT_NO_REPLACE_OBJECTS": "1"}
        self._git = partial(git, cwd=top, environment=self._environment, timeout_s=600)
        self._parents: dict[str, list[str]] = {}
        self._merged: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._moved = Paths()
        self._since: dict[str, Paths] = {}
        self._changes: dict[tuple[str, str], list[Change]] = {}
        self._attributes: dict[str, str] | None = None
        self._who = identity(self._git)
        self._objects = Objects(top, self._environment)
        try:
            self._tree = self._objects.tree_of(base)
            self._base_tree = self._tree
            self._look(commits)
        except BaseException:
            self._objects.__exit__()
            raise
        self._empty = TemporaryDirectory(prefix="dibs-")
        with open(f"{self._empty.name}/.git", "w", encoding="utf-8") as link:
            link.write(f"gitdir: {git_directory(top)}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._objects.__exit__()
        self._empty.cleanup()

    def _look(self, commits: Sequence[str]) -> None:
        """Find out what is new on these branches, and what each of them changes."""
        new = [commit for commit in commits if commit not in self._parents]
        asked = "\n".join([*new, f"^{self.base}", ""])
        said = self._git("rev-list", "--parents", "--stdin", input=asked.encode())
        for line in said.decode().splitlines():
            commit, *parents = line.split(" ")
            self._parents[commit] = parents
        pairs = {}
        for commit in new:
            parted = self._parted(commit)
            if len(parted) == 1 and commit not in parted:
                theirs, before = self._objects.tree_of(commit), self._objects.tree_of(*parted)
                pairs[(before, theirs)] = pairs[(before, self._base_tree)] = True
        self._learn([pair for pair in pairs if pair not in self._changes])

    def _learn(self, pairs: list[tuple[str, str]]) -> None:
        self._changes |= zip(pairs, self._objects.changes(pairs), strict=True)

    def _parted(self, commit: str) -> set[str]:
        """The merge bases of a branch with the train, and perhaps some earlier commits."""
        found, seen, left = set(), {commit}, [commit]
        while left:
            one = left.pop()
            if one not in self._parents or one in self._merged:
                found.add(one)
                continue
            left += [parent for parent in self._parents[one] if parent not in seen]
            seen.update(self._parents[one])
        return found

    def merge(self, commit: str, message: str) -> Step:
        """Merge one more branch; if that is not possible, the train stays as it is."""
        if commit not in self._parents:
            self._look([commit])
        parted = self._parted(commit)
        if commit in parted:
            return Step(CONTAINED if commit in self._merged else LANDED, self.tip)
        if not parted:
            return Step(UNRELATED, self.tip)
        if len(parted) > 1:
            said = self._git("merge-base", "--independent", *sorted(parted))
            parted = set(said.decode().split())
        made = self._overlay(commit, *parted) if len(parted) == 1 else None
        if made is None:
            tree, files = self._merge_tree(commit)
            if files:
                return Step(CONFLICT, self.tip, files)
            (changes,) = self._objects.changes([(self._tree, tree)])
        else:
            tree, changes = made
        return self._take(commit, message, tree, changes)

    def take(self, commit: str, message: str, tree: str) -> Step:
        """Merge a branch with a tree that somebody else made from both."""
        (changes,) = self._objects.changes([(self._tree, tree)])
        return self._take(commit, message, tree, changes)

    def _take(self, commit: str, message: str, tree: str, changes: list[Change]) -> Step:
        self._moved.add(changes)
        self._tree = tree
        self._join(commit)
        text = f"tree {tree}\nparent {self.tip}\nparent {commit}\n{self._who}\n\n{message}\n"
        self.tip = self._objects.add(COMMIT, text.encode("utf-8", "surrogateescape"))
        return Step(MERGED, self.tip, tuple(change.path for change in changes))

    def _join(self, commit: str) -> None:
        """Note that everything reachable from a commit is now in the train."""
        left = [commit]
        while left:
            one = left.pop()
            if one in self._parents and one not in self._merged:
                self._merged.add(one)
                left += self._parents[one]

    def write(self) -> str:
        """Write all merges into the repository, and return the last of them."""
        self._objects.write()
        return self.tip

    def _overlay(self, commit: str, base: str) -> tuple[str, list[Change]] | None:
        """The tree with a branch's changes inserted, and the changes; None if git must merge."""
        theirs, before = self._objects.tree_of(commit), self._objects.tree_of(base)
        missing = [(before, theirs), (before, self._base_tree)]
        self._learn([pair for pair in missing if pair not in self._changes])
        changes = self._changes[before, theirs]
        if before not in self._since:
            self._since[before] = Paths(self._changes[before, self._base_tree])
        alone = before == self._tree
        if not alone and not all(
            self._is_apart(changes, ours, theirs) for ours in (self._since[before], self._moved)
        ):
            return None
        return theirs if alone else self._put(self._tree, Nest.of(changes)), changes

    def _is_apart(self, changes: list[Change], ours: Paths, theirs: str) -> bool:
        """Whether the changes of both sides are independent."""
        if not ours.all:
            return True
        for path, was, mode, _ in changes:
            above = directories(path)
            if path in ours.all or path in ours.above or any(one in ours.all for one in above):
                return False
            # Files that one side adds to a directory move with it if the other side moves it.
            tree, other = (
                (self._tree, ours.above_removed) if was == NOTHING
                else (theirs, ours.above_added) if mode == NOTHING
                else ("", set[str]())
            )  # fmt: skip
            if any(one in other and self._find(tree, f"{one}/") is None for one in above):
                return False
        return True

    def _node(self, tree: str) -> Node:
        if tree not in self._nodes:
            _, data = self._objects.read(tree)
            self._nodes[tree] = Node(data, self._objects.id_bytes)
        return self._nodes[tree]

    def _find(self, tree: str, path: str) -> str | None:
        """The id of a path; the path of a directory ends with a slash."""
        parts = os.fsencode(path).removesuffix(b"/").split(b"/")
        ends = b"/" if path.endswith("/") else b""
        for part in parts[:-1]:
            found = self._node(tree).find(part + b"/")
            if found is None:
                return None
            tree = found
        return self._node(tree).find(parts[-1] + ends)

    def _put(self, tree: str, nest: Nest) -> str:
        """A tree with changes inserted; "" if nothing is left of it."""
        # The previous node is hardly ever needed again.
        node = Node(b"", 0)
        if tree:
            node = self._node(tree)
            del self._nodes[tree]
        for name, change in nest.files.items():
            if change.mode == NOTHING:
                node.drop(name)
        for name, inside in nest.inside.items():
            found = self._put(node.find(name + b"/") or "", inside)
            if found:
                node.put(DIRECTORY, name, found)
            else:
                node.drop(name + b"/")
        for name, change in nest.files.items():
            if change.mode != NOTHING:
                node.put(change.mode.encode(), name, change.id)
        if not node.keys:
            return ""
        id = self._objects.add(TREE, node.data(), tree)
        self._nodes[id] = node
        return id

    def _merge_tree(self, commit: str) -> tuple[str, tuple[str, ...]]:
        """Let git merge; return the tree, and the paths in conflict."""
        self.write()
        self._place_attributes()
        # Git looks for attributes in the working tree, which is otherwise empty here.
        apart = {
            "GIT_WORK_TREE": self._empty.name,
            "GIT_INDEX_FILE": os.path.join(self._empty.name, ".git-index"),
        }
        said = names(
            git(
                "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z",
                self.tip, commit, cwd=self._empty.name, environment=self._environment | apart,
                codes=(0, 1, DIED), timeout_s=600,
            )
        )  # fmt: skip
        if not said:
            # Some conflicts crash git.
            changed = self._git("diff", "--name-only", "-z", f"{self.tip}...{commit}")
            return "", tuple(names(changed))
        tree, *files = said
        # A file that conflicts with a directory is renamed after its side.
        sides = f"~{self.tip}", f"~{commit}"
        plain = (file.removesuffix(sides[0]).removesuffix(sides[1]) for file in files)
        return tree, tuple(dict.fromkeys(plain))

    def _place_attributes(self) -> None:
        """Put the .gitattributes of the train where git looks for them."""
        if self._attributes is None:
            said = names(self._git("ls-tree", "-r", "-z", "--name-only", self.base))
            self._attributes = dict.fromkeys(filter(is_attributes, said), "")
        for path in [*self._attributes, *filter(is_attributes, self._moved.all)]:
            id = self._find(self._tree, path) or ""
            if id == self._attributes.get(path):
                continue
            self._attributes[path] = id
            file = os.path.join(self._empty.name, path)
            if id:
                os.makedirs(os.path.dirname(file), exist_ok=True)
                with open(file, "wb") as out:
                    out.write(self._objects.read(id)[1])
            elif os.path.exists(file):
                os.remove(file)


def is_attributes(path: str) -> bool:
    """Whether attributes are read from a path; a tree may contain any name."""
    *parts, name = path.split("/")
    return name == ATTRIBUTES and not {"", ".", "..", ".git"} & set(parts)


def directories(path: str) -> Iterator[str] | list[str]:
    """The directories above a path."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def identity(call: partial[bytes]) -> str:
    """The lines of a commit that say who made it, and when."""
    import time

    lines = []
    for who in ("author", "committer"):
        said = call("var", f"GIT_{who.upper()}_IDENT", codes=(0, 128)).decode().strip()
        lines.append(f"{who} {said or f'{NOBODY} {time.time():.0f} +0000'}")
    return "\n".join(lines)
