"""Where logs end: a tail is cut off, durably and in an order that a crash may interrupt. Pure.

It must never cut below the high watermark unless somebody decided so, never while the partition is
written or flushed, and never below a FLUSHED mark: a restart would take the cut for damage.

    asked ── what is in flight ends, what waits is refused ──▶ lower mark flushed ──▶ files are cut

A log that is to go on elsewhere is cut to nothing first; its new start is marked then. Whenever
that is interrupted, the log is whole, empty where it began, or empty at its new start.
"""

from collections.abc import Callable

from tidelog.broker.directory.core import stopping
from tidelog.broker.directory.core.messages import (
    CutEnded,
    CutTail,
    RestartLog,
    TruncateTail,
)
from tidelog.broker.directory.core.partition import Following, Leading, Partition
from tidelog.broker.directory.core.promises import Cut, CutPhase, Restart
from tidelog.broker.directory.core.rounds import Awaiting
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.codec import has_transactions
from tidelog.wire.errors import ErrorCode, TidelogError


def on_truncate(state: DirectoryState, message: TruncateTail) -> None:
    """Begin a cut; what was appended and lies behind it is refused from now on."""
    partition = state.partitions.get(message.key)
    error = _objection(state, message, partition)
    if error is not None or partition is None:
        assert error is not None, "a cut is refused for a reason"
        state.refuse(message.token, error)
        return
    log = partition.log
    if isinstance(partition.role, Leading):
        state.refuse(message.token, _leads(message))
        return
    stopping.refuse_waiting(state, partition, _cut_off(message))
    offset = max(message.offset, log.log_start_offset)
    if offset >= log.log_end_offset and partition.plan is None:
        state.done(message.token, log.log_end_offset)
        return
    cut = Cut(message.token, partition, offset)
    state.begin_cut(cut)
    if state.flush is not None:
        state.refuse_awaiting(state.flush.take_awaiting(_is_cut_off(cut)), _cut_off(cut))


def on_restart(state: DirectoryState, message: RestartLog) -> None:
    """Begin to empty the log; who has appended to it is refused from now on."""
    partition = state.partitions.get(message.key)
    error = _refusal(state, message, partition)
    if error is None and partition is not None and not isinstance(partition.role, Following):
        error = _leads(message)
    if error is not None or partition is None:
        assert error is not None, "a restart is refused for a reason"
        state.refuse(message.token, error)
        return
    stopping.refuse_waiting(state, partition, _cut_off(message))
    restart = Restart(message.offset, message.start_epoch)
    state.begin_cut(Cut(message.token, partition, partition.log.log_start_offset, restart))


def give_up(state: DirectoryState, partition: Partition) -> None:
    """Another leader epoch begins: what its predecessor had cut off may be committed in it. A cut
    of which files are changed already runs to its end."""
    cut = partition.cut
    if cut is not None and cut.give_up():
        stopping.drop_cut(state, cut)
        state.refuse(cut.token, _overtaken(cut))


def advance(state: DirectoryState) -> None:
    """Bring each cut as far as what is in flight allows."""
    for cut in list(state.cuts):
        partition = cut.partition
        if cut.is_under_way or partition.is_removed:
            continue
        state.refuse_awaiting(state.take_awaiting(_is_cut_off(cut)), _cut_off(cut))
        state.hurry(partition)
        if partition.plan is not None or partition.trims or partition.is_unflushed:
            continue
        log = partition.log
        # No mark may promise more than what will be left: a batch is cut as a whole.
        kept_offset = log.boundary_below(cut.offset)
        if cut.restart is not None:
            kept_offset = min(kept_offset, cut.restart.offset)
        is_promised = log.flushed_offset > kept_offset or cut.is_undoing_commits
        if cut.promised_offset is None and is_promised:
            cut.begin_marking(kept_offset)
            state.marks.unsay_flushed(log.key)
            state.marks.promise(cut)
        elif cut.restart is not None and not log.segments:
            cut.begin_restarting()
            state.marks.promise(cut)
        elif cut.restart is None and cut.offset >= log.log_end_offset:
            stopping.drop_cut(state, cut)
            state.done(cut.token, log.log_end_offset)
        else:
            cut.begin_cutting()
            state.tell_readers(log.key)
            state.emit(_cut_tail(cut))


