"""Hashes of large files, so that no hook reads all of them again and again."""

from __future__ import annotations

import os
from time import time

from dibs.digest import sha256
from dibs.names.paths import content_hash
from dibs.surfaces.hooks.reads import stamp

LARGE = 1 << 20
SETTLED_S = 2
"""A file that was written to this recently may change again without looking different."""


def quick_hash(store_dir: str, file: str) -> str | None:
    """The SHA-256 of a file, read anew only if it is small or looks different."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    if status.st_size < LARGE:
        return content_hash(file)
    folder = os.path.join(store_dir, "hooks", "hashes")
    path = os.path.join(folder, sha256(os.fsencode(file)).hexdigest()[:40])
    seen = stamp(file)
    try:
        with open(path, encoding="ascii") as source:
            known, _, found = source.read().partition(" ")
        if known == seen:
            return found or None
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    now = content_hash(file)
    if time() - status.st_mtime > SETTLED_S:
        part = f"{path}.{os.getpid()}"
        with open(part, "w", encoding="ascii") as target:
            target.write(f"{seen} {now or ''}")
        os.replace(part, path)
    return now
