"""What a directory's core keeps while writes and flushes are under way. Pure."""

from collections import deque

import msgspec

from tidelog.broker.directory.core.messages import Acknowledge, AppendBatch, Refuse, TrimHead
from tidelog.broker.log.marks.marks import Mark
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import NO_GAPS, UNKNOWN_EPOCH, PartitionLog
from tidelog.broker.log.state.segments import NO_TIMESTAMP
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import BatchHeader
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset, PartitionKey


class SegmentPlan:
    """What the write being planned or in flight adds to one partition: to one segment of it."""

    __slots__ = (
        "byte_position",
        "end_offset",
        "first_timestamp",
        "gaps_from",
        "is_flush_awaited",
        "is_new",
        "leader_epoch",
        "partition",
        "pieces",
        "producers",
        "role",
        "segment",
        "size_bytes",
    )

    def __init__(
        self, partition: "Partition", segment: SegmentKey, byte_position: int, *, is_new: bool
    ) -> None:
        self.partition = partition
        self.role = partition.role
        """In which the batches were taken: in another one nobody is told that they are stored."""
        self.segment = segment
        self.byte_position = byte_position
        """How long the segment is before."""
        self.is_new = is_new
        """The log goes on in it with this write; the one before is sealed then."""
        self.size_bytes = byte_position
        """How long the segment is afterwards."""
        self.end_offset = partition.log.log_end_offset
        self.first_timestamp = NO_TIMESTAMP
        self.pieces: list[bytes | bytearray | memoryview] = []
        self.is_flush_awaited = False
        self.leader_epoch = partition.log.leader_epochs.latest
        """Of the last copy."""
        self.producers: dict[int, list[BatchHeader]] | None = None
        """What each of them has in here; None: nobody has."""
        self.gaps_from = NO_GAPS
        """Where a follower first skips offsets; to be marked."""


class Cut(msgspec.Struct, kw_only=True):
    """A truncation of a log's tail: waits for what is in flight, is marked if need be, is done."""

    token: int
    partition: "Partition"
    offset: Offset
    flushed_offset: Offset = Offset(-1)
    """As it was before the lower mark was asked for."""
    is_marking: bool = False
    """A lower FLUSHED mark is on its way to the disk."""
    is_marked: bool = False
    """No mark promises any more what is cut off."""
    is_cutting: bool = False
    """The owner is at it."""
    restart_offset: Offset | None = None
    """Where the log goes on, once it is empty."""
    start_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """By the word of which epoch's leader it begins there."""
    high_watermark: Offset = Offset(0)
    """As it was before the cut: what is left below it is committed still."""
    is_given_up: bool = False
    """Another leader epoch has begun meanwhile: nothing is cut."""
    is_restarting: bool = False
    """It is empty; the mark of its new start is on its way to the disk."""

    @property
    def is_under_way(self) -> bool:
        """Whether a mark or the owner is at it."""
        return self.is_marking or self.is_cutting or self.is_restarting

    @property
    def key(self) -> PartitionKey:
        """Which partition's."""
        return self.partition.log.key


class Leading:
    """What a replica that leads others keeps of them, and who waits for a commit."""

    __slots__ = ("awaiting", "in_sync_count", "others")

    def __init__(self) -> None:
        self.others: dict[BrokerId, tuple[int, int]] = {}
        """Log end and flushed offset of each that a commit waits for; NOT_KNOWN before it told."""
        self.in_sync_count = 0
        self.awaiting: deque[Awaiting] = deque()
        """In the order of their offsets."""


class Following:
    """What a replica that follows knows of its leader."""

    __slots__ = ("is_refusing", "leader_watermark")

    def __init__(self) -> None:
        self.is_refusing = False
        """The last copy did not fit: what goes on behind it does not either."""
        self.leader_watermark = Offset(0)
        """What comes up to here is committed already."""


Role = Leading | Following


