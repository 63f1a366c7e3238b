"""Numbers that look random and are a pure function of a seed: what election timeouts come from.

The seed is drawn by the glue, so that two members never wait equally long by construction, while a
core that is given the same inputs and the same seed does the same again.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15


class Jitter:
    """A splitmix64 generator."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + _STEP) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def between(self, lowest: int, highest: int) -> int:
        """A number from `lowest` to `highest`, both included."""
        assert lowest <= highest, f"nothing lies between {lowest} and {highest}"
        return lowest + self.bits() % (highest - lowest + 1)
