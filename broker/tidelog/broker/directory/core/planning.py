"""Where a batch goes: its offset, its segment, or that it must wait. Pure.

Owns the rule when a segment is full: by size, by age in the log's own time, or because somebody
asked. It must never plan a new segment while the active one is not flushed, nor two segments of one
partition in one write. Stop 6 of a record's walk.
"""

from tidelog.broker.directory.core.messages import AppendBatch
from tidelog.broker.directory.core.partition import Following, Partition
from tidelog.broker.directory.core.rounds import Planned, SegmentPlan, WriteRound
from tidelog.broker.directory.core.stamping import NO_APPEND_TIME_MS, Pieces, stamped
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import NO_GAPS
from tidelog.broker.log.state.segments import NO_TIMESTAMP
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode, TidelogError


def plan_batch(partition: Partition, append: AppendBatch, round_: WriteRound) -> bool:
    """Take the batch into the write; False: it must wait for the flush of the active segment.

    A copy that does not fit behind what is there raises a TidelogError.
    """
    settings, size_bytes = partition.settings, len(append.batch)
    # Read before anything is planned: what is no marker is refused, not found out once written.
    marker = marker_of(append.batch, append.header) if append.header.is_control else None
    is_append_time = settings.is_append_time and not append.is_replica
    timestamp = append.append_time_ms if is_append_time else append.header.max_timestamp
    plan = partition.plan
    if plan is None:
        plan = _plan_for(partition, size_bytes, timestamp)
        if plan is None:
            return False
    elif plan.size_bytes and _is_full(settings, plan, plan.size_bytes + size_bytes, timestamp):
        return False
    pieces: Pieces
    if append.is_replica:
        header, pieces = append.header, (append.batch,)
        _check_copy(partition, append, plan)
    else:
        pieces, header = stamped(
            append, plan.end_offset, partition.log.leader_epoch, is_append_time=is_append_time
        )
    if partition.plan is None:
        round_.join(plan)
    plan.take(append, header, pieces, timestamp, marker)
    append_time_ms = timestamp if is_append_time else NO_APPEND_TIME_MS
    round_.take(Planned(append, plan, header, plan.end_offset, append_time_ms, marker))
    return True


def plan_roll(partition: Partition, round_: WriteRound) -> bool:
    """Take the new segment that was asked for into the write, empty; False: it must wait."""
    assert partition.is_roll_asked, f"{partition.log.key}: nobody asked for a new segment"
    if not can_roll(partition):
        partition.drop_roll()
        return True
    if partition.is_unflushed or partition.plan is not None:
        return False
    round_.join(_new_plan(partition))
    return True


def can_roll(partition: Partition) -> bool:
    """Whether there is an active segment, and something in it."""
    segments = partition.log.segments
    return bool(segments) and not segments[-1].is_sealed and segments[-1].size_bytes > 0


def _plan_for(partition: Partition, size_bytes: int, timestamp: int) -> SegmentPlan | None:
    """To the active segment, or to a new one; None if the active one must be flushed first."""
    segments = partition.log.segments
    if not segments or segments[-1].is_sealed:
        return _new_plan(partition)
    active = segments[-1]
    length = active.size_bytes
    plan = SegmentPlan(
        partition, active.key, length, is_new=False, first_timestamp=active.first_timestamp
    )
    if not length or not (
        partition.is_roll_asked
        or _is_full(partition.settings, plan, length + size_bytes, timestamp)
    ):
        return plan
    return None if partition.is_unflushed else _new_plan(partition)


def _new_plan(partition: Partition) -> SegmentPlan:
    log = partition.log
    partition.drop_roll()
    return SegmentPlan(partition, SegmentKey(log.key, log.log_end_offset), 0, is_new=True)


def _is_full(settings: TopicSettings, plan: SegmentPlan, size_bytes: int, timestamp: int) -> bool:
    """Whether a segment that would be so long, and reach so far in time, takes no more."""
    if size_bytes > settings.segment_bytes:
        return True
    first = plan.first_timestamp
    return timestamp - first > settings.segment_ms and first != NO_TIMESTAMP


def _check_copy(partition: Partition, append: AppendBatch, plan: SegmentPlan) -> None:
    """A copy goes where its leader says: at or behind the end of the log, in order of epochs."""
    log, end_offset, header = partition.log, plan.end_offset, append.header
    role = partition.role
    is_misfit = (
        header.base_offset < end_offset
        or append.behind not in (-1, end_offset)
        or not plan.leader_epoch <= header.leader_epoch <= log.leader_epoch
    )
    if isinstance(role, Following):
        is_misfit = is_misfit or (append.is_continued and role.is_refusing)
        role.note_copy(is_misfit=is_misfit)
    if is_misfit:
        raise TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"append a copy to {log.key}",
            happened=f"it begins at offset {header.base_offset} of leader epoch "
            f"{header.leader_epoch}, the log ends at {end_offset} of leader epoch "
            f"{plan.leader_epoch} and follows leader epoch {log.leader_epoch}",
        )
    # After a cut a gap may be lower than the one that is marked.
    is_marked = plan.gaps_from != NO_GAPS or NO_GAPS < log.gaps_from <= end_offset
    is_gap = header.base_offset > end_offset and not is_marked
    plan.follow_leader(header.leader_epoch, gaps_from=end_offset if is_gap else NO_GAPS)