class Partition:
    """A log with what its owner needs beside it."""

    __slots__ = (
        "cut",
        "held",
        "is_dirty",
        "is_flushing",
        "is_lazy",
        "is_removed",
        "is_roll_asked",
        "lazy_since_ms",
        "log",
        "plan",
        "role",
        "settings",
        "trim_epoch",
        "trim_offset",
        "trims",
    )

    def __init__(self, log: PartitionLog, settings: TopicSettings) -> None:
        self.log = log
        self.settings = settings
        self.role: Role | None = None
        """None: it is the partition's only replica."""
        self.held: deque[AppendBatch] = deque()
        """Until the active segment is flushed, and the next one can be made."""
        self.plan: SegmentPlan | None = None
        """Its part in the write being planned or in flight."""
        self.is_dirty = False
        """Written, to be flushed by the next round."""
        self.is_lazy = False
        """Written, to be flushed once it has waited long enough."""
        self.lazy_since_ms = 0
        self.is_flushing = False
        """Covered by the round in flight."""
        self.is_roll_asked = False
        self.trims = 0
        """Trims on their way to the disk."""
        self.trim_offset = Offset(0)
        """Where the highest of these lets the log begin."""
        self.trim_epoch = UNKNOWN_EPOCH
        """Whose leader decided that one."""
        self.cut: Cut | None = None
        self.is_removed = False

    @property
    def is_flush_counted(self) -> bool:
        """Whether it counts for a commit with what it has flushed, not with what it has written.

        With flush=replicated a record is safe by being in several memories. Of a leader that is in
        sync alone there is one: whoever is on the way into the set could not lead after a crash.
        """
        role = self.role
        is_alone = isinstance(role, Leading) and role.in_sync_count <= 1
        return self.settings.is_flush_sync or is_alone

    @property
    def is_unflushed(self) -> bool:
        """Whether the active segment holds what is not known to be durable."""
        return self.is_dirty or self.is_flushing or self.is_lazy


class Planned(msgspec.Struct, frozen=True, gc=False):
    """A batch with its place, while it is written."""

    append: AppendBatch
    plan: SegmentPlan
    header: BatchHeader
    """As it is stored."""
    end_offset: Offset
    append_time_ms: int
    """-1: it keeps its own timestamps."""


class Awaiting(msgspec.Struct, frozen=True, gc=False):
    """Answered at the end of the flush that covers it, or once it is committed. Holds no bytes: who
    waits for others may wait for long."""

    answer: Acknowledge | Refuse
    partition: Partition
    end_offset: Offset


class Again(msgspec.Struct, frozen=True):
    """A batch that is planned in this write, and was sent again."""

    append: AppendBatch
    answer: Acknowledge
    partition: Partition
    end_offset: Offset


class Removal(msgspec.Struct):
    """A partition that goes: waits until nothing of it is in flight, and until no mark tells of
    it: it may come back under the same name."""

    token: int
    partition: Partition
    kept_as: str = ""
    is_release: bool = False
    """Its files stay where they are, and the marks say what they said."""
    is_marking: bool = False
    is_marked: bool = False

    @property
    def key(self) -> PartitionKey:
        """Which partition."""
        return self.partition.log.key


Promise = TrimHead | Cut | Removal
"""What comes true at the end of the flush that covers its mark."""


class FlushRound(msgspec.Struct, frozen=True, kw_only=True):
    """What the flush in flight will have made true."""

    ends: tuple[tuple[Partition, Offset, tuple[int, int]], ...]
    """Of each dirty partition the end of its log, and where it lies."""
    awaiting: list[Awaiting]
    promises: list[Promise]


class WriteRound:
    """The write being planned or in flight."""

    def __init__(self) -> None:
        self.planned: list[Planned] = []
        self.again: list[Again] = []
        self.plans: list[SegmentPlan] = []
        self.marks: tuple[Mark, ...] = ()
        self.is_flush_wanted = False
        """There are marks among them that something waits for, or that a start should know."""
        self.promises: list[Promise] = []
        self.size_bytes = 0
