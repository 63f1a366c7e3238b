"""Golden scripts: what is said to a core, and below each line what it did.

Owns their form and the one way to run them. Lines with `#` are comments, lines with `> ` are
commands, all others are the core's answers. `pytest --rewrite` writes down the answers of today
instead of comparing them; read the difference before committing it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

COMMENT = "#"
COMMAND = "> "


class Script(Protocol):
    """A core with the words for talking to it."""

    def run(self, command: str) -> str:
        """Says one command; returns what the core did."""
        ...


class Golden(Protocol):
    """Compares a script's answers with those of a new core, or rewrites them."""

    def __call__(self, path: Path, make: Callable[[], Script]) -> None:
        """Fails when the core answers otherwise than the script says."""
        ...


def scripts_beside(test: str, folder: str = "scripts") -> list[Path]:
    """Returns the scripts in a folder beside a test's file."""
    found = sorted((Path(test).parent / folder).glob("*.txt"))
    assert found, f"no scripts in {folder}"
    return found


def replay(text: str, script: Script) -> str:
    """Returns the script with the answers that the core gives today."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(COMMENT):
            lines.append(line)
        elif line.startswith(COMMAND):
            lines += [line, script.run(line.removeprefix(COMMAND))]
    return "\n".join(lines) + "\n"
