"""Which lane a replica belongs on. Pure.

Owns the rule: in sync, or nearly so → live; far behind and not in sync → catch-up. Between the two
bounds a replica stays where it is, so that none goes back and forth. One that has nothing yet of
what its leader has is far behind, however little that is: a move of many small partitions is held
back by the throttle as a move of a large one is. The leader decides, the follower names the
partition on the other lane only once it was told so: a partition is never pulled twice.
"""

from collections.abc import Callable

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.shared.messages import Lane, ReplicationLimits


def lane_of(
    log: PartitionLog,
    offset: int,
    lane: Lane,
    is_in_sync: Callable[[], bool],
    limits: ReplicationLimits,
) -> Lane:
    """Where a replica belongs that stands at the offset and is pulled on `lane` now."""
    if lane is Lane.LIVE:
        is_far = _has_nothing(log, offset) or has_behind(log, offset, limits.far_behind_bytes)
        return Lane.CATCH_UP if is_far and not is_in_sync() else Lane.LIVE
    is_near = not (_has_nothing(log, offset) or has_behind(log, offset, limits.near_end_bytes))
    return Lane.LIVE if is_near or is_in_sync() else Lane.CATCH_UP


def _has_nothing(log: PartitionLog, offset: int) -> bool:
    """Whether there are records, and a replica at the offset has none of them."""
    return offset <= log.log_start_offset < log.log_end_offset


def has_behind(log: PartitionLog, offset: int, bytes_wanted: int) -> bool:
    """Whether at least so many bytes lie at or behind the offset; an estimate by the index."""
    left = bytes_wanted
    for segment in reversed(log.segments):
        if segment.base_offset > offset:
            left -= segment.size_bytes
            if left <= 0:
                return True
            continue
        if offset < segment.next_offset:
            position = 0
            if segment.index is not None and segment.size_bytes:
                position = segment.index.floor(offset).byte_position
            left -= segment.size_bytes - position
        break
    return left <= 0
