"""Where logs end: a tail is cut off, durably and in an order that a crash may interrupt. Pure.

It must never cut below the high watermark unless somebody decided so, never while the partition is
written or flushed, and never below a FLUSHED mark: a restart would take the cut for damage.

    asked ── what is in flight ends, what waits is refused ──▶ lower mark flushed ──▶ files are cut

A log that is to go on elsewhere is cut to nothing first; its new start is marked then. Whenever
that is interrupted, the log is whole, empty where it began, or empty at its new start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.directory.core import stopping, trimming
from tidelog.broker.directory.core.messages import (
    Acknowledge,
    Advanced,
    CutEnded,
    CutTail,
    Done,
    Effect,
    Refuse,
    RestartLog,
    TruncateTail,
)
from tidelog.broker.directory.core.rounds import Awaiting, Cut, Following, Leading, Partition
from tidelog.broker.log.producer_state import ProducerState
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore


def on_truncate(core: DirectoryCore, message: TruncateTail, effects: list[Effect]) -> None:
    """Begin a cut; what was appended and lies behind it is refused from now on."""
    partition = core.partitions.get(message.key)
    error = _objection(core, message, partition)
    if error is not None or partition is None:
        assert error is not None, "a cut is refused for a reason"
        effects.append(Refuse(token=message.token, error=error))
        return
    log = partition.log
    if isinstance(partition.role, Leading):
        effects.append(Refuse(token=message.token, error=_leads(message)))
        return
    stopping.refuse_waiting(core, partition, _cut_off(message), effects)
    offset = max(message.offset, log.log_start_offset)
    if offset >= log.log_end_offset and partition.plan is None:
        effects.append(Done(token=message.token, offset=log.log_end_offset))
        return
    partition.is_roll_asked = False
    cut = Cut(token=message.token, partition=partition, offset=offset)
    _begin(core, cut)
    if core.flush is not None:
        core.flush.awaiting[:] = _without_cut_off(core.flush.awaiting, cut, effects)


def on_restart(core: DirectoryCore, message: RestartLog, effects: list[Effect]) -> None:
    """Begin to empty the log; who has appended to it is refused from now on."""
    partition = core.partitions.get(message.key)
    error = _refusal(core, message, partition)
    if error is None and partition is not None and not isinstance(partition.role, Following):
        error = _leads(message)
    if error is not None or partition is None:
        assert error is not None, "a restart is refused for a reason"
        effects.append(Refuse(token=message.token, error=error))
        return
    stopping.refuse_waiting(core, partition, _cut_off(message), effects)
    partition.is_roll_asked = False
    _begin(
        core,
        Cut(
            token=message.token,
            partition=partition,
            offset=partition.log.log_start_offset,
            restart_offset=message.offset,
            start_epoch=message.start_epoch,
        ),
    )


def _begin(core: DirectoryCore, cut: Cut) -> None:
    cut.partition.cut = cut
    cut.partition.log.is_being_cut = True
    core.cuts.append(cut)


def give_up(core: DirectoryCore, partition: Partition, effects: list[Effect]) -> None:
    """Another leader epoch begins: what its predecessor had cut off may be committed in it. A cut
    of which files are changed already runs to its end."""
    cut = partition.cut
    if cut is None or cut.is_cutting or cut.is_marking or cut.restart_offset is not None:
        if cut is not None and cut.is_marking:
            cut.is_given_up = True
        return
    stopping.drop_cut(core, cut)
    effects.append(Refuse(token=cut.token, error=_overtaken(cut)))


def advance(core: DirectoryCore, effects: list[Effect]) -> None:
    """Bring each cut as far as what is in flight allows."""
    for cut in list(core.cuts):
        partition = cut.partition
        if cut.is_cutting or cut.is_marking or cut.is_restarting or partition.is_removed:
            continue
        core.awaiting = _without_cut_off(core.awaiting, cut, effects)
        if partition.is_lazy:
            core.make_dirty(partition)
        if partition.plan is not None or partition.trims or partition.is_unflushed:
            continue
        log = partition.log
        # No mark may promise more than what will be left: a batch is cut as a whole.
        kept_offset = log.boundary_below(cut.offset)
        if cut.restart_offset is not None:
            kept_offset = min(kept_offset, cut.restart_offset)
        is_promised = log.flushed_offset > kept_offset or trimming.is_undoing_commits(cut)
        if not cut.is_marked and is_promised:
            cut.flushed_offset = log.flushed_offset
            log.flushed_offset = min(log.flushed_offset, kept_offset)
            cut.is_marking = True
            core.marks.pop(log.key, None)
            core.postponed_marks.pop(log.key, None)
            core.promises.append(cut)
        elif cut.restart_offset is not None and not log.segments:
            _mark_restart(core, cut)
        elif cut.restart_offset is None and cut.offset >= log.log_end_offset:
            stopping.drop_cut(core, cut)
            effects.append(Done(token=cut.token, offset=log.log_end_offset))
        else:
            cut.is_cutting, cut.high_watermark = True, log.high_watermark
            log.lower_high_watermark(cut.offset)
            effects += [Advanced(key=log.key), _cut_tail(cut)]


def on_marked(core: DirectoryCore, cut: Cut, effects: list[Effect]) -> None:
    """Nothing that will be cut off is promised any more."""
    assert cut.is_marking, f"{cut.key}: a mark was flushed that was never asked for"
    cut.is_marking, cut.is_marked = False, True
    if cut.is_given_up:
        stopping.drop_cut(core, cut)
        effects.append(Refuse(token=cut.token, error=_overtaken(cut)))


def _mark_restart(core: DirectoryCore, cut: Cut) -> None:
    """The log is empty: mark where it goes on."""
    cut.flushed_offset = cut.partition.log.flushed_offset
    cut.is_restarting = True
    core.promises.append(cut)


def on_restarted(core: DirectoryCore, cut: Cut, effects: list[Effect]) -> None:
    """The log's new start is durable."""
    assert cut.restart_offset is not None, f"{cut.key}: it goes on where it was"
    partition, log = cut.partition, cut.partition.log
    _end(core, cut)
    log.restart(cut.restart_offset, cut.start_epoch)
    if not partition.is_removed:
        core.marks[log.key] = log.flushed_offset
        core.committed_marks[log.key] = log.high_watermark
        core.moved[log.key] = partition
    effects += [Done(token=cut.token, offset=log.log_end_offset), Advanced(key=log.key)]


