"""Git's objects, read through long-running processes, and written many at a time.

A train of merges reads and writes thousands of trees. Starting git once for each would take longer
than the work itself.
"""

from __future__ import annotations

import hashlib
import os
import selectors
import subprocess
import time
import zlib
from typing import NamedTuple

from dibs.errors import UnavailableError
from dibs.surroundings.git import git, prepared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

ANSWER_S = 60.0
CHUNK = 1 << 20
TREE, COMMIT = "tree", "commit"
NOTHING = "000000"
NUMBERS = {COMMIT: 1, TREE: 2}
"""The kinds of objects, as a pack numbers them."""
REF_DELTA = 7
DEPTH = 40
"""After this many deltas the whole object is written, so that reading stays fast."""
UNPACKED = 100
"""Fewer objects become separate files, as git does after a fetch."""


class Answers:
    """A long-running git process that answers questions on its standard input."""

    def __init__(self, *words: str, cwd: str, environment: dict[str, str]) -> None:
        self._verb = words[0]
        command, environment = prepared(words, cwd, environment)
        try:
            self._child = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise UnavailableError(f"git cannot be run: {error.strerror}") from error
        assert self._child.stdin is not None and self._child.stdout is not None
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._in, False)
        self._read = bytearray()
        self._at = 0
        self._to_write = memoryview(b"")

    def ask(self, question: bytes) -> None:
        """Write a question; what does not fit into the pipe is written while reading answers."""
        self._to_write = memoryview(bytes(self._to_write) + question)

    def line(self, end: bytes = b"\n") -> bytes:
        """Read up to a separator, which is dropped."""
        while (found := self._read.find(end, self._at)) < 0:
            self._more()
        start, self._at = self._at, found + len(end)
        return bytes(self._read[start:found])

    def take(self, size: int) -> bytes:
        while len(self._read) - self._at < size:
            self._more()
        start, self._at = self._at, self._at + size
        return bytes(self._read[start : self._at])

    def peek(self) -> bytes:
        while len(self._read) == self._at:
            self._more()
        return bytes(self._read[self._at : self._at + 1])

    def _more(self) -> None:
        if self._at > CHUNK:
            del self._read[: self._at]
            self._at = 0
        until = time.monotonic() + ANSWER_S
        with selectors.DefaultSelector() as ready:
            ready.register(self._out, selectors.EVENT_READ)
            if self._to_write:
                ready.register(self._in, selectors.EVENT_WRITE)
            while True:
                keys = ready.select(max(0.0, until - time.monotonic()))
                if not keys:
                    why = f"git {self._verb} did not answer within {ANSWER_S:g} s"
                    raise UnavailableError(why, next="see what git status says")
                for key, _ in keys:
                    if key.fd == self._out:
                        data = os.read(self._out, CHUNK)
                        if not data:
                            raise UnavailableError(
                                f"git {self._verb} ended", next="see what git fsck says"
                            )
                        self._read += data
                        return
                    try:
                        written = os.write(self._in, self._to_write[:CHUNK])
                    except OSError:
                        raise UnavailableError(
                            f"git {self._verb} ended", next="see what git fsck says"
                        ) from None
                    self._to_write = self._to_write[written:]
                    if not self._to_write:
                        ready.unregister(self._in)

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class Change(NamedTuple):
    """A path that differs between two trees.

    was: its mode in the first; NOTHING if it is missing
    mode: its mode in the second, and `id` its content there
    """

    path: str
    was: str
    mode: str
    id: str


