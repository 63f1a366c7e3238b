"""Latency at a steady rate: from when a record was due until its acknowledgement is in user code.

Owns the pacing, the same for each client. It must never wait for one record before it sends the
next: a stalled record does not hide the ones that were due behind it.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from bench.chain import LATENCY_WARM_UP_RECORDS, Latency
from bench.settings import STALL_SECONDS_MAX, Load

WAIT_SLICE_SECONDS: Final = 0.01


class Samples:
    """When each record was due, and how long after that its acknowledgement came."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def callback(self, due: float) -> Callable[..., None]:
        def acknowledged(*_outcome: object) -> None:
            self.milliseconds.append((time.perf_counter() - due) * 1e3)

        return acknowledged

    def result(self, records: int) -> Latency:
        assert len(self.milliseconds) == records, (
            f"{len(self.milliseconds)} of {records} records were acknowledged"
        )
        return Latency.of_ms(self.milliseconds[LATENCY_WARM_UP_RECORDS:] or self.milliseconds)


def confluent(load: Load) -> Latency:
    from confluent_kafka import Producer

    producer: Any = Producer(
        {"bootstrap.servers": load.bootstrap, "acks": load.acks, "linger.ms": load.linger_ms}
    )
    producer.list_topics(load.topic, timeout=STALL_SECONDS_MAX)
    samples, value = Samples(), bytes(load.record_bytes)
    start = time.perf_counter()
    for number in range(load.records):
        due = start + number / load.rate_per_second
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(load.topic, value, on_delivery=samples.callback(due))
    producer.flush(STALL_SECONDS_MAX)
    return samples.result(load.records)


def tidelog(load: Load) -> Latency:
    from tidelog.client import Producer

    acks: Any = 1 if load.acks == "1" else "all"
    producer = Producer(bootstrap_servers=load.bootstrap, acks=acks, linger_ms=load.linger_ms)
    producer.partitions_for(load.topic)
    samples, value = Samples(), bytes(load.record_bytes)
    start = time.perf_counter()
    for number in range(load.records):
        due = start + number / load.rate_per_second
        time.sleep(max(0.0, due - time.perf_counter()))
        producer.send(load.topic, value).add_callback(samples.callback(due))
    producer.flush(timeout=STALL_SECONDS_MAX)
    _wait_all(samples, load.records)
    producer.close()
    return samples.result(load.records)


def _wait_all(samples: Samples, records: int) -> None:
    """Callbacks may still be on their way when flush() has returned."""
    deadline = time.monotonic() + STALL_SECONDS_MAX
    while len(samples.milliseconds) < records and time.monotonic() < deadline:
        time.sleep(WAIT_SLICE_SECONDS)
