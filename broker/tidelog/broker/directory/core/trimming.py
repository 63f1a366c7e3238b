"""Where logs begin: a trim is marked, the mark is flushed, then the head goes. Pure.

Owns the order of these three. It must never give up a segment before the mark that says so is
durable, nor before the name of the log's active segment is: a restart that found no file at all
would not know where the log ends. What lies wholly below the mark may be on the disk or not.

Only one that leads, or is the only replica, decides where its log begins. Whoever asks for a trim
has looked at the role a moment ago, so it is asked here once more, in the step that marks it. A
follower is told by its leader; the mark carries the leader epoch in either case
(`replication/log_start` says what for).
"""

import msgspec

from tidelog.broker.directory.core import cutting
from tidelog.broker.directory.core.messages import RemoveFiles, TrimHead
from tidelog.broker.directory.core.partition import Following, Partition
from tidelog.broker.directory.core.promises import Cut, CutPhase, Promise, Removal
from tidelog.broker.directory.core.role_errors import not_leader
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


def on_trim(state: DirectoryState, trim: TrimHead) -> None:
    """Mark where the log is to begin; answered once that is durable."""
    partition = state.partitions.get(trim.key)
    error = state.failure if partition is None else partition.log.failure
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
        state.refuse(trim.token, error)
        return
    log = partition.log
    if trim.offset > log.high_watermark:
        error = TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"trim {trim.key} up to offset {trim.offset}",
            happened=f"its high watermark is {log.high_watermark}",
        )
        state.refuse(trim.token, error)
    elif not _says_more(log, trim.offset):
        state.done(trim.token, log.log_start_offset)
    else:
        is_follower = isinstance(partition.role, Following)
        start_epoch = trim.start_epoch if is_follower else log.leader_epoch
        offset, start_epoch = partition.begin_trim(trim.offset, start_epoch)
        state.marks.promise(msgspec.structs.replace(trim, offset=offset, start_epoch=start_epoch))


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


def starts_on_their_way(state: DirectoryState) -> dict[PartitionKey, tuple[Offset, LeaderEpoch]]:
    """Where logs will begin of which the mark is written, but may not be durable yet; and by which
    leader's word."""
    starts: dict[PartitionKey, tuple[Offset, LeaderEpoch]] = {}
    in_flight = state.flush.promises if state.flush is not None else []
    for promise in (*in_flight, *state.marks.written_promises):
        if isinstance(promise, TrimHead):
            start = (promise.offset, promise.start_epoch)
            starts[promise.key] = max(start, starts.get(promise.key, start))
        elif isinstance(promise, Cut) and promise.phase is CutPhase.RESTARTING:
            assert promise.restart is not None, f"{promise.key}: it goes on where it was"
            starts[promise.key] = (promise.restart.offset, promise.restart.start_epoch)
    return starts


def keep(state: DirectoryState, promise: Promise) -> None:
    """The promise's mark is durable."""
    if isinstance(promise, Cut) and promise.phase is CutPhase.RESTARTING:
        cutting.on_restarted(state, promise)
    elif isinstance(promise, Cut):
        cutting.on_marked(state, promise)
    elif isinstance(promise, Removal):
        promise.end_marking()
    else:
        _trim(state, promise)


def _trim(state: DirectoryState, trim: TrimHead) -> None:
    partition = state.partitions.get(trim.key)
    if partition is None:
        state.done(trim.token, trim.offset)
        return
    partition.end_trim()
    state.doom(trim.key, partition.log.trim(trim.offset, trim.start_epoch))
    state.done(trim.token, partition.log.log_start_offset)
    # Of a partition to which nobody writes followers would hear of it late.
    state.tell_readers(trim.key)


def remove_doomed(state: DirectoryState) -> None:
    """Let the files go of logs whose active segment has its name for good."""
    for doomed in state.take_doomed():
        if doomed.partition in state.partitions:
            state.emit(RemoveFiles(segments=doomed.segments))
