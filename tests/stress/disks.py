"""Disks that fail: one that a power cut empties of all that was not synced, and one that errs.

The power cut is simulated: a VFS between SQLite and the file system notes every write and sync
of a run, in order, together with what dibs acknowledged. Any moment of the run can then be laid
out again as files that hold only what had been synced by then.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
from pathlib import Path
from typing import Any

import apsw

import dibs
from tests.stress.clockwork import ask, say

CHECKPOINT_PAGES = 60
LOG: list[list[Any]] = []


class NotedFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = os.path.basename(path)
        LOG.append(["open", self._name])
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        LOG.append(["write", self._name, offset, bytes(data).hex()])
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        LOG.append(["truncate", self._name, size])
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        LOG.append(["sync", self._name])


class NotingDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("noting", base="unix")

    def xOpen(self, name: Any, flags: list[int]) -> NotedFile:
        return NotedFile(name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        LOG.append(["delete", os.path.basename(name)])


def commit_and_note(url: str, space: str, durability: str, commits: int, log: str) -> None:
    """Make so many commits on the noting disk, and leave its log behind."""
    disk = NotingDisk()
    apsw.set_default_vfs("noting")
    with dibs.open(url, space=space, durability=durability) as store:
        agent = store.join("alice")
        driver: Any = agent.scope.store.driver
        for connection in driver._idle:
            connection.db.wal_autocheckpoint(CHECKPOINT_PAGES)  # some happen in this short run
        LOG.append(["begin"])
        for number in range(commits):
            agent.state.set("run", f"{number}", number)
            LOG.append(["acknowledged", number])
        with open(log, "w", encoding="utf-8") as target:
            json.dump(LOG, target)
    del disk
    say("done")


class Disk:
    """What is on a disk, and what of that would outlast a power cut."""

    def __init__(self) -> None:
        self.durable: dict[str, bytes] = {}
        self._now: dict[str, bytearray] = {}
        self._pending: dict[str, list[list[Any]]] = {}

    def do(self, step: list[Any]) -> None:
        kind, name = step[0], step[1]
        if kind == "open":
            self._now.setdefault(name, bytearray())
            self.durable.setdefault(name, b"")
        elif kind == "delete":
            for files in (self._now, self.durable, self._pending):
                files.pop(name, None)
        elif kind == "sync":
            self.durable[name] = bytes(self._now[name])
            self._pending[name] = []
        else:
            change(self._now[name], step)
            self._pending.setdefault(name, []).append(step)

    def after_a_cut(self, chance: random.Random | None) -> dict[str, bytes]:
        """The files as they are found; by chance, some unsynced writes had got through."""
        found = {}
        for name, content in self.durable.items():
            file = bytearray(content)
            for step in self._pending.get(name, []):
                if chance is not None and chance.random() < 0.5:
                    change(file, step)
            found[name] = bytes(file)
        return found


def change(file: bytearray, step: list[Any]) -> None:
    if step[0] == "truncate":
        del file[step[2] :]
        return
    offset, data = step[2], bytes.fromhex(step[3])
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


def lay_out(files: dict[str, bytes], key: bytes, folder: Path) -> str:
    """Write the files found after a power cut to a folder; return the store's address."""
    private = folder / "dibs.db.d"
    private.mkdir(parents=True, mode=0o700)
    (private / "key").write_bytes(key)
    (private / "key").chmod(0o600)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder / "dibs.db")


def commit_on_a_faulty_disk(url: str, space: str, library: str, commits: int) -> None:
    """Make so many commits while one thing fails; tell what each came to.

    The library has been loaded before this process began; here it is only told what to do.
    """
    faults = ctypes.CDLL(library)
    store = dibs.open(url, space=space)
    agent = store.join("alice")
    say("here")
    while True:
        kind, k, number, stays, run = ask()
        outcomes: list[Any] = []
        faults.fault_arm(ctypes.c_int(kind), ctypes.c_long(k), number, stays)
        for place in range(commits):
            try:
                agent.state.set("run", f"{run}/{place}", place)
                outcomes.append("acknowledged")
            except dibs.DibsError as error:
                outcomes.append([error.code, str(error)])
            except BaseException as error:
                outcomes.append(["untyped", repr(error)])
        hits = faults.fault_hits()
        # The disk is well again: what does this very process see, and can it write?
        try:
            entries = agent.state.list("run")
            seen = [entry.key for entry in entries if entry.key.startswith(f"{run}/")]
            agent.state.set("run", f"{run}/after", 0)
            agent.state.clear("run")
            say([hits, outcomes, seen, "well"])
        except BaseException as error:
            say([hits, outcomes, [], repr(error)])


def open_on_a_faulty_disk(space: str, library: str) -> None:
    """Open a fresh store while one thing fails, then once more when the disk is well."""
    faults = ctypes.CDLL(library)
    say("here")
    while True:
        url, kind, k, number = ask()
        faults.fault_arm(ctypes.c_int(kind), ctypes.c_long(k), number, False)
        first = try_a_store(url, space)
        hits = faults.fault_hits()
        say([hits, first, try_a_store(url, space)])


def try_a_store(url: str, space: str) -> str:
    try:
        with dibs.open(url, space=space) as store, store.join("alice") as alice:
            alice.leases.claim("port:1")
            return "done"
    except dibs.DibsError as error:
        # SQLite itself does not say why its shared file cannot grow, so neither can dibs.
        return "disk_full" if "disk may be full" in str(error) else error.code
    except BaseException as error:
        return f"untyped: {error!r}"
