"""What is derived from a sealed segment, in one file beside it: the format. Pure.

Theory of operation. A sealed segment never changes, so everything that is derived from it is
written once, by the job that seals it, and can be made again from the segment at any time by the
same job: the rebuilt file equals the first one byte for byte.

    head      magic, format version, length and checksum of the summary
    summary   msgpack of `Summary`: what an opening needs, and where the sections lie
    index     blocks of entries (base offset, byte position, highest timestamp before)
    index_top the first entry of each block
    digests   a checksum for each 64 KiB of the segment, bound to topic id, partition and position
    producers the state of idempotent producers behind the segment's last batch
    transactions  which were aborted in the segment and which are open behind it: only there, and
                  the version 2, if the segment has to do with a transaction

Every part carries a checksum of its own; a damaged sidecar is made again, never believed. The
summary is also the segment's manifest: a store of sealed segments elsewhere needs nothing else.
"""

from typing import Final

import msgspec

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import SegmentKey
from tidelog.wire.ids import BytePosition, Offset, PartitionId, PartitionKey, TopicId

MAGIC: Final = b"TIDESIDE"
FORMAT_VERSION: Final = 2
PLAIN_VERSION: Final = 1
"""Of a sidecar that tells of no transaction."""
DIGEST_BYTES: Final = 64 * 1024
"""One digest covers this much of the segment."""
NEVER_MS: Final = -1


class Section(msgspec.Struct, frozen=True, array_like=True):
    """Where a part of the sidecar lies; positions count from the file's start."""

    name: str
    byte_position: BytePosition
    length_bytes: int
    checksum: int
    """CRC-32C of the whole section."""


class Replaced(msgspec.Struct, frozen=True, array_like=True):
    """A segment that this one stands for since a compaction."""

    base_offset: Offset
    generation: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a sealed segment without reading it."""

    topic_id: TopicId
    partition: PartitionId
    base_offset: Offset
    """In the segment's name; its first batch begins at or behind it."""
    generation: int = 0
    next_offset: Offset
    """Where the next segment begins."""
    size_bytes: int
    batch_count: int
    record_count: int
    max_timestamp: int
    """-1: it holds no record with a time."""
    max_timestamp_offset: int
    """Base offset of the first batch that has that highest timestamp; -1: none has."""
    leader_epochs: tuple[EpochStart, ...]
    """The whole history up to the segment's end, also of what was trimmed before it."""
    cleaned_below: int = 0
    """Compaction: keys of these records were compared with all records below this offset.
    0: never compacted. Offsets of a compacted segment ascend with gaps."""
    tombstone_horizon_ms: int = NEVER_MS
    """The earliest time at which a tombstone in here may be dropped; -1: it holds none."""
    replaces: tuple[Replaced, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def key(self) -> SegmentKey:
        """Which segment it tells of."""
        partition = PartitionKey(self.topic_id, self.partition)
        return SegmentKey(partition, Offset(self.base_offset), self.generation)

    @property
    def is_compacted(self) -> bool:
        """Whether its offsets may have gaps."""
        return self.cleaned_below > 0
