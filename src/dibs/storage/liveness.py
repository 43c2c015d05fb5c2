"""Liveness on one machine: the kernel knows who is alive.

Each process-bound session and each waiting ticket has a small file that its process keeps
locked. The kernel drops the lock however the process ends, so a lock that can be had means
a holder that is dead. Liveness says nothing about ownership: a frozen process is alive, and
the time limit of its lease is what frees the resource.

Testers take the lock shared, so they never mistake each other for the holder.
"""

from __future__ import annotations

import fcntl
import os

from dibs.errors import BusyError, StoreGoneError

_HANDLES: set[int] = set()
"""All locked files of this process, for a child that must not keep them."""


class FileLiveness:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.space = 0
        """Numbers are counted in each space; the files of all spaces are in one folder."""
        self._held: dict[int, int] = {}
        self._pid = os.getpid()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def present(self) -> bool:
        """Whether the folder is still there; without it, everybody would look dead."""
        return os.fstat(self._handle).st_nlink > 0

    def path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self.space}-{number}")

    def hold(self, number: int) -> None:
        self.let_go(number)  # of a write that was undone half-way
        try:
            handle = os.open(self.path(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise StoreGoneError(
                f"{self._folder} was deleted while the store was open",
                next="open the store again: it starts afresh",
            ) from None
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
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
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
