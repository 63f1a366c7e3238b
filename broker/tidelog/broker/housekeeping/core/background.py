"""Which background job is next: of seals, and beside them of compactions, then scrubs. Pure.

Owns the order. A survey finds what is due; until the next one its findings are worked through, each
judged again by the log as it is then. It must never name a segment that is not sealed, or a segment
to be sealed whose neighbour before it waits for that itself: producer state goes from one to the
next.
"""

from collections import deque

import msgspec

from tidelog.broker.housekeeping.core.free_space import FreeSpace
from tidelog.broker.housekeeping.core.held import Held, HeldLog
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.housekeeping.core.retries import Retries
from tidelog.broker.housekeeping.core.scrub_round import ScrubRound
from tidelog.broker.log.compaction.contract import CompactArguments
from tidelog.broker.log.compaction.planner import (
    CompactionPlan,
    CompactionSettings,
    plan_compaction,
)
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.ids import PartitionKey


class SealDue(msgspec.Struct, frozen=True, tag=True):
    """A sealed segment has no sidecar, or a damaged one."""

    segment: Segment
    before: Segment | None
    """The one before it, sealed with its sidecar; None: the log begins with it."""
    is_again: bool = False
    """It had a sidecar before."""

    @property
    def log_key(self) -> PartitionKey:
        """Whose."""
        return self.segment.key.partition


class CompactDue(msgspec.Struct, frozen=True, tag=True):
    """A log is dirty enough."""

    log_key: PartitionKey
    arguments: CompactArguments


class ScrubDue(msgspec.Struct, frozen=True, tag=True):
    """It is this segment's turn."""

    segment: Segment

    @property
    def log_key(self) -> PartitionKey:
        """Whose."""
        return self.segment.key.partition


UpkeepDue = CompactDue | ScrubDue
JobDue = SealDue | UpkeepDue
Target = tuple[str, PartitionKey]
"""Kind of job and log: what has a pause of its own after a failure."""


def target_of(job: JobDue) -> Target:
    """Whose pause counts for it."""
    return (type(job).__name__, job.log_key)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When something is looked at."""

    wall_ms: int
    """To be compared with records' times; falls when a clock is put right."""
    ticks_ms: int
    """Monotonic, for pauses."""
    may_expire: bool
    """Whether the node's clock is one to delete by."""


