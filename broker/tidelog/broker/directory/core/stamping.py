"""Gives a batch its place without copying its body. Pure. Stop 6 of a record's walk."""

from msgspec.structs import replace

from tidelog.broker.directory.core.messages import AppendBatch
from tidelog.wire.batch import (
    PLACE_BYTES,
    BatchHeader,
    place,
    read_header,
    stamp,
    stamp_append_time,
)
from tidelog.wire.ids import LeaderEpoch, Offset

NO_APPEND_TIME_MS = -1

Pieces = tuple[bytes | bytearray | memoryview, ...]


def stamped(
    append: AppendBatch, base_offset: Offset, leader_epoch: LeaderEpoch, *, is_append_time: bool
) -> tuple[Pieces, BatchHeader]:
    """The pieces to write one behind the other, and the header as it is stored."""
    batch = append.batch
    if is_append_time:
        # The append time lies under the checksum: the whole batch is needed in one buffer.
        whole = bytearray(batch)
        stamp(whole, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        stamp_append_time(whole, 0, append.append_time_ms)
        return (whole,), read_header(whole)
    header = replace(append.header, base_offset=base_offset, leader_epoch=leader_epoch)
    return (place(header), memoryview(batch)[PLACE_BYTES:]), header
