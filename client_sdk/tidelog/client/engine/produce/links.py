"""The producer's links to all brokers: which of them is open, lost, silent, or to be opened.

Owns the numbers of streams and the waits between tries to connect. It must never decide what
becomes of a request.
"""

from typing import Final

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.metadata import BrokerView
from tidelog.client.engine.produce.link import Link
from tidelog.client.engine.produce.messages import OpenStream

SILENCE_NS: Final = 1_000 * NS_PER_MS
"""So long without an answer, and somebody should ask who leads by now."""


class Links:
    """One per producer."""

    def __init__(self, backoff: Backoff) -> None:
        self.by_broker: dict[int, Link] = {}
        self.streams_opened = 0
        self._backoff = backoff

    def current(self, broker_id: int, stream: int) -> Link | None:
        """The link, if it is about that stream still."""
        link = self.by_broker.get(broker_id)
        return link if link is not None and link.stream == stream else None

    def open(self, broker: BrokerView) -> OpenStream | None:
        """What has to be done before something can be sent there; None: nothing, or not yet."""
        link = self.by_broker.setdefault(broker.broker_id, Link(broker.broker_id))
        if link.retry_at_ns or link.stream is not None:
            return None
        self.streams_opened += 1
        link.stream = self.streams_opened
        return OpenStream(broker_id=broker.broker_id, stream=link.stream, address=broker.address)

    def lose(self, link: Link, now_ns: int) -> None:
        """It cannot be used any more; another try is made after a while."""
        link.close()
        link.failures += 1
        link.retry_at_ns = now_ns + self._backoff.delay_ns(link.failures)

    def is_lost(self, broker_id: int) -> bool:
        """Whether the last that was heard of the broker is that it cannot be reached."""
        link = self.by_broker.get(broker_id)
        return link is not None and link.failures > 0 and not link.is_open

    def end_waits(self, now_ns: int) -> None:
        """Those that have waited long enough may be tried again."""
        for link in self.by_broker.values():
            if link.retry_at_ns and now_ns >= link.retry_at_ns:
                link.retry_at_ns = 0

    def overdue(self, now_ns: int, timeout_ms: int) -> list[Link]:
        """Those with a request that is not answered in time."""
        return [
            link
            for link in self.by_broker.values()
            if link.silent_since_ns is not None
            and now_ns >= link.silent_since_ns + timeout_ms * NS_PER_MS
        ]

    def look_behind_silence(self, now_ns: int) -> bool:
        """Whether a broker has owed an answer for another second."""
        is_any_silent = False
        for link in self.by_broker.values():
            since_ns = link.silent_since_ns
            if since_ns is not None and now_ns >= max(since_ns, link.looked_at_ns) + SILENCE_NS:
                link.looked_at_ns = now_ns
                is_any_silent = True
        return is_any_silent

    def is_silent(self, broker_id: int) -> bool:
        """Whether the broker owes an answer for so long that another one had better be asked."""
        link = self.by_broker.get(broker_id)
        if link is None or link.silent_since_ns is None:
            return False
        return link.looked_at_ns > link.silent_since_ns

    def deadlines(self, timeout_ms: int, *, is_silence_looked_at: bool) -> list[int]:
        """When something is to be done about a link."""
        found: list[int] = []
        for link in self.by_broker.values():
            if link.retry_at_ns:
                found.append(link.retry_at_ns)
            if link.silent_since_ns is None:
                continue
            found.append(link.silent_since_ns + timeout_ms * NS_PER_MS)
            if is_silence_looked_at:
                found.append(max(link.silent_since_ns, link.looked_at_ns) + SILENCE_NS)
        return found
