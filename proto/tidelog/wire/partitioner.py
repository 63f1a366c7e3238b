"""Which partition a key belongs to, the same in every client and for every coordinator.

Owns murmur2 as Kafka's Java client computes it. Stop 2 of a record's walk. A change here would send
a key's later records to another partition than its earlier ones.
"""

import struct
from collections.abc import Iterable
from typing import Final

_SEED: Final = 0x9747B28C
_CACHED_KEYS: Final = 65_536
_CACHED_KEY_BYTES_MAX: Final = 64


_WORDS_PREPARED: Final = 64
_read_words: Final = tuple(
    struct.Struct(f"<{words}I").unpack_from for words in range(_WORDS_PREPARED + 1)
)


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned; Java's is the same number read as signed."""
    length = len(data)
    words = length >> 2
    if words <= _WORDS_PREPARED:
        numbers = _read_words[words](data)
    else:
        numbers = struct.unpack_from(f"<{words}I", data)
    value = _SEED ^ length
    # The multiplier and the mask stand as literals: a global costs more than the multiplication.
    for word in numbers:
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if length & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        value = (value ^ rest) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return value ^ value >> 15


class _Hashes(dict[bytes, int]):
    """Hashes of short keys, each computed at its first use; started anew when there are too many.

    A lookup costs half of what it costs in an lru_cache, and producers look up every key.
    """

    def __missing__(self, key: bytes) -> int:
        found = murmur2(key) & 0x7FFFFFFF
        if len(key) <= _CACHED_KEY_BYTES_MAX:
            if len(self) >= _CACHED_KEYS:
                self.clear()
            self[key] = found
        return found


_hashes: Final = _Hashes()


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key; a record without key has none of its own."""
    assert partition_count > 0, f"a topic has at least one partition, not {partition_count}"
    return _hashes[key] % partition_count


def partitions_for_keys(keys: Iterable[bytes], partition_count: int) -> list[int]:
    """The same for many records at once."""
    assert partition_count > 0, f"a topic has at least one partition, not {partition_count}"
    return [found % partition_count for found in map(_hashes.__getitem__, keys)]


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of the internal topic whose leader coordinates this group or id."""
    return partition_for_key(key.encode(), partition_count)
