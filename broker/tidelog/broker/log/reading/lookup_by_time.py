"""Searches by time: the first record at or after a time, and the record of the highest time.

Thin I/O around the log's reader. Summaries and indexes choose the segment and the place, so that
one index block and a few batches are read however long the log is. It must never answer a record
that is trimmed or not committed. Times need not ascend: the first record is the one of the lowest
offset, as with Kafka.
"""

import asyncio
from typing import Final

from tidelog.broker.log.reading.plan import segment_holding
from tidelog.broker.log.reading.reader import Batches, LogReader
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import BatchHeader, decode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode, TidelogError

NONE_FOUND: Final = (-1, -1)
"""Offset and timestamp where there is no such record."""
SEARCH_BYTES: Final = 64 * 1024
"""Read at a time: an index leads to within 4 KiB and one batch of what is sought."""
NO_TIMESTAMP: Final = -1


class TimeSearch:
    """Over one reader; `bound` is the offset below which records count."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    async def first_at(
        self, log: PartitionLog, timestamp_ms: int, *, bound: int | None = None
    ) -> tuple[int, int]:
        """Offset and time of the first record at or after the time."""
        end = log.high_watermark if bound is None else bound
        offset: int = log.log_start_offset
        # Each segment is found anew: those of a moment ago may be compacted or trimmed away.
        while offset < end and (segment := segment_holding(log, offset)) is not None:
            if segment.max_timestamp >= timestamp_ms:
                with self._reader.pinned(segment):
                    place = await self._reader.lookups.floor_of_time(segment, timestamp_ms)
                begin = max(offset, place.base_offset)
                found = await self._first_in(log, segment, begin, end, timestamp_ms)
                if found != NONE_FOUND:
                    return found
            offset = max(segment.next_offset, log.log_start_offset)
        return NONE_FOUND

    async def newest(self, log: PartitionLog, *, bound: int | None = None) -> tuple[int, int]:
        """Offset and time of the first record that has the highest time."""
        end = log.high_watermark if bound is None else bound
        newest_ms = NO_TIMESTAMP
        behind: int = end
        # From the last one on: where times ascend, no earlier segment has to be looked into.
        while behind > log.log_start_offset:
            segment = segment_holding(log, behind - 1)
            if segment is None:
                break
            if segment.max_timestamp > newest_ms:
                newest_ms = max(newest_ms, await self._newest_of(log, segment, end))
            behind = min(behind - 1, segment.base_offset)
        if newest_ms == NO_TIMESTAMP:
            return NONE_FOUND
        return await self.first_at(log, newest_ms, bound=end)

    async def _first_in(
        self, log: PartitionLog, segment: Segment, offset: int, end: int, timestamp_ms: int
    ) -> tuple[int, int]:
        """In this segment, from the batch on that begins at or below the offset."""
        end = min(end, segment.next_offset)
        while (offset := max(offset, log.log_start_offset)) < end:
            found = await self._read(log, offset, end)
            if found is None:
                continue
            if not found.data:
                return NONE_FOUND
            for position, header in iterate_headers(found.data, is_compacted=True):
                if header.max_timestamp < timestamp_ms or not header.record_count:
                    continue
                for record_offset, record_time_ms in _records(found, position):
                    is_kept = record_offset >= log.log_start_offset
                    if record_time_ms >= timestamp_ms and is_kept:
                        return record_offset, record_time_ms
            offset = found.next_offset
        return NONE_FOUND

    async def _newest_of(self, log: PartitionLog, segment: Segment, end: int) -> int:
        """The highest time of the segment's records that are neither trimmed nor beyond the end."""
        summary, log_start_offset = segment.summary, log.log_start_offset
        is_whole = segment.next_offset <= end
        is_trimmed = segment.base_offset < log_start_offset and not (
            is_whole and summary is not None and summary.max_timestamp_offset >= log_start_offset
        )
        if is_whole and not is_trimmed:
            return segment.max_timestamp
        offset: int = log_start_offset
        newest_ms = NO_TIMESTAMP
        if not is_trimmed:
            with self._reader.pinned(segment):
                entry = await self._reader.lookups.highest_time_below(segment, end)
            offset, newest_ms = entry.place.base_offset, entry.max_timestamp_before
        end = min(end, segment.next_offset)
        while (offset := max(offset, log.log_start_offset)) < end:
            found = await self._read(log, offset, end)
            if found is None:
                continue
            if not found.data:
                break
            for position, header in iterate_headers(found.data, is_compacted=True):
                newest_ms = max(newest_ms, _newest_kept(found, position, header, log_start_offset))
            offset = found.next_offset
        return newest_ms

    async def _read(self, log: PartitionLog, offset: int, end: int) -> Batches | None:
        """Batches; None if the log was trimmed beyond the offset meanwhile."""
        # What the page cache holds is read without a pause: others must come between.
        await asyncio.sleep(0)
        try:
            return await self._reader.read(log, offset, SEARCH_BYTES, upper_bound=end)
        except TidelogError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and offset < log.log_start_offset:
                return None
            raise


def _newest_kept(found: Batches, position: int, header: BatchHeader, log_start_offset: int) -> int:
    """The header tells, but for the batch that the log begins inside of."""
    if header.base_offset >= log_start_offset:
        return header.max_timestamp if header.record_count else NO_TIMESTAMP
    return max(
        (each[1] for each in _records(found, position) if each[0] >= log_start_offset),
        default=NO_TIMESTAMP,
    )


def _records(found: Batches, position: int) -> list[tuple[int, int]]:
    """Offsets and times of a batch; the reader has verified its checksum."""
    records = decode_batch(found.data, position, verify=False, is_compacted=True)
    return [(record[0], record[1]) for record in records]
