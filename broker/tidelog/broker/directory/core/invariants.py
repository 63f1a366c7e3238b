"""What holds of a data directory's core after every step."""

from collections.abc import Iterable
from itertools import pairwise

from tidelog.broker.directory.core.commit import answered_offset
from tidelog.broker.directory.core.partition import FlushDue, Following, Leading, Partition
from tidelog.broker.directory.core.promises import CutPhase
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.ids import PartitionKey


def check_step(state: DirectoryState) -> None:
    """The cheap part: what any step could break, whatever it touched."""
    assert not (state.is_truncating and state.write is not None), (
        "nothing is written while a round is cut back"
    )
    if state.failure is not None:
        assert not state.queue, "a failed directory keeps nobody waiting for a write"
        assert not state.awaiting, "a failed directory keeps nobody waiting for a flush"
        assert not state.marks.all_promises(), "a failed directory keeps nobody waiting for a mark"


def check(state: DirectoryState) -> None:
    """Everything, for every partition."""
    check_step(state)
    for key, partition in state.partitions.items():
        check_log(partition.log)
        _check_partition(state, partition)
        for held in partition.held:
            assert held.key == key, "a held batch waits at its own partition"
        if partition.verifying is not None and isinstance(partition.role, Following):
            assert not partition.verifying, f"{key}: one that follows asks no coordinator"
            assert not len(partition.verifying.admission), f"{key}: one that follows admits nobody"
    for key, offset in state.marks.flushed.items():
        assert key in state.partitions, f"{key}: a mark of what is not served"
        assert offset <= state.partitions[key].log.flushed_offset, f"{key}: a mark runs ahead"
    for key, offset in state.marks.committed.items():
        assert key in state.partitions, f"{key}: a mark of what is not served"
        assert offset <= state.partitions[key].log.high_watermark, f"{key}: a mark runs ahead"
    for cut in state.cuts:
        assert cut.partition.cut is cut, f"{cut.key}: a cut that its partition does not know"
        if cut.phase is CutPhase.CUTTING:
            assert not cut.partition.plan, f"{cut.key}: cut while it is written"
            assert not cut.partition.is_unflushed, f"{cut.key}: cut while it is flushed"


def check_moved(state: DirectoryState, key: PartitionKey, before: int) -> None:
    """The watermark of one of several replicas was moved: never back, and never past what all hold
    that a commit waits for."""
    partition = state.partitions[key]
    log, role = partition.log, partition.role
    assert before < log.high_watermark <= log.log_end_offset, (
        f"{key}: the watermark went from {before} to {log.high_watermark}, "
        f"the log ends at {log.log_end_offset}"
    )
    if isinstance(role, Following):
        assert log.high_watermark <= role.leader_watermark, f"{key}: committed before its leader"
    elif isinstance(role, Leading):
        settings = partition.settings
        assert role.in_sync_count >= settings.in_sync_replicas_min, f"{key}: too few are in sync"
        for broker_id, at in role.others.items():
            assert at is not None, f"{key}: committed, broker {broker_id} has told nothing"
            assert log.high_watermark <= at.counted(is_flush_sync=settings.is_flush_sync), (
                f"{key}: committed up to {log.high_watermark}, broker {broker_id} is at {at}"
            )


def check_log(log: PartitionLog) -> None:
    """The chain of offsets, segments without gaps or overlap, epochs and producers within."""
    chain = (log.log_start_offset, log.high_watermark, log.log_end_offset)
    assert list(chain) == sorted(chain), f"{log.key}: the offsets {chain} do not ascend"
    assert log.flushed_offset <= log.log_end_offset, f"{log.key}: flushed what is not there"
    if log.failure is not None:
        return
    if log.segments:
        _check_segments(log)
    _check_epochs(log)
    for producer in log.producers.producers:
        for batch in producer.batches:
            assert batch.base_offset + batch.last_offset_delta < log.log_end_offset, (
                f"{log.key}: producer {producer.producer_id} wrote beyond the end"
            )
    _check_transactions(log)


class StableOffsets:
    """What readers of committed records have been told of how far they may go, log by log."""

    def __init__(self) -> None:
        self._told: dict[PartitionKey, tuple[PartitionLog, int, int]] = {}

    def check(self, logs: Iterable[PartitionLog]) -> None:
        """Holds the logs against what they told before: a reader does not go back, unless the tail
        of its log was cut off."""
        for log in logs:
            if log.failure is not None:
                continue
            offset = log.last_stable_offset
            before = self._told.get(log.key)
            self._told[log.key] = (log, log.cut_count, offset)
            if before is not None and before[:2] == (log, log.cut_count) and not log.is_being_cut:
                assert offset >= before[2], (
                    f"{log.key}: the last stable offset fell from {before[2]} to {offset}"
                )


def _check_transactions(log: PartitionLog) -> None:
    transactions = log.transactions
    told = sorted(log.producers.open_transactions(), key=lambda each: each[1])
    assert told == list(transactions.started), (
        f"{log.key}: {transactions.started} are open, of the producers' state {told}"
    )
    stable_offset = log.last_stable_offset
    assert log.log_start_offset <= stable_offset <= log.high_watermark, (
        f"{log.key}: the last stable offset is {stable_offset}, committed are offsets from "
        f"{log.log_start_offset} to {log.high_watermark}"
    )
    markers = [each.marker_offset for each in transactions.ended]
    assert markers == sorted(set(markers)), f"{log.key}: transactions end at {markers}"
    assert all(log.high_watermark <= each < log.log_end_offset for each in markers), (
        f"{log.key}: ends at {markers} hold readers, {log.high_watermark} is committed"
    )


