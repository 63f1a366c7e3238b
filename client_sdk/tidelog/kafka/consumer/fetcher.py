"""Records as kafka-python's consumer gives them, made from the client's.

Owns the shape and the deserializing. It must never lose a record that could not be deserialized:
it says where it stands, and the consumer goes back there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.client import ConsumerRecord as Read
from tidelog.kafka.serializer import Conversion

__all__ = ["ConsumerRecord"]


class ConsumerRecord(NamedTuple):
    """One record as it was read."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: int
    """0: set by the producer; 1: set by the broker on append."""
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]
    checksum: int | None
    """Always None: records of this format have none of their own."""
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class RecordMaker:
    """With a consumer's deserializers."""

    def __init__(self, read_key: Conversion | None, read_value: Conversion | None) -> None:
        self._read_key = read_key
        self._read_value = read_value

    def record(self, read: Read) -> ConsumerRecord:
        """What a deserializer raises goes to the script as it is."""
        key, value = read.key, read.value
        headers = list(read.headers)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if self._read_key is not None:
            key = self._read_key(read.topic, headers, key)
        if self._read_value is not None:
            value = self._read_value(read.topic, headers, value)
        return ConsumerRecord(
            read.topic,
            read.partition,
            read.leader_epoch,
            read.offset,
            read.timestamp,
            read.timestamp_type,
            key,
            value,
            headers,
            None,
            key_size,
            value_size,
            _size_of(headers) if headers else -1,
        )


def _size_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(data or b"") for name, data in headers)
