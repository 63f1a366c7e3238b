"""Reads what an opening needs of a partition's files: lengths, summaries, batches. Thin I/O.

It must never change a file. A sidecar that is damaged or does not fit its segment is no failure:
the segment is scanned instead. Damage to a segment is for the caller to judge.
"""

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.opening.chain import Found
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.codec import (
    FIRST_READ_BYTES,
    PRODUCERS,
    TRANSACTIONS,
    check_section,
    decode_summary,
    find_section,
    summary_end,
)
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.recovery import SCAN_BYTES, Scan, scan_data
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.ports import Disk, File
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset


async def size_of(disk: Disk, key: SegmentKey) -> int:
    """How long the segment's file is."""
    file = await disk.open(key.path)
    try:
        return file.size_bytes
    finally:
        await disk.close(file)


async def read_summary(disk: Disk, key: SegmentKey, size_bytes: int) -> Summary | None:
    """What the segment's sidecar says; None: it is damaged, or not of a segment so long."""
    file = await disk.open(key.sidecar_path)
    try:
        data = await disk.read(file, 0, FIRST_READ_BYTES)
        end = summary_end(data, key)
        if end > len(data):
            data += await disk.read(file, len(data), end - len(data))
        summary = decode_summary(data, key, file_bytes=file.size_bytes)
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_CORRUPT:
            return None
        raise
    finally:
        await disk.close(file)
    return summary if summary.size_bytes == size_bytes else None


async def read_producers(disk: Disk, summary: Summary) -> ProducerState | None:
    """The state of producers behind the segment; None: that part of its sidecar is damaged."""
    key = summary.key
    file = await disk.open(key.sidecar_path)
    try:
        section = find_section(summary, PRODUCERS)
        data = await disk.read(file, section.byte_position, section.length_bytes)
        return ProducerState.decode(check_section(key, section, data), where=key.sidecar_path)
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_CORRUPT:
            return None
        raise
    finally:
        await disk.close(file)


async def read_transactions(disk: Disk, summary: Summary) -> SegmentTransactions | None:
    """What the segment tells of transactions, of which it has some; None: that part of its sidecar
    is damaged."""
    key = summary.key
    file = await disk.open(key.sidecar_path)
    try:
        section = find_section(summary, TRANSACTIONS)
        data = await disk.read(file, section.byte_position, section.length_bytes)
        checked = check_section(key, section, data)
        return SegmentTransactions.decode(checked, where=key.sidecar_path)
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_CORRUPT:
            return None
        raise
    finally:
        await disk.close(file)


async def scan_segment(disk: Disk, file: File, log: PartitionLog, scan: Scan) -> None:
    """Take the whole, fitting batches of the file into the log's last segment, which is empty."""
    segment = log.segments[-1]
    assert segment.size_bytes == 0, f"{segment.key.path} is scanned from its first byte on"
    while segment.size_bytes < file.size_bytes:
        data = await disk.read(file, segment.size_bytes, SCAN_BYTES)
        if not scan_data(log, scan, data):
            return


async def scan_alone(
    disk: Disk, key: SegmentKey, leader_epoch_max: LeaderEpoch, gaps_from: int
) -> tuple[int | None, str]:
    """Where a segment ends of which every batch is whole; None and the damage if one is not."""
    log = PartitionLog(key.partition, leader_epoch_max)
    log.log_end_offset = Offset(key.base_offset)
    log.begin_segment(key)
    scan = Scan(leader_epoch_max=leader_epoch_max, gaps_from=gaps_from)
    file = await disk.open(key.path)
    try:
        await scan_segment(disk, file, log, scan)
        if log.segments[-1].size_bytes < file.size_bytes:
            return None, scan.damage
    finally:
        await disk.close(file)
    return log.log_end_offset, ""


async def look_at(
    disk: Disk, key: SegmentKey, leader_epoch_max: LeaderEpoch, *, has_sidecar: bool
) -> Found:
    """What can be known of the segment with a small read; all of it is read only where a compacted
    segment has no sidecar, because nothing else tells where it ends."""
    if has_sidecar:
        summary = await read_summary(disk, key, await size_of(disk, key))
        if summary is not None:
            return Found(key=key, summary=summary, next_offset=summary.next_offset)
    if not key.generation:
        return Found(key=key)
    end, _ = await scan_alone(disk, key, leader_epoch_max, gaps_from=0)
    return Found(key=key, next_offset=end)
