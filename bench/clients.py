"""The loops of every Python client, each run in a process of its own.

Owns the loops that a user would write: produce one by one or by lists and flush, assign and
iterate, or take many at once. They stay
the same shape for each client, so that what differs is the client; a consumer's clock starts at
its first record. It must never print inside the clock. `python -m bench.clients ROLE LOAD` prints
one result line.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench import latency
from bench.processes import print_result
from bench.settings import BATCH_BYTES, LINGER_MS, STALL_SECONDS_MAX, Load
from bench.table import Throughput
from bench.window import wait_let_go

if TYPE_CHECKING:
    from tidelog.client import Producer

CONFLUENT_POLL_RECORDS: Final = 1000
CONFLUENT_QUEUE_RECORDS: Final = 1_000_000
CONFLUENT_BULK_RECORDS: Final = 10_000
BULK_CALL_RECORDS: Final = 10_000
"""Of one call that is given a list."""
CONFLUENT_TUNED: Final[Mapping[str, int]] = {"fetch.queue.backoff.ms": 10}
"""By default a full queue is filled again after a second only: a tuned peer is the one to beat."""
ROOM_POLL_SECONDS: Final = 0.01
KEYS: Final = 10_000


def payload(length_bytes: int) -> bytes:
    """Incompressible enough, and the same in each run."""
    return bytes((7 * i + 3) % 251 for i in range(length_bytes))


def keys(load: Load) -> Iterable[bytes | None]:
    """Ten thousand different keys in turn, or none."""
    if load.key_bytes == 0:
        return repeat(None, load.records)
    width = load.key_bytes
    some = [str(number).zfill(width).encode() for number in range(KEYS)]
    return islice((key for _ in repeat(None) for key in some), load.records)


def _throughput(load: Load, records: int, seconds: float) -> Throughput:
    return Throughput(
        records=records, record_bytes=load.record_bytes + load.key_bytes, seconds=seconds
    )


def begin(load: Load) -> float:
    """When the clock of a line starts, or when the connection of a consumer may be made."""
    if load.clients > 1:
        wait_let_go()
    return time.perf_counter()


def _confluent_producer(load: Load) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": CONFLUENT_QUEUE_RECORDS,
        }
    )


def confluent_produce(load: Load) -> Throughput:
    producer = _confluent_producer(load)
    value, topic, produce = payload(load.record_bytes), load.topic, producer.produce
    producer.list_topics(topic, timeout=STALL_SECONDS_MAX)
    start = begin(load)
    for number, key in enumerate(keys(load)):
        if number % CONFLUENT_POLL_RECORDS == 0:
            producer.poll(0)
        try:
            produce(topic, value, key)
        except BufferError:
            _produce_when_room(producer, topic, value, key)
    left = producer.flush(STALL_SECONDS_MAX)
    seconds = time.perf_counter() - start
    assert left == 0, f"{left} records were not acknowledged"
    return _throughput(load, load.records, seconds)


def confluent_produce_batch(load: Load) -> Throughput:
    producer = _confluent_producer(load)
    topic = load.topic
    messages = [{"value": payload(load.record_bytes)}] * BULK_CALL_RECORDS
    producer.list_topics(topic, timeout=STALL_SECONDS_MAX)
    start = begin(load)
    left, stalled_at = load.records, start + STALL_SECONDS_MAX
    while left:
        queued = producer.produce_batch(
            topic, messages if left > len(messages) else messages[:left]
        )
        left -= queued
        if queued:
            stalled_at = time.perf_counter() + STALL_SECONDS_MAX
        assert time.perf_counter() < stalled_at, "librdkafka's queue stayed full"
        producer.poll(0 if queued else ROOM_POLL_SECONDS)
    unanswered = producer.flush(STALL_SECONDS_MAX)
    seconds = time.perf_counter() - start
    assert unanswered == 0, f"{unanswered} records were not acknowledged"
    return _throughput(load, load.records, seconds)


def _produce_when_room(producer: Any, topic: str, value: bytes, key: bytes | None) -> None:
    """librdkafka's queue is full: serve its deliveries until it takes the record."""
    deadline = time.monotonic() + STALL_SECONDS_MAX
    while time.monotonic() < deadline:
        producer.poll(ROOM_POLL_SECONDS)
        try:
            producer.produce(topic, value, key)
        except BufferError:
            continue
        return
    raise TimeoutError(f"librdkafka's queue stayed full for {STALL_SECONDS_MAX:.0f} s")


def kafka_python_produce(load: Load) -> Throughput:
    from kafka import KafkaProducer

    return _produce_futures(
        load,
        KafkaProducer(
            bootstrap_servers=load.bootstrap,
            acks=1 if load.acks == "1" else "all",
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        ),
    )


def tidelog_producer(load: Load) -> "Producer":
    from tidelog.client import Producer

    return Producer(
        bootstrap_servers=load.bootstrap,
        acks=1 if load.acks == "1" else "all",
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )


def tidelog_produce(load: Load) -> Throughput:
    return _produce_futures(load, tidelog_producer(load))


def tidelog_produce_batch(load: Load) -> Throughput:
    values = [payload(load.record_bytes)] * BULK_CALL_RECORDS
    with tidelog_producer(load) as producer:
        producer.partitions_for(load.topic)
        last: Any = None
        start = begin(load)
        for left in range(load.records, 0, -BULK_CALL_RECORDS):
            last = producer.send_batch(
                load.topic, values if left >= BULK_CALL_RECORDS else values[:left]
            )
        producer.flush(timeout=STALL_SECONDS_MAX)
        seconds = time.perf_counter() - start
        last.get(timeout=STALL_SECONDS_MAX)
    return _throughput(load, load.records, seconds)