def on_marked(state: DirectoryState, cut: Cut) -> None:
    """Nothing that will be cut off is promised any more."""
    if cut.phase is CutPhase.GIVEN_UP:
        stopping.drop_cut(state, cut)
        state.refuse(cut.token, _overtaken(cut))
    else:
        cut.end_marking()


def on_restarted(state: DirectoryState, cut: Cut) -> None:
    """The log's new start is durable."""
    assert cut.restart is not None, f"{cut.key}: it goes on where it was"
    partition, log = cut.partition, cut.partition.log
    state.end_cut(cut)
    log.restart(cut.restart.offset, cut.restart.start_epoch)
    if not partition.is_removed:
        state.marks.note_flushed(log.key, log.flushed_offset)
        state.marks.note_committed(log.key, log.high_watermark)
        state.log_end_moved(partition)
    state.done(cut.token, log.log_end_offset)
    state.tell_readers(log.key)


def on_cut_ended(state: DirectoryState, message: CutEnded) -> None:
    """The log ends where it was cut; or it cannot be told where, and stops."""
    cut = next(
        each for each in state.cuts if each.key == message.key and each.phase is CutPhase.CUTTING
    )
    partition, log = cut.partition, cut.partition.log
    error = state.failure or message.error
    if error is None and cut.restart is not None and not partition.is_removed:
        log.cut(None, ProducerState(), cut.offset)
        cut.end_cutting()
        return
    state.end_cut(cut)
    if error is not None:
        is_of_one_log = message.is_of_one_log or error.code is ErrorCode.STORAGE_CORRUPT
        if state.failure is None and is_of_one_log:
            stopping.fail_partition(state, message.key, error)
        elif state.failure is None:
            stopping.stop(state, error)
        state.refuse(cut.token, error)
        return
    assert message.cut is not None, f"{log.key}: a cut that ended well left something"
    log.cut(
        message.cut.segment,
        message.cut.producers,
        cut.offset,
        are_producers_known=message.cut.are_producers_known,
        ended=message.cut.ended,
    )
    if partition.role is None and log.log_end_offset > log.high_watermark:
        # What is left was flushed: that commits an only replica's.
        log.commit(log.log_end_offset, log.end_position())
    if not partition.is_removed:
        state.marks.note_flushed(log.key, log.flushed_offset)
        if partition.role is not None:
            log.commit_to(cut.high_watermark)
            state.marks.note_committed(log.key, log.high_watermark)
            state.log_end_moved(partition)
    state.done(cut.token, log.log_end_offset)
    state.tell_readers(log.key)


def _refusal(
    state: DirectoryState, message: TruncateTail | RestartLog, partition: Partition | None
) -> TidelogError | None:
    """Why nothing can be cut off the log now; None if it can."""
    if state.failure is not None:
        return state.failure
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
    state: DirectoryState, message: TruncateTail, partition: Partition | None
) -> TidelogError | None:
    """Why the log cannot be cut there; None if it can."""
    error = _refusal(state, message, partition)
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
        has_transactions_before=(
            before is not None and before.summary is not None and has_transactions(before.summary)
        ),
        later=tuple(segment.key for segment in log.segments[place + (not is_last_cut) :]),
    )


def _is_cut_off(cut: Cut) -> Callable[[Awaiting], bool]:
    """Tells those who wait for what will be cut off: the others go on waiting."""

    def is_cut_off(each: Awaiting) -> bool:
        return (
            each.partition is cut.partition and each.end_offset > cut.offset and each.error is None
        )

    return is_cut_off


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
