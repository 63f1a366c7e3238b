"""Apache Kafka with confluent-kafka, for `bench.torn`.

Owns the node, its client and its reader. The client is used as its documentation says: an error
that is retriable is answered by the same call once more, one that demands it by an abort.
"""

import contextlib
import struct
from types import TracebackType
from typing import Final, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.holding_proxy import HoldingProxy
from bench.peers.kafka.node import KAFKA_VERSION, KafkaNode

TOPIC: Final = "torn"
END_TXN: Final = 26
"""The key of the request in Kafka's protocol."""
_HEAD: Final = struct.Struct(">ih")
"""Size, then the key of the request."""
CALL_SECONDS: Final = 60.0
TRIES_MAX: Final = 20


def end_of_transaction(data: bytes) -> int | None:
    """Where the request begins; a client's requests are smaller than what is read at once."""
    place = 0
    while place + _HEAD.size <= len(data):
        size, key = _HEAD.unpack_from(data, place)
        if key == END_TXN:
            return place
        place += 4 + size
    return None


class KafkaProgram:
    """See `bench.torn.Program`."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "log_level": 0,
        }
        self._producer = self._made()

    def _made(self) -> Producer:
        made = Producer(self._settings)
        made.init_transactions(CALL_SECONDS)
        return made

    def begin(self) -> None:
        """See `bench.torn.Program`."""
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> None:
        """See `bench.torn.Program`."""
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        self._producer.produce(
            TOPIC, value=value.encode(), partition=partition, on_delivery=on_delivery
        )
        self._producer.flush(CALL_SECONDS)
        if failures:
            raise KafkaException(failures[0])

    def end(self, *, is_commit: bool) -> None:
        """See `bench.torn.Program`."""
        call = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
        for _ in range(TRIES_MAX):
            try:
                call(CALL_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
        raise RuntimeError("the end of the transaction was tried often enough")

    def give_up(self) -> None:
        """See `bench.torn.Program`."""
        try:
            self.end(is_commit=False)
        except (KafkaException, RuntimeError):
            # What is fatal for a client is for the next one of its id.
            self._producer = self._made()

    def close(self) -> None:
        """See `bench.torn.Program`."""
        with contextlib.suppress(KafkaException):
            self._producer.flush(CALL_SECONDS)


class KafkaTarget:
    """See `bench.torn.Target`."""

    name = f"Apache Kafka {KAFKA_VERSION}, confluent-kafka"

    def __init__(self) -> None:
        self.proxy = HoldingProxy(end_of_transaction)
        try:
            self._node = KafkaNode(advertised=self.proxy.address)
        except BaseException:
            self.proxy.close()
            raise
        self.proxy.lead_to(self._node.bootstrap)
        try:
            admin = AdminClient({"bootstrap.servers": self.proxy.address, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(CALL_SECONDS)
        except BaseException:
            self.close()
            raise

    def start(self, label: str) -> KafkaProgram:
        """See `bench.torn.Target`."""
        return KafkaProgram(self.proxy.address, f"torn-{label}")

    def committed(self) -> list[str]:
        """See `bench.torn.Target`."""
        reader = Consumer(
            {
                "bootstrap.servers": self.proxy.address,
                "group.id": "torn-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            return self._read(reader)
        finally:
            reader.close()

    def _read(self, reader: Consumer) -> list[str]:
        ends = {
            number: reader.get_watermark_offsets(TopicPartition(TOPIC, number), CALL_SECONDS)[1]
            for number in (0, 1)
        }
        reader.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in (0, 1)])
        values: list[str] = []
        while ends:
            message = reader.poll(CALL_SECONDS)
            if message is None:
                raise RuntimeError("a reader of committed records waits: a transaction is open")
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif (message.offset() or 0) >= ends.get(message.partition() or 0, 0):
                # An earlier end is that of a transaction whose marker is on its way.
                ends.pop(message.partition() or 0, None)
        return values

    def close(self) -> None:
        """End the node and the proxy."""
        self.proxy.close()
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
