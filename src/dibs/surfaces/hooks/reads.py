"""What a session has read of each file: an edit that rests on an older content is stale.

One small file per session and file read, with the hash of the content that the session knows.
It is written after each read and after each edit of its own, and looked at before an edit.
"""

from __future__ import annotations

import os

from dibs.digest import sha256


class Known:
    """The content of a file as its reader knows it, and what the disk said then."""

    __slots__ = ("content_hash", "file", "made", "stamp")

    def __init__(self, file: str, content_hash: str, stamp: str, made: bool) -> None:
        self.file = file
        self.content_hash = content_hash
        self.stamp = stamp
        self.made = made
        """Whether the session has not only read it, but written it."""


class Reads:
    def __init__(self, store_dir: str, session: int) -> None:
        self._folder = os.path.join(store_dir, "hooks", "reads", str(session))

    def note(self, file: str, content_hash: str | None, made: bool = False) -> None:
        path = self._path(file)
        if content_hash is None:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            return
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "w", encoding="utf-8", errors="surrogateescape") as target:
            how = "made" if made else "read"
            target.write(f"{content_hash} {stamp(file)} {how}\n{file}")
        os.replace(part, path)

    def known(self, file: str) -> Known | None:
        return read(self._path(file))

    def changed(self) -> list[Known]:
        """The files that the disk says were written since they were read."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        whole = [name for name in names if "." not in name]  # others are being written
        found = (read(os.path.join(self._folder, name)) for name in whole)
        return [known for known in found if known and known.stamp != stamp(known.file)]

    def forget(self) -> None:
        remove_folder(self._folder)

    def _path(self, file: str) -> str:
        return os.path.join(self._folder, sha256(os.fsencode(file)).hexdigest()[:40])


def read(path: str) -> Known | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as source:
            first, _, file = source.read().partition("\n")
    except OSError:
        return None
    content_hash, then, how = first.split(" ")
    return Known(file, content_hash, then, how == "made")


def stamp(file: str) -> str:
    try:
        status = os.stat(file)
    except OSError:
        return "gone"
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


def remove_folder(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass  # another hook of the session does the same, or notes something
