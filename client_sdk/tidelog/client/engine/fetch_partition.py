"""One assigned partition of a consumer: where it stands and what is on its way.

Owns the positions of one partition. Two are told apart: `position` is the next offset that the user
gets, `fetch_offset` the next that is asked for; between them lies what was prefetched.
"""

from tidelog.client.engine.fetch_messages import OffsetSpec
from tidelog.client.types import TopicPartition
from tidelog.wire.errors import TidelogError


class PartitionState:
    """log_start_offset ≤ position ≤ fetch_offset, all of one generation."""

    __slots__ = (
        "broker_id",
        "error",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_paused",
        "is_querying",
        "last_fetched_epoch",
        "log_start_offset",
        "position",
        "reset",
        "retry_at_ns",
        "session_epoch",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, reset: OffsetSpec | None) -> None:
        self.topic_partition = topic_partition
        self.generation = 0
        """Grows with each change of position that is not reading on."""
        self.position: int | None = None
        self.fetch_offset: int | None = None
        self.reset = reset
        """Where to begin while there is no position; None: the user must say."""
        self.broker_id: int | None = None
        """Whose stream reads it."""
        self.session_epoch = 0
        """Of the request that told that stream where to read: older answers are stale."""
        self.last_fetched_epoch = -1
        self.high_watermark: int | None = None
        self.log_start_offset: int | None = None
        self.is_paused = False
        self.is_querying = False
        self.failures = 0
        self.retry_at_ns = 0
        self.error: TidelogError | None = None
        """Raised by the next poll, once."""

    def __repr__(self) -> str:
        place = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
        return f"<{place} position={self.position} fetch_offset={self.fetch_offset}>"

    def move_to(self, offset: int) -> None:
        """A seek or a reset: everything fetched before is void."""
        assert offset >= 0, f"an offset is not negative: {offset}"
        self._forget()
        self.position = self.fetch_offset = offset

    def need_reset(self, reset: OffsetSpec | None) -> None:
        """There is no position: it has to be asked for."""
        self._forget()
        self.position = self.fetch_offset = None
        self.reset = reset

    def leave_stream(self) -> None:
        """The stream is gone or was told to stop: read on elsewhere, from the same place."""
        self.broker_id = None

    def read_to(self, next_offset: int, leader_epoch: int) -> None:
        """Batches up to `next_offset` came."""
        assert self.fetch_offset is not None, f"{self!r} was read without a position"
        assert next_offset > self.fetch_offset, f"{self!r} cannot go back to {next_offset}"
        self.fetch_offset = next_offset
        self.last_fetched_epoch = leader_epoch
        self.failures = 0

    def hand_over(self, next_offset: int) -> None:
        """The user has everything below `next_offset`."""
        assert self.fetch_offset is not None, f"{self!r} was handed over without a position"
        assert next_offset <= self.fetch_offset, f"{self!r} hands over what was not fetched"
        self.position = next_offset

    def _forget(self) -> None:
        self.generation += 1
        self.broker_id = None
        self.last_fetched_epoch = -1
        self.is_querying = False
        self.error = None
        self.failures = 0
        self.retry_at_ns = 0
