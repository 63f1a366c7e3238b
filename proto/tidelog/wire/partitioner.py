"""Which partition a key belongs to, the same in every client and for every coordinator.

Owns murmur2 as Kafka's Java client computes it. Stop 2 of a record's walk. A change here would send
a key's later records to another partition than its earlier ones.
"""

import struct
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHED_KEYS: Final = 65_536
_CACHED_KEY_BYTES_MAX: Final = 64


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned; Java's is the same number read as signed."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole != length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=_CACHED_KEYS)
def _cached_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key; a record without key has none of its own."""
    assert partition_count > 0, f"a topic has at least one partition, not {partition_count}"
    if len(key) > _CACHED_KEY_BYTES_MAX:
        return (murmur2(key) & 0x7FFFFFFF) % partition_count
    return _cached_hash(key) % partition_count


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of the internal topic whose leader coordinates this group or id."""
    return partition_for_key(key.encode(), partition_count)
