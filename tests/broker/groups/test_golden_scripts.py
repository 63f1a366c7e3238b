"""Scenarios of groups told as scripts: what is said and the exact answers."""

import os
from pathlib import Path

import pytest

from tests.broker.groups.script_commands import replay

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_core_does_what_the_script_says(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    actual = replay(expected)
    if os.environ.get("TIDELOG_REWRITE") == "1":
        path.write_text(actual, encoding="utf-8")
        return
    assert actual == expected
