"""The commit rule: how far a partition's log is committed. Pure. Stop 8 of a record's walk.

It must never count a replica for more than it has told: its position is its flushed offset where
the topic flushes before it acknowledges, else the end of its log. A leader that is in sync alone
counts with what it has flushed, whatever the topic says (`Partition.is_flush_counted`).

    high watermark = the smallest position of the leader and of all that it waits for,
    moved only while at least min.insync.replicas replicas are in sync, and never back
"""

from collections.abc import Iterable
from typing import Final

from tidelog.broker.directory.core import positions
from tidelog.broker.directory.core.partition import Leading, Partition

NOT_KNOWN: Final = -1
"""Up to where a replica counts that has told nothing since its leader's epoch began."""


def committed_offset(
    own_position: int, others: Iterable[int], *, in_sync_count: int, in_sync_min: int
) -> int:
    """All below it is committed; NOT_KNOWN while too few are in sync, or one has told nothing."""
    if in_sync_count < in_sync_min:
        return NOT_KNOWN
    return min(own_position, *others) if others else own_position


def agreed_offset(partition: Partition, role: Leading) -> int:
    """All below it is committed by the rule of now, as far as the leader knows the others."""
    log, settings = partition.log, partition.settings
    return committed_offset(
        positions.position_of(
            log.log_end_offset, log.flushed_offset, is_flush_sync=partition.is_flush_counted
        ),
        [
            NOT_KNOWN if at is None else at.counted(is_flush_sync=settings.is_flush_sync)
            for at in role.others.values()
        ],
        in_sync_count=role.in_sync_count,
        in_sync_min=settings.in_sync_replicas_min,
    )


def answered_offset(partition: Partition, role: Leading) -> int:
    """All below it is answered with acks=all: it is committed, and would be by the rule of now.

    The watermark may be ahead of that: one that was the only replica moved it with the write.
    """
    return min(partition.log.high_watermark, agreed_offset(partition, role))
