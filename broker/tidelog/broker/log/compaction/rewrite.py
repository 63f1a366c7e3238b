"""Writes a batch again with some of its records left out. Pure.

Owns the bytes of a rewritten batch. Base offset, last offset delta, leader epoch, producer id,
producer epoch, base sequence and the attributes' flags stay, so that offsets and sequences stay
where they were; count, length, highest timestamp and checksum follow the records that are left.
A record's own bytes are copied; only a new base timestamp changes its timestamp delta, so that its
timestamp stays. It must never change an offset delta.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.wire.batch import (
    BATCH_BYTES_MAX,
    DEFAULT_LIMITS,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
)
from tidelog.wire.batch.checksum import checksum, extend_checksum
from tidelog.wire.batch.compression import compress
from tidelog.wire.batch.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CHECKSUM_POSITION,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_STRUCT,
    INT64_MAX,
    INT64_MIN,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
)
from tidelog.wire.batch.varint import decode_varint, decode_zigzag, encode_varint

_NO_TIMESTAMP: Final = -1
_FLAGS: Final = APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


def rewrite_batch(
    header: BatchHeader,
    body: bytes,
    kept: Sequence[bool],
    *,
    max_timestamp: int,
    base_timestamp: int,
    has_horizon: bool,
) -> bytes | None:
    """The batch with the records that are kept; `body` holds its records, decompressed.

    `has_horizon`: the base timestamp is a delete horizon. None: the batch would be larger than a
    reader admits.
    """
    assert len(kept) == header.record_count, f"{len(kept)} decisions for {header.record_count}"
    assert any(kept), "a batch without records is written by `empty_batch`"
    shift_ms = header.base_timestamp - base_timestamp
    pieces = _shifted_records(body, kept, shift_ms) if shift_ms else _kept_records(body, kept)
    records = b"".join(pieces)
    codec, packed = _compressed(header.codec, records)
    if HEADER_BYTES + len(packed) > BATCH_BYTES_MAX:
        return None
    return _sealed(
        header,
        packed,
        attributes=header.attributes & _FLAGS | codec | has_horizon * DELETE_HORIZON_BIT,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=sum(kept),
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone, as Kafka's cleaner leaves it: no codec, no base timestamp, no horizon."""
    return _sealed(
        header,
        b"",
        attributes=header.attributes & _FLAGS,
        base_timestamp=_NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def _kept_records(body: bytes, kept: Sequence[bool]) -> Iterator[bytes]:
    """Neighbours that are kept come in one piece."""
    at = start = 0
    was_kept = False
    for is_kept in kept:
        if is_kept != was_kept:
            if was_kept:
                yield body[start:at]
            start, was_kept = at, is_kept
        length, at = body[at], at + 1
        if length > 0x7F:
            # Lengths mostly take two bytes: read in place, since a call costs more than that.
            more, at = body[at], at + 1
            length += (more << 7) - 0x80
            if more > 0x7F:
                length, at = decode_zigzag(body, at - 2)
        at += length >> 1
    if was_kept:
        yield body[start:at]


def _shifted_records(body: bytes, kept: Sequence[bool], shift_ms: int) -> Iterator[bytes]:
    """Each with `shift_ms` added to its timestamp delta; sums wrap at 64 bits, as readers' do."""
    at = 0
    for is_kept in kept:
        length, start = decode_varint(body, at)
        at = start + length
        if not is_kept:
            continue
        # The attributes are reserved, and skipped as a number.
        _, time_at = decode_varint(body, start)
        time_delta, rest_at = decode_varint(body, time_at)
        time = encode_varint(_wrapped(time_delta + shift_ms))
        yield encode_varint(time_at - start + len(time) + at - rest_at)
        yield body[start:time_at]
        yield time
        yield body[rest_at:at]


def _wrapped(number: int) -> int:
    return (number - INT64_MIN) % (INT64_MAX - INT64_MIN + 1) + INT64_MIN


def _compressed(codec: Codec, body: bytes) -> tuple[Codec, bytes]:
    """By the batch's codec, unless a reader would take the result for a bomb."""
    if codec is Codec.NONE:
        return codec, body
    packed = compress(codec, body)
    if len(body) > DEFAULT_LIMITS.decompressed_bytes_cap(len(packed)):
        return Codec.NONE, body
    return codec, packed


def _sealed(
    header: BatchHeader,
    packed: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytes:
    head = HEADER_STRUCT.pack(
        header.base_offset,
        HEADER_BYTES + len(packed) - PREFIX_BYTES,
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    summed = head[ATTRIBUTES_POSITION:]
    crc = extend_checksum(checksum(summed), packed)
    return b"".join((head[:CHECKSUM_POSITION], crc.to_bytes(4, "big"), summed, packed))
