"""Each contract test runs in every world that has the abilities that the test needs."""

from pathlib import Path

import pytest

from tests.ports.support.abilities import Ability
from tests.ports.support.adapters import WORLDS, World


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A fresh world; skipped where it lacks what `@pytest.mark.needs(...)` names."""
    made = WORLDS[request.param](tmp_path)
    for mark in request.node.iter_markers("needs"):
        for ability in mark.args:
            assert isinstance(ability, Ability), "a test needs abilities"
            if ability not in made.abilities:
                pytest.skip(f"the {request.param} world cannot show: {ability.value}")
    return made


def pytest_configure(config: pytest.Config) -> None:
    """Marks of these tests only."""
    config.addinivalue_line("markers", "needs(*abilities): what the world must be able to do")
