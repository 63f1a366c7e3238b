"""What a data directory's core is told, and what it wants done. Pure."""

import msgspec

from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.state import PartitionLog
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset


class AddPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A recovered or new log is to be served."""

    log: PartitionLog
    settings: TopicSettings


class AppendBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One checked batch for one partition."""

    token: int
    """Chosen by the caller; comes back with the acknowledgement."""
    key: PartitionKey
    batch: bytes
    header: BatchHeader
    is_flush_awaited: bool
    """acks=all: answered once flushed; else once written."""
    append_time_ms: int
    """The wall time of its arrival; stamped on topics of append time."""


class WriteEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The write in flight is over."""

    error: TidelogError | None = None


class TruncateEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The truncation in flight is over."""

    error: TidelogError | None = None


class FlushEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The flush round in flight is over."""

    error: TidelogError | None = None


Message = AddPartition | AppendBatch | WriteEnded | TruncateEnded | FlushEnded


class SegmentWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for the end of one segment."""

    segment: SegmentKey
    is_new: bool
    """Nothing was written to it yet: if it has no file, that and its directory are made first."""
    pieces: list[bytes | bytearray | memoryview]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Write all of it in one turn, then say `WriteEnded`. One at a time."""

    writes: tuple[SegmentWrite, ...]
    marks: tuple[tuple[PartitionKey, Offset], ...]
    """What the flushes since the last write have made durable."""


class Truncate(msgspec.Struct, frozen=True, kw_only=True):
    """Cut the segments to the lengths, then say `TruncateEnded`. Never beside a write."""

    lengths: tuple[tuple[SegmentKey, int], ...]


class Flush(msgspec.Struct, frozen=True, kw_only=True):
    """Make durable, then say `FlushEnded`. One at a time; writes go on meanwhile."""

    segments: tuple[SegmentKey, ...]
    directories: tuple[str, ...]
    with_marks: bool
    """Make the marks of the rounds before durable as well."""


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The batch has met what its sender waits for."""

    token: int
    base_offset: int
    append_time_ms: int
    """-1: the batch keeps its own timestamps."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The batch is not stored, or with STORAGE_FAILED perhaps is."""

    token: int
    error: TidelogError


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """The partition's high watermark moved, or the partition stopped: wake its readers."""

    key: PartitionKey


Effect = Write | Truncate | Flush | Acknowledge | Refuse | Advanced
