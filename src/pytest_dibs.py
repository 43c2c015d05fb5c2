"""A pytest plugin: the fixture `dibs_space`.

pytest loads this module at every start, so it is not in the package `dibs` and imports `dibs` only
when a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs import Dibs


@pytest.fixture
def dibs_space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dibs]:
    """A dibs space of this test's own, to join: `alice = dibs_space.join("alice")`.

    The store and all that dibs keeps for a user are in a temporary folder. Relative paths are read
    from an empty repository there. When the test ends, all sessions end and the store is closed.
    """
    import dibs

    folder = tmp_path_factory.mktemp("dibs")
    repository = folder / "repository"
    (repository / ".git").mkdir(parents=True)
    with dibs.open(
        folder / "dibs.db", space="test", start=repository, user_dir=folder / "user"
    ) as space:
        yield space
