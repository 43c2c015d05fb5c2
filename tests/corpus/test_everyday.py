"""Two agents with different areas do not get into each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.cases import Case, Held, everyday
from tests.corpus.trial import Place, prepare
from tests.surfaces.repository import install

NEEDLESS, SAMPLE_NEEDLESS = 2, 1
"""How many of the commands may be denied though they touch nothing of the other's.
The constants say what is true now, and may only get better."""

AREA = (
    Held("web/components/Button.tsx", edited=True),
    Held("docs/index.md", edited=True),
    Held("docs/plan.md", edited=True),  # a new file
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.end()


def test_some_everyday_commands_of_agents_with_different_areas_are_let_through(
    place: Place,
) -> None:
    cases = everyday(AREA)[::4]
    stopped = all_barred(place, cases)
    assert len(stopped) <= SAMPLE_NEEDLESS, "\n".join(stopped)


@pytest.mark.stress
def test_everyday_commands_of_agents_with_different_areas_are_let_through(place: Place) -> None:
    cases = everyday(AREA)
    assert len(cases) == 45
    stopped = all_barred(place, cases)
    assert len(stopped) <= NEEDLESS, "\n".join(stopped)


def all_barred(place: Place, cases: list[Case]) -> list[str]:
    """Those that were stopped."""
    stopped = [why for case in cases if (why := way_barred(place, case))]
    print(f"\nEveryday: {len(stopped)} of {len(cases)} commands denied that need not be")
    print("\n".join(stopped))
    return stopped


def way_barred(place: Place, case: Case) -> str:
    """How the command was stopped, by the client's hook or by git's; nothing if it was not."""
    prepare(place, case)
    install(place.repository / ".git/hooks")
    before = [place.content(held.path) for held in case.held]
    denied = place.alice.before(case.command).denied
    code = place.run(case.command, session=place.alice)
    assert [place.content(held.path) for held in case.held] == before, case
    if denied:
        return f"  denied: {case.command}"
    place.alice.after(case.command)
    return (
        f"  stopped by git's hook: {case.command}" if code and "git commit" in case.command else ""
    )
