"""What every measured line states: record size, partitions, batch, linger, acks.

Owns the settings that peers and Tidelog share, so that a ratio compares equal things.
"""

from typing import Final, Literal

import msgspec

RECORD_BYTES: Final = 100
PARTITIONS: Final = 6
BATCH_BYTES: Final = 256 * 1024
LINGER_MS: Final = 10
STALL_SECONDS_MAX: Final = 60.0
"""A client that moves nothing for so long has failed."""

Acks = Literal["1", "all"]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process is asked to do."""

    bootstrap: str
    topic: str
    records: int
    record_bytes: int = RECORD_BYTES
    key_bytes: int = 0
    partitions: int = PARTITIONS
    clients: int = 1
    """Of the line, each with so many records; more than one are let go at once."""
    acks: Acks = "all"
    rate_per_second: int = 1000
    linger_ms: int = 0
    """These two are of latency roles only."""
