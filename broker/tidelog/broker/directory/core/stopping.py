"""What stops: a directory, a partition, a batch that cannot be taken; and who is told. Pure.

Owns the answers to those who wait when there is nothing more to wait for. It must never leave
anybody without an answer, nor answer acks=all for what may not be on the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.broker.directory.core.messages import (
    Advanced,
    AppendBatch,
    Effect,
    FailDirectory,
    FailPartition,
    Refuse,
)
from tidelog.broker.directory.core.rounds import Cut, Leading, Removal
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.directory.core.core import DirectoryCore
    from tidelog.broker.directory.core.rounds import Awaiting, Partition, Promise, WriteRound
    from tidelog.wire.ids import LeaderEpoch, PartitionKey


def stop(core: DirectoryCore, error: TidelogError, effects: list[Effect]) -> None:
    """Every partition of the directory stops; whoever waits is told."""
    assert core.failure is None, "a directory stops once"
    core.failure = error
    for partition in core.partitions.values():
        partition.is_dirty = partition.is_lazy = partition.is_roll_asked = False
        _refuse_held(partition, error, effects)
        if partition.log.failure is None:
            partition.log.failure = error
            effects.append(Advanced(key=partition.log.key))
        refuse_commits(partition, error, effects)
    effects += [Refuse(token=append.token, error=error) for append in core.queue]
    core.queue.clear()
    refuse_awaiting(core, core.awaiting, effects)
    refuse_promises(core, [*core.promises, *core.written_promises], error, effects)
    # A cut or a removal that its owner is at is answered when that ends.
    for cut in core.cuts:
        if not cut.is_under_way:
            effects.append(Refuse(token=cut.token, error=error))
    core.cuts = [cut for cut in core.cuts if cut.is_under_way]
    effects += [Refuse(token=removal.token, error=error) for removal in core.removals]
    core.awaiting, core.dirty, core.dirty_directories, core.lazy = [], [], {}, {}
    core.marks, core.postponed_marks, core.committed_marks = {}, {}, {}
    core.promises, core.written_promises, core.rolls, core.doomed = [], [], [], []
    core.removals = []
    core.are_marks_unflushed = False


def on_fail_directory(core: DirectoryCore, message: FailDirectory, effects: list[Effect]) -> None:
    """It is not where its name leads any more, or has stopped for another reason already."""
    if core.failure is None:
        stop(core, message.error, effects)


def on_fail_partition(core: DirectoryCore, message: FailPartition, effects: list[Effect]) -> None:
    """It is damaged, or its leader lacks what is committed here."""
    fail_partition(core, message.key, message.error, effects, kept_apart_at=message.kept_apart_at)


def fail_partition(
    core: DirectoryCore,
    key: PartitionKey,
    error: TidelogError,
    effects: list[Effect],
    *,
    kept_apart_at: LeaderEpoch | None = None,
) -> None:
    """One partition stops: what was written is flushed and answered, nothing more is taken."""
    partition = core.partitions.get(key)
    if partition is None or partition.log.failure is not None:
        return
    if kept_apart_at is not None and partition.log.leader_epoch != kept_apart_at:
        # It follows another leader by now, of whom nothing is known yet.
        return
    partition.log.failure = error
    partition.log.kept_apart_at = kept_apart_at
    refuse_waiting(core, partition, error, effects)
    refuse_commits(partition, error, effects)
    effects.append(Advanced(key=key))


def refuse_waiting(
    core: DirectoryCore, partition: Partition, error: TidelogError, effects: list[Effect]
) -> None:
    """Refuse the partition's batches that are not planned yet."""
    _refuse_held(partition, error, effects)
    key = partition.log.key
    kept: deque[AppendBatch] = deque()
    for append in core.queue:
        if append.key == key:
            effects.append(Refuse(token=append.token, error=error))
        else:
            kept.append(append)
    core.queue = kept


def refuse_commits(partition: Partition, error: TidelogError, effects: list[Effect]) -> None:
    """Nothing is committed here any more; what was written may still be elsewhere."""
    role = partition.role
    if isinstance(role, Leading):
        effects += [Refuse(token=each.answer.token, error=error) for each in role.awaiting]
        role.awaiting.clear()


def refuse_awaiting(
    core: DirectoryCore, awaiting: Sequence[Awaiting], effects: list[Effect]
) -> None:
    """Refuse what was written and not known to be flushed when the directory failed."""
    assert core.failure is not None, "only a failed directory refuses what was written"
    for waiting in awaiting:
        effects.append(Refuse(token=waiting.answer.token, error=core.failure))


def answer_of(waiting: Awaiting, unusable: TidelogError | None) -> Effect:
    """At the end of the flush that covers it; refused if its file is not where it should be."""
    return (
        waiting.answer if unusable is None else Refuse(token=waiting.answer.token, error=unusable)
    )


def refuse_write(
    core: DirectoryCore, round_: WriteRound, error: TidelogError, effects: list[Effect]
) -> None:
    """Refuse a write of which it is not known how much took effect."""
    for planned in round_.planned:
        effects.append(Refuse(token=planned.append.token, error=error))
    effects += [Refuse(token=again.append.token, error=error) for again in round_.again]
    refuse_promises(core, round_.promises, error, effects)


def refuse_promises(
    core: DirectoryCore, promises: Iterable[Promise], error: TidelogError, effects: list[Effect]
) -> None:
    """The marks of trims and cuts did not reach the disk: the logs stay as they are."""
    for promise in promises:
        if isinstance(promise, Removal):
            # Its files go all the same: a full disk needs the room. A directory that has failed
            # refuses it with the others.
            promise.is_marked = True
            continue
        effects.append(Refuse(token=promise.token, error=error))
        if isinstance(promise, Cut):
            # What was durable still is: this promise has not let anything go yet.
            promise.partition.log.flushed_offset = promise.flushed_offset
            drop_cut(core, promise)
        elif (partition := core.partitions.get(promise.key)) is not None:
            partition.trims -= 1


def drop_cut(core: DirectoryCore, cut: Cut) -> None:
    """The log stays as it is. What was flushed meanwhile was not noted: it is flushed again."""
    core.cuts.remove(cut)
    partition = cut.partition
    partition.cut = None
    partition.log.is_being_cut = False
    if core.failure is None and partition.log.segments:
        core.make_dirty(partition)
    if partition.role is not None:
        core.committed_marks[cut.key] = partition.log.high_watermark
        core.moved[cut.key] = partition


def refusal(core: DirectoryCore, key: PartitionKey) -> TidelogError:
    """Why a batch for the partition is not taken."""
    tried = f"append to {key}"
    partition = core.partitions.get(key)
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
    assert core.is_full, f"{key}: nothing speaks against taking a batch"
    return TidelogError(
        ErrorCode.STORAGE_FULL,
        tried=tried,
        happened="less room is left in its data directory than must stay free",
    )


def _refuse_held(partition: Partition, error: TidelogError, effects: list[Effect]) -> None:
    effects += [Refuse(token=append.token, error=error) for append in partition.held]
    partition.held.clear()
