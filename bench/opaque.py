"""Bulk clients of Tidelog: the engine with sealed batches, which it never looks into.

Owns loops in which a client's whole way is walked but for the records: routing, sequences, streams,
credit, sums. What `send()` costs a record is measured elsewhere. `python -m bench.opaque ROLE LOAD`
runs until it is told to end, and prints what it counted.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from bench.clients import payload
from bench.processes import print_result
from bench.settings import BATCH_BYTES, STALL_SECONDS_MAX, Load
from bench.window import Counts, Meter, UntilTold, say_ready
from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.client.engine.produce.accumulator import Route
from tidelog.client.engine.produce.batch import Acknowledgement, Batch, Outcome
from tidelog.client.sync.produce_loop import WAKE
from tidelog.wire.batch import (
    HEADER_BYTES,
    Columns,
    checksum,
    encode_batch,
    read_header,
    route_sum,
)
from tidelog.wire.batch.checksum import extend_checksum
from tidelog.wire.batch.layout import ATTRIBUTES_POSITION, CHECKSUM_POSITION, HEADER_STRUCT
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId

UNDER_WAY_BYTES: Final = 32 * 1024 * 1024
"""As much as `buffer_memory` lets a producer have under way."""
WAIT_SLICE_SECONDS: Final = 0.2
POLL_MS: Final = 200


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was sealed before the clock started, and how many records it holds."""

    fields: tuple[int, ...]
    """Of the header, in the order of the format."""
    body: bytes
    records: int

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.body)

    @classmethod
    def of(cls, record_bytes: int, batch_bytes: int) -> "Sealed":
        value, now_ms = payload(record_bytes), time.time_ns() // 1_000_000
        one = len(encode_batch([(now_ms, None, value, ())] * 1_000)) / 1_000
        records = int(batch_bytes / one)
        data = encode_batch([(now_ms, None, value, ())] * records)
        fields = HEADER_STRUCT.unpack_from(data)
        return cls(fields=fields, body=data[HEADER_BYTES:], records=records)


class OpaqueBatch(Batch):
    """Sealed already: it gets the producer's identity and a sum, as a batch of records would."""

    __slots__ = ("_made", "_sealed")

    def __init__(self, sealed: Sealed, route: Route, partition: int, number: int) -> None:
        self._sealed = sealed
        self._made: tuple[bytes, int] | None = None
        super().__init__(route.name, route.topic_id, partition, number, time.monotonic_ns())
        self.columns = _Counted(sealed.records)
        self.size_bytes = self.reserved_bytes = sealed.size_bytes
        self.is_sealed = True

    @property
    def encoded(self) -> tuple[bytes, int] | None:
        if self._made is None and self.outcome is None and self.attempts:
            self._made = self._encode()
        return self._made

    @encoded.setter
    def encoded(self, made: tuple[bytes, int] | None) -> None:
        self._made = made

    def _encode(self) -> tuple[bytes, int]:
        fields, body = list(self._sealed.fields), self._sealed.body
        fields[9:12] = self.producer_id, self.producer_epoch, self.base_sequence
        head = HEADER_STRUCT.pack(*fields)
        summed = head[ATTRIBUTES_POSITION:]
        crc = extend_checksum(checksum(summed), body)
        made = b"".join((head[:CHECKSUM_POSITION], crc.to_bytes(4, "big"), summed, body))
        return made, route_sum(TopicId(self.topic_id), self.partition, crc)


class _Counted(Columns):
    """As many records as it says, none of them there."""

    __slots__ = ("_records",)

    def __init__(self, records: int) -> None:
        super().__init__()
        self._records = records

    def __len__(self) -> int:
        return self._records


class OpaqueProducer:
    """A producer's loop and core, fed with sealed batches in turn over the topic's partitions."""

    def __init__(self, load: Load, meter: Meter) -> None:
        self._sealed = Sealed.of(load.record_bytes, BATCH_BYTES)
        self._meter = meter
        self._room = threading.Semaphore(UNDER_WAY_BYTES // self._sealed.size_bytes)
        self.failed: TidelogError | None = None
        self._producer = Producer(
            bootstrap_servers=load.bootstrap, acks=1 if load.acks == "1" else "all"
        )
        self._producer.partitions_for(load.topic)
        self._shared = self._producer._shared
        self._route = self._shared.accumulator.routes[load.topic]
        self._count = 0

    def send(self) -> None:
        """One batch more, once there is room for it; gives up waiting after a while."""
        if self._room.acquire(timeout=WAIT_SLICE_SECONDS):
            self._append()

    def _append(self) -> None:
        shared, route = self._shared, self._route
        accumulator = shared.accumulator
        with shared.lock:
            partition = self._count % route.partition_count
            batch = OpaqueBatch(self._sealed, route, partition, self._count)
            batch.callbacks = [self._on_outcome]
            self._count += 1
            route.busy[partition] += 1
            accumulator.reserved_bytes += batch.reserved_bytes
            accumulator.sealed.append(batch)
            if not shared.is_wake_pending:
                shared.is_wake_pending = True
                self._producer._running_loop().inbox.put(WAKE)

    def _on_outcome(self, outcome: Outcome) -> None:
        self._room.release()
        if isinstance(outcome, Acknowledgement):
            self._meter.add(self._sealed.records)
        else:
            self.failed = outcome

    def close(self) -> None:
        self._producer.close(timeout=STALL_SECONDS_MAX)


class SelfFedProducer(OpaqueProducer):
    """Its own engine thread replaces each batch that is done: no other thread has to run."""

    def __init__(self, load: Load, meter: Meter) -> None:
        super().__init__(load, meter)
        self._is_over = False

    def fill(self) -> None:
        """As many batches as may be under way."""
        while self._room.acquire(blocking=False):
            self._append()

    def _on_outcome(self, outcome: Outcome) -> None:
        super()._on_outcome(outcome)
        if not self._is_over and self.failed is None and self._room.acquire(blocking=False):
            self._append()

    def close(self) -> None:
        self._is_over = True
        super().close()


def produce(load: Load) -> Counts:
    """Sealed batches, as fast as they are acknowledged."""
    go_on, meter = UntilTold(), Meter(load.record_bytes)
    producer = OpaqueProducer(load, meter)
    say_ready()
    while go_on and producer.failed is None:
        producer.send()
    if producer.failed is not None:
        raise producer.failed
    counts = meter.counts()
    producer.close()
    return counts


def consume(load: Load) -> Counts:
    """Whole batches from the beginning to the end, and again from the beginning."""
    go_on, meter = UntilTold(), Meter(load.record_bytes)
    names = [TopicPartition(load.topic, number) for number in range(load.partitions)]
    with Consumer(bootstrap_servers=load.bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(names)
        consumer.assign(names)
        say_ready()
        while go_on:
            for name, data, _ in consumer.poll_batches(POLL_MS):
                header = read_header(data)
                meter.add(header.record_count)
                if header.next_offset >= ends[name]:
                    consumer.seek_to_beginning(name)
    return meter.counts()


ROLES: Final[dict[str, Callable[[Load], Counts]]] = {"produce": produce, "consume": consume}


def main() -> None:
    role, load = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Load)
    print_result(ROLES[role](load))


if __name__ == "__main__":
    main()
