"""The producer's core, told as scripts: inputs and the exact effects."""

from pathlib import Path

import pytest

from tests.client.support.engine_world import Script
from tests.support.golden import Golden, scripts_beside


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_the_core_does_what_the_script_says(path: Path, golden: Golden) -> None:
    golden(path, Script)
