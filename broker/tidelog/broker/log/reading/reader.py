"""Reads whole batches from a log: what a fetch answers and what a search by time walks.

Thin I/O around plans (`reading.plan`), lookups (`lookup`) and verification (`reading.verify`). It
must never return a byte at or above the bound, a part of a batch, or a batch that was not verified.
Stop 10 of a record's walk.

Theory of operation. A read answers from one segment, from the batch on that holds the offset, or
from the next one if the offset lies in a gap:

    segment of the offset ─▶ pin it ─▶ place (index, sidecar, or where the last read ended)
         ▲                                ─▶ read ─▶ skip to the batch ─▶ verify, take, verify, …
         └── the log was changed meanwhile: the plan is made again, a bounded number of times

A pinned segment is read to the end although it was replaced or trimmed: its bytes were right when
the read began. What looks like damage counts only if the segment is still the log's own: a tail
that is being cut away looks damaged as well. Batches before damage are served, the read that begins
at it raises STORAGE_CORRUPT and stops the partition.

Reads of old segments may wait for the disk. Only `COLD_READS_MAX` of them are under way at once, in
the order in which they came, so that scans leave readers of the port's pool to the others.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.lookup import Lookups
from tidelog.broker.log.reading.plan import (
    LOOKUP_BYTES,
    ReadPlan,
    is_current,
    plan_of,
    segment_holding,
)
from tidelog.broker.log.reading.verify import Walk
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES
from tidelog.broker.log.sidecar.digests import digest_of
from tidelog.broker.log.sidecar.reader import SidecarReader
from tidelog.broker.log.state.log import NO_GAPS, PartitionLog
from tidelog.broker.log.state.recovery import corruption
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.broker.log.transactions.of_segment import NONE_OPEN
from tidelog.ports import FileUnusable
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionKey

PLANS_MAX: Final = 8
"""How often a read is planned again because the log was changed under it."""
STEPS_MAX: Final = 16
"""Reads of a plan until its batch is found whole: from an indexed batch to the next at most."""
COLD_READS_MAX: Final = 2
"""Reads of old segments at once, per data directory: half of the port's readers."""
HOT_SEGMENTS: Final = 2
"""The last ones of a log: readers near its end find them in the page cache."""


class LogFiles(Protocol):
    """What a data directory's owner offers to readers."""

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        """Bytes of a segment."""
        ...

    async def read_sidecar(
        self, segment: SegmentKey, byte_position: int, length_bytes: int
    ) -> bytes:
        """Bytes of its sidecar."""
        ...

    def reading(self, segment: SegmentKey) -> AbstractContextManager[None]:
        """Its files stay meanwhile."""
        ...

    def fail(self, key: PartitionKey, error: TidelogError) -> None:
        """Damage was found: the partition stops."""
        ...


class Batches(msgspec.Struct, frozen=True):
    """Whole batches, one behind the other."""

    data: bytes
    next_offset: Offset
    """Where to go on."""

    @property
    def base_offset(self) -> int:
        """Of the first batch."""
        assert self.data, "there is a first batch"
        return int.from_bytes(self.data[:8], "big")


