"""The last offset of each key, in bounded memory. Pure.

Owns how keys are kept. A key shorter than `DIGEST_BYTES` is kept as it is; a longer one as its
BLAKE2b digest of that many bytes. A digest is never mistaken for a key that is kept as it is, since
those are shorter; so only two keys with one digest could be taken for each other, and the older
one's record would be lost. By chance that happens among n long keys with a probability below
n² / 2²⁵⁷: for a million keys, below 2⁻²¹⁷. It cannot be brought about on purpose either: whoever
can find two inputs of one 256-bit BLAKE2b digest has broken it. Kafka's map keeps MD5 digests of
16 bytes, of which collisions can be made by anybody who may choose keys.

It must never forget a key that it took: what does not fit is refused as a whole.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Final

DIGEST_BYTES: Final = 32

ENTRY_BYTES: Final = 288
"""What one key costs at most: key object, offset object, and its share of a table that has just
been made larger while the old one is still there. A test measures it."""

NOT_KNOWN: Final = -1


class OffsetMap:
    """Filled in ascending order of offsets."""

    __slots__ = ("_entries_max", "_offsets")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0, f"a map of {bytes_max} bytes"
        self._entries_max = bytes_max // ENTRY_BYTES
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Take all keys of one batch, whose offsets ascend; False: they do not fit, none was taken.

        An empty map takes any batch, so that every round comes forward.
        """
        assert len(keys) == len(offsets), f"{len(keys)} keys, {len(offsets)} offsets"
        forms = _forms(keys)
        if self._offsets and not self._fits(forms):
            return False
        self._offsets.update(zip(forms, offsets, strict=True))
        return True

    def latest(self, keys: Sequence[bytes]) -> list[int]:
        """The last offset of each key; NOT_KNOWN: it was never noted."""
        return list(map(self._offsets.get, _forms(keys), repeat(NOT_KNOWN)))

    def _fits(self, forms: Sequence[bytes]) -> bool:
        room = self._entries_max - len(self._offsets)
        if len(forms) <= room:
            return True
        return len(set(forms).difference(self._offsets)) <= room


def _forms(keys: Sequence[bytes]) -> Sequence[bytes]:
    if not keys or max(map(len, keys)) < DIGEST_BYTES:
        return keys
    return [key if len(key) < DIGEST_BYTES else _digest(key) for key in keys]


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
