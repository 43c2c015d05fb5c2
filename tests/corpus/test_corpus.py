"""What the hooks know of a shell command before it runs, against what the command does.

The aim is to deny at least 90 % of the writes to files that others hold, and at most 2 % of what
leaves them alone, in every category. The constants say what is true now, and may only get better.
Whatever is let through must be found afterwards, its holder told, and what it had recovered.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.corpus.cases import Case, corpus, runnable, sample
from tests.corpus.trial import Outcome, Place, attempt
from tests.surfaces.hooked import Said
from tests.surfaces.shell import Shell, finish

RECALL = 0.95
NEEDLESS = 0.02
"""In every category."""
SAMPLE_MISSED, SAMPLE_NEEDLESS = 2, 1
SEED, PER_CATEGORY = 16, 4
PLACES = 2


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    places = [Place(tmp_path / str(number)) for number in range(PLACES)]
    yield places
    for place in places:
        place.end()


def test_the_corpus_is_large_and_says_nothing_twice() -> None:
    cases = corpus()
    assert len({case.command for case in cases}) >= 900
    assert len(set(cases)) == len(cases)
    assert len({case.command for case in cases if case.category == "git"}) >= 120


def test_a_forked_hook_answers_as_a_process_does(tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        place.renew()
        place.bob.write("README.md", "mine\n")
        alice = Shell(place.repository, place.alice.environment)
        for command in ("echo x > README.md", "git stash", "cat README.md", "python3 {repo}/x"):
            forked = place.alice.before(command)
            given = {"command": place.filled(command)}
            payload = place.alice.payload("PreToolUse", tool_name="Bash", tool_input=given)
            process = alice.start("hook", "claude", stdin=subprocess.PIPE)
            real = Said(finish(process, given=json.dumps(payload)))
            assert re.sub(r"\d+ s", "", real.denied) == re.sub(r"\d+ s", "", forked.denied)
            assert real.context == forked.context
    finally:
        place.end()


def test_a_sample_of_commands_is_judged_as_their_deeds_deserve(places: list[Place]) -> None:
    outcomes = attempts(places, runnable(sample(corpus(), PER_CATEGORY, SEED)))
    print(figures(outcomes))
    check(outcomes)
    assert sum(outcome.missed for outcome in outcomes) <= SAMPLE_MISSED
    assert sum(outcome.needless for outcome in outcomes) <= SAMPLE_NEEDLESS


@pytest.mark.stress
def test_every_command_is_judged_as_its_deeds_deserve(places: list[Place]) -> None:
    cases = corpus()
    here = runnable(cases)
    outcomes = attempts(places, here)
    print(figures(outcomes))
    print(f"left out, because a tool is missing here: {len(cases) - len(here)}")
    check(outcomes)
    assert rates(outcomes)[0] >= RECALL
    for category in categories(outcomes):
        _, needless = rates([each for each in outcomes if each.case.category == category])
        assert needless <= NEEDLESS, category


def attempts(places: list[Place], cases: list[Case]) -> list[Outcome]:
    """All cases, shared among the places; in the order of the cases."""

    def run(number: int) -> list[Outcome]:
        return [attempt(places[number], case) for case in cases[number :: len(places)]]

    with ThreadPoolExecutor(len(places)) as pool:
        parts = list(pool.map(run, range(len(places))))
    return [parts[at % len(places)][at // len(places)] for at in range(len(cases))]


def check(outcomes: list[Outcome]) -> None:
    """Hold what must be true of every single one."""
    wrong = [f"{each.case}: {each.changed}" for each in outcomes if not each.as_written]
    assert not wrong, "\n".join(["not what the corpus says:", *wrong])
    assert not [str(each.case) for each in outcomes if each.untold]
    assert not [str(each.case) for each in outcomes if each.lost]


def categories(outcomes: list[Outcome]) -> list[str]:
    return sorted({outcome.case.category for outcome in outcomes})


def rates(outcomes: list[Outcome]) -> tuple[float, float]:
    """The share of writes that were denied, and that of other commands which were."""
    writes = [outcome for outcome in outcomes if outcome.changed]
    others = [outcome for outcome in outcomes if not outcome.changed]
    return (
        1 - sum(each.missed for each in writes) / max(1, len(writes)),
        sum(each.needless for each in others) / max(1, len(others)),
    )


def figures(outcomes: list[Outcome]) -> str:
    lines = ["", f"{'':14}  writes  denied    others  denied    untold  lost"]
    for category in [*categories(outcomes), "all"]:
        those = [each for each in outcomes if category in (each.case.category, "all")]
        writes = sum(bool(each.changed) for each in those)
        recall, needless = rates(those)
        lines.append(
            f"{category:14}  {writes:6}  {recall:6.1%}    {len(those) - writes:6}  {needless:6.1%}"
            f"    {sum(bool(each.untold) for each in those):6}"
            f"  {sum(bool(each.lost) for each in those):4}"
        )
    for title, those in (
        ("let through", [each for each in outcomes if each.missed]),
        ("denied needlessly", [each for each in outcomes if each.needless]),
    ):
        lines += ["", f"{title}:"]
        for each in those:
            marks = " untold" * bool(each.untold) + " lost" * bool(each.lost)
            lines.append(f"  {each.case}{marks}")
    return "\n".join(lines)
