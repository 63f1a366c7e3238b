"""Scenarios of transactions told as scripts: what is said and the exact answers."""

from pathlib import Path

import pytest

from tests.broker.transactions.support.script_commands import Script
from tests.support.golden import Golden, scripts_beside


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_the_core_does_what_the_script_says(path: Path, golden: Golden) -> None:
    golden(path, Script)
