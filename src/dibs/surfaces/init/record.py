"""`.dibs/init.json`: what `dibs init` has inserted where, so that it can be taken out to the byte.

It is a convenience, not the truth: `git clean` may take it at any time, and then our parts are
recognised by what they say. It belongs to one machine and is not committed.
"""

from __future__ import annotations

import json
import os

from dibs.surfaces.init import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "init.json"


class Entry:
    """What was done to one file.

    made: whether the file was not there before
    insertions: what was inserted, at places of the text as it was then
    parts: the names of what was added; without any, the file said the same before we came
    """

    def __init__(self, made: bool, insertions: list[tuple[int, str]], parts: list[str]) -> None:
        self.made = made
        self.insertions = insertions
        self.parts = parts

    def to_json(self) -> dict[str, Any]:
        return {"made": self.made, "insertions": self.insertions, "parts": self.parts}


class Record:
    """The notes of one space; paths below its root are named from there, so that it can move."""

    def __init__(self, root: str, store_dir: str) -> None:
        self.root = root
        self.path = os.path.join(store_dir, FILE)
        self.clients: list[str] = []
        self.entries: dict[str, Entry] = {}
        self.folders: list[str] = []  # those that were made on the way
        self.load()

    def load(self) -> None:
        try:
            with open(self.path, encoding="utf-8") as source:
                said = json.load(source)
            self.clients = [str(name) for name in said["clients"]]
            self.folders = [str(name) for name in said["folders"]]
            for name, entry in said["files"].items():
                insertions = [(int(place), str(text)) for place, text in entry["insertions"]]
                self.entries[name] = Entry(bool(entry["made"]), insertions, list(entry["parts"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            # Gone, or not ours any more: see above.
            self.clients, self.entries, self.folders = [], {}, []

    def name(self, path: str) -> str:
        below = os.path.relpath(path, self.root)
        return path if below.startswith("..") else below

    def get(self, path: str) -> Entry | None:
        return self.entries.get(self.name(path))

    def put(self, path: str, entry: Entry) -> None:
        self.entries[self.name(path)] = entry

    def drop(self, path: str) -> None:
        self.entries.pop(self.name(path), None)

    def made(self, folders: list[str]) -> None:
        self.folders += [self.name(folder) for folder in folders]

    def remove_folders(self) -> None:
        """Remove the folders we have made that are empty again."""
        files.remove_empty([os.path.join(self.root, name) for name in self.folders])
        there = [name for name in self.folders if os.path.isdir(os.path.join(self.root, name))]
        self.folders = there

    def save(self) -> None:
        """Write it down; with nothing to say there is no file."""
        if not self.entries:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass
            return
        said = {name: entry.to_json() for name, entry in sorted(self.entries.items())}
        notes = {"clients": self.clients, "folders": self.folders, "files": said}
        text = json.dumps(notes, indent=1)
        files.write(self.path, text + "\n", 0o600)
