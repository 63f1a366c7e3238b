"""What the log suite knows of the records that it sends and reads, and of what became of a batch.

Every record has an identity of its own, in its value or, of a tombstone, in a header: so a reader
can tell any two records apart, whatever offset they were given and whatever a compaction left.
"""

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.wire.batch import DecodedRecord, RecordTuple, decode_batch, encode_batch

IDENTITY: Final = "id"
"""The header of a tombstone that names it."""
OPAQUE_FROM: Final = 16
"""From the magic byte on nothing of a batch is ever changed, but for append time."""
RECORDS_MAX: Final = 5
"""Of a batch: a cut takes the batch that holds its offset as a whole, and no more than that."""
_SEPARATOR: Final = b"|"


class Record(msgspec.Struct, frozen=True):
    """One record, as it was sent."""

    identity: bytes
    key: bytes | None
    is_tombstone: bool
    timestamp_ms: int


class Found(msgspec.Struct, frozen=True):
    """One record, as it was read."""

    offset: int
    identity: bytes
    key: bytes | None
    timestamp_ms: int


class Outcome(enum.Enum):
    """What the sender was told."""

    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """Nothing was stored, and nothing will be."""
    UNKNOWN = "unknown"


class Sent:
    """One batch on its way."""

    __slots__ = (
        "base_offset",
        "batch",
        "certain_end_before",
        "is_flush_awaited",
        "number",
        "outcome",
        "records",
        "truncations_before",
    )

    def __init__(self, number: int, records: Sequence[Record], batch: bytes) -> None:
        self.number = number
        """Of the partition's sends, in the order in which they were handed over."""
        self.records = tuple(records)
        self.batch = batch
        self.is_flush_awaited = True
        self.outcome = Outcome.PENDING
        self.base_offset = -1
        self.certain_end_before = 0
        self.truncations_before = 0

    @property
    def opaque(self) -> bytes:
        """What a broker leaves as it is."""
        return self.batch[OPAQUE_FROM:]


def seal(
    records: Sequence[Record],
    padding_bytes: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """The batch of these records."""
    padding = bytes(padding_bytes)
    return encode_batch(
        [_to_send(record, padding) for record in records],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def _to_send(record: Record, padding: bytes) -> RecordTuple:
    if record.is_tombstone:
        return (record.timestamp_ms, record.key, None, ((IDENTITY, record.identity),))
    return (record.timestamp_ms, record.key, record.identity + _SEPARATOR + padding, ())


def read_records(batch: bytes) -> list[Found]:
    """The records of one batch. Raises CorruptBatch."""
    return [_found(record) for record in decode_batch(batch, is_compacted=True)]


def _found(record: DecodedRecord) -> Found:
    offset, timestamp_ms, _, key, value, headers = record
    if value is None:
        identity = next((content for name, content in headers if name == IDENTITY), None) or b""
    else:
        identity = value.partition(_SEPARATOR)[0]
    return Found(offset, identity, key, timestamp_ms)
