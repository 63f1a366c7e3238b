"""What send() returns to a script: the client's future with kafka-python's attributes.

Owns the two shapes that scripts look at. It waits for nothing itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.client import RecordMetadata as StoredAt
from tidelog.client import SendFuture
from tidelog.client.types.records import TopicPartition
from tidelog.kafka.errors import KafkaError
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translated
from tidelog.wire.errors import TidelogError

__all__ = ["FutureRecordMetadata", "RecordMetadata"]


class RecordMetadata(NamedTuple):
    """Where a record was stored, and how large it was before compression."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    """-1 with acks=0."""
    timestamp: int
    checksum: int | None
    """Always None: records of this format have none of their own."""
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class FutureRecordMetadata:
    """Done when the record is acknowledged or has failed."""

    __slots__ = ("_future", "_header_size", "_key_size", "_value_size")

    def __init__(
        self, future: SendFuture, key_size: int, value_size: int, header_size: int
    ) -> None:
        self._future = future
        self._key_size = key_size
        self._value_size = value_size
        self._header_size = header_size

    def __repr__(self) -> str:
        return f"<FutureRecordMetadata {self._future!r}>"

    @property
    def is_done(self) -> bool:
        """Whether get() returns or raises at once."""
        return self._future.is_done

    @property
    def value(self) -> RecordMetadata | None:
        """The metadata once acknowledged, else None."""
        return self.get(0) if self._future.succeeded() else None

    @property
    def exception(self) -> KafkaError | None:
        """The error once failed, else None."""
        found = self._future.exception(0)
        return None if found is None else translated(found)

    def succeeded(self) -> bool:
        """Acknowledged."""
        return self._future.succeeded()

    def failed(self) -> bool:
        """Ended with an error."""
        return self._future.failed()

    def retriable(self) -> bool:
        """Failed, and the same record may be sent again."""
        found = self.exception
        return found is not None and found.retriable

    @checked
    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was stored; KafkaTimeoutError after `timeout` seconds."""
        try:
            return self._shown(self._future.get(timeout))
        except TidelogError as error:
            raise translated(error) from error

    @checked
    def add_callback(
        self, f: Callable[..., object], *args: Any, **kwargs: Any
    ) -> "FutureRecordMetadata":
        """Call f(*args, record_metadata, **kwargs) once acknowledged."""
        self._future.add_callback(lambda stored: f(*args, self._shown(stored), **kwargs))
        return self

    @checked
    def add_errback(
        self, f: Callable[..., object], *args: Any, **kwargs: Any
    ) -> "FutureRecordMetadata":
        """Call f(*args, error, **kwargs) once failed."""
        self._future.add_errback(lambda error: f(*args, translated(error), **kwargs))
        return self

    @checked
    def add_both(
        self, f: Callable[..., object], *args: Any, **kwargs: Any
    ) -> "FutureRecordMetadata":
        """Both, with one function."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def _shown(self, stored: StoredAt) -> RecordMetadata:
        return RecordMetadata(
            stored.topic,
            stored.partition,
            stored.topic_partition,
            stored.offset,
            stored.timestamp,
            None,
            self._key_size,
            self._value_size,
            self._header_size,
        )
