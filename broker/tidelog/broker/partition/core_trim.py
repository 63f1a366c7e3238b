"""Where logs begin: a trim is marked, the mark is flushed, then the head goes. Pure.

Owns the order of these three. It must never give up a segment before the mark that says so is
durable, nor before the name of the log's active segment is: a restart that found no file at all
would not know where the log ends. What lies wholly below the mark may be on the disk or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidelog.broker.log.marks import Mark, MarkKind
from tidelog.broker.log.names import PartitionKey, SegmentKey, directory_name
from tidelog.broker.log.state import NO_GAPS
from tidelog.broker.partition import core_cut
from tidelog.broker.partition.messages import (
    Done,
    Effect,
    Refuse,
    RemoveFiles,
    TrimHead,
)
from tidelog.broker.partition.rounds import Cut, Promise, Removal, WriteRound
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

if TYPE_CHECKING:
    from tidelog.broker.log.segments import Segment
    from tidelog.broker.partition.core import DirectoryCore


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
    elif trim.offset <= log.log_start_offset:
        effects.append(Done(token=trim.token, offset=log.log_start_offset))
    else:
        # The last mark of a kind counts: one behind a higher one would take that back.
        offset = max(trim.offset, partition.trim_offset) if partition.trims else trim.offset
        partition.trims += 1
        partition.trim_offset = offset
        core.promises.append(msgspec.structs.replace(trim, offset=offset))


def starts_on_their_way(core: DirectoryCore) -> dict[PartitionKey, Offset]:
    """Where logs will begin of which the mark is written, but may not be durable yet."""
    starts: dict[PartitionKey, Offset] = {}
    in_flight = core.flush.promises if core.flush is not None else []
    for promise in (*in_flight, *core.written_promises):
        if isinstance(promise, TrimHead):
            starts[promise.key] = max(promise.offset, starts.get(promise.key, promise.offset))
        elif isinstance(promise, Cut) and promise.is_restarting:
            assert promise.restart_offset is not None, f"{promise.key}: it goes on where it was"
            starts[promise.key] = promise.restart_offset
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
        return [Mark(promise.key, MarkKind.LOG_START, promise.offset)]
    if promise.is_restarting:
        assert promise.restart_offset is not None, f"{promise.key}: it goes on where it was"
        return [Mark(promise.key, MarkKind.LOG_START, promise.restart_offset)]
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
        core_cut.on_restarted(core, promise, effects)
    elif isinstance(promise, Cut):
        core_cut.on_marked(core, promise, effects)
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
    doom(core, trim.key, partition.log.trim(trim.offset))
    effects.append(Done(token=trim.token, offset=partition.log.log_start_offset))


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
