"""The producer's side of one broker: its stream and what is unanswered on it.

Owns the state of a connection as the core sees it. It must never judge a request: whoever closes a
link has judged what was on it.
"""

import msgspec

from tidelog.client.engine.produce.batch import Batch


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """On its way to a broker."""

    batches: tuple[Batch, ...]
    attempts: tuple[int, ...]
    """Which try of each batch this is: an answer to an earlier one than the last counts for
    nothing."""
    sent_at_ns: int


class Link:
    """One broker: connecting, open, or waiting after a failure."""

    __slots__ = (
        "broker_id",
        "failures",
        "is_open",
        "looked_at_ns",
        "requests",
        "retry_at_ns",
        "stream",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.stream: int | None = None
        """Number of the stream that is open or being opened; None: there is none."""
        self.is_open = False
        self.failures = 0
        self.retry_at_ns = 0
        self.looked_at_ns = 0
        """When metadata was last asked because this broker is silent."""
        self.requests: dict[int, Request] = {}
        """By correlation id, oldest first."""

    @property
    def silent_since_ns(self) -> int | None:
        """When the oldest unanswered request was sent; None: nothing is unanswered."""
        for request in self.requests.values():
            return request.sent_at_ns
        return None

    def close(self) -> None:
        """Forget the stream; its requests must have been judged."""
        assert not self.requests, f"broker {self.broker_id} has unjudged requests"
        self.stream, self.is_open = None, False
