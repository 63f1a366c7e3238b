"""Segments for tests: batches of every kind, with the offsets and epochs that they are given."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.wire.batch import BatchHeader, encode_batch, iterate_headers, stamp
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId

PARTITION = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))


def segment_key(base_offset: int = 0, generation: int = 0) -> SegmentKey:
    """A segment of the partition that the tests use."""
    return SegmentKey(PARTITION, Offset(base_offset), generation)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch is made from; a producer id of -1 makes a plain one."""

    records: int = 1
    value_bytes: int = 3
    timestamp: int = 1_000
    gap: int = 0
    """Offsets that are left out in front of it."""
    leader_epoch_step: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    base_sequence: int = 0
    is_transactional: bool = False
    is_control: bool = False
    """A transaction's marker."""
    is_abort: bool = False
    coordinator_epoch: int = 0


def segment_bytes(
    batches: Sequence[Batch], *, base_offset: int = 0, leader_epoch: int = 0
) -> bytes:
    """All of them, one behind the other."""
    pieces, offset = [], base_offset
    for batch in batches:
        offset += batch.gap
        leader_epoch += batch.leader_epoch_step
        pieces.append(batch_bytes(batch, offset, leader_epoch))
        offset += batch.records
    return b"".join(pieces)


def batch_bytes(batch: Batch, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """One batch as it is stored."""
    if batch.is_control:
        return _marker_bytes(batch, base_offset, leader_epoch)
    has_producer = batch.producer_id >= 0
    return encode_batch(
        [(batch.timestamp, None, b"v" * batch.value_bytes, ())] * batch.records,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch if has_producer else -1,
        base_sequence=batch.base_sequence if has_producer else -1,
        is_transactional=has_producer and batch.is_transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def _marker_bytes(batch: Batch, base_offset: int, leader_epoch: int) -> bytes:
    kind = MarkerType.ABORT if batch.is_abort else MarkerType.COMMIT
    data = bytearray(
        encode_marker(
            Marker(kind, batch.coordinator_epoch),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            timestamp_ms=batch.timestamp,
        )
    )
    stamp(data, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    return bytes(data)


def markers_in(data: bytes) -> list[Marker | None]:
    """For each batch the marker that it is."""
    found = iterate_headers(data, is_compacted=True)
    return [marker_of(data, header, position) for position, header in found]


def headers_of(data: bytes) -> list[BatchHeader]:
    """As they are stored."""
    return [header for _, header in iterate_headers(data, is_compacted=True)]


def header_of(batch: Batch, base_offset: int = 0) -> BatchHeader:
    """Of one batch."""
    return headers_of(batch_bytes(batch, base_offset))[0]


def batches(*, max_size: int = 40, max_gap: int = 0) -> st.SearchStrategy[list[Batch]]:
    """Some batches of all kinds; control batches have one record."""
    plain = st.builds(
        Batch,
        records=st.integers(1, 5),
        value_bytes=st.sampled_from([0, 3, 900, 5_000]),
        timestamp=st.integers(0, 2_000),
        gap=st.integers(0, max_gap),
        leader_epoch_step=st.sampled_from([0, 0, 0, 1, 3]),
        producer_id=st.integers(-1, 3),
        producer_epoch=st.integers(0, 2),
        base_sequence=st.integers(0, 100),
        is_transactional=st.booleans(),
    )
    control = st.builds(
        Batch,
        timestamp=st.integers(0, 2_000),
        producer_id=st.integers(0, 3),
        producer_epoch=st.integers(0, 2),
        is_control=st.just(True),
        is_abort=st.booleans(),
        coordinator_epoch=st.integers(0, 3),
    )
    return st.lists(st.one_of(plain, plain, control), max_size=max_size)
