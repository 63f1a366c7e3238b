"""A partition that is served no more: its files go once nothing of it is in flight. Pure.

It must never remove a directory that a write or a flush under way still needs. One that has stopped
may be let go instead, so that its files are opened again: not before all that was written of it is
flushed, and what its marks say stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.directory.core import stopping
from tidelog.broker.directory.core.messages import (
    Advanced,
    Effect,
    Refuse,
    ReleaseFiles,
    ReleasePartition,
    RemoveDirectory,
    RemovePartition,
)
from tidelog.broker.directory.core.rounds import Partition, Removal
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import directory_name
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore


def on_remove(core: DirectoryCore, message: RemovePartition, effects: list[Effect]) -> None:
    """From now on the partition is not known; what was appended and not flushed is refused."""
    if core.failure is not None:
        effects.append(Refuse(token=message.token, error=core.failure))
        return
    partition = core.partitions.get(message.key)
    if partition is None:
        effects.append(Refuse(token=message.token, error=_gone(message.key)))
        return
    stopping.refuse_waiting(core, partition, _gone(message.key), effects)
    _let_go(core, partition)
    if partition.log.failure is None:
        partition.log.failure = _gone(message.key)
    stopping.refuse_commits(partition, partition.log.failure, effects)
    core.removals.append(Removal(message.token, partition, message.kept_as))
    effects.append(Advanced(key=message.key))


def on_release(core: DirectoryCore, message: ReleasePartition, effects: list[Effect]) -> None:
    """It is known until nothing of it is in flight, with its marks; it takes nothing anyway."""
    partition = core.partitions.get(message.key)
    if core.failure is not None or partition is None:
        error = core.failure or _gone(message.key)
        effects.append(Refuse(token=message.token, error=error))
        return
    assert partition.log.failure is not None, f"{message.key} is served"
    core.removals.append(Removal(message.token, partition, is_release=True))


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


def advance(core: DirectoryCore, effects: list[Effect]) -> None:
    """Let the files go of which nothing is in flight any more."""
    kept = []
    for removal in core.removals:
        if removal.is_release:
            if not _release(core, removal, effects):
                kept.append(removal)
            continue
        partition, cut = removal.partition, removal.partition.cut
        is_cut_in_flight = cut is not None and cut.is_under_way
        if partition.plan is not None or partition.is_flushing or is_cut_in_flight:
            kept.append(removal)
            continue
        if not removal.is_marked:
            kept.append(removal)
            if not removal.is_marking:
                removal.is_marking = True
                core.promises.append(removal)
            continue
        error = partition.log.failure
        assert error is not None, f"{partition.log.key}: what is removed is not served"
        if cut is not None:
            core.cuts.remove(cut)
            effects.append(Refuse(token=cut.token, error=error))
        _forget_unflushed(core, partition, error, effects)
        effects.append(
            RemoveDirectory(token=removal.token, key=partition.log.key, kept_as=removal.kept_as)
        )
    core.removals = kept


def _release(core: DirectoryCore, removal: Removal, effects: list[Effect]) -> bool:
    """Let it go, if nothing of it is in flight and all is flushed; whether that was done."""
    partition = removal.partition
    cut, key = partition.cut, partition.log.key
    if partition.is_lazy:
        core.make_dirty(partition)
    if cut is not None and not cut.is_under_way:
        error = partition.log.failure
        assert error is not None, f"{key} is served"
        stopping.drop_cut(core, cut)
        effects.append(Refuse(token=cut.token, error=error))
    is_in_flight = partition.plan is not None or partition.trims or partition.cut is not None
    if is_in_flight or partition.is_unflushed:
        return False
    marks = known_marks(partition)
    _let_go(core, partition)
    effects.append(ReleaseFiles(token=removal.token, key=key, marks=marks))
    return True


def _let_go(core: DirectoryCore, partition: Partition) -> None:
    key = partition.log.key
    del core.partitions[key]
    core.marks.pop(key, None)
    core.postponed_marks.pop(key, None)
    core.committed_marks.pop(key, None)
    core.moved.pop(key, None)
    partition.is_removed = True


def _forget_unflushed(
    core: DirectoryCore, partition: Partition, error: TidelogError, effects: list[Effect]
) -> None:
    """Flush nothing of the partition any more, and let nobody wait for that."""
    if partition.is_lazy:
        core.make_dirty(partition)
    core.dirty = [each for each in core.dirty if each is not partition]
    partition.is_dirty = False
    core.dirty_directories.pop(directory_name(partition.log.key), None)
    kept = []
    for waiting in core.awaiting:
        if waiting.partition is partition:
            effects.append(Refuse(token=waiting.answer.token, error=error))
        else:
            kept.append(waiting)
    core.awaiting = kept


def _gone(key: PartitionKey) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"use {key}",
        happened="its topic was deleted",
    )