class Background:
    """`survey` now and then, `next_seal` and `next_upkeep` whenever a job of theirs has ended."""

    def __init__(self, limits: HousekeepingLimits, space: FreeSpace) -> None:
        self._map_bytes_max = limits.compaction_map_bytes
        self._space = space
        self._unsealed: deque[PartitionKey] = deque()
        self._dirty: deque[PartitionKey] = deque()
        self._surveyed: list[tuple[bool, float, PartitionKey]] = []
        self._again: dict[SegmentKey, None] = {}
        """Sidecars that are damaged or missing."""
        self.retries: Retries[Target] = Retries(limits)
        self.scrubbing = ScrubRound(limits)
        self.compactions_postponed = 0

    @property
    def seals_waiting(self) -> int:
        """Logs with a segment to be sealed as the last survey found, and sidecars to be remade."""
        return len(self._unsealed) + len(self._again)

    @property
    def compactions_waiting(self) -> int:
        """Dirty logs, as the last survey found."""
        return len(self._dirty)

    def seal_again(self, key: SegmentKey) -> None:
        """The segment's sidecar was found damaged."""
        self._again[key] = None

    def sealed(self, key: SegmentKey) -> None:
        """The segment's sidecar is there and right."""
        self._again.pop(key, None)

    def begin_survey(self) -> None:
        """What the last one found is looked at again."""
        self._unsealed.clear()
        self._surveyed.clear()

    def survey(self, held: HeldLog, now: Moment) -> None:
        """Take one log in."""
        log = held.log
        if log.failure is not None:
            return
        if seal_due(log) is not None:
            self._unsealed.append(log.key)
        plan = self._compaction(held, now)
        if plan is not None:
            self._surveyed.append((not plan.is_overdue, -plan.dirty_ratio, log.key))

    def end_survey(self, held: Held) -> None:
        """All logs were taken in: the overdue ones first, then the dirtiest."""
        self._dirty = deque(key for *_, key in sorted(self._surveyed))
        self._surveyed.clear()
        self.retries.keep(lambda target: target[1] in held)

    def next_seal(self, held: Held, now: Moment) -> SealDue | None:
        """The sidecar to be made now; None: none before the next survey."""
        return self._next_again(held, now) or self._next_first(held, now)

    def next_upkeep(self, held: Held, now: Moment) -> UpkeepDue | None:
        """What else to do now, be a seal under way or not; None: nothing before the next survey."""
        return self._next_compaction(held, now) or self._next_scrub(held, now)

    def _next_again(self, held: Held, now: Moment) -> SealDue | None:
        """The oldest first: each sidecar continues the one before it."""
        for key in sorted(self._again):
            found = held.get(key.partition)
            due = None if found is None else _seal_again_due(found.log, key)
            if due is None:
                del self._again[key]
            elif self.retries.may_try(target_of(due), now.ticks_ms):
                return due
        return None

    def _next_first(self, held: Held, now: Moment) -> SealDue | None:
        while self._unsealed:
            found = held.get(self._unsealed[0])
            due = None if found is None or found.log.failure is not None else seal_due(found.log)
            if due is not None and self.retries.may_try(target_of(due), now.ticks_ms):
                return due
            # Done, gone or pausing: the next survey finds it again if it has to be.
            self._unsealed.popleft()
        return None

    def _next_compaction(self, held: Held, now: Moment) -> CompactDue | None:
        while self._dirty:
            found = held.get(self._dirty.popleft())
            plan = None if found is None else self._compaction(found, now)
            if found is None or plan is None:
                continue
            due = CompactDue(found.log.key, plan.arguments)
            if not self.retries.may_try(target_of(due), now.ticks_ms):
                continue
            # Old and new segments lie on the disk side by side until the new ones have their names.
            if not self._space.has_room_for(
                sum(each.size_bytes for each in due.arguments.segments)
            ):
                self.compactions_postponed += 1
                continue
            return due
        return None

    def _next_scrub(self, held: Held, now: Moment) -> ScrubDue | None:
        segment = self.scrubbing.due(held, now.wall_ms)
        return None if segment is None else ScrubDue(segment)

    def _compaction(self, held: HeldLog, now: Moment) -> CompactionPlan | None:
        log, settings = held.log, held.settings
        if not settings.is_compacted or log.failure is not None:
            return None
        return plan_compaction(
            leading_summaries(log),
            CompactionSettings(
                min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
                min_compaction_lag_ms=settings.min_compaction_lag_ms,
                max_compaction_lag_ms=settings.max_compaction_lag_ms,
                delete_retention_ms=settings.delete_retention_ms,
                segment_bytes=settings.segment_bytes,
                map_bytes_max=self._map_bytes_max,
            ),
            now_ms=now.wall_ms,
            may_expire=now.may_expire,
            bound_offset=log.last_stable_offset,
        )


def seal_due(log: PartitionLog) -> SealDue | None:
    """The first sealed segment without a sidecar."""
    before: Segment | None = None
    for segment in log.segments:
        if not segment.is_sealed:
            return None
        if segment.summary is None:
            return SealDue(segment, before)
        before = segment
    return None


def _seal_again_due(log: PartitionLog, key: SegmentKey) -> SealDue | None:
    """The same for one that has a sidecar; None: it is gone, or it waits for its first anyway."""
    before: Segment | None = None
    for segment in log.segments if log.failure is None else ():
        if segment.key == key:
            return SealDue(segment, before, True) if segment.summary is not None else None
        before = segment
    return None


def leading_summaries(log: PartitionLog) -> list[Summary]:
    """Of the sealed segments from the log's first one on, up to the first that has none."""
    found: list[Summary] = []
    for segment in log.segments:
        if segment.summary is None:
            break
        found.append(segment.summary)
    return found
