"""KafkaProducer against a server that misbehaves on request."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_SECONDS
from tidelog.kafka import DefaultSerializer, KafkaProducer, TopicPartition, errors
from tidelog.kafka.partitioner import Partitioner, TopicView
from tidelog.kafka.shared.translation import CLASSES, translated
from tidelog.wire.errors import CATALOGUE, ErrorCode, TidelogError

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=3) as running:
        yield running


def test_text_without_a_serializer_is_refused_with_the_option_that_helps(
    server: ContractServer,
) -> None:
    with KafkaProducer(bootstrap_servers=server.address) as producer:
        with pytest.raises(TypeError, match=r"serialized key: <class 'str'>.*set key_serializer"):
            producer.send("t", b"v", key="text")
        with pytest.raises(TypeError, match=r"value: <class 'int'>.*set value_serializer"):
            producer.send("t", 7)


def test_a_serializer_that_makes_no_bytes_is_named(server: ContractServer) -> None:
    with (
        KafkaProducer(bootstrap_servers=server.address, value_serializer=str) as producer,
        pytest.raises(TypeError, match="look at value_serializer"),
    ):
        producer.send("t", 7)


def test_all_kinds_of_bytes_are_sent(server: ContractServer) -> None:
    with KafkaProducer(bootstrap_servers=server.address) as producer:
        for value in (b"one", bytearray(b"two"), memoryview(b"three")):
            metadata = producer.send("t", value, key=value, partition=0).get(HANG_SECONDS)
            assert metadata.serialized_key_size == metadata.serialized_value_size == len(value)
            assert metadata.topic_partition == TopicPartition("t", 0)


def test_serializers_are_told_topic_and_headers_and_are_closed_with_the_producer(
    server: ContractServer,
) -> None:
    class Noting(DefaultSerializer):
        seen: list[Any] = []  # noqa: RUF012 - of this test alone

        def serialize(self, topic: str, headers: Any, data: Any) -> Any:
            self.seen.append((topic, headers, data))
            return super().serialize(topic, headers, data)

        def close(self) -> None:
            self.seen.append("closed")

    with KafkaProducer(bootstrap_servers=server.address, value_serializer=Noting()) as producer:
        producer.send("t", "text", headers=[("h", b"1")]).get(HANG_SECONDS)
    assert Noting.seen == [("t", [("h", b"1")], "text"), "closed"]


def test_a_refused_record_fails_under_kafka_names(server: ContractServer) -> None:
    server.judge = lambda *_: ErrorCode.INVALID_TIMESTAMP
    seen: list[Any] = []
    with KafkaProducer(bootstrap_servers=server.address) as producer:
        future = producer.send("t", b"v", timestamp_ms=1)
        future.add_errback(seen.append).add_callback(seen.append)
        with pytest.raises(errors.InvalidTimestampError) as caught:
            future.get(HANG_SECONDS)
    assert isinstance(caught.value, errors.KafkaError)
    assert caught.value.errno == 32
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert caught.value.hint == CATALOGUE[ErrorCode.INVALID_TIMESTAMP].remedy
    assert isinstance(caught.value.__cause__, TidelogError)
    assert [type(each) for each in seen] == [errors.InvalidTimestampError]
    assert future.failed()
    assert not future.retriable()
    assert future.value is None


def test_a_wait_for_a_record_ends_as_kafka_python_ends_it(server: ContractServer) -> None:
    with KafkaProducer(bootstrap_servers=server.address, linger_ms=60_000) as producer:
        future = producer.send("t", b"v")
        assert not future.is_done
        assert future.exception is None
        with pytest.raises(errors.KafkaTimeoutError):
            future.get(timeout=0.01)


def test_a_partition_that_is_not_there_is_a_mistake_of_the_value(server: ContractServer) -> None:
    with KafkaProducer(bootstrap_servers=server.address) as producer:
        assert producer.partitions_for("t") == {0, 1, 2}
        with pytest.raises(ValueError, match="Unrecognized partition"):
            producer.send("t", b"v", partition=3)


def test_a_partitioner_is_an_object_or_a_function(server: ContractServer) -> None:
    class Last(Partitioner):
        def partition(
            self,
            topic: str,
            key: Any,
            serialized_key: Any,
            value: Any,
            serialized_value: Any,
            cluster: TopicView,
        ) -> int:
            return max(cluster.available_partitions_for_topic(topic))

    def second(key: bytes | None, every: list[int], available: list[int]) -> int:
        return every[1]

    for partitioner, wanted in ((Last(), 2), (second, 1)):
        with KafkaProducer(bootstrap_servers=server.address, partitioner=partitioner) as producer:
            assert producer.send("t", b"v").get(HANG_SECONDS).partition == wanted
            assert producer.send("t", b"v", partition=0).get(HANG_SECONDS).partition == 0


def test_nobody_at_the_address_ends_the_constructor_in_time_and_in_words() -> None:
    with pytest.raises(errors.NoBrokersAvailable, match=r"127\.0\.0\.1:1") as caught:
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    assert isinstance(caught.value, errors.KafkaTimeoutError), "what kafka-python 3 raises"
    assert isinstance(caught.value, errors.KafkaConnectionError)
    assert caught.value.retriable


def test_with_an_api_version_the_constructor_does_not_connect() -> None:
    with pytest.warns(UserWarning, match="api_version"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(2, 5)).close()


def test_counters_come_in_groups_and_can_be_left_out(server: ContractServer) -> None:
    with KafkaProducer(bootstrap_servers=server.address) as producer:
        producer.send("t", b"v").get(HANG_SECONDS)
        groups = producer.metrics()
        assert groups is not None
        assert groups["producer-metrics"]["record-send-total"] == 1
        assert producer.metrics(raw=True)["records_sent"] == 1  # type: ignore[index]
        assert producer.bootstrap_connected()
    with KafkaProducer(bootstrap_servers=server.address, metrics_enabled=False) as producer:
        assert producer.metrics() is None


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_has_a_class_of_kafka_python(code: ErrorCode) -> None:
    assert code in CLASSES
    error = TidelogError(code, tried="try", happened="it failed", hint="do this")
    found = translated(error)
    assert isinstance(found, errors.KafkaError)
    assert found.retriable == error.retriable
    assert "try: it failed (hint: do this)" in str(found)
