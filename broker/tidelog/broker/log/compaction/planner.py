"""Decides when a log is compacted, and how much of it. Pure.

Owns the dirty ratio, the lags and the bound. Whoever schedules calls `plan_compaction` with the
summaries of the sealed segments, from the log's first segment on up to the first that has none;
the active segment is never among them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.broker.log.compaction.contract import MAP_BYTES_MAX, CompactArguments
from tidelog.broker.log.sidecar.contents import NEVER_MS, Summary

_CLEAN: Final = 0.0
"""The dirty ratio of a segment that is read again for its tombstones only."""


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's settings, and the memory that a round may use."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    segment_bytes: int = 1024 * 1024 * 1024
    map_bytes_max: int = MAP_BYTES_MAX


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A round that is due."""

    arguments: CompactArguments
    dirty_ratio: float
    """Of several logs the dirtiest is the one to compact first."""
    is_overdue: bool = False
    """Due by max.compaction.lag.ms: goes before every log that is due by its ratio."""


def first_dirty_offset(segments: Sequence[Summary]) -> int:
    """Below it every key was compared with all records below it.

    The lowest `cleaned_below` of the leading compacted segments, and at most where they end.
    """
    first_dirty = segments[0].base_offset if segments else 0
    lowest: int | None = None
    for segment in segments:
        if not segment.is_compacted:
            break
        lowest = min(segment.cleaned_below, segment.cleaned_below if lowest is None else lowest)
        first_dirty = segment.next_offset
    return first_dirty if lowest is None else min(first_dirty, lowest)


def dirty_ratio(segments: Sequence[Summary]) -> float:
    """Dirty bytes per byte of these segments: 0 clean, 1 never compacted. A figure to show."""
    first_dirty = first_dirty_offset(segments)
    total_bytes = sum(segment.size_bytes for segment in segments)
    dirty_bytes = sum(_dirty_bytes(segment, first_dirty) for segment in segments)
    return dirty_bytes / total_bytes if total_bytes else 0.0


def plan_compaction(
    segments: Sequence[Summary],
    settings: CompactionSettings,
    *,
    now_ms: int,
    may_expire: bool,
    bound_offset: int,
) -> CompactionPlan | None:
    """The round that is due now, if one is.

    Without `may_expire` no age counts: a log whose records have to be of some age before they are
    compacted waits, any other one is compacted by its ratio, and its tombstones stay.

    `bound_offset`: only segments wholly below it are touched: the high watermark, or the last
    stable offset if that is lower.
    """
    _assert_neighbours(segments)
    if not may_expire and settings.min_compaction_lag_ms > 0:
        return None
    cleanable = _cleanable(segments, settings, now_ms, bound_offset)
    first_dirty = first_dirty_offset(cleanable)
    dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
    if dirty:
        ratio = dirty_ratio(cleanable)
        is_overdue = may_expire and _is_overdue(dirty, settings, now_ms)
        if is_overdue or ratio >= settings.min_cleanable_dirty_ratio:
            arguments = _arguments(cleanable, first_dirty, settings, now_ms, may_expire)
            return CompactionPlan(arguments=arguments, dirty_ratio=ratio, is_overdue=is_overdue)
    if not may_expire:
        return None
    return _plan_of_dead_tombstones(cleanable, first_dirty, settings, now_ms)


def _cleanable(
    segments: Sequence[Summary], settings: CompactionSettings, now_ms: int, bound_offset: int
) -> tuple[Summary, ...]:
    """The segments below the bound and, of those never compacted, below the first young one."""
    first_dirty = first_dirty_offset(segments)
    young_ms = now_ms - settings.min_compaction_lag_ms
    cleanable: list[Summary] = []
    for segment in segments:
        is_dirty = segment.next_offset > first_dirty
        is_young = settings.min_compaction_lag_ms > 0 and segment.max_timestamp > young_ms
        if segment.next_offset > bound_offset or (is_dirty and is_young):
            break
        cleanable.append(segment)
    return tuple(cleanable)


def _is_overdue(dirty: Sequence[Summary], settings: CompactionSettings, now_ms: int) -> bool:
    """Counted from a segment's highest timestamp: of its records only that is known without
    reading it. A record waits longer by at most the time that its segment took to fill."""
    return any(
        0 <= segment.max_timestamp < now_ms - settings.max_compaction_lag_ms for segment in dirty
    )


def _plan_of_dead_tombstones(
    cleanable: Sequence[Summary], first_dirty: int, settings: CompactionSettings, now_ms: int
) -> CompactionPlan | None:
    """One clean segment whose tombstones or markers may go, where no round comes by for new
    records.

    It waits delete.retention.ms beyond the horizon, so that a segment is rewritten for tombstones
    alone at most once in that time.
    """
    for segment in cleanable:
        if segment.next_offset > first_dirty:
            break
        horizon_ms = segment.tombstone_horizon_ms
        if horizon_ms != NEVER_MS and horizon_ms + settings.delete_retention_ms < now_ms:
            arguments = _arguments(
                (segment,), segment.next_offset, settings, now_ms, True, segment is cleanable[0]
            )
            return CompactionPlan(arguments=arguments, dirty_ratio=_CLEAN)
    return None


def _arguments(
    segments: tuple[Summary, ...],
    first_dirty: int,
    settings: CompactionSettings,
    now_ms: int,
    may_expire: bool,
    is_from_start: bool = True,
) -> CompactArguments:
    return CompactArguments(
        segments=segments,
        first_dirty_offset=first_dirty,
        now_ms=now_ms,
        may_expire=may_expire,
        is_from_start=is_from_start,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        map_bytes_max=settings.map_bytes_max,
    )


def _dirty_bytes(segment: Summary, first_dirty: int) -> int:
    """A segment that is dirty from its middle on counts by the part of its offsets."""
    if segment.next_offset <= first_dirty:
        return 0
    dirty = segment.next_offset - max(segment.base_offset, first_dirty)
    return segment.size_bytes * dirty // (segment.next_offset - segment.base_offset)


def _assert_neighbours(segments: Sequence[Summary]) -> None:
    for before, after in pairwise(segments):
        assert before.next_offset == after.base_offset, (
            f"{after.key.path} does not begin where {before.key.path} ends"
        )