class LogReader:
    """One a data directory."""

    def __init__(
        self,
        files: LogFiles,
        sidecars: SidecarReader | None = None,
        *,
        on_damaged: Callable[[SegmentKey], None] | None = None,
    ) -> None:
        """`on_damaged` is told of sidecars that are to be made again; None: nobody makes them."""
        self._files = files
        self.lookups = Lookups(
            files.read,
            sidecars or SidecarReader(files.read_sidecar),
            on_damaged=on_damaged or _nobody_makes_it_again,
        )
        self._cold_reads = asyncio.Semaphore(COLD_READS_MAX)

    async def read(
        self, log: PartitionLog, offset: int, max_bytes: int, *, upper_bound: int | None = None
    ) -> Batches:
        """Whole batches from the one that holds `offset` on; empty at the bound.

        At most `max_bytes`, but at least one batch whatever its size. The bound is the high
        watermark, or an offset up to the log's end. A batch that reaches beyond it is not served.
        """
        wanted = offset
        for _ in range(PLANS_MAX):
            bound = _bound_of(log, upper_bound)
            _check_start(log, wanted)
            segment = segment_holding(log, offset) if offset < bound else None
            if segment is None:
                return Batches(b"", Offset(wanted))
            try:
                found = await self._read_pinned(log, segment, offset, max_bytes, bound)
            except TidelogError as error:
                if not is_current(log, segment) or _bound_of(log, upper_bound) < bound:
                    continue
                if error.code is ErrorCode.STORAGE_CORRUPT or isinstance(error, FileUnusable):
                    # A file that is gone is gone for all readers: it is copied from a replica.
                    self._files.fail(log.key, error)
                raise
            if found is None:
                offset = segment.next_offset
            elif not found.data:
                return Batches(b"", Offset(wanted))
            elif found.next_offset <= _bound_of(log, upper_bound):
                return found
        raise _changed(f"read {log.key} from offset {wanted}")

    async def aborted_between(
        self, log: PartitionLog, begin_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions with a batch between the offsets, in the order of their markers.

        The end is exclusive, and at or below the last stable offset: what is aborted by a marker
        that is not committed was not aborted. Whoever has read batches asks for all of them.
        """
        for _ in range(PLANS_MAX):
            cut_count = log.cut_count
            found = await self._aborted_between(log, begin_offset, end_offset)
            if found is not None and log.cut_count == cut_count:
                return found
        raise _changed(f"find the aborted transactions of {log.key} from offset {begin_offset}")

    async def _aborted_between(
        self, log: PartitionLog, begin_offset: int, end_offset: int
    ) -> list[AbortedTransaction] | None:
        """None: the log was changed under it."""
        found: list[AbortedTransaction] = []
        offset = begin_offset
        while (segment := segment_holding(log, offset)) is not None:
            with self._files.reading(segment.key):
                told = await self.lookups.transactions(segment)
            if not is_current(log, segment):
                return None
            if told is not None:
                entries = told.aborted.overlapping(begin_offset, end_offset)
                # A segment that was joined with the one before meanwhile holds its markers too.
                found += [each for each in entries if each.marker_offset >= offset]
            offset = segment.next_offset
            # Later segments count as long as one is open here that began before the end.
            first_open_offset = NONE_OPEN if told is None else told.first_open_offset
            is_sealed_end = offset >= end_offset
            if is_sealed_end and not NONE_OPEN < first_open_offset < end_offset:
                break
        return found

    def pinned(self, segment: Segment) -> AbstractContextManager[None]:
        """Its files stay meanwhile: for lookups."""
        return self._files.reading(segment.key)

    async def _read_pinned(
        self, log: PartitionLog, segment: Segment, offset: int, max_bytes: int, bound: int
    ) -> Batches | None:
        async with contextlib.AsyncExitStack() as held:
            held.enter_context(self._files.reading(segment.key))
            if _is_cold(log, segment):
                await held.enter_async_context(self._cold_reads)
            return await self._read_segment(log, segment, offset, max_bytes, bound)

    async def _read_segment(
        self, log: PartitionLog, segment: Segment, offset: int, max_bytes: int, bound: int
    ) -> Batches | None:
        """The batches; empty at the bound; None if none lies at or behind the offset in here."""
        place = await self.lookups.floor(segment, offset)
        plan = plan_of(segment, place, max_bytes, has_gaps=has_gaps(log, segment))
        for _ in range(STEPS_MAX):
            data, damage = await self._read_plan(segment, plan)
            walk = Walk(plan, data, log.leader_epochs, log.log_start_offset)
            is_found = _skip_before(walk, offset)
            if is_found and walk.end_offset > bound:
                return Batches(b"", Offset(offset))
            if is_found and walk.is_whole:
                found = _take(walk, max_bytes, bound)
                self.lookups.remember(
                    segment, found.next_offset, plan.byte_position + walk.position
                )
                return found
            if damage is not None:
                raise damage
            if walk.position >= plan.readable_bytes:
                return None
            needed = walk.size_bytes if is_found else LOOKUP_BYTES
            plan = plan.behind(walk.position, walk.next_offset, max(max_bytes, needed))
        raise AssertionError(f"{segment.key.path}: offset {offset} is not near its index entry")

    async def _read_plan(
        self, segment: Segment, plan: ReadPlan
    ) -> tuple[bytes, TidelogError | None]:
        """The bytes up to the first damage, and what is damaged behind them."""
        start, summary = plan.byte_position, segment.summary
        if not plan.has_gaps or summary is None:
            data = await self._files.read(plan.segment, start, plan.length_bytes)
            return data, _cut_off(plan, start, len(data), plan.length_bytes)
        first, end = start // DIGEST_BYTES, -(-(start + plan.length_bytes) // DIGEST_BYTES)
        lead = start - first * DIGEST_BYTES
        wanted = min(end * DIGEST_BYTES, start + plan.readable_bytes) - first * DIGEST_BYTES
        data = await self._files.read(plan.segment, first * DIGEST_BYTES, wanted)
        damage = _cut_off(plan, first * DIGEST_BYTES, len(data), wanted)
        digests = await self.lookups.digests(summary, first, end - first)
        for number, digest in enumerate(digests or ()):
            position = number * DIGEST_BYTES
            block = data[position : position + DIGEST_BYTES]
            if digest_of(plan.segment.partition, first * DIGEST_BYTES + position, block) != digest:
                at = max(start, first * DIGEST_BYTES + position)
                happened = f"the {len(block)} bytes there contradict their digest"
                return data[lead:position], corruption(plan.segment.path, at, happened, verb="read")
        return data[lead : lead + plan.length_bytes], damage


def _changed(tried: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=tried,
        happened=f"the log was changed under {PLANS_MAX} attempts",
    )


def has_gaps(log: PartitionLog, segment: Segment) -> bool:
    """Whether offsets may ascend with gaps in here."""
    return segment.is_compacted or (
        log.gaps_from != NO_GAPS and segment.next_offset > log.gaps_from
    )


def _bound_of(log: PartitionLog, upper_bound: int | None) -> int:
    return log.high_watermark if upper_bound is None else min(upper_bound, log.log_end_offset)


def _check_start(log: PartitionLog, offset: int) -> None:
    if offset < log.log_start_offset:
        raise TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"read {log.key} from offset {offset}",
            happened=f"the log begins at {log.log_start_offset}",
        )


def _is_cold(log: PartitionLog, segment: Segment) -> bool:
    return all(segment is not each for each in log.segments[-HOT_SEGMENTS:])


def _cut_off(plan: ReadPlan, start: int, read_bytes: int, wanted: int) -> TidelogError | None:
    """Damage if the file ends before the plan does."""
    if read_bytes >= wanted:
        return None
    happened = f"the file ends there, {wanted - read_bytes} bytes early"
    return corruption(plan.segment.path, start + read_bytes, happened, verb="read")


def _skip_before(walk: Walk, offset: int) -> bool:
    """Stop at the batch that holds the offset, or the first one behind it; False: not in here."""
    while walk.peek():
        if walk.end_offset > offset:
            return True
        walk.step()
    return False


def _take(walk: Walk, max_bytes: int, bound: int) -> Batches:
    """The batch that was looked at, and those behind it that are whole, right and wanted."""
    start = walk.position
    walk.verify()
    walk.step()
    limit = min(len(walk.data), start + max_bytes)
    with contextlib.suppress(TidelogError):
        while walk.peek() and walk.position + walk.size_bytes <= limit:
            if walk.end_offset > bound:
                break
            walk.verify()
            walk.step()
    is_all = start == 0 and walk.position == len(walk.data)
    data = walk.data if is_all else walk.data[start : walk.position]
    return Batches(data, Offset(walk.next_offset))


def _nobody_makes_it_again(key: SegmentKey) -> None:
    del key
