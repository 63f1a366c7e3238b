"""What a directory's core keeps while writes and flushes are under way. Pure."""

from collections import deque

import msgspec

from tidelog.broker.log.marks import Mark
from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition.messages import Acknowledge, AppendBatch, Refuse
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.ids import Offset


class Partition:
    """A log with what its owner needs beside it."""

    __slots__ = ("held", "log", "settings")

    def __init__(self, log: PartitionLog, settings: TopicSettings) -> None:
        self.log = log
        self.settings = settings
        self.held: deque[AppendBatch] = deque()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A batch with its place, while it is written."""

    append: AppendBatch
    segment: SegmentKey
    base_offset: Offset
    append_time_ms: int


class Awaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Answered at the end of the flush that covers it."""

    answer: Acknowledge | Refuse


class FlushRound(msgspec.Struct, frozen=True, kw_only=True):
    """What the flush in flight will have made true."""

    segments: tuple[SegmentKey, ...]
    ends: tuple[tuple[Partition, Offset, tuple[int, int]], ...]
    awaiting: tuple[Awaiting, ...]


class WriteRound:
    """The write being planned or in flight."""

    def __init__(self) -> None:
        self.planned: list[Planned] = []
        self.pieces: dict[SegmentKey, list[bytes | bytearray | memoryview]] = {}
        self.sizes: dict[SegmentKey, int] = {}
        self.new_segments: dict[PartitionKey, SegmentKey] = {}
        self.ends: dict[PartitionKey, Offset] = {}
        self.marks: tuple[Mark, ...] = ()
        self.size_bytes = 0
