"""The write and the flush round in flight, and who is answered when they end. Pure."""

from collections.abc import Callable

import msgspec

from tidelog.broker.directory.core.messages import AppendBatch
from tidelog.broker.directory.core.partition import Partition, Role
from tidelog.broker.directory.core.promises import Promise
from tidelog.broker.directory.core.stamping import NO_APPEND_TIME_MS, Pieces
from tidelog.broker.log.marks.marks import Mark
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import NO_GAPS
from tidelog.broker.log.state.segments import NO_TIMESTAMP
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


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
        "markers",
        "partition",
        "pieces",
        "producers",
        "role",
        "segment",
        "size_bytes",
    )

    def __init__(
        self,
        partition: Partition,
        segment: SegmentKey,
        byte_position: int,
        *,
        is_new: bool,
        first_timestamp: int = NO_TIMESTAMP,
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
        self.first_timestamp = first_timestamp
        self.pieces: list[bytes | bytearray | memoryview] = []
        self.is_flush_awaited = False
        self.leader_epoch = partition.log.leader_epochs.latest
        """Of the last copy."""
        self.producers: dict[int, list[BatchHeader]] | None = None
        """What each of them has in here; None: nobody has."""
        self.markers: dict[Offset, Marker] = {}
        """What those in `producers` say that are markers, by their offsets."""
        self.gaps_from = NO_GAPS
        """Where a follower first skips offsets; to be marked."""

    def take_over(self, role: Role | None) -> None:
        """Those who wait for its batches are answered in this role as well."""
        self.role = role

    def follow_leader(self, leader_epoch: LeaderEpoch, *, gaps_from: Offset) -> None:
        """A copy of this epoch goes in, behind a gap unless `gaps_from` is NO_GAPS."""
        self.leader_epoch = leader_epoch
        if gaps_from != NO_GAPS:
            self.gaps_from = gaps_from

    def take(
        self,
        append: AppendBatch,
        header: BatchHeader,
        pieces: Pieces,
        timestamp: int,
        marker: Marker | None,
    ) -> None:
        """The batch lies at the end of it, in these pieces, with the header as it is stored."""
        self.pieces += pieces
        if not self.size_bytes:
            self.first_timestamp = timestamp
        self.size_bytes += len(append.batch)
        self.end_offset = header.next_offset
        if append.is_flush_awaited:
            self.is_flush_awaited = True
        if header.producer_id >= 0 and not append.is_replica:
            # What comes behind it is judged by it, before any of it is written.
            if self.producers is None:
                self.producers = {}
            self.producers.setdefault(header.producer_id, []).append(header)
            if marker is not None:
                self.markers[header.base_offset] = marker


class Planned(msgspec.Struct, frozen=True, gc=False):
    """A batch with its place, while it is written."""

    append: AppendBatch
    plan: SegmentPlan
    header: BatchHeader
    """As it is stored."""
    end_offset: Offset
    append_time_ms: int
    """-1: it keeps its own timestamps."""
    marker: Marker | None = None
    """What its record says, if it is a transaction's marker."""


class Awaiting(msgspec.Struct, frozen=True, gc=False):
    """A batch that is answered at the end of the flush that covers it, or once it is committed.
    Holds none of its bytes: who waits for others may wait for long."""

    token: int
    partition: Partition
    base_offset: int
    end_offset: Offset
    append_time_ms: int = NO_APPEND_TIME_MS
    error: TidelogError | None = None
    """It is not stored: refused once that is durable. None: acknowledged."""


class Again(msgspec.Struct, frozen=True):
    """A batch that was sent again, and where the first one lies, or is planned to."""

    append: AppendBatch
    first: Awaiting


class FlushRound:
    """What the flush in flight will have made true."""

    __slots__ = ("awaiting", "ends", "promises")

    def __init__(
        self,
        ends: list[tuple[Partition, Offset, tuple[int, int]]],
        awaiting: list[Awaiting],
        promises: list[Promise],
    ) -> None:
        self.ends = ends
        """Of each dirty partition the end of its log, and where it lies."""
        self.awaiting = awaiting
        self.promises = promises

    def covers(self, partition: Partition, end_offset: Offset) -> bool:
        """Whether all up to there is durable once it ends well."""
        return any(each is partition and end >= end_offset for each, end, _ in self.ends)

    def await_end(self, awaiting: Awaiting) -> None:
        """One more is answered when it ends."""
        self.awaiting.append(awaiting)

    def take_awaiting(self, is_taken: Callable[[Awaiting], bool]) -> list[Awaiting]:
        """Those are answered by somebody else."""
        taken, self.awaiting = parted(self.awaiting, is_taken)
        return taken


class WriteRound:
    """The write being planned or in flight."""

    __slots__ = (
        "admitted",
        "again",
        "is_flush_wanted",
        "marks",
        "planned",
        "plans",
        "promises",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.planned: list[Planned] = []
        self.admitted: list[Planned] = []
        """Those of them that a leader has admitted to a transaction, and markers."""
        self.again: list[Again] = []
        self.plans: list[SegmentPlan] = []
        self.marks: tuple[Mark, ...] = ()
        self.is_flush_wanted = False
        """There are marks among them that something waits for, or that a start should know."""
        self.promises: list[Promise] = []
        self.size_bytes = 0

    def join(self, plan: SegmentPlan) -> None:
        """A partition takes part in it."""
        plan.partition.join_write(plan)
        self.plans.append(plan)

    def take(self, planned: Planned) -> None:
        """A batch has its place in one of the plans."""
        self.size_bytes += len(planned.append.batch)
        self.planned.append(planned)

    def note_admitted(self) -> None:
        """The batch that was planned last belongs to a transaction that this replica leads."""
        self.admitted.append(self.planned[-1])

    def take_again(self, again: Again) -> None:
        """A batch that it holds was sent again: that one is answered with it."""
        self.again.append(again)

    def take_marks(
        self, marks: list[Mark], promises: list[Promise], *, is_flush_wanted: bool
    ) -> None:
        """These go with it, and behind them what the promises wait for."""
        self.marks, self.promises = tuple(marks), promises
        self.is_flush_wanted = is_flush_wanted

    def leave_out(self, key: PartitionKey) -> list[int]:
        """Nothing of this partition was written; the tokens of those who wait for it."""
        tokens = [each.append.token for each in self.planned if each.append.key == key]
        tokens += [each.append.token for each in self.again if each.append.key == key]
        self.planned = [each for each in self.planned if each.append.key != key]
        self.admitted = [each for each in self.admitted if each.append.key != key]
        self.again = [each for each in self.again if each.append.key != key]
        self.plans = [each for each in self.plans if each.partition.log.key != key]
        return tokens

    def tokens(self) -> list[int]:
        """Of all who wait for it."""
        waiting = [each.append.token for each in self.planned]
        return waiting + [each.append.token for each in self.again]


def parted(
    awaiting: list[Awaiting], is_taken: Callable[[Awaiting], bool]
) -> tuple[list[Awaiting], list[Awaiting]]:
    """Those that are taken, and those that go on waiting, each in their order."""
    taken: list[Awaiting] = []
    kept: list[Awaiting] = []
    for each in awaiting:
        (taken if is_taken(each) else kept).append(each)
    return taken, kept
