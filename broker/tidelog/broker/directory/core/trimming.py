"""Where logs begin: a trim is marked, the mark is flushed, then the head goes. Pure.

Owns the order of these three. It must never give up a segment before the mark that says so is
durable, nor before the name of the log's active segment is: a restart that found no file at all
would not know where the log ends. What lies wholly below the mark may be on the disk or not.

Only one that leads, or is the only replica, decides where its log begins. Whoever asks for a trim
has looked at the role a moment ago, so it is asked here once more, in the step that marks it. A
follower is told by its leader; the mark carries the leader epoch in either case
(`replication/log_start` says what for).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidelog.broker.directory.core import cutting
from tidelog.broker.directory.core.messages import (
    Advanced,
    Done,
    Effect,
    Refuse,
    RemoveFiles,
    TrimHead,
)
from tidelog.broker.directory.core.role_errors import not_leader
from tidelog.broker.directory.core.rounds import (
    Cut,
    Following,
    Partition,
    Promise,
    Removal,
    WriteRound,
)
from tidelog.broker.log.marks.marks import Mark, MarkKind, start_marks
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.state.log import NO_GAPS, UNKNOWN_EPOCH, PartitionLog
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore
    from tidelog.broker.log.state.segments import Segment


class Doomed(msgspec.Struct, frozen=True):
    """Segments that are no part of their log any more."""

    partition: PartitionKey
    segments: tuple[SegmentKey, ...]


def on_trim(core: DirectoryCore, trim: TrimHead, effects: list[Effect]) -> None:
    """Mark where the log is to begin; answered once that is durable."""
    partition = core.partitions.get(trim.key)
    error = core.failure if partition is None else partition.log.failure
    if error is None and (partition is None or partition.cut is not None):
        error = TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"trim {trim.key}",
            happened="the partition is being cut or is gone",
        )
    if error is None and partition is not None:
        error = _objection(partition, trim)
    if error is not None or partition is None:
        assert error is not None, "a trim is refused for a reason"
        effects.append(Refuse(token=trim.token, error=error))
        return
    log = partition.log
    if trim.offset > log.high_watermark:
        error = TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"trim {trim.key} up to offset {trim.offset}",
            happened=f"its high watermark is {log.high_watermark}",
        )
        effects.append(Refuse(token=trim.token, error=error))
    elif not _says_more(log, trim.offset):
        effects.append(Done(token=trim.token, offset=log.log_start_offset))
    else:
        is_follower = isinstance(partition.role, Following)
        start = (trim.offset, trim.start_epoch if is_follower else log.leader_epoch)
        if partition.trims:
            # The last mark of a kind counts: one behind a higher one would take that back.
            start = max(start, (partition.trim_offset, partition.trim_epoch))
        partition.trims += 1
        partition.trim_offset, partition.trim_epoch = start
        core.promises.append(msgspec.structs.replace(trim, offset=start[0], start_epoch=start[1]))


def _objection(partition: Partition, trim: TrimHead) -> TidelogError | None:
    """Why it is not for this replica to say where its log begins; None: it is."""
    is_follower = isinstance(partition.role, Following)
    is_taken_over = trim.start_epoch != UNKNOWN_EPOCH
    if is_follower and not is_taken_over:
        return not_leader(trim.key, tried="trim")
    if is_taken_over and (not is_follower or trim.start_epoch > partition.log.leader_epoch):
        return TidelogError(
            ErrorCode.FENCED_LEADER_EPOCH,
            tried=f"trim {trim.key} as the leader of epoch {trim.start_epoch} has decided",
            happened=f"this replica {'follows' if is_follower else 'leads'} at leader epoch "
            f"{partition.log.leader_epoch}",
        )
    return None


def _says_more(log: PartitionLog, offset: Offset) -> bool:
    """Whether a trim moves the start, or decides one of which nobody knows who moved it."""
    is_undecided = log.log_start_epoch == UNKNOWN_EPOCH and log.log_start_offset > 0
    return offset > log.log_start_offset or (is_undecided and offset == log.log_start_offset)


def starts_on_their_way(core: DirectoryCore) -> dict[PartitionKey, tuple[Offset, LeaderEpoch]]:
    """Where logs will begin of which the mark is written, but may not be durable yet; and by which
    leader's word."""
    starts: dict[PartitionKey, tuple[Offset, LeaderEpoch]] = {}
    in_flight = core.flush.promises if core.flush is not None else []
    for promise in (*in_flight, *core.written_promises):
        if isinstance(promise, TrimHead):
            start = (promise.offset, promise.start_epoch)
            starts[promise.key] = max(start, starts.get(promise.key, start))
        elif isinstance(promise, Cut) and promise.is_restarting:
            assert promise.restart_offset is not None, f"{promise.key}: it goes on where it was"
            starts[promise.key] = (promise.restart_offset, promise.start_epoch)
    return starts


