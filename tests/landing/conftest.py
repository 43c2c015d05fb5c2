"""Where the landings are kept: each database in turn."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, space_name: str) -> dict[str, str]:
    """What `dibs` finds in its environment: nothing for the repository's own store."""
    if request.param == "sqlite":
        return {}
    return {"DIBS_URL": request.getfixturevalue("postgres_url"), "DIBS_SPACE": space_name}
