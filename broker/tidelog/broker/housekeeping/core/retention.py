"""What of a log is too old or too much, and whether its active segment is to be closed. Pure.

Owns Kafka's rules. By time a segment goes when its highest timestamp is older than retention.ms; by
size the oldest goes as long as the log without it is still retention.bytes long. Segments go from
the head only, whole, and only below the last stable offset: a transaction that is open, or
prepared, keeps what it has written and all behind it until it ends, or a reader could be given its
end without its beginning. The active segment never goes: if it is due it is rolled first, and goes
with the next check.

It must never judge by the wall's present time: `now_ms` is `node_time`'s. While the node's clock is
not one to delete by nothing goes by time, and by size as ever.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import NO_TIMESTAMP, Segment
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.ids import Offset, PartitionKey

UNLIMITED: Final = -1
_NONE_SEEN: Final = -1


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done to a log."""

    trim_to: Offset | None = None
    """All below it goes."""
    trimmed_bytes: int = 0
    is_roll: bool = False
    """Its active segment is to be closed."""

    @property
    def is_nothing(self) -> bool:
        """The log stays as it is."""
        return self.trim_to is None and not self.is_roll


NOTHING_DUE: Final = Due()


def plan_retention(
    log: PartitionLog,
    settings: TopicSettings,
    *,
    now_ms: int,
    may_expire: bool,
    active_since_ms: int | None,
) -> Due:
    """`active_since_ms`: since when there is something in the active segment; None: it is empty."""
    if log.failure is not None:
        return NOTHING_DUE
    expired = _expired_by_time(log, settings, now_ms) if may_expire else 0
    expired = max(expired, _expired_by_size(log, settings, expired))
    is_roll = active_since_ms is not None and now_ms - active_since_ms >= roll_age_ms(settings)
    if expired and not log.segments[expired - 1].is_sealed:
        expired -= 1
        is_roll = True
    going = log.segments[:expired]
    if not going or going[-1].next_offset <= log.log_start_offset:
        return Due(is_roll=is_roll)
    return Due(
        trim_to=going[-1].next_offset,
        trimmed_bytes=sum(segment.size_bytes for segment in going),
        is_roll=is_roll,
    )


def roll_age_ms(settings: TopicSettings) -> int:
    """At this age a segment is closed. What is to be compacted in time has to be closed in time."""
    if settings.is_compacted:
        return min(settings.segment_ms, settings.max_compaction_lag_ms)
    return settings.segment_ms


def _expired_by_time(log: PartitionLog, settings: TopicSettings, now_ms: int) -> int:
    """How many segments from the head on. One without any time goes with the ones behind it."""
    if not settings.is_deleted or settings.retention_ms == UNLIMITED:
        return 0
    oldest_ms = now_ms - settings.retention_ms
    expired = 0
    for place, segment in enumerate(log.segments):
        if not _may_go(segment, log):
            break
        if segment.max_timestamp == NO_TIMESTAMP:
            continue
        if segment.max_timestamp >= oldest_ms:
            break
        expired = place + 1
    return expired


def _expired_by_size(log: PartitionLog, settings: TopicSettings, expired: int) -> int:
    """How many segments from the head on, if `expired` of them go anyway."""
    if not settings.is_deleted or settings.retention_bytes == UNLIMITED:
        return 0
    left_bytes = sum(segment.size_bytes for segment in log.segments[expired:])
    for segment in log.segments[expired:]:
        left_bytes -= segment.size_bytes
        if left_bytes < settings.retention_bytes or not _may_go(segment, log):
            break
        expired += 1
    return expired


def _may_go(segment: Segment, log: PartitionLog) -> bool:
    """Not what is uncommitted or of an open transaction, nor an active segment without records."""
    is_empty_active = not segment.is_sealed and not segment.size_bytes
    return segment.next_offset <= log.last_stable_offset and not is_empty_active


class ActiveSegments:
    """Since when each log's active segment holds something.

    At a log's first sight its first record's own time counts, so that a segment's age outlives a
    restart. Later a segment is as old as its first sight: by records' times a log that is filled
    with old ones would be rolled at every check.
    """

    def __init__(self) -> None:
        self._since: dict[PartitionKey, tuple[int, int]] = {}
        """Base offset, since when."""

    def __len__(self) -> int:
        return len(self._since)

    def since(self, log: PartitionLog, now_ms: int) -> int | None:
        """None: the log has no active segment, or an empty one."""
        known = self._since.get(log.key)
        active = log.segments[-1] if log.segments else None
        if active is None or active.is_sealed or not active.size_bytes:
            self._since.setdefault(log.key, (_NONE_SEEN, now_ms))
            return None
        if known is not None and known[0] == active.base_offset:
            if known[1] > now_ms:
                # Seen first by a clock that was ahead and is put right now.
                self._since[log.key] = (active.base_offset, now_ms)
            return min(known[1], now_ms)
        since_ms = now_ms
        if known is None and active.first_timestamp != NO_TIMESTAMP:
            since_ms = min(now_ms, active.first_timestamp)
        self._since[log.key] = (active.base_offset, since_ms)
        return since_ms

    def keep(self, is_held: Callable[[PartitionKey], bool]) -> None:
        """Forget logs that are gone."""
        self._since = {key: value for key, value in self._since.items() if is_held(key)}
