"""What a leader writes into a batch that somebody else sealed.

Owns the only writes to sealed bytes. Base offset and leader epoch lie outside the checksum; append
time lies under it, so it is computed again. The body is never touched. Stop 6 of a record's walk.
"""

import struct
from typing import Final

from tidelog.wire.batch.checksum import checksum
from tidelog.wire.batch.header import BatchHeader, peek_size
from tidelog.wire.batch.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CHECKSUM_POSITION,
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    MAX_TIMESTAMP_POSITION,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">qii")
PLACE_BYTES: Final = _PLACE.size
"""Base offset, batch length and leader epoch: what a leader stamps lies within these."""


def stamp(buffer: bytearray, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch its place: its first offset and the epoch of the leader that appends it."""
    assert position + HEADER_BYTES <= len(buffer), f"no batch header at byte {position}"
    assert base_offset >= 0, f"a base offset is not negative: {base_offset}"
    assert leader_epoch >= -1, f"a leader epoch is -1 or more: {leader_epoch}"
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def place(header: BatchHeader) -> bytes:
    """The first `PLACE_BYTES` of a batch that has this header; what follows is as it was sealed."""
    assert header.base_offset >= 0, f"a base offset is not negative: {header.base_offset}"
    assert header.leader_epoch >= -1, f"a leader epoch is -1 or more: {header.leader_epoch}"
    return _PLACE.pack(header.base_offset, header.batch_length, header.leader_epoch)


def stamp_append_time(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Gives all records of the batch the leader's time, and computes the checksum again.

    The caller has verified the old checksum: this one would hide any corruption before it.
    """
    size_bytes = peek_size(buffer, position)
    assert size_bytes is not None, f"no batch header at byte {position}"
    end = position + size_bytes
    assert end <= len(buffer), f"the batch at byte {position} reaches beyond the buffer"
    start = position + ATTRIBUTES_POSITION
    (attributes,) = _INT16.unpack_from(buffer, start)
    _INT16.pack_into(buffer, start, attributes | APPEND_TIME_BIT)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(buffer, position + CHECKSUM_POSITION, checksum(buffer[start:end]))
