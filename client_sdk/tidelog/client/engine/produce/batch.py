"""A batch on its way: open, sealed, done.

Owns the one structure that the user's threads and the I/O thread share. Appending and sealing
happen under the producer's lock; from `seal` on only the I/O side touches it, and it is done once.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from tidelog.wire.batch import Columns
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
)


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a batch was stored."""

    base_offset: Offset
    """-1 with acks=0."""
    append_time_ms: int = -1
    """-1: the records keep their own timestamps."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


Outcome = Acknowledgement | TidelogError


class Batch:
    """Records of one partition that travel together."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "callbacks",
        "checkpoint_bytes",
        "columns",
        "encoded",
        "is_doubtful",
        "is_sealed",
        "last_error",
        "number",
        "opened_at_ns",
        "outcome",
        "partition",
        "producer_epoch",
        "producer_id",
        "reserved_bytes",
        "size_bytes",
        "topic",
        "topic_id",
        "waiter",
    )

    def __init__(
        self, topic: str, topic_id: bytes, partition: int, number: int, opened_at_ns: int
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.number = number
        """Grows with each batch of the producer: the order in which they were opened."""
        self.opened_at_ns = opened_at_ns
        self.columns = Columns()
        self.size_bytes = 0
        self.checkpoint_bytes = 0
        """Beyond it an append asks the accumulator: for more room, or to seal."""
        self.reserved_bytes = 0
        self.is_sealed = False
        self.encoded: tuple[bytes, int] | None = None
        """Sealed bytes and route sum, once the driver has made them."""
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        self.base_sequence: int = NO_SEQUENCE
        """These three are in the sealed bytes; given before the first try, or never."""
        self.attempts = 0
        self.is_doubtful = False
        """A try of it may have been stored, and nobody said so."""
        self.last_error: TidelogError | None = None
        self.outcome: Outcome | None = None
        self.callbacks: list[Callable[[Outcome], None]] | None = None
        self.waiter: Any = None
        """What the driver's futures wait on; made by the first that has to wait."""

    def __repr__(self) -> str:
        state = "open"
        if self.outcome is not None:
            state = "done"
        elif self.is_sealed:
            state = "sealed"
        place = f"{self.topic}-{self.partition}"
        return f"<batch {self.number} {place} {state} records={len(self.columns)}>"

    def unnumber(self) -> None:
        """It is stored by none of its tries, and will be sent as if it had never been sent."""
        self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_doubtful = False
        self.encoded = None

    def complete(self, outcome: Outcome) -> None:
        """Done, once; the records are let go."""
        assert self.is_sealed, f"{self!r} is done before it was sealed"
        assert self.outcome is None, f"{self!r} is done twice"
        self.outcome = outcome
        self.columns = Columns()
        self.encoded = None
