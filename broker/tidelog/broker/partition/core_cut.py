"""Where logs end: a tail is cut off, durably and in an order that a crash may interrupt. Pure.

It must never cut below the high watermark unless somebody decided so, never while the partition is
written or flushed, and never below a FLUSHED mark: a restart would take the cut for damage.

    asked ── what is in flight ends, what waits is refused ──▶ lower mark flushed ──▶ files are cut
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partition import core_stop
from tidelog.broker.partition.messages import (
    Acknowledge,
    Advanced,
    CutEnded,
    CutTail,
    Done,
    Effect,
    Refuse,
    TruncateTail,
)
from tidelog.broker.partition.rounds import Awaiting, Cut, Partition
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.partition.core import DirectoryCore


def on_truncate(core: DirectoryCore, message: TruncateTail, effects: list[Effect]) -> None:
    """Begin a cut; what was appended and lies behind it is refused from now on."""
    partition = core.partitions.get(message.key)
    error = _objection(core, message, partition)
    if error is not None or partition is None:
        assert error is not None, "a cut is refused for a reason"
        effects.append(Refuse(token=message.token, error=error))
        return
    log = partition.log
    core_stop.refuse_waiting(core, partition, _cut_off(message), effects)
    offset = max(message.offset, log.log_start_offset)
    if offset >= log.log_end_offset and partition.plan is None:
        effects.append(Done(token=message.token, offset=log.log_end_offset))
        return
    partition.is_roll_asked = False
    partition.cut = Cut(
        token=message.token,
        partition=partition,
        offset=offset,
    )
    core.cuts.append(partition.cut)
    if core.flush is not None:
        core.flush.awaiting[:] = _without_cut_off(core.flush.awaiting, partition.cut, effects)


def advance(core: DirectoryCore, effects: list[Effect]) -> None:
    """Bring each cut as far as what is in flight allows."""
    for cut in list(core.cuts):
        partition = cut.partition
        if cut.is_cutting or cut.is_marking or partition.is_removed:
            continue
        core.awaiting = _without_cut_off(core.awaiting, cut, effects)
        if partition.is_lazy:
            core.make_dirty(partition)
        if partition.plan is not None or partition.trims or partition.is_unflushed:
            continue
        log = partition.log
        if not cut.is_marked and log.flushed_offset > log.boundary_below(cut.offset):
            # No mark may promise more than what will be left: a batch is cut as a whole.
            cut.flushed_offset = log.flushed_offset
            log.flushed_offset = log.boundary_below(cut.offset)
            cut.is_marking = True
            core.marks.pop(log.key, None)
            core.postponed_marks.pop(log.key, None)
            core.promises.append(cut)
        elif cut.offset >= log.log_end_offset:
            core_stop.drop_cut(core, cut)
            effects.append(Done(token=cut.token, offset=log.log_end_offset))
        else:
            cut.is_cutting = True
            log.lower_high_watermark(cut.offset)
            effects += [Advanced(key=log.key), _cut_tail(cut)]


def on_marked(cut: Cut) -> None:
    """Nothing that will be cut off is promised any more."""
    assert cut.is_marking, f"{cut.key}: a mark was flushed that was never asked for"
    cut.is_marking, cut.is_marked = False, True


def on_cut_ended(core: DirectoryCore, message: CutEnded, effects: list[Effect]) -> None:
    """The log ends where it was cut; or it cannot be told where, and stops."""
    cut = next(each for each in core.cuts if each.key == message.key and each.is_cutting)
    partition, log = cut.partition, cut.partition.log
    core.cuts.remove(cut)
    partition.cut = None
    error = core.failure or message.error
    if error is not None:
        if core.failure is None and error.code is ErrorCode.STORAGE_CORRUPT:
            core_stop.fail_partition(core, message.key, error, effects)
        elif core.failure is None:
            core_stop.stop(core, error, effects)
        effects.append(Refuse(token=cut.token, error=error))
        return
    assert message.cut is not None, f"{log.key}: a cut that ended well left something"
    log.cut(message.cut.segment, message.cut.producers, cut.offset)
    if log.log_end_offset > log.high_watermark:
        # What is left was flushed: with one replica that commits it.
        log.commit(log.log_end_offset, log.end_position())
    if not partition.is_removed:
        core.marks[log.key] = log.flushed_offset
    effects += [Done(token=cut.token, offset=log.log_end_offset), Advanced(key=log.key)]


def _objection(
    core: DirectoryCore, message: TruncateTail, partition: Partition | None
) -> TidelogError | None:
    """Why the log cannot be cut there; None if it can."""
    tried = f"truncate {message.key} to offset {message.offset}"
    if core.failure is not None:
        return core.failure
    if partition is None or partition.cut is not None or partition.trims:
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=tried,
            happened="it is gone, or is being cut or trimmed already",
        )
    log = partition.log
    if log.failure is not None:
        return log.failure
    if message.offset < log.high_watermark and not message.is_unclean:
        return TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=tried,
            happened=f"what lies below the high watermark {log.high_watermark} is committed",
        )
    offset = max(message.offset, log.log_start_offset)
    if log.segments and offset > log.log_start_offset:
        segment = log.segment_of(offset)
        if segment.is_compacted and segment.base_offset < offset < segment.next_offset:
            return TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=tried,
                happened=f"it lies inside {segment.key.path}, which a compaction has written",
                hint=f"Truncate to offset {segment.base_offset}.",
            )
    return None


def _cut_tail(cut: Cut) -> CutTail:
    """What the owner is to do."""
    log = cut.partition.log
    last = log.segment_of(cut.offset)
    place = log.segments.index(last)
    is_all_cut = cut.offset <= log.log_start_offset
    # Nothing may be appended behind a compacted segment's bytes: the log goes on in a new one.
    is_last_cut = is_all_cut or (last.is_compacted and cut.offset == last.base_offset)
    if is_all_cut:
        place = 0
    before = log.segments[place - 1] if place else None
    return CutTail(
        key=log.key,
        offset=cut.offset,
        log_start_offset=log.log_start_offset,
        last=None if is_last_cut else last.key,
        before=before.key if before else None,
        producers_before=before.producers_at_end if before else None,
        later=tuple(segment.key for segment in log.segments[place + (not is_last_cut) :]),
    )


def _without_cut_off(awaiting: list[Awaiting], cut: Cut, effects: list[Effect]) -> list[Awaiting]:
    """Those who wait for what will not be cut off; the others are refused."""
    kept = []
    for waiting in awaiting:
        answer = waiting.answer
        if (
            waiting.planned.plan.partition is cut.partition
            and waiting.planned.header.next_offset > cut.offset
            and isinstance(answer, Acknowledge)
        ):
            effects.append(Refuse(token=answer.token, error=_cut_off(cut)))
        else:
            kept.append(waiting)
    return kept


def _cut_off(cut: Cut | TruncateTail) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"append to {cut.key}",
        happened=f"its log is cut off at offset {cut.offset}",
    )
