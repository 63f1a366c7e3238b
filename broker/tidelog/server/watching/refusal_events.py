"""Tells which limits refuse callers: one line a limit now and then, with how many.

Owns the event `callers_refused`. The counts are the metrics'; only what came on top since the last
look is told.
"""

from collections.abc import Iterator

from tidelog.broker.shared.events import EventLog
from tidelog.ports import WatchedServer
from tidelog.server.metrics.sources import Sources
from tidelog.wire.errors import ErrorCode

_BUSY = ErrorCode.RESOURCE_EXHAUSTED.name


class RefusalEvents:
    """`look` now and then."""

    def __init__(self, sources: Sources, events: EventLog) -> None:
        self._sources = sources
        self._events = events
        self._told: dict[str, int] = {}

    def look(self) -> None:
        """Tell what is new."""
        for limit, number in self._counts():
            new = number - self._told.get(limit, 0)
            if new:
                self._told[limit] = number
                self._events.warning("callers_refused", limit=limit, count=new)

    def _counts(self) -> Iterator[tuple[str, int]]:
        sources = self._sources
        for listener, server in sources.servers.items():
            if isinstance(server, WatchedServer):
                for limit, number in server.usage().refused.items():
                    yield f"listeners.{listener}.limits.{limit}", number
        if sources.quotas is not None:
            yield "quota", sources.quotas.refused_count
        yield "produce.queued_bytes_max", sources.meter.produce_refusals.get(_BUSY, 0)
