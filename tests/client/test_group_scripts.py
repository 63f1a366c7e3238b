"""A group member's core, told as scripts: inputs and the exact effects."""

import os
from pathlib import Path

import pytest

from tests.client.group_world import GroupScript

SCRIPTS = sorted((Path(__file__).parent / "group_scripts").glob("*.txt"))


def replay(text: str) -> str:
    """The script with the answers that the core gives today."""
    script = GroupScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(line)
        elif line.startswith("> "):
            lines += [line, script.run(line[2:])]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_member_does_what_the_script_says(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    actual = replay(expected)
    if os.environ.get("TIDELOG_REWRITE") == "1":
        path.write_text(actual, encoding="utf-8")
        return
    assert actual == expected
