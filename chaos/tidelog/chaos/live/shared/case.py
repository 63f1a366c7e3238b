"""What a live case is: something that is done to real processes, and a verdict on it.

Owns what every case is told and what it answers: exit code 0 means sound, 1 an anomaly, 3 a run
that proves nothing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

RATE: Final = 10_500.0
"""Records a second: a little above what a run has to sustain, since turns that come late are not
made up for."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """How a case is to be run; what a case has no use for it passes over."""

    directory: Path
    """Empty; everything that the case writes stands in it."""
    seed: int = 1
    """Decides when and where."""
    rounds: int | None = None
    """None: the case's own number."""
    seconds: float | None = None
    """Rounds begin until then; None: `rounds` says how many."""
    rate: float = RATE
    acknowledged_min: int = 3_000
    """Records acknowledged before each kill of a lone node."""
    acks: str = "all"
    planted: str = ""
    """A bug that the verdict has to find."""
    settings: Mapping[str, str] = {}
    """Of the topic that is written to."""


class Case(NamedTuple):
    """One case."""

    summary: str
    run: Callable[[Orders], int]
    """Returns the exit code."""
