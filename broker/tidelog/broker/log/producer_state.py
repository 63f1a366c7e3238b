"""What a log knows of the producers that wrote to it: the state of one log. Pure.

Owns, for each producer id, its epoch and its last batches: enough to answer a batch that is sent
again with the offset that it got the first time. It is a function of the batches' headers alone,
so that the state rebuilt from a segment equals the live one: a producer is forgotten by the log's
own time (the highest timestamp that it holds), never by a clock.
"""

from typing import Final

import msgspec

from tidelog.wire.batch import BatchHeader

WINDOW_BATCHES: Final = 16
"""As many as the announced number of batches in flight."""
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""As Kafka's producer.id.expiration.ms."""
NO_TRANSACTION: Final = -1


class ProducedBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a producer that the log holds."""

    base_sequence: int
    last_offset_delta: int
    base_offset: int
    timestamp: int


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """One producer id."""

    producer_id: int
    epoch: int
    batches: tuple[ProducedBatch, ...]
    """The last ones of this epoch, oldest first, at most `WINDOW_BATCHES`."""
    last_timestamp: int
    transaction_start: int = NO_TRANSACTION
    """First offset of its open transaction."""


class ProducerState:
    """Changed by the owner of the log only. Seam: the methods below are what others call."""

    __slots__ = ("_log_time_ms", "_producers")

    def __init__(self, producers: tuple[Producer, ...] = (), log_time_ms: int = -1) -> None:
        self._producers = {each.producer_id: each for each in producers}
        self._log_time_ms = log_time_ms

    def note(self, header: BatchHeader) -> None:
        """A batch was appended, with this header as it was stored."""
        raise NotImplementedError

    def expire(self) -> None:
        """At a roll: forget the producers that are older than the log's own time allows."""
        raise NotImplementedError

    def find(self, producer_id: int) -> Producer | None:
        """What is known of the producer."""
        return self._producers.get(producer_id)

    def encode(self) -> bytes:
        """One form for one state."""
        raise NotImplementedError

    @classmethod
    def decode(cls, data: bytes) -> "ProducerState":
        """What `encode` has written; STORAGE_CORRUPT for anything else."""
        raise NotImplementedError

    def copy(self) -> "ProducerState":
        """One that may change by itself."""
        return ProducerState(tuple(self._producers.values()), self._log_time_ms)
