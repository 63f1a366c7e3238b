"""The commit rule: how far a partition's log is committed. Pure. Stop 8 of a record's walk.

It must never count a replica for more than it has told: its position is its flushed offset where
the topic flushes before it acknowledges, else the end of its log.

    high watermark = the smallest position of the leader and of all that it waits for,
    moved only while at least min.insync.replicas replicas are in sync, and never back
"""

from collections.abc import Iterable
from typing import Final

NOT_KNOWN: Final = -1
"""The position of a replica that has told none since its leader's epoch began."""


def position_of(log_end_offset: int, flushed_offset: int, *, is_flush_sync: bool) -> int:
    """Up to where a replica counts."""
    assert flushed_offset <= log_end_offset, (
        f"flushed up to {flushed_offset}, the log ends at {log_end_offset}"
    )
    return flushed_offset if is_flush_sync else log_end_offset


def committed_offset(
    own_position: int, others: Iterable[int], *, in_sync_count: int, in_sync_min: int
) -> int:
    """All below it is committed; NOT_KNOWN while too few are in sync, or one has told nothing."""
    if in_sync_count < in_sync_min:
        return NOT_KNOWN
    return min(own_position, *others) if others else own_position
