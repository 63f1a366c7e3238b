"""Lines of which there may be thousands at once: so many of a kind, then how many were left out.

Owns the count. What a broker's death does to a thousand partitions is worth fifty lines and a
number; the metrics have it all.
"""

from typing import Final

import msgspec

from tidelog.broker.shared.events import EventLog
from tidelog.ports import Clock

LINES_MAX: Final = 50
WINDOW_MS: Final = 10_000
NS_PER_MS: Final = 1_000_000


class _Window(msgspec.Struct, kw_only=True):
    begun_ms: int
    told: int = 0
    left_out: int = 0


class LimitedEvents:
    """An EventLog before another one. `sweep` now and then, so that a number comes also when
    nothing else does."""

    def __init__(
        self,
        events: EventLog,
        clock: Clock,
        *,
        lines_max: int = LINES_MAX,
        window_ms: int = WINDOW_MS,
    ) -> None:
        self._events = events
        self._clock = clock
        self._lines_max = lines_max
        self._window_ms = window_ms
        self._windows: dict[str, _Window] = {}

    def info(self, event: str, **values: object) -> None:
        """Something that an operator may want to know."""
        if self._may(event):
            self._events.info(event, **values)

    def warning(self, event: str, **values: object) -> None:
        """Something that an operator should look at."""
        if self._may(event):
            self._events.warning(event, **values)

    def error(self, event: str, **values: object) -> None:
        """Something that an operator must act on."""
        if self._may(event):
            self._events.error(event, **values)

    def sweep(self) -> None:
        """End the windows that are over."""
        now_ms = self._now_ms()
        for event, window in list(self._windows.items()):
            if now_ms - window.begun_ms >= self._window_ms:
                del self._windows[event]
                if window.left_out:
                    self._events.warning("events_left_out", of=event, count=window.left_out)

    def _may(self, event: str) -> bool:
        self.sweep()
        window = self._windows.get(event)
        if window is None:
            window = self._windows[event] = _Window(begun_ms=self._now_ms())
        if window.told >= self._lines_max:
            window.left_out += 1
            return False
        window.told += 1
        return True

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS
