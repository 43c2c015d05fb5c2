"""Who is alive, and who is to be woken: files beside a SQLite database.

Liveness: the kernel knows who is alive. Each number that stands for a process, a session's or
that of somebody who waits, has a small file that its process keeps locked. The kernel drops the
lock however the process ends, so a lock that can be had means a holder that is dead. Liveness
says nothing about ownership: a frozen process is alive, and the time limit of what it holds is
what frees that. Testers take the lock shared, so they never mistake each other for the holder.

Bells: how a commit wakes those who wait. A bell is a hint; the tables are the truth. After its
commit a writer writes into a file per topic, and `waiting` sleeps until that happens. A
hint that is lost, because the writer died right after its commit, costs a waiter at most one
slow look. A number has a bell of its own, its liveness file, so that a write can wake the one
whom it concerns and nobody else.

What is written is where the journal ends. So a database that went back in time is noticed, since
its journal ends before that: deleted and made again, replaced by an older copy, or cut short.
"""

from __future__ import annotations

import os

from dibs.errors import BusyError, UnfitError
from dibs.storage.folder import store_gone
from dibs.storage.private import SAFELY, open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.storage.driver import Listener

_HANDLES: set[int] = set()
"""All locked files of this process, for a child that must not keep them."""


class FileLiveness:
    """Proof that the process behind a number, such as a session's, still runs."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.space = 0
        """Numbers are counted in each space; the files of all spaces are in one folder."""
        self._held: dict[int, int] = {}
        self._pid = os.getpid()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | SAFELY)

    def present(self) -> bool:
        """Whether the folder is still there; without it, everybody would look dead."""
        return os.fstat(self._handle).st_nlink > 0

    def path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self.space}-{number}")

    def hold(self, number: int) -> None:
        """Prove, until the process ends or lets go, that this number is alive."""
        import fcntl  # late, since most commands have nothing to prove

        self.let_go(number)  # of a write that was undone half-way
        try:
            handle = open_own(self.path(number), os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise store_gone(self._folder) from None
        self._held[number] = handle
        _HANDLES.add(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _close(self._held.pop(number))  # the file is the other's, and stays
            raise BusyError(
                "another process has not let go yet of what it did not finish", next="try again"
            ) from None

    def let_go(self, number: int) -> None:
        handle = self._held.pop(number, None)
        # A forked child has no part in what its parent proves.
        if handle is not None and os.getpid() == self._pid:
            self.forget(number)
            _close(handle)

    def forget(self, number: int) -> None:
        """Remove the file of somebody who is gone; numbers are never used again."""
        try:
            os.unlink(self.path(number))
        except FileNotFoundError:
            return

    def alive(self, number: int) -> bool:
        return is_held(self.path(number))

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        while self._held:
            _close(self._held.popitem()[1])
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def is_held(file: str) -> bool:
    """Whether the process that keeps this file locked still lives."""
    import fcntl

    try:
        handle = open_own(file)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _close(handle: int) -> None:
    if handle in _HANDLES:
        _HANDLES.remove(handle)
        os.close(handle)


def _let_go_in_child() -> None:
    # A forked child shares the locks; were it to keep them, a dead parent would look alive.
    while _HANDLES:
        os.close(_HANDLES.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


class Bells:
    PLACES = 8
    """The last few seqs have one each: a writer that is late does not cover the one after it."""

    def __init__(self, folder: str, liveness: FileLiveness) -> None:
        self._folder = folder
        self._liveness = liveness
        self._open: dict[str, int] = {}
        self._ears: list[int] = []
        """Kept by `waiting` for the next who listens."""

    def path(self, topic: str) -> str:
        if topic.isdigit():
            return self._liveness.path(int(topic))
        return f"{self._folder}/{self._liveness.space}-{topic.partition(':')[0]}"

    def ring(self, topics: set[str], seq: int) -> None:
        """Wake those who listen; where that fails, they are gone, or find it at their next look."""
        text, place = seq.to_bytes(8, "big"), seq % self.PLACES * 8
        for topic in topics:
            try:
                handle = self._open.get(topic)
                if handle is not None:
                    os.pwrite(handle, text, place)
                elif topic.isdigit():
                    self._ring_number(topic)
                else:
                    flags = os.O_RDWR | os.O_CREAT
                    self._open[topic] = handle = open_own(self.path(topic), flags)
                    os.pwrite(handle, text, place)
            except (OSError, UnfitError):
                continue

    def last(self) -> int:
        """Where the journal of the space ended when a bell was last rung, 0 if none ever was."""
        seqs = [0]
        for name in os.listdir(self._folder):
            if name.startswith(f"{self._liveness.space}-"):
                handle = open_own(f"{self._folder}/{name}")
                noted = os.pread(handle, 8 * self.PLACES, 0)
                os.close(handle)
                seqs += [
                    int.from_bytes(noted[at : at + 8], "big") for at in range(0, len(noted), 8)
                ]
        # By the clock, nothing larger is given out before the year 2109: the file is damaged.
        return max(seq for seq in seqs if seq < 1 << 52)

    def _ring_number(self, topic: str) -> None:
        handle = open_own(self.path(topic), os.O_RDWR)
        try:
            os.pwrite(handle, b"!", 0)
        finally:
            os.close(handle)

    def listen(self, topics: tuple[str, ...], cancel: int | None) -> Listener:
        from dibs.storage.waiting import listen  # late, since most commands never wait

        return listen([self.path(topic) for topic in topics], cancel, self._ears)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
        while self._ears:
            os.close(self._ears.pop())
