"""Randomness: seeded in the simulation, the operating system's on a real node."""

from typing import Protocol


class Random(Protocol):
    """Where identifiers and jitter come from."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        ...

    def uuid(self) -> bytes:
        """Sixteen random bytes."""
        ...
