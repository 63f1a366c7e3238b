"""What a segment's bytes say after a restart, and what damage in them means. Pure.

Theory of operation. A segment is a run of batches whose offsets are contiguous, or ascend with gaps
where a compaction wrote it. Sealed segments were flushed before the next one was made, or before
their sidecar was: any damage in them is corruption. In the active one everything below the last
known flush is durable: damage there is corruption too. Behind it a crash may have kept any part of
what was written:

    | flushed, acknowledged | written, not flushed: whole, torn or missing |
    0                  known_flushed_offset                             end of file

The FLUSHED marks tell `known_flushed_offset`: at or above it the first damaged batch is where the
log ends, whatever lies behind it, because a flush that had covered what lies behind would have
covered the damaged batch too. Without any marks nothing is known of flushes; then a whole batch
behind the damage counts as corruption: cutting durable records off loses them, stopping loses
nothing.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.wire.batch import HEADER_BYTES, BatchHeader, peek_size, read_header, verify_checksum
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch

SCAN_BYTES: Final = 8 * 1024 * 1024
"""A scan reads this much at a time: more than two of the largest batches."""

NO_GAPS: Final = -1

_BATCH_LIKE: Final = re.compile(rb"\x00\x00..\x02", re.DOTALL)
"""Leader epoch below 65,536, then the magic byte; a false hit fails the checksum."""
_EPOCH_POSITION: Final = 12


class Scan(msgspec.Struct, kw_only=True):
    """What the batches that come next must fit, and what is wrong with the first that does not."""

    leader_epoch_max: LeaderEpoch
    """The partition's own: no batch can carry a later one. It lies outside the checksum."""
    gaps_from: int = NO_GAPS
    """From this offset on offsets may ascend with gaps; -1: each batch begins where the one before
    ends."""
    damage: str = ""
    """What is wrong with the batch behind the last valid one; empty: nothing was found wrong."""


def scan_data(log: PartitionLog, scan: Scan, data: bytes) -> int:
    """Take every whole, fitting batch at the front of `data` into the log's last segment.

    `data` begins where the segment's valid bytes end. Stops at a batch that is cut off or wrong;
    returns how many bytes were taken.
    """
    position = 0
    while position < len(data):
        fitting = _fitting(data, position, log, scan)
        if fitting is None:
            return position
        header, marker = fitting
        log.take_in(header, marker)
        position += header.size_bytes
    return position


def _fitting(
    data: bytes, position: int, log: PartitionLog, scan: Scan
) -> tuple[BatchHeader, Marker | None] | None:
    may_skip = NO_GAPS < scan.gaps_from <= log.log_end_offset
    try:
        size_bytes = peek_size(data, position)
        if size_bytes is None or position + size_bytes > len(data):
            scan.damage = f"the batch is cut off after {len(data) - position} bytes"
            return None
        header = read_header(data, position, is_compacted=may_skip)
        verify_checksum(data, header, position)
        marker = marker_of(data, header, position) if header.is_control else None
    except TidelogError as error:
        scan.damage = error.happened
        return None
    skipped = header.base_offset - log.log_end_offset
    if skipped < 0 or (skipped > 0 and not may_skip):
        scan.damage = f"its base offset is {header.base_offset}, not {log.log_end_offset}"
        return None
    if not log.leader_epochs.latest <= header.leader_epoch <= scan.leader_epoch_max:
        scan.damage = (
            f"its leader epoch is {header.leader_epoch}, "
            f"not from {log.leader_epochs.latest} to {scan.leader_epoch_max}"
        )
        return None
    scan.damage = ""
    return header, marker


def candidates(data: bytes, start: int) -> Iterator[int]:
    """Positions at or behind `start` at which a batch might begin."""
    position = start + _EPOCH_POSITION
    while (match := _BATCH_LIKE.search(data, position)) is not None:
        yield match.start() - _EPOCH_POSITION
        position = match.start() + 1


def is_whole_batch(data: bytes, position: int, log_end_offset: int) -> bool:
    """Whether a batch behind the offset lies here, undamaged."""
    if position < 0 or position + HEADER_BYTES > len(data):
        return False
    try:
        header = read_header(data, position, is_compacted=True)
        verify_checksum(data, header, position)
    except TidelogError:
        return False
    return header.base_offset > log_end_offset


def corruption(
    path: str, byte_position: int, happened: str, *, verb: str = "recover"
) -> TidelogError:
    """What damage is told as: file and byte are named, nothing was changed."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=f"{verb} {path}",
        happened=f"damage at byte {byte_position}: {happened}",
    )
