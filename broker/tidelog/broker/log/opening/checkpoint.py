"""Writes the clean checkpoint at the end of a clean stop, and consumes it at the next start.

Thin I/O around `clean_checkpoint`. It must never leave a checkpoint behind once anything else is
written to the directory, nor restore a log of which the marks tell something else, or a file is
gone: somebody may have moved it while the node was down.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.marks.file import read_marks
from tidelog.broker.log.marks.marks import NO_MARKS, PartitionMarks
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.opening.clean_checkpoint import (
    NAME,
    NEW_NAME,
    CheckpointReader,
    CleanLog,
    CleanSegment,
    encode_pieces,
)
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.of_segment import NONE_OPEN, SegmentTransactions
from tidelog.ports import Append, Disk, FileUnusable
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

_PIECE_BYTES: Final = 1024 * 1024
_ENTRY_FIELDS: Final = 3


async def write_checkpoint(disk: Disk, logs: Iterable[PartitionLog]) -> None:
    """Leave what the next start needs of these logs; all of them are flushed and change no more.

    A log that has stopped is left out: its next opening looks at every byte. So is one of which the
    marks do not tell the same: on a full disk the last of them found no room, and the next opening
    could not tell that from damage.
    """
    known = await read_marks(disk) or {}
    told = [
        log for log in logs if not log.failure and not _differs(log, known.get(log.key, NO_MARKS))
    ]
    if NEW_NAME in await disk.list():
        await disk.remove(NEW_NAME)
    file = await disk.open(NEW_NAME, create=True)
    try:
        for piece in _joined(encode_pieces(_clean_log(log) for log in told)):
            await disk.append([Append(file, [piece])])
        await disk.flush([file], directories=[""])
        await disk.rename(NEW_NAME, NAME)
        await disk.flush([], directories=[""])
    finally:
        await disk.close(file)


async def consume_checkpoint(
    disk: Disk, names: Sequence[str]
) -> tuple[Mapping[PartitionKey, CleanLog], TidelogError | None]:
    """What the last stop left, and why it tells nothing if it is damaged.

    It is gone for good once this returns. `names` are those in the data directory.
    """
    logs: Mapping[PartitionKey, CleanLog] = {}
    damage = None
    if NAME in names:
        try:
            logs = await _read(disk)
        except TidelogError as error:
            damage = error
    removed = [name for name in (NEW_NAME, NAME) if name in names]
    for name in removed:
        await disk.remove(name)
    if removed:
        await disk.flush([], directories=[""])
    return logs, damage


async def has_its_files(disk: Disk, log: PartitionLog) -> bool:
    """Whether every file of a restored log has its name; False also where that cannot be seen.

    Lengths are looked at by whoever opens a file first: one that differs stops its partition then.
    """
    try:
        names = await disk.list(directory_name(log.key))
    except FileUnusable:
        return False
    wanted = [segment.key.path for segment in log.segments]
    wanted += [each.key.sidecar_path for each in log.segments if each.summary is not None]
    return all(path.rpartition("/")[2] in names for path in wanted)


def restore(clean: CleanLog, leader_epoch: LeaderEpoch, marks: PartitionMarks) -> PartitionLog:
    """The log as it was at the stop; STORAGE_CORRUPT if that cannot be."""
    log = PartitionLog(clean.key, leader_epoch)
    log.log_start_offset = Offset(clean.log_start_offset)
    log.log_end_offset = log.flushed_offset = log.high_watermark = Offset(clean.log_end_offset)
    # Of both only the marks tell: the start that they tell of was found to be the same.
    log.gaps_from = Offset(marks.gaps_from)
    log.log_start_epoch = LeaderEpoch(marks.log_start_epoch)
    log.segments = [_segment(clean, each) for each in clean.segments]
    log.leader_epochs = LeaderEpochs(clean.leader_epochs)
    log.know_producers(ProducerState.decode(clean.producers, where=f"{NAME}: {clean.key}"))
    for ended in clean.ended:
        log.transactions.hold(ended)
    log.high_watermark_position = log.end_position()
    if wrong := _wrong_in(log, marks):
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=f"restore {clean.key} from {NAME}", happened=wrong
        )
    return log


def _wrong_in(log: PartitionLog, marks: PartitionMarks) -> str:
    """What contradicts itself, the marks or the metadata; empty: nothing does."""
    if differs := _differs(log, marks):
        return differs
    if log.leader_epochs.latest > log.leader_epoch:
        return f"its leader epoch is {log.leader_epochs.latest}, not up to {log.leader_epoch}"
    end_offset = log.segments[0].base_offset if log.segments else log.log_end_offset
    if end_offset > log.log_start_offset:
        return f"its first segment begins at offset {end_offset}, not {log.log_start_offset}"
    for segment in log.segments:
        if segment.base_offset != end_offset:
            return f"a segment begins at offset {segment.base_offset}, not {end_offset}"
        if not segment.is_sealed and segment is not log.segments[-1]:
            return f"the segment at offset {segment.base_offset} is not the last, and not sealed"
        end_offset = segment.next_offset
    if end_offset != log.log_end_offset:
        return f"its last segment ends at offset {end_offset}, not {log.log_end_offset}"
    return ""


def _differs(log: PartitionLog, marks: PartitionMarks) -> str:
    """What the marks tell else of its two ends; empty: the same."""
    if (log.log_start_offset, log.log_end_offset) == (marks.log_start_offset, marks.flushed_offset):
        return ""
    return (
        f"it goes from {log.log_start_offset} to {log.log_end_offset}, "
        f"the marks say from {marks.log_start_offset} to {marks.flushed_offset}"
    )


async def _read(disk: Disk) -> Mapping[PartitionKey, CleanLog]:
    file = await disk.open(NAME)
    reader = CheckpointReader()
    try:
        for position in range(0, file.size_bytes, _PIECE_BYTES):
            reader.take(await disk.read(file, position, _PIECE_BYTES))
    finally:
        await disk.close(file)
    return reader.finish()


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer appends."""
    waiting: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        waiting.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size_bytes = [], 0
    yield b"".join(waiting)


