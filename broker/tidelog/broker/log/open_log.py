"""Opens a partition's log after a start: scans its segments, cuts a torn tail, refuses damage.

Thin I/O around `recovery`. It must never write to a file unless the damage is a torn tail, and
never delete one.
"""

import msgspec

from tidelog.broker.log import recovery
from tidelog.broker.log.marks import PartitionMarks
from tidelog.broker.log.names import (
    PartitionKey,
    SegmentKey,
    directory_name,
    parse_segment_name,
)
from tidelog.broker.log.recovery import SCAN_BYTES, Scan
from tidelog.broker.log.state import PartitionLog, Segment
from tidelog.ports import Disk, File
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset


class OpenedLog(msgspec.Struct, kw_only=True):
    """A recovered log, its files, and what recovery had to cut."""

    log: PartitionLog
    files: dict[SegmentKey, File]
    torn_bytes: int = 0
    active: File | None = None
    """To be flushed before anything is served or appended: what a killed process had written may
    sit in the page cache only."""
    to_seal: tuple[SegmentKey, ...] = ()
    """Sealed segments without a sidecar that can be believed: the job makes it (again)."""
    to_remove: tuple[str, ...] = ()
    """Files of segments that lie wholly below the log's start, lowest first."""
    removed: tuple[str, ...] = ()
    """Leftovers that were removed: unfinished files, and what a compaction had replaced."""
    strangers: tuple[str, ...] = ()
    """Names that are not ours: left alone."""


async def open_log(
    disk: Disk, key: PartitionKey, leader_epoch: LeaderEpoch, marks: PartitionMarks | None
) -> OpenedLog:
    """The log as the files tell it; a log that cannot be served has `failure` set.

    `marks` is what the marks file tells of it; None: there is no such file at all.
    """
    known_flushed_offset = None if marks is None else marks.flushed_offset
    log = PartitionLog(key, leader_epoch)
    opened = OpenedLog(log=log, files={})
    try:
        await _open_segments(disk, opened, known_flushed_offset)
    except TidelogError as error:
        log.failure = error
        # Without marks the damage was judged to lie in what was durable: with a mark that says
        # less than that, the next start would take it for a torn tail and cut it off.
        known = log.log_end_offset + 1 if known_flushed_offset is None else known_flushed_offset
        log.flushed_offset = Offset(known)
        log.log_end_offset = max(log.log_end_offset, log.flushed_offset)
        return opened
    log.flushed_offset = log.log_end_offset
    log.high_watermark = log.log_end_offset
    log.high_watermark_position = log.end_position()
    return opened


async def _open_segments(disk: Disk, opened: OpenedLog, known_flushed_offset: int | None) -> None:
    log = opened.log
    directory = directory_name(log.key)
    bases = []
    for name in await disk.list(directory):
        parsed = parse_segment_name(name)
        if parsed is not None:
            bases.append(parsed[0])
    scan = Scan(next_offset=bases[0] if bases else Offset(0), leader_epoch_max=log.leader_epoch)
    log.log_start_offset = scan.next_offset
    for base_offset in bases:
        segment_key = SegmentKey(log.key, base_offset)
        where = f"{disk.name}/{segment_key.path}"
        if base_offset != scan.next_offset:
            raise recovery.corruption(
                where,
                0,
                f"it begins at offset {base_offset}, the one before ends at {scan.next_offset}",
            )
        file = await disk.open(segment_key.path)
        opened.files[segment_key] = file
        is_active = base_offset == bases[-1]
        segment = await _scan_segment(disk, file, scan, verify=is_active)
        log.segments.append(segment)
        log.log_end_offset = scan.next_offset
        if segment.size_bytes < file.size_bytes:
            if not is_active:
                raise recovery.corruption(where, segment.size_bytes, scan.damage)
            opened.torn_bytes += file.size_bytes - segment.size_bytes
            await _cut_torn_tail(disk, file, segment, scan, known_flushed_offset)
        if is_active:
            opened.active = file
    if scan.next_offset < (known_flushed_offset or 0):
        raise recovery.corruption(
            f"{disk.name}/{directory}",
            log.end_position()[1],
            f"it ends at offset {scan.next_offset}, {known_flushed_offset} was flushed",
        )


async def _scan_segment(disk: Disk, file: File, scan: Scan, *, verify: bool) -> Segment:
    segment = Segment(scan.next_offset)
    while segment.size_bytes < file.size_bytes:
        before = segment.size_bytes
        data = await disk.read(file, before, SCAN_BYTES)
        recovery.scan_data(segment, scan, data, verify=verify)
        if segment.size_bytes == before:
            return segment
    return segment


async def _cut_torn_tail(
    disk: Disk, file: File, segment: Segment, scan: Scan, known_flushed_offset: int | None
) -> None:
    where = f"{disk.name}/{file.path}"
    if scan.next_offset < (known_flushed_offset or 0):
        raise recovery.corruption(where, segment.size_bytes, scan.damage)
    if known_flushed_offset is None:
        behind = await _find_whole_batch(disk, file, segment.size_bytes + 1, scan)
        if behind is not None:
            raise recovery.corruption(
                where, segment.size_bytes, f"{scan.damage}; the batch at byte {behind} is whole"
            )
    await disk.truncate(file, segment.size_bytes)


async def _find_whole_batch(disk: Disk, file: File, start: int, scan: Scan) -> int | None:
    """The first undamaged later batch at or behind `start`; reads overlap by the largest batch."""
    while start < file.size_bytes:
        data = await disk.read(file, start, SCAN_BYTES)
        for candidate in recovery.candidates(data, 0):
            if recovery.is_whole_batch(data, candidate, scan):
                return start + candidate
        start += SCAN_BYTES // 2
    return None
