"""Holds the sources to the contracts on imports in pyproject.toml, with import-linter.

Its command line would read the rooms of whichever checkout is installed; this reads the ones
beside it.
"""

import sys

from tools.repository import run_isolated

CODE = """
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""


def main() -> int:
    """Runs the contracts and passes their report on."""
    done = run_isolated(CODE)
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
