"""A partition that is served no more: its files go once nothing of it is in flight. Pure.

It must never remove a directory that a write or a flush under way still needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.log.names import directory_name
from tidelog.broker.partition import core_stop
from tidelog.broker.partition.messages import (
    Advanced,
    Effect,
    Refuse,
    RemoveDirectory,
    RemovePartition,
)
from tidelog.broker.partition.rounds import Partition, Removal
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.partition.core import DirectoryCore


def on_remove(core: DirectoryCore, message: RemovePartition, effects: list[Effect]) -> None:
    """From now on the partition is not known; what was appended and not flushed is refused."""
    if core.failure is not None:
        effects.append(Refuse(token=message.token, error=core.failure))
        return
    partition = core.partitions.get(message.key)
    if partition is None:
        effects.append(Refuse(token=message.token, error=_gone(message)))
        return
    core_stop.refuse_waiting(core, partition, _gone(message), effects)
    del core.partitions[message.key]
    core.marks.pop(message.key, None)
    core.postponed_marks.pop(message.key, None)
    core.committed_marks.pop(message.key, None)
    partition.is_removed = True
    if partition.log.failure is None:
        partition.log.failure = _gone(message)
    core_stop.refuse_commits(partition, partition.log.failure, effects)
    core.removals.append(Removal(message.token, partition, message.kept_as))
    effects.append(Advanced(key=message.key))


def advance(core: DirectoryCore, effects: list[Effect]) -> None:
    """Let the files go of which nothing is in flight any more."""
    kept = []
    for removal in core.removals:
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


def _gone(message: RemovePartition) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"use {message.key}",
        happened="its topic was deleted",
    )
