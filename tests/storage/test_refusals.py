"""What is refused first does not depend on the database."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs


def test_a_bad_name_is_refused_in_its_turn(url: str, space_name: str, tmp_path: Path) -> None:
    space = dibs.open(url, space=space_name, user_dir=str(tmp_path / "user"))
    alice = space.join("alice")
    with pytest.raises(dibs.InvalidError, match="outcome"):
        alice.leases.release("port:\x01", outcome="bogus")
    alice.agents.leave()
    with pytest.raises(dibs.NotYoursError):
        alice.leases.release("port:\x01")
    space.close()