def _end(core: DirectoryCore, cut: Cut) -> None:
    core.cuts.remove(cut)
    cut.partition.cut = None
    cut.partition.log.is_being_cut = False


def on_cut_ended(core: DirectoryCore, message: CutEnded, effects: list[Effect]) -> None:
    """The log ends where it was cut; or it cannot be told where, and stops."""
    cut = next(each for each in core.cuts if each.key == message.key and each.is_cutting)
    partition, log = cut.partition, cut.partition.log
    error = core.failure or message.error
    if error is None and cut.restart_offset is not None and not partition.is_removed:
        log.cut(None, ProducerState(), cut.offset)
        cut.is_cutting = False
        return
    _end(core, cut)
    if error is not None:
        is_of_one_log = message.is_of_one_log or error.code is ErrorCode.STORAGE_CORRUPT
        if core.failure is None and is_of_one_log:
            stopping.fail_partition(core, message.key, error, effects)
        elif core.failure is None:
            stopping.stop(core, error, effects)
        effects.append(Refuse(token=cut.token, error=error))
        return
    assert message.cut is not None, f"{log.key}: a cut that ended well left something"
    log.cut(
        message.cut.segment,
        message.cut.producers,
        cut.offset,
        are_producers_known=message.cut.are_producers_known,
    )
    if partition.role is None and log.log_end_offset > log.high_watermark:
        # What is left was flushed: that commits an only replica's.
        log.commit(log.log_end_offset, log.end_position())
    if not partition.is_removed:
        core.marks[log.key] = log.flushed_offset
        if partition.role is not None:
            log.commit_to(cut.high_watermark)
            core.committed_marks[log.key] = log.high_watermark
            core.moved[log.key] = partition
    effects += [Done(token=cut.token, offset=log.log_end_offset), Advanced(key=log.key)]


def _refusal(
    core: DirectoryCore, message: TruncateTail | RestartLog, partition: Partition | None
) -> TidelogError | None:
    """Why nothing can be cut off the log now; None if it can."""
    if core.failure is not None:
        return core.failure
    if partition is None or partition.cut is not None or partition.trims:
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=_tried(message),
            happened="it is gone, or is being cut or trimmed already",
        )
    return partition.log.failure


def _tried(message: TruncateTail | RestartLog) -> str:
    verb = "truncate" if isinstance(message, TruncateTail) else "restart"
    return f"{verb} {message.key} at offset {message.offset}"


def _objection(
    core: DirectoryCore, message: TruncateTail, partition: Partition | None
) -> TidelogError | None:
    """Why the log cannot be cut there; None if it can."""
    error = _refusal(core, message, partition)
    if error is not None or partition is None:
        return error
    log, tried = partition.log, _tried(message)
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
    first_producers = None if is_all_cut else log.segments[place].producers_before
    return CutTail(
        key=log.key,
        offset=cut.offset,
        log_start_offset=log.log_start_offset,
        last=None if is_last_cut else last.key,
        before=before.key if before else None,
        producers_before=before.producers_at_end if before else first_producers,
        is_all_before_known=before.were_producers_known if before else log.are_producers_known,
        later=tuple(segment.key for segment in log.segments[place + (not is_last_cut) :]),
    )


def _without_cut_off(awaiting: list[Awaiting], cut: Cut, effects: list[Effect]) -> list[Awaiting]:
    """Those who wait for what will not be cut off; the others are refused."""
    kept = []
    for waiting in awaiting:
        answer = waiting.answer
        if (
            waiting.partition is cut.partition
            and waiting.end_offset > cut.offset
            and isinstance(answer, Acknowledge)
        ):
            effects.append(Refuse(token=answer.token, error=_cut_off(cut)))
        else:
            kept.append(waiting)
    return kept


def _leads(message: TruncateTail | RestartLog) -> TidelogError:
    return TidelogError(
        ErrorCode.FENCED_LEADER_EPOCH,
        tried=_tried(message),
        happened="this broker follows no leader that could fill it again",
    )


def _overtaken(cut: Cut) -> TidelogError:
    return TidelogError(
        ErrorCode.FENCED_LEADER_EPOCH,
        tried=f"truncate {cut.key} at offset {cut.offset}",
        happened="the log was not cut yet when another leader epoch began",
    )


def _cut_off(cut: Cut | TruncateTail | RestartLog) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"append to {cut.key}",
        happened=f"its log is cut off at offset {cut.offset}",
    )
