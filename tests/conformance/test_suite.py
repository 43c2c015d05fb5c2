"""The protocol's conformance suite, on our server as it is and on it with the suite's fixtures.

What is expected to fail stands in `expected/`, with a reason in each line. The suite itself
complains about a line whose scenario passes, and about a scenario with a warning that has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.tools import package, run
from tests.surfaces.shell import Shell

pytestmark = pytest.mark.conformance

EXPECTED = Path(__file__).parent / "expected"
OLD, NEW = "2025-11-25", "2026-07-28"
# Each release of the suite, and the version of the protocol it is run for.
RUNS = [("suite-0.1", OLD), ("suite-0.2", OLD), ("suite-0.2", NEW)]
RESULT = re.compile(r"^[✓✗] (?P<scenario>[\w-]+): (\d+) passed, (\d+) failed$", re.MULTILINE)
LINE = re.compile(r"  - (?P<scenario>[\w-]+)(:[\w-]+)?  # \S.{9,}")


@pytest.mark.parametrize("kind", ["plain", "fixtures"])
@pytest.mark.parametrize(("name", "version"), RUNS)
def test_nothing_fails_that_is_not_expected_to(
    name: str,
    version: str,
    kind: str,
    serve: Callable[[str], str],
    shell: Shell,
    record_property: Callable[[str, object], None],
) -> None:
    expected = EXPECTED / f"{version}-{kind}.yml"
    words = ["server", "--url", serve(kind), "--expected-failures", str(expected)]
    # The older release knows no other version; both run also what is not required.
    chosen = ["--suite", "all"] if name == "suite-0.1" else ["--requirements", version]
    answer = run(name, "conformance", [*words, *chosen], shell.environment)
    assert answer.code == 0, answer
    results = {name: (int(good), int(bad)) for name, good, bad in RESULT.findall(answer.out)}
    listed = {line["scenario"] for line in LINE.finditer(expected.read_text())}
    # The suite does not count all that it runs, so it would not miss the rest.
    assert {scenario for scenario, (_, bad) in results.items() if bad} <= listed, answer
    run_through = {scenario for scenario, counts in results.items() if any(counts)}
    assert listed < run_through, "it has not run what it should"
    clean, all_ = len(run_through - listed), len(run_through)
    record_property("part", f"suite {package(name)['version']} at {version}, {kind}")
    record_property(
        "figures", f"{clean} of {all_} scenarios pass, {len(listed)} are expected not to"
    )


@pytest.mark.parametrize("file", sorted(EXPECTED.iterdir()), ids=lambda file: file.name)
def test_every_expected_failure_has_a_reason(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert lines.pop(0) in ("server:", "server: []")
    assert all(LINE.fullmatch(line) for line in lines), lines
