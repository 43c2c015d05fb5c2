"""Bring a folder back to what it was, by rewriting only what has changed since.

A file is the same if the kernel says so: its inode and the time of its last change, which no
program can set. To copy everything takes ten times as long.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

Seen = dict[str, tuple[int, ...]]


class Renewed:
    """A copy of a folder that can be renewed again and again."""

    def __init__(self, source: Path, copy: Path) -> None:
        self.source = source
        self.copy = copy
        self.wanted = dict(entries(source))
        self.seen: Seen = {}

    def renew(self) -> None:
        self.copy.mkdir(exist_ok=True)
        there = dict(entries(self.copy))
        for name in sorted(there.keys() - self.wanted.keys(), key=len, reverse=True):
            remove(self.copy / name)
        for name in sorted(self.wanted):
            if name not in there or there[name] != self.seen.get(name):
                self._restore(name, there.get(name))
        self.seen = dict(entries(self.copy))

    def _restore(self, name: str, found: tuple[int, ...] | None) -> None:
        source, copy = self.source / name, self.copy / name
        if source.is_dir() and not source.is_symlink():
            if not (copy.is_dir() and not copy.is_symlink()):
                if found:
                    remove(copy)
                copy.mkdir()
            copy.chmod(source.stat().st_mode)
            return
        if found:
            remove(copy)
        shutil.copy2(source, copy, follow_symlinks=False)


def entries(folder: Path, under: str = "") -> list[tuple[str, tuple[int, ...]]]:
    """What is in a folder and below: each name, and how the kernel would tell of a change."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for entry in os.scandir(folder):
        name = f"{under}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            found += [(name, (entry.stat(follow_symlinks=False).st_mode,))]
            found += entries(folder / entry.name, f"{name}/")
        else:
            stat = entry.stat(follow_symlinks=False)
            found.append((name, (stat.st_mode, stat.st_ino, stat.st_size, stat.st_ctime_ns)))
    return found


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
