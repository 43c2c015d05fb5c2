"""The notes that hooks leave on disk: read by many at once, and never half a one."""

from __future__ import annotations

from pathlib import Path

from dibs.storage.folder import PART
from dibs.surfaces.hooks.notes import BY, Flights, Reads, write
from dibs.surroundings.occasion import Occasion


def test_a_read_that_is_being_noted_is_not_looked_at_yet(tmp_path: Path):
    file = tmp_path / "a.py"
    file.write_text("one\n")
    reads = Reads(str(tmp_path), 7)
    reads.note(str(file), "0" * 64)
    [note] = (tmp_path / "hooks" / "reads" / "7").iterdir()
    note.with_name(f"{note.name}.4711").touch()
    file.write_text("two, and longer\n")
    assert [known.file for known in reads.changed()] == [str(file)]


def test_a_suspicion_that_is_being_noted_is_not_looked_at_yet(tmp_path: Path):
    flights, occasion = Flights(str(tmp_path), 7), Occasion("claude", "before")
    occasion.call = "c"
    name = flights._name(occasion)
    write(flights._own, f"{name}{BY}8", "bob\n0000\nmake")
    (tmp_path / f"{name}{BY}9{PART}4711").touch()
    assert flights.suspects(occasion) == [("bob", "make", "0000")]
