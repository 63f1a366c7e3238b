"""How far a reader may read, and what it has to leave out: by its isolation level.

Owns the reading of committed records: batches below the last stable offset, together with every
aborted transaction that has a batch among them. It must never answer batches with fewer aborted
transactions than they hold, nor batches at or above the last stable offset. Stop 10 of a record's
walk.

Theory of operation. A log is read first, and asked for its aborted transactions afterwards. What is
aborted stays aborted and keeps its entry for as long as one of its batches is in the log, so the
entries are complete if the segment that was read is still the log's own when they are there. If a
compaction has replaced it meanwhile, both are read again.

The last stable offset moves only when the high watermark does, because the end of a transaction
counts once its marker is committed. So what wakes readers of everything wakes these as well; they
look how far they may read, and park again if that has not moved.

A list of transactions without a bound could be larger than the batches that it belongs to. Beyond
`ABORTED_MAX` the answer is made shorter, at a batch that would need one more, and never incomplete:
a batch belongs to one transaction, so at least one batch always goes.
"""

from bisect import bisect_right
from itertools import islice
from typing import Final

import msgspec

from tidelog.broker.log.index import INTERVAL_BYTES
from tidelog.broker.log.reading.plan import segment_holding
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import AbortedStretch, iterate_headers
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, ProducerId

ABORTED_MAX: Final = 2_000
"""Aborted transactions in the answer for one partition."""
ABORTED_BYTES: Final = 26
"""What one of them takes in an answer at most."""
READS_MAX: Final = 8
"""How often batches are read again because the log was changed under them."""


class Readable(msgspec.Struct, frozen=True):
    """Whole batches that a reader may have, and what it leaves out of them."""

    data: bytes
    next_offset: Offset
    """Where to go on."""
    aborted: tuple[AbortedStretch, ...] = ()

    @property
    def base_offset(self) -> int:
        """Of the first batch."""
        assert self.data, "there is a first batch"
        return int.from_bytes(self.data[:8], "big")

    @property
    def size_bytes(self) -> int:
        """What it takes in an answer."""
        return len(self.data) + ABORTED_BYTES * len(self.aborted)


def readable_end(log: PartitionLog, isolation: IsolationLevel) -> Offset:
    """The first offset that the reader may not have yet."""
    if isolation is IsolationLevel.READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def available_bytes(
    log: PartitionLog, offset: int, enough_bytes: int, isolation: IsolationLevel
) -> int:
    """About how much the reader may have from the offset on; stops counting at enough."""
    end = readable_end(log, isolation)
    if end >= log.high_watermark:
        return log.available_bytes(offset, enough_bytes)
    if offset >= end:
        return 0
    total = 0
    first = max(0, bisect_right(log.segments, offset, key=_base_offset_of) - 1)
    for segment in islice(log.segments, first, None):
        if total >= enough_bytes or segment.base_offset >= end:
            break
        total += _bytes_between(segment, offset, end)
    # Something is there, however coarse the index is in which its place was looked up.
    return max(1, total)


def _bytes_between(segment: Segment, begin: int, end: int) -> int:
    """About how much of the segment lies between the offsets: its share, if it is sealed.

    Rather too much than too little: whoever waits for so many bytes would wait in vain.
    """
    first, behind = max(begin, segment.base_offset), min(end, segment.next_offset)
    if first >= behind:
        return 0
    if segment.index is not None and segment.size_bytes:
        start = segment.index.floor(first).byte_position
        stop = segment.index.floor(behind - 1).byte_position + INTERVAL_BYTES
        return min(stop, segment.size_bytes) - start
    offsets = segment.next_offset - segment.base_offset
    return segment.size_bytes * (behind - first) // offsets


async def read_batches(
    reader: LogReader,
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    isolation: IsolationLevel,
    *,
    aborted_max: int = ABORTED_MAX,
) -> Readable:
    """Whole batches from the one that holds `offset` on; empty where the reader may read no more.

    At most `max_bytes`, but at least one batch whatever its size.
    """
    if isolation is not IsolationLevel.READ_COMMITTED:
        found = await reader.read(log, offset, max_bytes)
        return Readable(found.data, found.next_offset)
    place = offset
    for _ in range(READS_MAX):
        stable_offset = log.last_stable_offset
        segment = segment_holding(log, place)
        found = await reader.read(log, place, max_bytes, upper_bound=stable_offset)
        if not found.data:
            return Readable(b"", Offset(offset))
        if found.next_offset > log.last_stable_offset:
            # The watermark was lowered meanwhile: somebody decided so.
            continue
        begin_offset = found.base_offset
        aborted = await reader.aborted_between(log, begin_offset, found.next_offset)
        if segment_holding(log, begin_offset) is not segment:
            place = max(place, begin_offset)
            continue
        if not aborted:
            return Readable(found.data, found.next_offset)
        stretches = tuple(
            AbortedStretch(ProducerId(each.producer_id), each.first_offset) for each in aborted
        )
        return within(Readable(found.data, found.next_offset, stretches), aborted_max)
    raise TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"read committed records of {log.key} from offset {offset}",
        happened=f"the log was changed under {READS_MAX} attempts",
    )


def within(found: Readable, aborted_max: int) -> Readable:
    """The same with at most so many aborted transactions: fewer batches, if it has to be."""
    assert aborted_max >= 1, "a batch may belong to a transaction"
    if len(found.aborted) <= aborted_max:
        return found
    waiting = sorted(found.aborted, key=_first_offset_of, reverse=True)
    open_: dict[int, AbortedStretch] = {}
    needed: dict[AbortedStretch, None] = {}
    next_offset = found.next_offset
    for position, header in iterate_headers(found.data, is_compacted=True):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            began = waiting.pop()
            open_[began.producer_id] = began
        stretch = open_.get(header.producer_id)
        if stretch is not None and header.is_control:
            del open_[header.producer_id]
        elif stretch is not None and header.is_transactional:
            if stretch not in needed and len(needed) == aborted_max:
                return Readable(found.data[:position], next_offset, tuple(needed))
            needed[stretch] = None
        next_offset = header.next_offset
    # Others overlap it, and none of their batches is here.
    return Readable(found.data, found.next_offset, tuple(needed))


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset


def _first_offset_of(stretch: AbortedStretch) -> int:
    return stretch.first_offset
