"""What a person finds who explores the library: in a prompt, with `help`, or in an editor."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path

import pytest

import dibs
from dibs.dibs import operations
from dibs.operation import NOUNS


@pytest.fixture(params=["sqlite", "http"])
def agent(request: pytest.FixtureRequest, tmp_path: Path, space_name: str) -> dibs.Agent:
    url = request.getfixturevalue(f"{request.param}_url")
    space = dibs.open(url, space=space_name, user_dir=str(tmp_path / "user"))
    request.addfinalizer(space.close)
    return space.join("alice")


def test_every_public_name_is_listed_before_it_is_used() -> None:
    assert set(dibs.__all__) <= set(dir(dibs))
    text = pydoc.plain(pydoc.render_doc(dibs))
    assert "class Agent" in text and "open(" in text


def test_a_space_lists_its_nouns(agent: dibs.Agent) -> None:
    assert {*NOUNS, "join", "lease", "close"} <= set(dir(agent))


@pytest.mark.parametrize("entry", operations().values(), ids=lambda entry: entry.name)
def test_an_operation_shows_its_own_parameters(agent: dibs.Agent, entry) -> None:
    method = getattr(getattr(agent, entry.noun), entry.verb)
    parameters = inspect.signature(method).parameters
    assert list(parameters) == list(entry.arguments())
    assert "tx" not in parameters
    text = pydoc.plain(pydoc.render_doc(method))
    assert entry.summary in text
    assert entry.verb in dir(getattr(agent, entry.noun))


def test_help_shows_a_call_as_it_is_written(agent: dibs.Agent) -> None:
    text = pydoc.plain(pydoc.render_doc(agent.work.add))
    assert "add(id: 'str', *, title: 'str' = ''" in text
    assert "id: a unique name for it" in text
