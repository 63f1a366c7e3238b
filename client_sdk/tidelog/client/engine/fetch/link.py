"""One broker's fetch stream as the consumer sees it: session epoch and credit.

Owns the credit's arithmetic: outstanding + buffered + ungranted is the window, while it is open.
"""

from tidelog.client.engine.fetch.messages import SendFetch
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.errors import TidelogError


class FetchLink:
    """Closed, being opened, or open."""

    __slots__ = (
        "broker_id",
        "buffered_bytes",
        "failure",
        "failures",
        "is_open",
        "outstanding_bytes",
        "removed",
        "retry_at_ns",
        "session_epoch",
        "stream",
        "ungranted_bytes",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.stream: int | None = None
        """Number of the stream that is open or being opened; None: there is none."""
        self.is_open = False
        self.session_epoch = 0
        self.outstanding_bytes = 0
        """Granted and not used; below zero when the broker overdrew it."""
        self.buffered_bytes = 0
        """Received and not handed over, also from earlier streams of this broker."""
        self.ungranted_bytes = 0
        self.removed: dict[tuple[bytes, int], None] = {}
        """Partitions that the broker is still to be told to stop reading."""
        self.failures = 0
        self.failure: TidelogError | None = None
        """Why the last stream broke, or was not opened."""
        self.retry_at_ns = 0

    def open(self, window_bytes: int) -> None:
        """A new stream knows nothing: no positions, no credit."""
        self.is_open = True
        self.session_epoch = 0
        self.outstanding_bytes = 0
        self.ungranted_bytes = window_bytes - self.buffered_bytes
        self.removed.clear()
        self.retry_at_ns = 0

    def close(self) -> None:
        """The stream is gone."""
        self.stream, self.is_open = None, False

    def receive(self, size_bytes: int) -> None:
        """Bytes came."""
        self.outstanding_bytes -= size_bytes
        self.buffered_bytes += size_bytes

    def consume(self, size_bytes: int) -> None:
        """Bytes were handed over or dropped."""
        self.buffered_bytes -= size_bytes
        self.ungranted_bytes += size_bytes
        assert self.buffered_bytes >= 0, f"broker {self.broker_id}: more consumed than received"

    def take_back(self, size_bytes: int) -> None:
        """Bytes that were handed over wait again; what was granted for them is owed."""
        self.buffered_bytes += size_bytes
        self.ungranted_bytes -= size_bytes

    def take_grant(self, minimum_bytes: int) -> int:
        """What to grant now; 0 while it is less than the minimum."""
        if self.ungranted_bytes < minimum_bytes:
            return 0
        granted, self.ungranted_bytes = self.ungranted_bytes, 0
        self.outstanding_bytes += granted
        return granted

    def next_request(self, positions: list[FetchPosition], grant_bytes: int) -> SendFetch | None:
        """What the broker must be told: moved positions, what to stop, credit; None: nothing."""
        if not self.is_open:
            return None
        assert self.stream is not None, f"broker {self.broker_id} is open without a stream"
        moved = {(position.topic_id, position.partition) for position in positions}
        removed = tuple(key for key in self.removed if key not in moved)
        self.removed.clear()
        is_changed = bool(positions or removed)
        credit_bytes = self.take_grant(1 if is_changed else grant_bytes)
        if not is_changed and not credit_bytes:
            return None
        if is_changed:
            self.session_epoch += 1
        return SendFetch(
            broker_id=self.broker_id,
            stream=self.stream,
            positions=tuple(positions),
            removed=removed,
            credit_bytes=credit_bytes,
            session_epoch=self.session_epoch,
        )
