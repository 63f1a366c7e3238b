"""Randomness by purpose: every generator is derived from the run's seed and the purpose's name.

A draw for one purpose never shifts the draws of another, so a run stays recognisable when one part
of the simulator draws more often. It must never be seeded from anything but seed and name.
"""

import hashlib
import random


class SeededRandom:
    """One generator. It fulfils the Random port as well."""

    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
        self._generator = random.Random(int.from_bytes(digest, "big"))
        self.unit = self._generator.random
        """A number in [0, 1): bound once, because the event loop draws it at every step."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        assert bound > 0, f"a bound is above 0, not {bound}"
        return self._generator.randrange(bound)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return self._generator.randint(low, high)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def noise(self, length_bytes: int) -> bytes:
        """Random bytes."""
        return self._generator.randbytes(length_bytes)

    def uuid(self) -> bytes:
        """Sixteen random bytes."""
        return self._generator.randbytes(16)

    def shuffled(self, items: list[str]) -> list[str]:
        """The items in another order; the argument stays as it is."""
        copy = list(items)
        self._generator.shuffle(copy)
        return copy


class Seeds:
    """The family of generators of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, SeededRandom] = {}

    def purpose(self, name: str) -> SeededRandom:
        """The generator of this purpose: the same object whenever it is asked for."""
        if name not in self._made:
            self._made[name] = SeededRandom(self.seed, name)
        return self._made[name]
