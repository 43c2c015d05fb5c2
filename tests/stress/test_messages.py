"""R9: nothing is missed. Writers and readers are killed and replaced while they work."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import dibs
from tests.stress.clockwork import Child, Children, children, database
from tests.stress.crew import read_events, read_messages, read_notes, target, write_messages

SEED = 9


class Post:
    """One run: writers, readers, a reader of the journal, and somebody who kills them."""

    def __init__(self, url: str, space: str, folder: Path, crew: Children) -> None:
        self.url, self.space, self.folder, self.crew = url, space, folder, crew
        self.user = str(folder / "user")
        self.stop, self.all_read = folder / "stop", folder / "all_read"
        self.kills = 0

    def run(self, writers: int, each: int, readers: int, kills: int, every_s: float) -> None:
        with dibs.open(self.url, space=self.space, user_dir=self.user) as store:
            for reader in range(readers):
                store.join(f"reader{reader}").close()  # known from now on: broadcasts reach it
        writing = {f"writer{n}": self._writer(n, each, readers) for n in range(writers)}
        reading = {f"reader{n}": self._reader(n) for n in range(readers)}
        reading["journal"] = self._journal()
        chance = random.Random(SEED)
        while self.kills < kills:
            time.sleep(chance.uniform(0.5, 1.5) * every_s)
            self._stop_when_written(writing)
            alive = sorted(
                name for name, child in (writing | reading).items() if child.process.poll() is None
            )
            if alive == ["journal"]:
                break
            name = chance.choice(alive)
            (writing | reading)[name].kill()
            self.kills += 1
            if name.startswith("writer"):
                writing[name] = self._writer(int(name[-1]), each, readers)
            else:
                reading[name] = (
                    self._journal() if name == "journal" else self._reader(int(name[-1]))
                )
        for child in writing.values():
            child.end(within_s=600)
        self._stop_when_written(writing)
        journal = reading.pop("journal")
        for child in reading.values():
            child.end(within_s=600)
        # The readers write too (what was delivered), so the journal ends after them.
        self.all_read.touch()
        journal.end(within_s=600)

    def _stop_when_written(self, writing: dict[str, Child]) -> None:
        if all(child.process.poll() == 0 for child in writing.values()):
            self.stop.touch()

    def notes(self, name: str) -> str:
        return str(self.folder / f"{name}.notes")

    def _writer(self, number: int, each: int, readers: int) -> Child:
        notes = self.notes(f"writer{number}")
        return self.crew.start(
            write_messages, self.url, self.space, self.user, notes, number, each, readers
        )

    def _reader(self, number: int) -> Child:
        notes = self.notes(f"reader{number}")
        return self.crew.start(
            read_messages, self.url, self.space, self.user, notes, number, SEED, str(self.stop)
        )

    def _journal(self) -> Child:
        notes = self.notes("journal")
        return self.crew.start(
            read_events, self.url, self.space, self.user, notes, SEED, str(self.all_read)
        )


def expected(reader: int, channel: str | None, writers: int, each: int, readers: int) -> set[str]:
    """The bodies a reader has to get from its inbox, or from the channel."""
    found = set()
    for writer in range(writers):
        for number in range(each):
            to = target(writer, number, readers)
            if to.get("channel") == channel and to.get("to") in (None, f"reader{reader}"):
                found.add(f"{writer}:{number}")
    return found


def check_reader(post: Post, reader: int, writers: int, each: int, readers: int) -> tuple[int, int]:
    """How many messages the reader lost, and how many it got twice; all must be in order."""
    notes = read_notes(post.notes(f"reader{reader}"))
    lost = twice = 0
    for channel in (None, "news"):
        got = [
            (id, body)
            for line in notes
            if line[0] == "got" and line[1] == channel
            for id, body in line[2]
        ]
        assert [id for id, _ in got] == sorted(id for id, _ in got), "out of order"
        bodies = [body for _, body in got]
        lost += len(expected(reader, channel, writers, each, readers) - set(bodies))
        twice += len(bodies) - len(set(bodies))
        for writer in range(writers):
            numbers = [int(body.split(":")[1]) for body in bodies if body.startswith(f"{writer}:")]
            assert numbers == sorted(numbers), f"messages of writer {writer} out of order"
    return lost, twice


def whole_journal(store: dibs.Dibs) -> list[int]:
    """All there is, read when nobody writes any more."""
    found: list[int] = []
    while page := store.events.since(found[-1] if found else 0):
        found += [event.seq for event in page]
    return found


def deliver(
    url: str,
    space: str,
    folder: Path,
    *,
    writers: int,
    each: int,
    readers: int,
    kills: int,
    every_s: float,
) -> None:
    began = time.monotonic()
    with children() as crew:
        post = Post(url, space, folder, crew)
        post.run(writers, each, readers, kills, every_s)
    sent = [id for n in range(writers) for id in read_notes(post.notes(f"writer{n}"))]
    assert len(set(sent)) == len(sent) == writers * each, "a message has one id, and its own"
    lost = twice = 0
    for reader in range(readers):
        missing, double = check_reader(post, reader, writers, each, readers)
        lost, twice = lost + missing, twice + double
    with dibs.open(url, space=space, user_dir=post.user) as store:
        journal = whole_journal(store)
    seen = [seq for line in read_notes(post.notes("journal")) for seq in line]
    assert seen == journal, "the journal was not read once and in order"
    assert set(sent) <= set(journal), "a message without its event"
    print(
        f"\nR9 {database(url)}: {writers} writers, {writers * each:,} messages, "
        f"{readers} readers, {post.kills} kills, {lost} lost, {twice} twice, in order; "
        f"{len(journal):,} events read in order; {time.monotonic() - began:.0f} s"
    )
    assert (lost, twice) == (0, 0)
    assert post.kills >= kills // 2, "too few kills to mean anything"


def test_readers_and_writers_that_are_killed_miss_no_message(
    url: str, space_name: str, tmp_path: Path
):
    deliver(url, space_name, tmp_path, writers=3, each=100, readers=2, kills=4, every_s=0.2)


@pytest.mark.stress
def test_ten_thousand_messages_of_six_writers_reach_every_reader_once_and_in_order(
    url: str, space_name: str, tmp_path: Path
):
    deliver(url, space_name, tmp_path, writers=6, each=1667, readers=3, kills=100, every_s=0.15)
