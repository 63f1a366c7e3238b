"""Every bound that the codec enforces, with its reason.

Owns the default values and the frozen `Limits` by which one call may use others. A bound protects
the reader: what it admits is what one batch may cost in memory and time, whoever sealed it.
"""

from typing import Final

import msgspec

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024 - 64 * 1024
"""A whole batch, prefix included; with its envelope it fits the 4 MiB that clients receive."""

RECORDS_PER_BATCH_MAX: Final = 262_144
"""Three times what 1 MiB of empty records holds; bounds the tuples that one decode makes."""

HEADERS_PER_RECORD_MAX: Final = 1_024
"""Headers of one record."""

HEADERS_PER_BATCH_MAX: Final = 1_048_576
"""Headers of all records together: two bytes of body can ask for one, and it costs 64 in memory."""

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The records of a batch after decompression."""

DECOMPRESSION_RATIO_MAX: Final = 1_000
"""Decompressed bytes per compressed byte, beyond the allowance below."""

DECOMPRESSION_ALLOWANCE_BYTES: Final = 1024 * 1024
"""What any batch may decompress to whatever its ratio: zeros compress better than any bound."""

ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""What a zstd frame may ask its decoder to set aside: the size that RFC 8878 wants supported."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one call; a topic's `max.message.bytes` becomes `batch_bytes_max`."""

    batch_bytes_max: int = BATCH_BYTES_MAX
    records_per_batch_max: int = RECORDS_PER_BATCH_MAX
    headers_per_record_max: int = HEADERS_PER_RECORD_MAX
    headers_per_batch_max: int = HEADERS_PER_BATCH_MAX
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    decompression_ratio_max: int = DECOMPRESSION_RATIO_MAX
    decompression_allowance_bytes: int = DECOMPRESSION_ALLOWANCE_BYTES

    def decompressed_bytes_cap(self, compressed_bytes: int) -> int:
        """The most that this many compressed bytes may become."""
        by_ratio = self.decompression_ratio_max * compressed_bytes
        allowed = max(by_ratio, self.decompression_allowance_bytes)
        return min(allowed, self.decompressed_bytes_max)


DEFAULT_LIMITS: Final = Limits()
