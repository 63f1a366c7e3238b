"""KafkaProducer: kafka-python's producer over Tidelog's.

Owns the names, the checks of a script's arguments and what they raise. Batching, sending and
resending are the client's: there must never be a second engine here.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from tidelog.client import ConsumerGroupMetadata as MemberMetadata
from tidelog.client import Producer
from tidelog.client.errors import ArgumentTypeError
from tidelog.kafka import errors
from tidelog.kafka.metrics import shown
from tidelog.kafka.partitioner import TopicView, is_clients_own
from tidelog.kafka.producer.future import FutureRecordMetadata
from tidelog.kafka.serializer import Conversion, written_by
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.option_table import PRODUCER
from tidelog.kafka.shared.options import function_of, honoured, without_none
from tidelog.kafka.shared.reach import reach_or_close
from tidelog.kafka.shared.topic_names import ensure_valid_topic_name
from tidelog.kafka.shared.translation import translated, translating
from tidelog.kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

_NAME: Final = "KafkaProducer"
_WHILE_SENDING: Final = {
    # As in kafka-python: what send() waited for in vain within max_block_ms is a timeout.
    ErrorCode.RESOURCE_EXHAUSTED: errors.KafkaTimeoutError,
    ErrorCode.UNKNOWN_TOPIC: errors.KafkaTimeoutError,
    ErrorCode.INVALID_TRANSACTION_STATE: errors.IllegalStateError,
}
_IN_TRANSACTIONS: Final = {
    # What does not fit the moment is the script's mistake, as there.
    ErrorCode.INVALID_TRANSACTION_STATE: errors.IllegalStateError,
    ErrorCode.INVALID_ARGUMENT: errors.KafkaConfigurationError,
}
_BINARY: Final = (bytes, bytearray, memoryview)


class KafkaProducer:
    """Sends records to topics. Safe to share between threads."""

    def __init__(self, **configs: Any) -> None:
        arguments = honoured(_NAME, PRODUCER, configs)
        self._has_metrics: bool = arguments.pop("metrics_enabled", True)
        self._key_serializer = arguments.pop("key_serializer", None)
        self._value_serializer = arguments.pop("value_serializer", None)
        for name, given in (
            ("key_serializer", self._key_serializer),
            ("value_serializer", self._value_serializer),
        ):
            function_of(_NAME, name, given, "serialize")
        self._write_key = written_by(self._key_serializer)
        self._write_value = written_by(self._value_serializer)
        self._partitioner = arguments.pop("partitioner", None)
        function_of(_NAME, "partitioner", self._partitioner, "partition")
        if callable(self._partitioner) and not hasattr(self._partitioner, "partition"):
            arguments["partitioner"] = self._partitioner
            self._partitioner = None
        elif is_clients_own(self._partitioner):
            self._partitioner = None
        arguments = without_none(arguments, "client_id", "acks", "retries")
        self._topics: set[str] = set()
        self._is_initialized = False
        with translating():
            self._client = Producer(**arguments)
        if configs.get("api_version") is None:
            reach_or_close(self._client, arguments)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Append a record; blocks up to max_block_ms for metadata or room in the buffer."""
        if self._client.is_closed:
            raise errors.IllegalStateError("KafkaProducer already closed!")
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        if topic.__class__ is not str or topic not in self._topics:
            ensure_valid_topic_name(topic)
            self._topics.add(topic)
        checked = _checked_headers(headers)
        key_bytes = _written(self._write_key, "key", topic, checked, key)
        value_bytes = _written(self._write_value, "value", topic, checked, value)
        try:
            if partition is None and self._partitioner is not None:
                partition = self._partitioner.partition(
                    topic, key, key_bytes, value, value_bytes, self._view(topic)
                )
            future = self._client.send(
                topic, value_bytes, key_bytes, checked, partition, timestamp_ms
            )
        except ArgumentTypeError as error:
            raise TypeError(str(error)) from error
        except TidelogError as error:
            if error.code is ErrorCode.UNKNOWN_PARTITION:
                raise ValueError(f"Unrecognized partition: {error}") from error
            raise translated(error, _WHILE_SENDING) from error
        return FutureRecordMetadata(
            future,
            -1 if key_bytes is None else len(key_bytes),
            -1 if value_bytes is None else len(value_bytes),
            sum(len(name.encode()) + len(data) for name, data in checked) if checked else -1,
        )

    # Transactions.

    def init_transactions(self) -> None:
        """Take the transactional id over; done once more it does nothing."""
        if self._is_initialized and not self._client.is_closed:
            return
        with translating(_IN_TRANSACTIONS):
            self._client.init_transactions()
        self._is_initialized = True

    def begin_transaction(self) -> None:
        """What is sent from here on belongs together."""
        with translating(_IN_TRANSACTIONS):
            self._client.begin_transaction()

    @checked
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Offsets that count once the transaction is committed; `group_metadata` is what
        KafkaConsumer.group_metadata() tells, or a group's name alone."""
        who: MemberMetadata | str
        if isinstance(group_metadata, str):
            who = group_metadata
        else:
            name, epoch, member_id, instance_id, _ = group_metadata
            who = MemberMetadata(name or "", epoch, member_id, instance_id)
        with translating(_IN_TRANSACTIONS):
            self._client.send_offsets_to_transaction(offsets, who)

    def commit_transaction(self) -> None:
        """Send everything appended, and make it count; KafkaTimeoutError after max_block_ms: call
        it again, it then tells what became of it."""
        with translating(_IN_TRANSACTIONS):
            self._client.commit_transaction()

    def abort_transaction(self) -> None:
        """Nothing of the transaction counts."""
        with translating(_IN_TRANSACTIONS):
            self._client.abort_transaction()

    @checked
    def flush(self, timeout: float | None = None) -> None:
        """Send everything appended before; KafkaTimeoutError after `timeout` seconds."""
        with translating():
            self._client.flush(timeout)

    @checked
    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Flush, then end. What is not done after `timeout` seconds fails."""
        with translating():
            self._client.close(timeout)
        for serializer in (self._key_serializer, self._value_serializer):
            close = getattr(serializer, "close", None)
            if close is not None:
                close()

    @checked
    def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions; waits up to max_block_ms for metadata."""
        with translating(_WHILE_SENDING):
            return self._client.partitions_for(topic)

    def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        with translating():
            return self._client.bootstrap_connected()

    @checked
    def metrics(self, raw: bool = False) -> Mapping[str, Any] | None:
        """Counters by group; `raw`: as Tidelog's own producer has them."""
        if not self._has_metrics:
            return None
        with translating():
            counters = self._client.metrics()
        return counters if raw else shown("producer-metrics", counters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _view(self, topic: str) -> TopicView:
        return TopicView(self._client.partitions_for, topic)


def _checked_headers(
    headers: Sequence[tuple[str, bytes]] | None,
) -> Sequence[tuple[str, bytes]]:
    if headers is None:
        return ()
    if not isinstance(headers, list):
        raise TypeError("headers must be list-type")
    for item in headers:
        if not (
            isinstance(item, tuple)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], bytes)
        ):
            raise TypeError("All headers items must be (str, bytes) tuples")
    return headers


def _written(
    write: Conversion | None, part: str, topic: str, headers: Any, data: Any
) -> bytes | None:
    if write is not None:
        data = write(topic, headers, data)
    if data is None or data.__class__ is bytes:
        return data
    if not isinstance(data, _BINARY):
        hint = "set" if write is None else "the result must be bytes: look at"
        raise TypeError(
            f"Unsupported type for serialized {part}: {type(data)} (hint: {hint} {part}_serializer)"
        )
    return bytes(data)
