"""What stops: a directory, a partition, a batch that cannot be taken; and who is told. Pure.

Owns the answers to those who wait when there is nothing more to wait for. It must never leave
anybody without an answer, nor answer acks=all for what may not be on the disk.
"""

from collections.abc import Iterable

from tidelog.broker.directory.core.messages import FailDirectory, FailPartition
from tidelog.broker.directory.core.partition import Leading, Partition
from tidelog.broker.directory.core.promises import Cut, Promise, Removal
from tidelog.broker.directory.core.rounds import WriteRound
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey


def stop(state: DirectoryState, error: TidelogError) -> None:
    """Every partition of the directory stops; whoever waits is told."""
    state.fail(error)
    for partition in state.partitions.values():
        partition.need_no_flush()
        partition.drop_roll()
        _refuse_held(state, partition, error)
        if partition.log.failure is None:
            partition.log.stop(error)
            state.tell_stopped(partition.log.key)
        refuse_commits(state, partition, error)
    state.refuse_all((append.token for append in state.queue), error)
    state.refuse_awaiting(state.awaiting, error)
    refuse_promises(state, state.marks.all_promises(), error)
    # A cut or a removal that its owner is at is answered when that ends.
    state.refuse_all((cut.token for cut in state.cuts if not cut.is_under_way), error)
    state.refuse_all((removal.token for removal in state.removals), error)
    state.drop_all()


def on_fail_directory(state: DirectoryState, message: FailDirectory) -> None:
    """It is not where its name leads any more, or has stopped for another reason already."""
    if state.failure is None:
        stop(state, message.error)


def on_fail_partition(state: DirectoryState, message: FailPartition) -> None:
    """It is damaged, or its leader lacks what is committed here."""
    fail_partition(state, message.key, message.error, kept_apart_at=message.kept_apart_at)


def fail_partition(
    state: DirectoryState,
    key: PartitionKey,
    error: TidelogError,
    *,
    kept_apart_at: LeaderEpoch | None = None,
) -> None:
    """One partition stops: what was written is flushed and answered, nothing more is taken."""
    partition = state.partitions.get(key)
    if partition is None or partition.log.failure is not None:
        return
    if kept_apart_at is not None and partition.log.leader_epoch != kept_apart_at:
        # It follows another leader by now, of whom nothing is known yet.
        return
    partition.log.stop(error, kept_apart_at=kept_apart_at)
    refuse_waiting(state, partition, error)
    refuse_commits(state, partition, error)
    state.tell_stopped(key)


def refuse_waiting(state: DirectoryState, partition: Partition, error: TidelogError) -> None:
    """Refuse the partition's batches that are not planned yet."""
    _refuse_held(state, partition, error)
    queued = state.take_queued_of(partition.log.key)
    state.refuse_all((append.token for append in queued), error)


def refuse_commits(state: DirectoryState, partition: Partition, error: TidelogError) -> None:
    """Nothing is committed here any more; what was written may still be elsewhere."""
    if isinstance(partition.role, Leading):
        state.refuse_awaiting(partition.role.take_all(), error)


def refuse_write(state: DirectoryState, round_: WriteRound, error: TidelogError) -> None:
    """Refuse a write of which it is not known how much took effect."""
    state.refuse_all(round_.tokens(), error)
    refuse_promises(state, round_.promises, error)


def refuse_promises(
    state: DirectoryState, promises: Iterable[Promise], error: TidelogError
) -> None:
    """The marks of trims and cuts did not reach the disk: the logs stay as they are."""
    for promise in promises:
        if isinstance(promise, Removal):
            # Its files go all the same: a full disk needs the room. A directory that has failed
            # refuses it with the others.
            promise.end_marking()
            continue
        state.refuse(promise.token, error)
        if isinstance(promise, Cut):
            # What was durable still is: this promise has not let anything go yet.
            promise.undo_marking()
            drop_cut(state, promise)
        elif (partition := state.partitions.get(promise.key)) is not None:
            partition.end_trim()


def drop_cut(state: DirectoryState, cut: Cut) -> None:
    """The log stays as it is. What was flushed meanwhile was not noted: it is flushed again."""
    state.end_cut(cut)
    partition = cut.partition
    if state.failure is None and partition.log.segments:
        state.make_dirty(partition)
    if partition.role is not None:
        state.marks.note_committed(cut.key, partition.log.high_watermark)
        state.log_end_moved(partition)


def refusal(state: DirectoryState, key: PartitionKey) -> TidelogError:
    """Why a batch for the partition is not taken."""
    tried = f"append to {key}"
    partition = state.partitions.get(key)
    if partition is None:
        return TidelogError(
            ErrorCode.UNKNOWN_TOPIC_ID, tried=tried, happened="the partition is gone from here"
        )
    if partition.log.failure is not None:
        return partition.log.failure
    if partition.cut is not None:
        return TidelogError(
            ErrorCode.UNAVAILABLE, tried=tried, happened="the end of its log is being cut off"
        )
    assert state.is_full, f"{key}: nothing speaks against taking a batch"
    return TidelogError(
        ErrorCode.STORAGE_FULL,
        tried=tried,
        happened="less room is left in its data directory than must stay free",
    )


def refuse_verifying(state: DirectoryState, partition: Partition, error: TidelogError) -> None:
    """Refuse those who wait for a coordinator; what was verified counts no more."""
    if partition.verifying is not None:
        state.refuse_all(partition.verifying.take_waiting(), error)


def _refuse_held(state: DirectoryState, partition: Partition, error: TidelogError) -> None:
    refuse_verifying(state, partition, error)
    state.refuse_all((append.token for append in partition.take_held()), error)