class Objects:
    """The objects of a repository, and those that are not written yet."""

    def __init__(self, top: str, environment: dict[str, str]) -> None:
        self._top, self._environment = top, environment
        said = git("rev-parse", "--show-object-format", cwd=top, environment=environment)
        self._hash = said.decode().strip()
        self._cat = Answers("cat-file", "--batch", cwd=top, environment=environment)
        self._diff = Answers(
            "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev",
            "--ignore-submodules=none", cwd=top, environment=environment,
        )  # fmt: skip
        self._kept: dict[str, tuple[str, bytes]] = {}
        """What was read, or is not written yet."""
        self._new: dict[str, str] = {}
        """What is not written yet, each with a similar object, if any."""
        self._depth: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cat.close()
        self._diff.close()

    @property
    def id_bytes(self) -> int:
        return hashlib.new(self._hash).digest_size

    def read(self, id: str) -> tuple[str, bytes]:
        """The kind and the content of an object."""
        if id in self._kept:
            return self._kept[id]
        self._cat.ask(f"{id}\n".encode())
        head = self._cat.line().decode().split(" ")
        if len(head) != 3:
            raise UnavailableError(
                f"this repository has no object {id[:12]}", next="see what git fsck says"
            )
        data = self._cat.take(int(head[2]))
        self._cat.take(1)
        if head[1] == TREE:
            self._kept[id] = (head[1], data)
        return head[1], data

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        _, data = self.read(commit)
        return data[5 : data.index(b"\n")].decode()

    def changes(self, pairs: list[tuple[str, str]]) -> list[list[Change]]:
        """For each pair of trees the paths that differ."""
        mark = b"no-such-object"
        wanted = [pair for pair in pairs if pair[0] != pair[1]]
        asked = (f"{one} {other}\n".encode() for one, other in wanted)
        self._diff.ask(b"".join(asked) + mark + b"\n")
        answers = []
        for one, other in pairs:
            found = []
            if one != other:
                self._diff.line()  # the two trees
                while self._diff.peek() == b":":
                    was, mode, _, id, _ = self._diff.line(b"\0")[1:].decode().split(" ")
                    found.append(Change(os.fsdecode(self._diff.line(b"\0")), was, mode, id))
            answers.append(found)
        self._diff.line()  # git repeats it, and flushes its output
        return answers

    def add(self, kind: str, data: bytes, like: str = "") -> str:
        """Keep an object until it is written, and return its id.

        like: the id of a similar object
        """
        named = hashlib.new(self._hash, f"{kind} {len(data)}\0".encode())
        named.update(data)
        id = named.hexdigest()
        if id not in self._kept:
            self._kept[id] = (kind, data)
            depth = self._depth.get(like, 0) + 1
            near = bool(like) and like != id and depth < DEPTH
            self._new[id] = like if near else ""
            self._depth[id] = depth if near else 0
        return id

    def write(self) -> None:
        """Write all pending objects into the repository at once."""
        if not self._new:
            return
        pack = bytearray(b"PACK" + (2).to_bytes(4) + len(self._new).to_bytes(4))
        for id, like in self._new.items():
            kind, data = self._kept[id]
            change = delta(self.read(like)[1], data) if like else b""
            if change and len(change) < len(data) // 2:
                pack += head(REF_DELTA, len(change)) + bytes.fromhex(like)
                pack += zlib.compress(change, 1)
            else:
                pack += head(NUMBERS[kind], len(data)) + zlib.compress(data, 1)
        pack += hashlib.new(self._hash, pack).digest()
        few = len(self._new) < UNPACKED
        words = ("unpack-objects", "-q") if few else ("index-pack", "--stdin", "--fix-thin")
        git(*words, cwd=self._top, environment=self._environment, input=bytes(pack), timeout_s=600)
        self._new.clear()


def head(kind: int, size: int) -> bytes:
    """The header of an object in a pack."""
    found = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        found[-1] |= 128
        found.append(size & 127)
        size >>= 7
    return bytes(found)


def number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def delta(old: bytes, new: bytes) -> bytes:
    """A pack's delta between two objects that begin and end the same."""
    start = alike(old, new)
    end = alike(old[start:][::-1], new[start:][::-1])
    said = bytearray(number(len(old)) + number(len(new)))
    said += copied(0, start)
    middle = new[start : len(new) - end]
    for at in range(0, len(middle), 127):
        piece = middle[at : at + 127]
        said += bytes([len(piece)]) + piece
    return bytes(said + copied(len(old) - end, end))


def alike(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def copied(start: int, size: int) -> bytes:
    said = bytearray()
    while size:
        piece = min(size, 0xFFFF)
        said += bytes([0b10111111]) + start.to_bytes(4, "little") + piece.to_bytes(2, "little")
        start, size = start + piece, size - piece
    return bytes(said)
