"""KafkaConsumer against a server in a few lines."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_MS
from tidelog.kafka import Deserializer, KafkaConsumer, KafkaProducer, TopicPartition, errors

pytestmark = pytest.mark.slow
NAME = TopicPartition("t", 0)


@pytest.fixture
def server() -> Iterator[ContractServer]:
    """With five records in one partition; the third is no number."""
    with ContractServer(default_partitions=1) as running:
        with KafkaProducer(bootstrap_servers=running.address) as producer:
            for value in (b"0", b"1", b"two", b"3", b"4"):
                producer.send("t", value, headers=[("h", b"1")])
        yield running


def reader(server: ContractServer, **configs: Any) -> KafkaConsumer:
    return KafkaConsumer(
        "t",
        bootstrap_servers=server.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=HANG_MS,
        **configs,
    )


def test_poll_delivers_what_stands_before_a_record_that_cannot_be_read(
    server: ContractServer,
) -> None:
    with reader(server, value_deserializer=int) as consumer:
        (records,) = consumer.poll(HANG_MS).values()
        assert [record.value for record in records] == [0, 1]
        for _ in range(2):
            with pytest.raises(ValueError, match="two"):
                consumer.poll(HANG_MS)
        assert consumer.position(NAME) == 2
        consumer.seek(NAME, 3)
        (records,) = consumer.poll(HANG_MS).values()
        assert [record.value for record in records] == [3, 4]


def test_iteration_stands_at_a_record_that_cannot_be_read_until_it_is_passed(
    server: ContractServer,
) -> None:
    with reader(server, value_deserializer=int) as consumer:
        assert [next(consumer).value for _ in range(2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(ValueError, match="two"):
                next(consumer)
        consumer.seek(NAME, 3)
        assert [next(consumer).value for _ in range(2)] == [3, 4]


def test_a_deserializer_is_told_topic_and_headers_and_is_closed_with_the_consumer(
    server: ContractServer,
) -> None:
    seen: list[Any] = []

    class Noting(Deserializer):
        def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
            seen.append((topic, headers, data))
            return "made"

        def close(self) -> None:
            seen.append("closed")

    with reader(server, key_deserializer=Noting()) as consumer:
        record = next(consumer)
    assert record.key == "made"
    assert record.serialized_key_size == -1
    assert seen == [("t", [("h", b"1")], None), "closed"]


def test_topics_pattern_and_partitions_exclude_each_other_until_unsubscribe(
    server: ContractServer,
) -> None:
    with KafkaConsumer(bootstrap_servers=server.address) as consumer:
        consumer.subscribe(pattern="t")
        assert consumer.subscription() == {"t"}
        with pytest.raises(errors.IllegalStateError):
            consumer.assign([NAME])
        with pytest.raises(errors.IllegalStateError):
            consumer.subscribe(["t"])
        consumer.unsubscribe()
        consumer.assign([NAME])
        assert consumer.subscription() is None
        consumer.assign([])
        consumer.subscribe(["t"])
        for wrong in ("t", 7):
            with pytest.raises(TypeError):
                consumer.subscribe(wrong)  # type: ignore[arg-type]


def test_a_position_that_is_not_known_in_time_is_none(server: ContractServer) -> None:
    with KafkaConsumer(bootstrap_servers=server.address) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.position(NAME, timeout_ms=0) in (None, 5)
        assert consumer.position(NAME) == 5


def test_a_closed_consumer_iterates_no_more_and_refuses_the_rest(server: ContractServer) -> None:
    consumer = reader(server)
    consumer.close()
    assert list(consumer) == []
    with pytest.raises(errors.IllegalStateError):
        consumer.poll()
    with pytest.raises(errors.IllegalStateError):
        consumer.topics()


def test_a_consumer_finds_out_while_it_is_made_that_nobody_answers() -> None:
    with pytest.raises(errors.NoBrokersAvailable, match="refused"):
        KafkaConsumer("t", bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)


def test_counters_come_under_the_prefix_that_was_asked_for(server: ContractServer) -> None:
    with reader(server, metric_group_prefix="mine") as consumer:
        next(consumer)
        groups = consumer.metrics()
        assert groups is not None
        assert groups["mine-metrics"]["records-consumed-total"] > 0
