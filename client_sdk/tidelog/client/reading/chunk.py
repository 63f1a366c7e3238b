"""Records that were decoded and wait for the user, and how far the user has come in them.

Owns decoding into ConsumerRecord. Iteration costs nothing per record here: the place is read from
the list's own iterator when somebody asks for it.
"""

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, starmap
from operator import length_hint
from typing import Any

import msgspec

from tidelog.client.arguments.options import Deserializer
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.types.records import ConsumerRecord, TopicPartition
from tidelog.wire.batch import DecodedRecord, decode_records, iterate_headers
from tidelog.wire.errors import ReadPlace, TidelogError

Make = Callable[..., ConsumerRecord]
"""Called with what the batch holds of a record."""


class Undecoded(msgspec.Struct, frozen=True):
    """The first record that could not be read, or that a deserializer did not take."""

    offset: int
    error: Exception


class Decoded(msgspec.Struct, frozen=True):
    """The records of an answer, up to the first that fails."""

    records: list[ConsumerRecord]
    failed: Undecoded | None = None


class Chunk:
    """The records of one answer for one partition."""

    __slots__ = ("_records", "generation", "next_offset", "records_left", "topic_partition")

    def __init__(self, fetched: Fetched, decoded: Decoded) -> None:
        failed, records = decoded.failed, decoded.records
        self.topic_partition: TopicPartition = fetched.topic_partition
        self.generation = fetched.generation
        self.next_offset = fetched.next_offset if failed is None else failed.offset
        """Behind the whole answer: what is not given, markers and aborted transactions, is passed
        over with it."""
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
) -> Decoded:
    """All records of the answer from the wanted offset on; markers are left out, and what a reader
    of committed records is not given."""
    records: list[ConsumerRecord] = []
    try:
        if key_deserializer is not None or value_deserializer is not None:
            failed = _deserialize(fetched, verify, key_deserializer, value_deserializer, records)
            return Decoded(records, failed)
        with _collector_paused():
            for make, decoded in _parts(fetched, verify):
                records += starmap(make, decoded)
    except TidelogError as error:
        # What was stored is damaged: that is told behind the records before it.
        offset = records[-1].offset + 1 if records else fetched.first_offset
        return Decoded(records, Undecoded(offset, error))
    return Decoded(records)


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


def _parts(fetched: Fetched, verify: bool) -> Iterator[tuple[Make, list[DecodedRecord]]]:
    """Batch by batch."""
    name, left_out = fetched.topic_partition, fetched.left_out
    for position, header in iterate_headers(fetched.data, is_compacted=True):
        if header.is_control or header.next_offset <= fetched.first_offset:
            continue
        if left_out and header.base_offset in left_out:
            continue
        try:
            decoded = decode_records(fetched.data, position, verify=verify, is_compacted=True)
        except TidelogError as error:
            # What a seek takes that gives the batch up.
            error.go_on_at = ReadPlace(name.topic, name.partition, header.next_offset)
            raise
        if header.base_offset < fetched.first_offset:
            decoded = [record for record in decoded if record[0] >= fetched.first_offset]
        yield partial(ConsumerRecord, name.topic, name.partition, header.leader_epoch), decoded


def _deserialize(
    fetched: Fetched,
    verify: bool,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    records: list[ConsumerRecord],
) -> Undecoded | None:
    """The records one by one, up to the first that is not taken."""
    for make, decoded in _parts(fetched, verify):
        for offset, timestamp_ms, timestamp_type, key, value, headers in decoded:
            found_key: Any = key
            found_value: Any = value
            try:
                if key is not None and key_deserializer is not None:
                    found_key = key_deserializer(key)
                if value is not None and value_deserializer is not None:
                    found_value = value_deserializer(value)
            except Exception as error:  # noqa: BLE001 - code that is not ours
                name = fetched.topic_partition
                error.add_note(
                    f"raised by a deserializer for {name.topic}-{name.partition} at offset "
                    f"{offset}; seek to {offset + 1} to go on behind it"
                )
                return Undecoded(offset, error)
            records.append(
                make(offset, timestamp_ms, timestamp_type, found_key, found_value, headers)
            )
    return None