def _check_partition(state: DirectoryState, partition: Partition) -> None:
    log = partition.log
    is_dirty = any(each is partition for each in state.dirty)
    assert (partition.flush_due is FlushDue.SOON) == is_dirty, f"{log.key}: dirty or not"
    assert partition.is_lazy == (log.key in state.lazy), f"{log.key}: lazy or not"
    if partition.plan is not None:
        assert state.write is not None, f"{log.key}: planned for no write"
        assert not (partition.plan.is_new and partition.is_unflushed), (
            f"{log.key}: a segment is made before the one before is flushed"
        )
    _check_role(partition)
    # A follower may learn that something is committed before it has flushed it itself.
    is_flushed_first = partition.is_flush_counted and not isinstance(partition.role, Following)
    if is_flushed_first and not partition.is_unflushed and partition.cut is None:
        assert log.failure or log.high_watermark <= log.flushed_offset, (
            f"{log.key}: {log.high_watermark} is committed, {log.flushed_offset} flushed"
        )


def _check_role(partition: Partition) -> None:
    log, role, uncommitted = partition.log, partition.role, partition.log.uncommitted
    assert (role is None) == (uncommitted is None), f"{log.key}: one of several replicas, or not"
    assert (role is None or isinstance(role, Following)) <= (log.led_from < 0), (
        f"{log.key}: it leads nobody, and did from {log.led_from} on"
    )
    if uncommitted is None or partition.cut is not None or log.failure is not None:
        return
    ends = [end for end, _, _ in uncommitted]
    assert ends == sorted(set(ends)), f"{log.key}: uncommitted batches end at {ends}"
    assert all(log.high_watermark < end <= log.log_end_offset for end in ends), (
        f"{log.key}: batches end at {ends}, the watermark is {log.high_watermark}"
    )
    last = ends[-1] if ends else log.high_watermark
    assert last == log.log_end_offset, f"{log.key}: its end can never be committed"
    if isinstance(role, Leading):
        awaited = [each.end_offset for each in role.awaiting]
        assert awaited == sorted(awaited), f"{log.key}: commits are awaited out of order"
        answered = answered_offset(partition, role)
        assert all(answered < end <= log.log_end_offset for end in awaited), (
            f"{log.key}: {awaited} are awaited, {answered} may be answered"
        )


def _check_segments(log: PartitionLog) -> None:
    segments = log.segments
    assert segments[0].base_offset <= log.log_start_offset, f"{log.key}: it lost its head"
    for before, after in pairwise(segments):
        assert before.next_offset == after.base_offset, (
            f"{log.key}: {before.key.path} ends at {before.next_offset}, {after.key.path} follows"
        )
        assert before.is_sealed, f"{before.key.path} is not the last one, and unsealed"
        assert before.next_offset > log.log_start_offset or before.base_offset == (
            before.next_offset
        ), f"{before.key.path} lies below the log's start"
    last = segments[-1]
    assert last.next_offset == log.log_end_offset, f"{log.key}: {last.key.path} ends elsewhere"
    for segment in segments:
        _check_segment(log, segment)
    base_offset, position = log.high_watermark_position
    for segment in segments:
        if segment.base_offset == base_offset:
            assert position <= segment.size_bytes, f"{log.key}: the watermark lies behind the end"


def _check_segment(log: PartitionLog, segment: Segment) -> None:
    path = segment.key.path
    assert segment.key.partition == log.key, f"{path} is a segment of {log.key}"
    assert segment.base_offset <= segment.next_offset, f"{path} ends before it begins"
    if segment.key.generation and not segment.is_sealed:
        raise AssertionError(f"{path} was compacted, and is appended to")
    if segment.index is None:
        assert segment.summary is not None, f"{path}: neither memory nor a sidecar knows it"
        assert segment.is_sealed, f"{path} has a sidecar and is not sealed"
    else:
        assert segment.summary is None, f"{path}: what its sidecar tells is kept in memory"
        assert bool(len(segment.index)) == bool(segment.size_bytes), f"{path}: an index of nothing"
        assert segment.index.max_timestamp <= segment.max_timestamp, f"{path}: a later time"


def _check_epochs(log: PartitionLog) -> None:
    starts = log.leader_epochs.starts
    for before, after in pairwise(starts):
        assert before.epoch < after.epoch, f"{log.key}: leader epochs {starts} do not ascend"
        assert before.start_offset < after.start_offset, f"{log.key}: {starts} do not ascend"
        assert after.start_offset > log.log_start_offset, f"{log.key}: {starts} are trimmed"
    if starts and log.log_start_offset < log.log_end_offset:
        assert starts[-1].start_offset < log.log_end_offset, (
            f"{log.key}: leader epochs {starts} begin behind {log.log_end_offset}"
        )
        assert starts[-1].epoch <= log.leader_epoch, f"{log.key}: {starts} run ahead"
