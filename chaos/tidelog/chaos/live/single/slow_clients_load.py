"""Clients that behave, while others do not: how long each of their steps took.

Owns a thread with an SDK producer of its own that sends a record, waits for its acknowledgement,
and sends the next. A step that fails is counted, and the next follows.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.wire.errors import TidelogError

STEP_SECONDS_MAX: Final = 20.0
VALUE: Final = bytes(1_000)
FILLING: Final = bytes(10_000)
READ_SECONDS_MAX: Final = 60.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Of the steps of some time."""

    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    failed: int


def pace_of(taken_ms: Sequence[float], seconds: float, failed: int) -> Pace:
    """Nothing done: zeros."""
    ordered = sorted(taken_ms)
    return Pace(
        per_second=len(ordered) / seconds,
        p50_ms=quantile(ordered, 0.5),
        p99_ms=quantile(ordered, 0.99),
        max_ms=ordered[-1] if ordered else 0.0,
        failed=failed,
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """Of values in order; 0 if there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Load:
    """At work from the start until `stop`."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken_ms: list[float] = []
        self._failed = 0
        self.acknowledged = 0
        """Records since the start."""
        self._since = time.monotonic()
        self._thread = threading.Thread(target=self._produce, name="healthy producer")

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """And wait for the end."""
        self._stop.set()
        self._thread.join(2 * STEP_SECONDS_MAX)

    def take(self) -> Pace:
        """Of everything since the last time."""
        with self._lock:
            now = time.monotonic()
            found = pace_of(self._taken_ms, now - self._since, self._failed)
            self._taken_ms, self._failed, self._since = [], 0, now
        return found

    def _produce(self) -> None:
        with Producer(bootstrap_servers=self._address, linger_ms=0) as producer:
            while not self._stop.is_set():
                begun = time.monotonic()
                try:
                    producer.send(self._topic, VALUE).get(STEP_SECONDS_MAX)
                except TidelogError:
                    self._note(None)
                else:
                    self._note((time.monotonic() - begun) * 1_000)

    def _note(self, taken_ms: float | None) -> None:
        with self._lock:
            if taken_ms is None:
                self._failed += 1
            else:
                self.acknowledged += 1
                self._taken_ms.append(taken_ms)


def prepare(address: str, topic: str, quiet_topic: str, size_bytes: int) -> bytes:
    """Both topics, the first one with so many bytes; its id."""
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in (topic, quiet_topic)])
        with Producer(bootstrap_servers=address) as producer:
            for _ in range(size_bytes // len(FILLING)):
                producer.send(topic, FILLING)
            producer.flush()
        return admin.describe_topics([topic])[0].topic_id


def read_all(address: str, topic: str) -> int:
    """How many records a consumer reads from the topic's start to its end."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        count = 0
        deadline = time.monotonic() + READ_SECONDS_MAX
        while consumer.position(partition) < end and time.monotonic() < deadline:
            count += sum(map(len, consumer.poll(timeout_ms=500).values()))
    return count