def _clean_log(log: PartitionLog) -> CleanLog:
    assert log.flushed_offset == log.log_end_offset, f"{log.key} is not flushed to its end"
    return CleanLog(
        topic_id=log.key.topic_id,
        partition=log.key.partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        segments=tuple(_clean_segment(segment) for segment in log.segments),
        leader_epochs=log.leader_epochs.starts,
        producers=log.producers.encode(),
        high_watermark=Offset(-1 if log.uncommitted is None else log.high_watermark),
        ended=tuple(log.transactions.ended),
    )


def _clean_segment(segment: Segment) -> CleanSegment:
    base_offset, generation = segment.key.base_offset, segment.key.generation
    if segment.summary is not None:
        return CleanSegment(
            base_offset=base_offset,
            generation=generation,
            summary=segment.summary,
            are_producers_whole=segment.are_producers_whole,
        )
    assert segment.index is not None, f"{segment.key.path} has neither sidecar nor index"
    entries = [field for entry in segment.index.entries() for field in entry]
    return CleanSegment(
        base_offset=base_offset,
        generation=generation,
        size_bytes=segment.size_bytes,
        next_offset=segment.next_offset,
        max_timestamp=segment.max_timestamp,
        first_timestamp=segment.first_timestamp,
        is_sealed=segment.is_sealed,
        producers_at_end=segment.producers_at_end,
        producers_before=segment.producers_before,
        index=struct.pack(f">{len(entries)}q", *entries),
        transactions=segment.transactions.encode() if segment.transactions else b"",
    )


def _segment(log: CleanLog, clean: CleanSegment) -> Segment:
    key = SegmentKey(log.key, Offset(clean.base_offset), clean.generation)
    if clean.summary is not None:
        sealed = Segment.from_summary(clean.summary)
        sealed.are_producers_whole = clean.are_producers_whole
        return sealed
    segment = Segment(key)
    segment.next_offset = Offset(clean.next_offset)
    segment.size_bytes = clean.size_bytes
    segment.max_timestamp = clean.max_timestamp
    segment.first_timestamp = clean.first_timestamp
    segment.index = _index(clean.index, clean.max_timestamp)
    segment.producers_before = clean.producers_before
    if clean.transactions:
        where = f"{NAME}: {key.path}"
        segment.transactions = SegmentTransactions.decode(clean.transactions, where=where)
    if clean.is_sealed:
        told = segment.transactions
        segment.seal(
            clean.producers_at_end,
            first_open_offset=NONE_OPEN if told is None else told.first_open_offset,
        )
    return segment


def _index(data: bytes, max_timestamp: int) -> SparseIndex:
    """The index with these entries: each is added as its first batch was.

    An entry holds the highest timestamp before it, so what the one behind it holds stands for all
    batches of an entry.
    """
    fields = struct.unpack(f">{len(data) // 8}q", data)
    offsets, positions = fields[0::_ENTRY_FIELDS], fields[1::_ENTRY_FIELDS]
    timestamps = [*fields[2::_ENTRY_FIELDS][1:], max_timestamp]
    index = SparseIndex()
    for offset, position, timestamp in zip(offsets, positions, timestamps, strict=bool(offsets)):
        index.add(offset, position, timestamp)
    return index
