"""Bulk clients of Tidelog as a user writes them: lists of values, Arrow tables.

Owns loops over send_batch(), send_arrow() and poll_arrow(). Values differ from record to record and
are more than a processor's cache holds; what is counted is acknowledged, or is in a table.
`python -m bench.bulk ROLE LOAD` runs until it is told to end, and prints what it counted.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any, Final

import msgspec

from bench.clients import KEYS, payload
from bench.lines import KEY_BYTES
from bench.processes import print_result
from bench.settings import BATCH_BYTES, LINGER_MS, STALL_SECONDS_MAX, Load
from bench.window import Counts, Meter, UntilTold, say_ready
from tidelog.client import Consumer, Producer, SentBatch, TopicPartition
from tidelog.client.errors import TidelogError

CALL_RECORDS: Final = 20_000
CALLS_HELD: Final = 10
"""Different lists that are sent in turn."""
POLL_MS: Final = 200
Send = Callable[[Producer, str, Any], Any]


class Failure:
    """The first error that a call ended with."""

    def __init__(self) -> None:
        self.error: TidelogError | None = None

    def note(self, error: TidelogError) -> None:
        self.error = self.error or error


def values(record_bytes: int) -> list[list[bytes]]:
    """Of all calls: each record has a number of its own."""
    rest = payload(record_bytes)[8:]
    return [
        [number.to_bytes(8, "big") + rest for number in range(first, first + CALL_RECORDS)]
        for first in range(0, CALL_RECORDS * CALLS_HELD, CALL_RECORDS)
    ]


def keys() -> list[bytes]:
    """Of one call."""
    some = [str(number).zfill(KEY_BYTES).encode() for number in range(KEYS)]
    return list(islice(cycle(some), CALL_RECORDS))


def _produce(load: Load, given: Sequence[Any], send: Send, record_bytes: int) -> Counts:
    go_on, meter, failure = UntilTold(), Meter(record_bytes), Failure()

    def on_sent(sent: SentBatch) -> None:
        meter.add(len(sent))

    with Producer(
        bootstrap_servers=load.bootstrap,
        acks=1 if load.acks == "1" else "all",
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    ) as producer:
        producer.partitions_for(load.topic)
        say_ready()
        for each in cycle(given):
            if not go_on or failure.error is not None:
                break
            future = send(producer, load.topic, each)
            future.add_callback(on_sent).add_errback(failure.note)
        counts = meter.counts()
        producer.flush(STALL_SECONDS_MAX)
    if failure.error is not None:
        raise failure.error
    return counts


def send_batch(load: Load) -> Counts:
    """Lists of values."""

    def send(producer: Producer, topic: str, given: list[bytes]) -> Any:
        return producer.send_batch(topic, given)

    return _produce(load, values(load.record_bytes), send, load.record_bytes)


def send_keyed(load: Load) -> Counts:
    """Lists of values, and of keys that place them."""
    of_call = keys()

    def send(producer: Producer, topic: str, given: list[bytes]) -> Any:
        return producer.send_batch(topic, given, of_call)

    return _produce(load, values(load.record_bytes), send, load.record_bytes + KEY_BYTES)


def send_arrow(load: Load) -> Counts:
    """Tables with one column of values."""
    import pyarrow as pa

    tables = [
        pa.table({"value": pa.array(each, pa.binary())}) for each in values(load.record_bytes)
    ]

    def send(producer: Producer, topic: str, given: Any) -> Any:
        return producer.send_arrow(topic, given)

    return _produce(load, tables, send, load.record_bytes)


def poll_arrow(load: Load) -> Counts:
    """Tables from the beginning to the end, and again from the beginning."""
    go_on, meter = UntilTold(), Meter(load.record_bytes)
    names = [TopicPartition(load.topic, number) for number in range(load.partitions)]
    with Consumer(bootstrap_servers=load.bootstrap, auto_offset_reset="earliest") as consumer:
        starts, ends = consumer.beginning_offsets(names), consumer.end_offsets(names)
        consumer.assign(names)
        say_ready()
        while go_on:
            table = consumer.poll_arrow(POLL_MS)
            meter.add(table.num_rows)
            for name in names:
                if consumer.position(name) >= ends[name]:
                    consumer.seek(name, starts[name])
    return meter.counts()


ROLES: Final[dict[str, Callable[[Load], Counts]]] = {
    "send-batch": send_batch,
    "send-keyed": send_keyed,
    "send-arrow": send_arrow,
    "poll-arrow": poll_arrow,
}


def main() -> None:
    role, load = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Load)
    print_result(ROLES[role](load))


if __name__ == "__main__":
    main()
