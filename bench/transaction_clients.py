"""The loops of producers and readers of transactions, each run in a process of its own.

Owns the loops that a user would write, the same for both clients: begin, send so many, commit, over
and over for some seconds; without transactions the same without begin and commit, and a flush at
the end. It must never print inside the clock.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench.clients import payload
from bench.processes import print_result
from bench.settings import BATCH_BYTES, LINGER_MS, STALL_SECONDS_MAX

POLL_RECORDS: Final = 10_000
CALL_RECORDS: Final = 10_000
"""Of one call that is given a list."""
ROOM_POLL_SECONDS: Final = 0.001
WARM_TRANSACTIONS: Final = 3
WARM_RECORDS: Final = 100


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one client is asked to do."""

    bootstrap: str
    topic: str
    transactional_id: str = ""
    """Empty: without transactions."""
    records_a_transaction: int = 0
    seconds: float = 5.0
    record_bytes: int = 100
    is_committed_only: bool = False
    """Of a reader."""
    records: int = 0
    """Of a reader: so many are there for it."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What it measured."""

    records: int
    seconds: float
    commits_ms: list[float] = []
    """How long each commit took."""

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds


def looped(
    work: Work, begin: Callable[[], None], send: Callable[[int], None], end: Callable[[], None]
) -> Done:
    """Transactions until the time is over; the first ones warm up."""
    for _ in range(WARM_TRANSACTIONS):
        begin()
        send(WARM_RECORDS)
        end()
    commits: list[float] = []
    records, start = 0, time.perf_counter()
    while time.perf_counter() - start < work.seconds:
        begin()
        send(work.records_a_transaction)
        asked = time.perf_counter()
        end()
        commits.append((time.perf_counter() - asked) * 1000)
        records += work.records_a_transaction
    return Done(records=records, seconds=time.perf_counter() - start, commits_ms=commits)


def plain(work: Work, send: Callable[[int], None], flush: Callable[[], None]) -> Done:
    """The same records in the same calls, flushed once."""
    for _ in range(WARM_TRANSACTIONS):
        send(WARM_RECORDS)
        flush()
    records, start = 0, time.perf_counter()
    while time.perf_counter() - start < work.seconds:
        send(work.records_a_transaction)
        records += work.records_a_transaction
    flush()
    return Done(records=records, seconds=time.perf_counter() - start)


def tidelog_produce(work: Work) -> Done:
    """With send_batch(), as one who has many records calls it."""
    from tidelog.client import Producer

    settings: dict[str, Any] = {
        "bootstrap_servers": work.bootstrap,
        "acks": "all",
        "batch_size": BATCH_BYTES,
        "linger_ms": LINGER_MS,
    }
    if work.transactional_id:
        settings["transactional_id"] = work.transactional_id
    values = [payload(work.record_bytes)] * CALL_RECORDS
    with Producer(**settings) as producer:

        def send(count: int) -> None:
            for first in range(0, count, CALL_RECORDS):
                producer.send_batch(work.topic, values[: min(CALL_RECORDS, count - first)])

        if not work.transactional_id:
            return plain(work, send, producer.flush)
        producer.init_transactions()
        return looped(work, producer.begin_transaction, send, producer.commit_transaction)


def kafka_produce(work: Work) -> Done:
    """With produce_batch(), which is librdkafka's way of many."""
    from confluent_kafka import Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": work.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": BATCH_BYTES,
        "linger.ms": LINGER_MS,
        "queue.buffering.max.messages": 1_000_000,
    }
    if work.transactional_id:
        settings["transactional.id"] = work.transactional_id
    producer: Any = Producer(settings)
    messages = [{"value": payload(work.record_bytes)}] * CALL_RECORDS

    def send(count: int) -> None:
        left, stalled_at = count, time.perf_counter() + STALL_SECONDS_MAX
        while left:
            queued = producer.produce_batch(work.topic, messages[: min(left, CALL_RECORDS)])
            left -= queued
            producer.poll(0 if queued else ROOM_POLL_SECONDS)
            assert time.perf_counter() < stalled_at, "librdkafka's queue stayed full"

    if not work.transactional_id:
        return plain(work, send, lambda: _none_left(producer.flush(STALL_SECONDS_MAX)))
    producer.init_transactions(STALL_SECONDS_MAX)
    return looped(
        work,
        producer.begin_transaction,
        send,
        lambda: producer.commit_transaction(STALL_SECONDS_MAX),
    )


def _none_left(count: int) -> None:
    assert count == 0, f"{count} records were not acknowledged"


def tidelog_read(work: Work) -> Done:
    """All records of the topic, with poll_batches()."""
    from tidelog.client import AdminClient, Consumer, TopicPartition

    with AdminClient(bootstrap_servers=work.bootstrap) as admin:
        (found,) = admin.describe_topics([work.topic])
    names = [TopicPartition(work.topic, each.partition) for each in found.partitions]
    isolation = "read_committed" if work.is_committed_only else "read_uncommitted"
    with Consumer(
        bootstrap_servers=work.bootstrap,
        isolation_level=isolation,
        group_id=None,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign(names)

        def poll() -> int:
            headers = [each.header for each in consumer.poll_batches(timeout_ms=100)]
            return sum(each.record_count for each in headers if not each.is_control)

        return read(work, poll)


def kafka_read(work: Work) -> Done:
    """All records of the topic, with consume()."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    isolation = "read_committed" if work.is_committed_only else "read_uncommitted"
    consumer: Any = Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.queue.backoff.ms": 10,
        }
    )
    found = consumer.list_topics(work.topic, STALL_SECONDS_MAX).topics[work.topic]
    consumer.assign(
        [TopicPartition(work.topic, number, OFFSET_BEGINNING) for number in found.partitions]
    )
    try:
        return read(work, lambda: len(consumer.consume(POLL_RECORDS, 0.1)))
    finally:
        consumer.close()


def read(work: Work, poll: Callable[[], int]) -> Done:
    """From the first record to the last."""
    stalled_at = time.perf_counter() + STALL_SECONDS_MAX
    records = 0
    while not records:
        records = poll()
        assert time.perf_counter() < stalled_at, "no record came"
    first, start = records, time.perf_counter()
    while records < work.records:
        records += poll()
        assert time.perf_counter() < stalled_at, f"{records} of {work.records} records came"
    return Done(records=records - first, seconds=time.perf_counter() - start)


ROLES: Final[dict[str, Callable[[Work], Done]]] = {
    "tidelog-produce": tidelog_produce,
    "kafka-produce": kafka_produce,
    "tidelog-read": tidelog_read,
    "kafka-read": kafka_read,
}


def main() -> None:
    role, work = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Work)
    print_result(ROLES[role](work))


if __name__ == "__main__":
    main()
