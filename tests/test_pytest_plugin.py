"""The pytest plugin, in runs of pytest by themselves."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

import dibs

pytest_plugins = ["pytester"]


@pytest.fixture
def home(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the user who runs the tests."""
    home = pytester.mkdir("home")
    monkeypatch.setenv("HOME", str(home))
    return home


def test_it_is_an_entry_point_outside_of_the_package():
    (found,) = [one for one in entry_points(group="pytest11") if one.name == "dibs"]
    assert found.value == "pytest_dibs"


def test_the_fixture_gives_a_space_of_the_tests_own(dibs_space: dibs.Dibs):
    alice, bob = dibs_space.join("alice"), dibs_space.join("bob")
    with alice.lease("src/a.py"), pytest.raises(dibs.HeldError):
        bob.leases.claim("src/a.py")


def test_tests_do_not_meet_and_nothing_is_left(pytester: pytest.Pytester, home: Path):
    pytester.makepyfile(
        """
        import dibs
        import pytest

        before = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_alone(dibs_space, number):
            assert dibs_space.agents.list() == ()
            assert dibs_space.leases.list() == ()
            alice = dibs_space.join("alice")
            held = alice.lease("src/a.py")
            held.__enter__()  # and never left
            alice.work.claim("one")
            for space in before:
                with pytest.raises(dibs.ClosedError):
                    space.leases.list()
            before.append(dibs_space)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-W", "error")
    result.assert_outcomes(passed=2)
    # Whatever uses dibs notes what the machine is called, once.
    assert {file.parent.name for file in home.rglob("*") if file.is_file()} <= {"machines"}
    assert not (pytester.path / ".dibs").exists()


def test_a_test_that_fails_or_closes_the_space_itself_is_cleaned_up(
    pytester: pytest.Pytester, home: Path
):
    pytester.makepyfile(
        """
        def test_fails(dibs_space):
            dibs_space.join("alice").lease("a").__enter__()
            raise ZeroDivisionError

        def test_closes(dibs_space):
            dibs_space.close()
        """
    )
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=1, failed=1)


def test_dibs_is_not_imported_unless_the_fixture_is_used(pytester: pytest.Pytester, home: Path):
    pytester.makeconftest(
        """
        import sys

        def loaded():
            return sorted(name for name in sys.modules if name.split(".")[0] == "dibs")

        def pytest_sessionstart(session):
            assert session.config.pluginmanager.hasplugin("dibs")
            assert loaded() == []

        def pytest_terminal_summary(terminalreporter):
            terminalreporter.write_line(f"loaded: {len(loaded())}")
        """
    )
    pytester.makepyfile(
        test_without="def test_nothing(): pass",
        test_with="def test_it(dibs_space): assert dibs_space.space == 'test'",
    )
    without = pytester.runpytest_subprocess("-p", "no:xdist", "test_without.py")
    without.assert_outcomes(passed=1)
    without.stdout.fnmatch_lines(["loaded: 0"])
    used = pytester.runpytest_subprocess("-p", "no:xdist", "test_with.py")
    used.assert_outcomes(passed=1)
    used.stdout.no_fnmatch_line("loaded: 0")


def test_the_fixture_is_listed_with_its_description(pytester: pytest.Pytester, home: Path):
    result = pytester.runpytest_subprocess("-p", "no:xdist", "--fixtures")
    result.stdout.fnmatch_lines(["dibs_space*pytest_dibs.py*", "*A dibs space of this test's own*"])
