"""A partition that is served no more: its files go once nothing of it is in flight. Pure.

It must never remove a directory that a write or a flush under way still needs. One that has stopped
may be let go instead, so that its files are opened again: not before all that was written of it is
flushed, and what its marks say stays as it is.
"""

from tidelog.broker.directory.core import stopping
from tidelog.broker.directory.core.messages import (
    ReleaseFiles,
    ReleasePartition,
    RemoveDirectory,
    RemovePartition,
)
from tidelog.broker.directory.core.partition import Partition
from tidelog.broker.directory.core.promises import Release, Removal, RemovalPhase
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def on_remove(state: DirectoryState, message: RemovePartition) -> None:
    """From now on the partition is not known; what was appended and not flushed is refused."""
    if state.failure is not None:
        state.refuse(message.token, state.failure)
        return
    partition = state.partitions.get(message.key)
    if partition is None:
        state.refuse(message.token, _gone(message.key))
        return
    stopping.refuse_waiting(state, partition, _gone(message.key))
    state.let_go(partition)
    log = partition.log
    if log.failure is None:
        log.stop(_gone(message.key))
    stopping.refuse_commits(state, partition, log.failure or _gone(message.key))
    state.begin_removal(Removal(message.token, partition, message.kept_as))
    state.tell_readers(message.key)


def on_release(state: DirectoryState, message: ReleasePartition) -> None:
    """It is known until nothing of it is in flight, with its marks; it takes nothing anyway."""
    partition = state.partitions.get(message.key)
    if state.failure is not None or partition is None:
        error = state.failure or _gone(message.key)
        state.refuse(message.token, error)
        return
    assert partition.log.failure is not None, f"{message.key} is served"
    state.begin_removal(Release(message.token, partition))


def known_marks(partition: Partition) -> PartitionMarks:
    """What marks may say of a partition."""
    log = partition.log
    if log.unopened is not None:
        return log.unopened
    committed: int = 0 if partition.role is None else log.high_watermark
    if partition.cut is not None:
        # No more than a cut on its way leaves.
        committed = min(committed, log.flushed_offset)
    return PartitionMarks(
        flushed_offset=log.flushed_offset,
        log_start_offset=log.log_start_offset,
        log_start_epoch=log.log_start_epoch,
        committed_offset=committed,
        gaps_from=log.gaps_from,
    )


def advance(state: DirectoryState) -> None:
    """Let the files go of which nothing is in flight any more."""
    for each in list(state.removals):
        is_over = _release(state, each) if isinstance(each, Release) else _remove(state, each)
        if is_over:
            state.end_removal(each)


def _remove(state: DirectoryState, removal: Removal) -> bool:
    """Bring it as far as what is in flight allows; whether its files go now."""
    partition, cut = removal.partition, removal.partition.cut
    is_cut_in_flight = cut is not None and cut.is_under_way
    if partition.plan is not None or partition.is_flushing or is_cut_in_flight:
        return False
    if removal.phase is not RemovalPhase.MARKED:
        if removal.phase is RemovalPhase.WAITING:
            removal.begin_marking()
            state.marks.promise(removal)
        return False
    error = partition.log.failure
    assert error is not None, f"{partition.log.key}: what is removed is not served"
    if cut is not None:
        state.end_cut(cut)
        state.refuse(cut.token, error)
    # Nobody waits for a flush that does not come any more.
    state.forget_unflushed(partition)
    waiting = state.take_awaiting(lambda each: each.partition is partition)
    state.refuse_awaiting(waiting, error)
    state.emit(RemoveDirectory(token=removal.token, key=partition.log.key, kept_as=removal.kept_as))
    return True


def _release(state: DirectoryState, release: Release) -> bool:
    """Let it go, if nothing of it is in flight and all is flushed; whether that was done."""
    partition = release.partition
    cut, key = partition.cut, partition.log.key
    state.hurry(partition)
    if cut is not None and not cut.is_under_way:
        error = partition.log.failure
        assert error is not None, f"{key} is served"
        stopping.drop_cut(state, cut)
        state.refuse(cut.token, error)
    is_in_flight = partition.plan is not None or partition.trims or partition.cut is not None
    if is_in_flight or partition.is_unflushed:
        return False
    marks = known_marks(partition)
    state.let_go(partition)
    state.emit(ReleaseFiles(token=release.token, key=key, marks=marks))
    return True


def _gone(key: PartitionKey) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"use {key}",
        happened="its topic was deleted",
    )