def _produce_futures(load: Load, producer: Any) -> Throughput:
    """kafka-python's names, which are Tidelog's too."""
    value, topic, send = payload(load.record_bytes), load.topic, producer.send
    producer.partitions_for(topic)
    last: Any = None
    start = begin(load)
    for key in keys(load):
        last = send(topic, value, key)
    producer.flush(timeout=STALL_SECONDS_MAX)
    seconds = time.perf_counter() - start
    last.get(timeout=STALL_SECONDS_MAX)
    producer.close()
    return _throughput(load, load.records, seconds)


def _confluent_consumer(load: Load, settings: Mapping[str, int]) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    ours = {"bootstrap.servers": load.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer: Any = Consumer({**ours, **settings})
    assigned = [TopicPartition(load.topic, p, OFFSET_BEGINNING) for p in range(load.partitions)]
    begin(load)
    consumer.assign(assigned)
    return consumer


def confluent_consume(load: Load) -> Throughput:
    return _confluent_poll(load, {})


def confluent_consume_tuned(load: Load) -> Throughput:
    return _confluent_poll(load, CONFLUENT_TUNED)


def _confluent_poll(load: Load, settings: Mapping[str, int]) -> Throughput:
    consumer = _confluent_consumer(load, settings)
    poll = consumer.poll
    poll(STALL_SECONDS_MAX).value()
    start = time.perf_counter()
    for _ in range(load.records - 1):
        record = poll(STALL_SECONDS_MAX)
        record.value()
    seconds = time.perf_counter() - start
    consumer.close()
    return _throughput(load, load.records - 1, seconds)


def confluent_consume_bulk(load: Load) -> Throughput:
    consumer = _confluent_consumer(load, CONFLUENT_TUNED)
    consumer.poll(STALL_SECONDS_MAX).value()
    start = time.perf_counter()
    seen = 1
    while seen < load.records:
        records = consumer.consume(CONFLUENT_BULK_RECORDS, timeout=1.0)
        for record in records:
            record.value()
        seen += len(records)
        assert time.perf_counter() - start < 5 * STALL_SECONDS_MAX, f"stuck at {seen} records"
    seconds = time.perf_counter() - start
    consumer.close()
    return _throughput(load, seen - 1, seconds)


def kafka_python_consume(load: Load) -> Throughput:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=load.bootstrap,
        enable_auto_commit=False,
        consumer_timeout_ms=int(STALL_SECONDS_MAX * 1e3),
    )
    return _iterate(load, consumer, TopicPartition)


def tidelog_consume(load: Load) -> Throughput:
    from tidelog.client import Consumer, TopicPartition

    consumer = Consumer(
        bootstrap_servers=load.bootstrap, consumer_timeout_ms=int(STALL_SECONDS_MAX * 1e3)
    )
    return _iterate(load, consumer, TopicPartition)


def tidelog_consume_arrow(load: Load) -> Throughput:
    from tidelog.client import Consumer, TopicPartition

    with Consumer(bootstrap_servers=load.bootstrap, auto_offset_reset="earliest") as consumer:
        names = [TopicPartition(load.topic, number) for number in range(load.partitions)]
        begin(load)
        consumer.assign(names)
        first = consumer.poll_arrow(STALL_SECONDS_MAX * 1e3).num_rows
        start = time.perf_counter()
        seen = first
        while seen < load.records:
            rows = consumer.poll_arrow(STALL_SECONDS_MAX * 1e3).num_rows
            assert rows, f"stuck at {seen} records"
            seen += rows
        seconds = time.perf_counter() - start
    return _throughput(load, seen - first, seconds)


def _iterate(load: Load, consumer: Any, topic_partition: Callable[[str, int], Any]) -> Throughput:
    assigned = [topic_partition(load.topic, number) for number in range(load.partitions)]
    begin(load)
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    records = iter(consumer)
    _ = next(records).value
    start = time.perf_counter()
    seen = 1
    for record in islice(records, load.records - 1):
        _ = record.value
        seen += 1
    seconds = time.perf_counter() - start
    consumer.close()
    assert seen == load.records, f"{seen} of {load.records} records came"
    return _throughput(load, seen - 1, seconds)


ROLES: Final[dict[str, Callable[[Load], msgspec.Struct]]] = {
    "confluent-produce": confluent_produce,
    "confluent-produce-batch": confluent_produce_batch,
    "confluent-consume": confluent_consume,
    "confluent-consume-tuned": confluent_consume_tuned,
    "confluent-consume-bulk": confluent_consume_bulk,
    "confluent-latency": latency.confluent,
    "kafka-python-produce": kafka_python_produce,
    "kafka-python-consume": kafka_python_consume,
    "tidelog-produce": tidelog_produce,
    "tidelog-produce-batch": tidelog_produce_batch,
    "tidelog-consume": tidelog_consume,
    "tidelog-consume-arrow": tidelog_consume_arrow,
    "tidelog-latency": latency.tidelog,
}


def main() -> None:
    role, load = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Load)
    print_result(ROLES[role](load))


if __name__ == "__main__":
    main()