def take_marks(core: DirectoryCore, round_: WriteRound) -> None:
    """Write all marks that wait with this write."""
    flushed = {**core.postponed_marks, **core.marks}
    core.marks, core.postponed_marks = {}, {}
    marks = [Mark(key, MarkKind.FLUSHED, offset) for key, offset in flushed.items()]
    committed_count = len(core.committed_marks)
    core.are_committed_marks_due = False
    if committed_count:
        committed, core.committed_marks = core.committed_marks, {}
        marks += [Mark(key, MarkKind.COMMITTED, offset) for key, offset in committed.items()]
    for plan in round_.plans:
        if plan.gaps_from != NO_GAPS:
            marks.append(Mark(plan.segment.partition, MarkKind.GAPS, plan.gaps_from))
    round_.promises, core.promises = core.promises, []
    # Behind the others: a cut lowers what one of them may have said.
    for promise in round_.promises:
        marks += _marks_of(promise)
    round_.is_flush_wanted = len(marks) > committed_count
    round_.marks = tuple(marks)


def _marks_of(promise: Promise) -> list[Mark]:
    """What is to be durable before the promise is kept."""
    if isinstance(promise, Removal):
        kinds = (MarkKind.FLUSHED, MarkKind.COMMITTED, MarkKind.LOG_START)
        return [Mark(promise.key, kind, 0) for kind in kinds]
    if not isinstance(promise, Cut):
        return start_marks(promise.key, promise.offset, promise.start_epoch)
    if promise.is_restarting:
        assert promise.restart_offset is not None, f"{promise.key}: it goes on where it was"
        return start_marks(promise.key, promise.restart_offset, promise.start_epoch)
    # Not the offset that was asked for: the batch that holds it goes as a whole.
    log = promise.partition.log
    marks = [Mark(promise.key, MarkKind.FLUSHED, log.flushed_offset)]
    if is_undoing_commits(promise):
        marks.append(Mark(promise.key, MarkKind.COMMITTED, log.flushed_offset))
    return marks


def is_undoing_commits(cut: Cut) -> bool:
    """Whether a COMMITTED mark may say more than what will be left."""
    end_offset = cut.offset
    if cut.restart_offset is not None:
        end_offset = min(end_offset, cut.restart_offset)
    return cut.partition.role is not None and cut.partition.log.high_watermark > end_offset


def keep(core: DirectoryCore, promise: Promise, effects: list[Effect]) -> None:
    """The promise's mark is durable."""
    if isinstance(promise, Cut) and promise.is_restarting:
        cutting.on_restarted(core, promise, effects)
    elif isinstance(promise, Cut):
        cutting.on_marked(core, promise, effects)
    elif isinstance(promise, Removal):
        promise.is_marked = True
    else:
        _trim(core, promise, effects)


def _trim(core: DirectoryCore, trim: TrimHead, effects: list[Effect]) -> None:
    partition = core.partitions.get(trim.key)
    if partition is None:
        effects.append(Done(token=trim.token, offset=trim.offset))
        return
    partition.trims -= 1
    doom(core, trim.key, partition.log.trim(trim.offset, trim.start_epoch))
    effects.append(Done(token=trim.token, offset=partition.log.log_start_offset))
    # Of a partition to which nobody writes followers would hear of it late.
    effects.append(Advanced(key=trim.key))


def doom(core: DirectoryCore, key: PartitionKey, removed: list[Segment]) -> None:
    """The files of these segments go as soon as a restart does without them."""
    if removed:
        core.doomed.append(Doomed(key, tuple(segment.key for segment in removed)))


def remove_doomed(core: DirectoryCore, effects: list[Effect]) -> None:
    """Let the files go of logs whose active segment has its name for good."""
    kept = []
    for doomed in core.doomed:
        if directory_name(doomed.partition) in core.dirty_directories:
            kept.append(doomed)
        elif doomed.partition in core.partitions:
            effects.append(RemoveFiles(segments=doomed.segments))
    core.doomed = kept
