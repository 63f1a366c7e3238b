"""The control batch that ends a transaction in one partition: a marker. Pure.

Owns the bytes of its only record, which are Apache Kafka's, so that readers made for Kafka
understand them. A marker is written by the leader of the partition on the word of a transaction
coordinator, never by a producer; it takes one offset, and no reader is given it as a record.

    key    i16 version 0 | i16 type: 0 abort, 1 commit
    value  i16 version 0 | i32 leader epoch of the coordinator's partition

The batch carries the transaction's producer id and the epoch of its end, the control and the
transactional bit, no sequence, and is never compressed.
"""

import struct
from enum import IntEnum
from typing import Final

import msgspec

from tidelog.wire.batch.decode import decode_batch
from tidelog.wire.batch.encode import encode_batch
from tidelog.wire.batch.errors import CorruptBatch
from tidelog.wire.batch.header import BatchHeader
from tidelog.wire.batch.layout import Buffer, Codec

_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class MarkerType(IntEnum):
    """How the transaction ended."""

    ABORT = 0
    COMMIT = 1


class Marker(msgspec.Struct, frozen=True):
    """What a control batch says beside its header."""

    type: MarkerType
    coordinator_epoch: int
    """The leader epoch of the coordinator that decided. A partition remembers the highest of each
    producer, so that an older coordinator cannot decide any more."""


def encode_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """The sealed batch; a leader stamps offset and leader epoch as into any other."""
    assert producer_id >= 0, f"a marker ends the transaction of a producer, not of {producer_id}"
    assert producer_epoch >= 0, f"a marker has an epoch, not {producer_epoch}"
    assert marker.coordinator_epoch >= 0, f"a coordinator leads, not in {marker.coordinator_epoch}"
    key = _KEY.pack(_VERSION, marker.type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [(timestamp_ms, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(buffer: Buffer, header: BatchHeader, position: int = 0) -> Marker:
    """The marker in the control batch at `position`, whose checksum the caller has verified;
    CORRUPT_BATCH if it is none."""
    assert header.is_control, "only a control batch holds a marker"
    fits = header.is_transactional and header.producer_id >= 0 and header.base_sequence < 0
    if not fits or header.codec is not Codec.NONE or header.record_count != 1:
        raise _corrupt("its header is not one of a marker")
    ((_, _, _, key, value, headers),) = decode_batch(buffer, position, verify=False)
    if headers or key is None or value is None:
        raise _corrupt("its record has headers, or no key or value")
    if len(key) != _KEY.size or len(value) != _VALUE.size:
        raise _corrupt(f"its key has {len(key)} bytes, its value {len(value)}")
    key_version, type_number = _KEY.unpack(key)
    value_version, coordinator_epoch = _VALUE.unpack(value)
    if key_version != _VERSION or value_version != _VERSION:
        raise _corrupt(f"its versions are {key_version} and {value_version}, not {_VERSION}")
    if type_number not in (MarkerType.ABORT, MarkerType.COMMIT) or coordinator_epoch < 0:
        raise _corrupt(f"its type is {type_number}, its coordinator's epoch {coordinator_epoch}")
    return Marker(MarkerType(type_number), coordinator_epoch)


def _corrupt(happened: str) -> CorruptBatch:
    return CorruptBatch(tried="read a transaction's marker", happened=happened)
