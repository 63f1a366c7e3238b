"""Which sealed segment is compared with its digests next, and when. Pure.

Owns the pace: a round sees every sealed segment once in `scrub_interval_ms`, evenly by bytes. Where
a round stands is a function of time, not of when the process started, so that a node that is
started again and again still comes around; nothing of it is stored.
"""

from bisect import bisect_right
from typing import Final

from tidelog.broker.housekeeping.core.held import Held, HeldLog
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.ids import PartitionKey

_BEFORE_ALL: Final = -1


class ScrubRound:
    """`due` says which is next; the same one again until it is `done`."""

    def __init__(self, limits: HousekeepingLimits) -> None:
        self._interval_ms = limits.scrub_interval_ms
        self._keys: list[PartitionKey] = []
        """The round's logs in order; what comes to be later is the next round's."""
        self._total_bytes = 0
        self._seen_bytes = 0
        self._round_start_ms = 0
        self._place: tuple[int, int] = (0, _BEFORE_ALL)
        """Place in `_keys`, and the base offset of the last segment seen of that log."""
        self._is_begun = False
        self.rounds = 0

    @property
    def share_seen(self) -> float:
        """How much of the round is done."""
        return min(1.0, self._seen_bytes / self._total_bytes) if self._total_bytes else 0.0

    def due(self, held: Held, now_ms: int) -> Segment | None:
        """The segment to scrub now, if it is time for one."""
        if not self._interval_ms:
            return None
        # Also a round that began by a clock that has been set back since: it would never go on.
        is_over = not 0 <= now_ms - self._round_start_ms < self._interval_ms
        if not self._is_begun or is_over:
            self._begin(held, now_ms)
        if now_ms < self._round_start_ms + self._due_after_ms():
            return None
        return self._next(held)

    def done(self, segment: Segment) -> None:
        """The segment was scrubbed, or cannot be."""
        place = bisect_right(self._keys, segment.key.partition) - 1
        assert place >= 0, f"{segment.key.path} is not of this round"
        self._place = (place, segment.base_offset)
        self._seen_bytes += segment.size_bytes

    def _begin(self, held: Held, now_ms: int) -> None:
        """A round began at the last multiple of the interval; what is past counts as seen."""
        self.rounds += self._is_begun
        is_first = not self._is_begun
        self._is_begun = True
        self._keys = sorted(held)
        self._round_start_ms = now_ms - now_ms % self._interval_ms
        self._place = (0, _BEFORE_ALL)
        self._seen_bytes = 0
        self._total_bytes = sum(
            segment.size_bytes for each in held.values() for segment in _sealed(each)
        )
        if is_first:
            self._skip(held, self._total_bytes * (now_ms % self._interval_ms) // self._interval_ms)

    def _skip(self, held: Held, past_bytes: int) -> None:
        for place, key in enumerate(self._keys):
            for segment in _sealed(held[key]):
                if self._seen_bytes + segment.size_bytes > past_bytes:
                    return
                self._place = (place, segment.base_offset)
                self._seen_bytes += segment.size_bytes

    def _due_after_ms(self) -> int:
        """Into the round: when as much is to be seen as was seen."""
        if not self._total_bytes:
            return 0
        return self._interval_ms * min(self._seen_bytes, self._total_bytes) // self._total_bytes

    def _next(self, held: Held) -> Segment | None:
        """The first sealed segment behind the place; None: the round has seen all."""
        first, last_base = self._place
        for place in range(first, len(self._keys)):
            each = held.get(self._keys[place])
            if each is not None:
                for segment in _sealed(each):
                    if place > first or segment.base_offset > last_base:
                        return segment
        return None


def _sealed(held: HeldLog) -> list[Segment]:
    """What has digests to be compared with, of a log that has not stopped."""
    if held.log.failure is not None:
        return []
    return [segment for segment in held.log.segments if segment.summary is not None]
