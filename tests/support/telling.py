"""What a test says about itself in the summary of a run: how much it did, what it left out."""

from collections.abc import Callable
from typing import Final

TOLD: Final = "told"
"""The name of such a property of a report."""

Tell = Callable[[str], None]
"""Takes one line."""
