"""What a data directory's core is told, and what it wants done. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.marks.marks import Mark, PartitionMarks
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.open import Ended
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset, PartitionKey

NO_TOKEN: Final = 0
"""Of an order before its owner gives it one: nobody is answered by it."""


class AddPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A recovered or new log is to be served."""

    log: PartitionLog
    settings: TopicSettings
    is_sole: bool = True
    """The partition has no other replica. Else it follows until it is told to lead."""
    leftovers: tuple[SegmentKey, ...] = ()
    """Segments wholly below the log's start that a crash has left behind: they go."""
    is_opened_at_work: bool = False
    """The directory was at work already: no mark tells yet of what was found."""


class Configure(msgspec.Struct, frozen=True, kw_only=True):
    """The partition's topic has other settings from now on."""

    key: PartitionKey
    settings: TopicSettings


class Lead(msgspec.Struct, frozen=True, kw_only=True):
    """The replica leads from now on; or others are in sync within its epoch."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    others: tuple[BrokerId, ...]
    """Those that a commit waits for: in sync, or about to be."""
    in_sync_count: int
    """How many are in sync, this one included."""
    is_sole: bool | None = None
    """Whether it is the partition's only replica; None: as it was."""


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """The replica follows from now on: nothing that it was asked as a leader is done any more."""

    key: PartitionKey
    leader_epoch: LeaderEpoch


