"""What a segment's bytes say after a restart, and what damage in them means. Pure.

Theory of operation. A segment is a run of batches whose offsets are contiguous. Sealed segments
were flushed before the next one was made, so any damage in them is corruption. In the active one
everything below the last known flush is durable: damage there is corruption too. Behind it a crash
may have kept any part of what was written:

    | flushed, acknowledged | written, not flushed: whole, torn or missing |
    0                  known_flushed_offset                             end of file

The flush marks tell `known_flushed_offset`: at or above it the first damaged batch is where the log
ends, whatever lies behind it, because a flush that had covered what lies behind would have covered
the damaged batch too. Without any marks nothing is known of flushes; then a whole batch behind the
damage counts as corruption: cutting durable records off loses them, stopping loses nothing.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.broker.log.state import Segment
from tidelog.wire.batch import HEADER_BYTES, BatchHeader, peek_size, read_header, verify_checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

SCAN_BYTES: Final = 8 * 1024 * 1024
"""A scan reads this much at a time: more than two of the largest batches."""

_MAGIC_POSITION: Final = 16
_BATCH_LIKE: Final = re.compile(rb"\x00\x00..\x02", re.DOTALL)
"""Leader epoch below 65,536, then the magic byte; a false hit fails the checksum."""
_EPOCH_POSITION: Final = 12


class Scan(msgspec.Struct, kw_only=True):
    """How far a scan has come; the next batch must fit both numbers."""

    next_offset: Offset
    leader_epoch_max: LeaderEpoch
    """The partition's own: no batch can carry a later one. It lies outside the checksum."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    damage: str = ""
    """What is wrong with the batch behind the last valid one; empty: nothing was found wrong."""


def scan_data(segment: Segment, scan: Scan, data: bytes, *, verify: bool) -> None:
    """Take every whole, fitting batch at the front of `data` into the segment.

    `data` begins where the segment's valid bytes end. Stops at a batch that is cut off or wrong.
    """
    position = 0
    while position < len(data):
        header = _fitting_header(data, position, scan, verify=verify)
        if header is None:
            return
        segment.add(header.base_offset, header.size_bytes, header.max_timestamp)
        scan.next_offset = header.next_offset
        scan.leader_epoch = header.leader_epoch
        position += header.size_bytes


def _fitting_header(data: bytes, position: int, scan: Scan, *, verify: bool) -> BatchHeader | None:
    try:
        size_bytes = peek_size(data, position)
        if size_bytes is None or position + size_bytes > len(data):
            scan.damage = f"the batch is cut off after {len(data) - position} bytes"
            return None
        header = read_header(data, position)
        if verify:
            verify_checksum(data, header, position)
    except TidelogError as error:
        scan.damage = error.happened
        return None
    if header.base_offset != scan.next_offset:
        scan.damage = f"its base offset is {header.base_offset}, not {scan.next_offset}"
        return None
    if not scan.leader_epoch <= header.leader_epoch <= scan.leader_epoch_max:
        scan.damage = (
            f"its leader epoch is {header.leader_epoch}, "
            f"not from {scan.leader_epoch} to {scan.leader_epoch_max}"
        )
        return None
    scan.damage = ""
    return header


def candidates(data: bytes, start: int) -> Iterator[int]:
    """Positions at or behind `start` at which a batch might begin."""
    position = start + _EPOCH_POSITION
    while (match := _BATCH_LIKE.search(data, position)) is not None:
        yield match.start() - _EPOCH_POSITION
        position = match.start() + 1


def is_whole_batch(data: bytes, position: int, scan: Scan) -> bool:
    """Whether a batch of later offsets lies here, undamaged."""
    if position < 0 or position + HEADER_BYTES > len(data):
        return False
    try:
        header = read_header(data, position)
        verify_checksum(data, header, position)
    except TidelogError:
        return False
    return header.base_offset > scan.next_offset


def corruption(
    path: str, byte_position: int, happened: str, *, verb: str = "recover"
) -> TidelogError:
    """What damage is told as: file and byte are named, nothing was changed."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=f"{verb} {path}",
        happened=f"damage at byte {byte_position}: {happened}",
    )
