"""Records that were decoded and wait for the user, and how far the user has come in them.

Owns decoding into ConsumerRecord. Iteration costs nothing per record here: the place is read from
the list's own iterator when somebody asks for it.
"""

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, starmap
from operator import length_hint

from tidelog.client.engine.fetch_messages import Fetched
from tidelog.client.options import Deserializer
from tidelog.client.types import ConsumerRecord, TopicPartition
from tidelog.wire.batch import decode_records, iterate_headers


class Chunk:
    """The records of one answer for one partition."""

    __slots__ = ("_records", "generation", "next_offset", "records_left", "topic_partition")

    def __init__(self, fetched: Fetched, records: list[ConsumerRecord]) -> None:
        self.topic_partition: TopicPartition = fetched.topic_partition
        self.generation = fetched.generation
        self.next_offset = fetched.next_offset
        """Behind the whole answer, control batches included."""
        self._records = records
        self.records_left: Iterator[ConsumerRecord] = iter(records)

    @property
    def count_left(self) -> int:
        """Records that the user has not been given."""
        return length_hint(self.records_left)

    @property
    def position(self) -> int:
        """The offset of the next record that the user gets."""
        left = length_hint(self.records_left)
        return self._records[-left].offset if left else self.next_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records."""
        if count >= len(self._records):
            return list(self.records_left)
        return list(islice(self.records_left, count))


def decode(
    fetched: Fetched,
    *,
    verify: bool,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
) -> list[ConsumerRecord]:
    """All records of the answer from the wanted offset on; control batches are left out."""
    with _collector_paused():
        return _decode(fetched, verify, key_deserializer, value_deserializer)


@contextmanager
def _collector_paused() -> Generator[None, None, None]:
    """Keeps the cyclic collector from walking thousands of short-lived tuples again and again.

    They are in no cycle and are freed by their counts as soon as the records are made; without
    the pause a third of the time of a read goes into looking at them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _decode(
    fetched: Fetched,
    verify: bool,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
) -> list[ConsumerRecord]:
    name = fetched.topic_partition
    records: list[ConsumerRecord] = []
    for position, header in iterate_headers(fetched.data, is_compacted=True):
        if header.is_control or header.next_offset <= fetched.first_offset:
            continue
        decoded = decode_records(fetched.data, position, verify=verify, is_compacted=True)
        if header.base_offset < fetched.first_offset:
            decoded = [record for record in decoded if record[0] >= fetched.first_offset]
        make = partial(ConsumerRecord, name.topic, name.partition, header.leader_epoch)
        if key_deserializer is not None or value_deserializer is not None:
            decoded = [
                (
                    offset,
                    timestamp_ms,
                    timestamp_type,
                    key if key is None or key_deserializer is None else key_deserializer(key),
                    value
                    if value is None or value_deserializer is None
                    else value_deserializer(value),
                    headers,
                )
                for offset, timestamp_ms, timestamp_type, key, value, headers in decoded
            ]
        records += starmap(make, decoded)
    return records