class CommitTo(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's high watermark, as a follower has learned it: of a log that goes on as its own.

    What is not here yet is committed as it comes.
    """

    key: PartitionKey
    leader_epoch: LeaderEpoch
    offset: Offset


class RestartLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log is to be emptied and to go on at the offset: answered once that is durable."""

    token: int = NO_TOKEN
    key: PartitionKey
    offset: Offset
    start_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """Whose leader moved the start of the leader's log, at which it goes on; -1: not known."""


class RemovePartition(msgspec.Struct, frozen=True, kw_only=True):
    """The partition is served no more, its files go."""

    token: int
    key: PartitionKey
    kept_as: str = ""
    """Where its files stay instead, all of them, for somebody to look at; empty: nowhere."""


class ReleasePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that has stopped is let go, all its files stay: they are to be opened again."""

    token: int
    key: PartitionKey


class AppendBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One checked batch for one partition."""

    token: int
    """Chosen by the caller; comes back with the acknowledgement."""
    key: PartitionKey
    batch: bytes | memoryview
    header: BatchHeader
    is_flush_awaited: bool
    """acks=all: answered once committed, and of a sole replica once flushed; else once written."""
    append_time_ms: int
    """The wall time of its arrival; stamped on topics of append time."""
    is_replica: bool = False
    """Stored as it is: its leader has given it offset, epoch and time."""
    behind: int = -1
    """A copy: where the log must end; -1: at or before its first offset, which may be behind a gap
    that a compaction has left."""
    is_continued: bool = False
    """A copy that goes on behind the one before it: refused if that was."""
    hangs_from: int = -1
    """A marker for a transaction that no coordinator knows: where it begins; else -1."""


class AppendTransactional(msgspec.Struct, frozen=True, kw_only=True):
    """A checked batch of a transaction: it is appended once the transaction's coordinator has added
    the partition, which is asked for where nobody has yet."""

    append: AppendBatch
    transactional_id: str
    timeout_ms: int
    """How long the coordinator may be asked."""


class VerifyTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Answered once batches of the transaction may be appended; without sequences."""

    token: int
    key: PartitionKey
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator has answered to a `Verify`."""

    key: PartitionKey
    producer_id: int
    ticket: int
    error: TidelogError | None
    """None: the partition is part of the transaction."""


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody waits any more to hear of these batches: those that wait for a commit need not."""

    tokens: frozenset[int]


class RollSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Seal the active segment, unless it is empty, and make the next one."""

    key: PartitionKey


class TrimHead(msgspec.Struct, frozen=True, kw_only=True):
    """The log is to begin at the offset: answered once that is durable."""

    token: int = NO_TOKEN
    key: PartitionKey
    offset: Offset
    start_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """A follower takes over what the leader of this epoch has decided; -1: this replica decides, as
    one that leads, or as the only one."""


class TruncateTail(msgspec.Struct, frozen=True, kw_only=True):
    """The log is to end at the offset, or where the batch begins that holds it."""

    token: int = NO_TOKEN
    key: PartitionKey
    offset: Offset
    is_unclean: bool = False
    """Also below the high watermark: what was committed is given up by somebody's decision."""


class SegmentSealed(msgspec.Struct, frozen=True, kw_only=True):
    """The sidecar of a sealed segment is there, durable, and says this."""

    key: SegmentKey
    summary: Summary
    cut_count: int | None = None
    """The log's, when the job began; None: not known. A segment that was cut and sealed again has
    its name for other bytes."""


class ReplaceSegments(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction is committed: `made` stand for `removed`."""

    key: PartitionKey
    removed: tuple[SegmentKey, ...]
    made: tuple[Summary, ...]
    cut_count: int | None = None
    """The log's, when the job began; None: not known."""


class FailPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Damage was found: the partition stops, the directory goes on."""

    key: PartitionKey
    error: TidelogError
    kept_apart_at: LeaderEpoch | None = None
    """Nothing is wrong with it: its leader of this epoch lacks what is committed here."""


class FailDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """The directory is not where its name leads any more: every partition stops."""

    error: TidelogError


class SetFull(msgspec.Struct, frozen=True, kw_only=True):
    """Free space fell below the floor, or is above it again: appends are refused meanwhile."""

    is_full: bool


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Monotonic time: what waits for its flush on a topic with flush=replicated has waited."""

    now_ms: int


class FlushAll(msgspec.Struct, frozen=True, kw_only=True):
    """Flush what was written, whatever its topic's way: the owner is about to stop."""


class WriteEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The write in flight is over."""

    error: TidelogError | None = None
    unusable: Mapping[PartitionKey, TidelogError] = {}
    """Partitions of which the file could not be written to, and why; the others were written."""


class TruncateEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The truncation in flight is over."""

    error: TidelogError | None = None


class TailCut(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the last segment after a `CutTail`; read again from its file."""

    segment: Segment | None
    """None: it went as well."""
    producers: ProducerState
    are_producers_known: bool = True
    """False: what is before could not tell of its own."""
    ended: tuple[Ended, ...] = ()
    """The transactions that end in what was read again."""


class CutEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The cut of the partition's tail is over."""

    key: PartitionKey
    cut: TailCut | None = None
    error: TidelogError | None = None
    is_of_one_log: bool = False
    """A file of this partition is not as it was left: nothing is wrong with the disk."""


class FlushEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The flush round in flight is over."""

    error: TidelogError | None = None
    unusable: Mapping[PartitionKey, TidelogError] = {}
    """Partitions whose files are not where a start would find them; the others were flushed."""


Message = (
    AddPartition
    | Configure
    | Lead
    | Follow
    | FollowerAt
    | CommitTo
    | RestartLog
    | RemovePartition
    | ReleasePartition
    | AppendBatch
    | AppendTransactional
    | VerifyTransaction
    | Verified
    | Forget
    | RollSegment
    | TrimHead
    | TruncateTail
    | SegmentSealed
    | ReplaceSegments
    | FailPartition
    | FailDirectory
    | SetFull
    | Tick
    | FlushAll
    | WriteEnded
    | TruncateEnded
    | CutEnded
    | FlushEnded
)


class SegmentWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for the end of one segment; none: the file is made only."""

    segment: SegmentKey
    is_new: bool
    """Nothing was written to it yet: if it has no file, that and its directory are made first."""
    has_directory: bool = False
    """The log has bytes in other segments: a directory that is missing is not made anew."""
    byte_position: int
    """How long the segment is: the pieces go there."""
    pieces: list[bytes | bytearray | memoryview]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Write all of it in one turn, then say `WriteEnded`. One at a time."""

    writes: tuple[SegmentWrite, ...]
    marks: tuple[Mark, ...]
    """What the flushes since the last write have made durable, and where logs are to begin."""


class Truncate(msgspec.Struct, frozen=True, kw_only=True):
    """Cut the segments to the lengths, then say `TruncateEnded`. Never beside a write."""

    lengths: tuple[tuple[SegmentKey, int], ...]


class CutTail(msgspec.Struct, frozen=True, kw_only=True):
    """Make the log end at the offset, durably, then say `CutEnded`. One a partition.

    Nothing else is written to the partition meanwhile. In this order, each durable before the next:
    `later` are removed from the last one on, the sidecar of `last` is removed, `last` is cut.
    """

    key: PartitionKey
    offset: Offset
    log_start_offset: Offset
    """Were the log to end below it, nothing would be left: then `last` goes as well."""
    last: SegmentKey | None
    """The segment that the log will end in; None: all of its files go, or those in `later`."""
    before: SegmentKey | None
    """The sealed segment before it, whose sidecar holds the producer state to start from."""
    producers_before: bytes | None
    """That state encoded, where it is known without the sidecar."""
    is_all_before_known: bool = True
    """Whether it tells of all producers."""
    has_transactions_before: bool = False
    """Transactions may be open there: without that state what they wrote would be taken for
    committed."""
    later: tuple[SegmentKey, ...]


class Flush(msgspec.Struct, frozen=True, kw_only=True):
    """Make durable, then say `FlushEnded`. One at a time; writes go on meanwhile."""

    segments: tuple[SegmentKey, ...]
    directories: tuple[str, ...]
    with_marks: bool
    """Make the marks of the rounds before durable as well."""


class RemoveFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the segments and their sidecars once nobody reads them. Nothing waits for it."""

    segments: tuple[SegmentKey, ...] = ()
    sidecars: tuple[SegmentKey, ...] = ()
    """Of these the sidecar only."""


class RemoveDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """Remove all of the partition once nobody reads it, then answer the token."""

    token: int
    key: PartitionKey
    kept_as: str = ""
    """The directory's name from now on; empty: it goes."""


class ReleaseFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Close the files of the partition once nobody reads them, then answer the token."""

    token: int
    key: PartitionKey
    marks: PartitionMarks
    """What is known of it from now on, as long as it is not served."""


class Verify(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the coordinator of the transactional id to add the partition to the transaction, then say
    `Verified`. Several of one transaction may be asked at once."""

    key: PartitionKey
    transactional_id: str
    producer_id: int
    producer_epoch: int
    ticket: int
    timeout_ms: int


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The batch has met what its sender waits for: where it went. Whoever waits gets just this."""

    token: int
    base_offset: int
    append_time_ms: int
    """-1: the batch keeps its own timestamps."""
    log_start_offset: int
    leader_epoch: int


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The batch is in the log and waits for a flush or a commit: its bytes are needed no more."""

    token: int


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A trim or a truncation is durable."""

    token: int
    offset: Offset
    """Where the log begins now, or where it ends."""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The batch is not stored, or with STORAGE_FAILED perhaps is; so with a trim."""

    token: int
    error: TidelogError


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """The partition's high watermark or its start moved, or the partition stopped: wake its
    readers, and tell followers."""

    key: PartitionKey


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The partition has stopped, by itself or with its directory: see to it."""

    key: PartitionKey


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Of a replica that is not the only one the log's end or its flushed offset moved."""

    key: PartitionKey


Effect = (
    Write
    | Truncate
    | CutTail
    | Flush
    | RemoveFiles
    | RemoveDirectory
    | ReleaseFiles
    | Verify
    | Appended
    | Written
    | Done
    | Refuse
    | Advanced
    | Stopped
    | Moved
)
