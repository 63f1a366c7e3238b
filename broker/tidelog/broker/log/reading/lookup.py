"""Where to begin reading a segment, whether its index is in memory or in its sidecar.

Owns the choice between the two, and what happens if a sidecar is damaged: it is reported, to be
made again, and until then the segment's own batches are walked once and give the same index. No
lookup fails because of what is derived.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.broker.log.index import Place, SparseIndex
from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.plan import plan_of
from tidelog.broker.log.reading.verify import Walk
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.sidecar.reader import IndexEntry, Recent, SidecarReader
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.wire.batch.layout import MAX_TIMESTAMP_POSITION
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BytePosition

WALK_BYTES: Final = 1024 * 1024
"""Read at a time where a sidecar is damaged."""
WALKED_INDEXES_MAX: Final = 4
"""Kept of segments whose sidecar is damaged; 24 bytes for each 4 KiB of a segment."""
REPORTED_SIDECARS_MAX: Final = 1_000
"""Remembered, so that they are not reported with every read."""

ReadSegment = Callable[[SegmentKey, int, int], Awaitable[bytes]]
"""Segment, byte position, length → bytes."""


class Lookups:
    """One a data directory; whoever calls it pins the segment."""

    def __init__(
        self,
        read: ReadSegment,
        sidecars: SidecarReader,
        *,
        on_damaged: Callable[[SegmentKey], None],
    ) -> None:
        """`on_damaged` is told once of a sidecar that is missing or damaged, until it has been made
        again."""
        self._read = read
        self._sidecars = sidecars
        self._walked: Recent[SegmentKey, SparseIndex] = Recent(WALKED_INDEXES_MAX)
        self._reported: Recent[SegmentKey, Summary] = Recent(REPORTED_SIDECARS_MAX)
        self._on_damaged = on_damaged

    async def floor(self, segment: Segment, offset: int) -> Place:
        """The last known batch that begins at or below the offset, else the first one."""
        index, summary = segment.index, segment.summary
        if index is None:
            assert summary is not None, f"{segment.key.path} has an index or a sidecar"
            if (place := self._sidecars.resume(summary, offset)) is not None:
                return place
            try:
                return (await self._sidecars.floor(summary, offset)).place
            except TidelogError as error:
                index = await self._walk(segment, summary, error)
        return index.floor(offset)

    async def floor_of_time(self, segment: Segment, timestamp_ms: int) -> Place:
        """From here on lies the first record at or after the time, if the segment has one."""
        index, summary = segment.index, segment.summary
        if index is None:
            assert summary is not None, f"{segment.key.path} has an index or a sidecar"
            try:
                return (await self._sidecars.floor_of_time(summary, timestamp_ms)).place
            except TidelogError as error:
                index = await self._walk(segment, summary, error)
        return index.floor_of_time(timestamp_ms)

    async def highest_time_below(self, segment: Segment, offset: int) -> IndexEntry:
        """The last indexed batch that begins at or below the offset, and the highest timestamp
        of all before that batch."""
        index, summary = segment.index, segment.summary
        if index is None:
            assert summary is not None, f"{segment.key.path} has an index or a sidecar"
            try:
                return await self._sidecars.floor(summary, offset)
            except TidelogError as error:
                index = await self._walk(segment, summary, error)
        return IndexEntry(*index.highest_time_below(offset))

    async def transactions(self, segment: Segment) -> SegmentTransactions | None:
        """What the segment tells of transactions; None: it has to do with none.

        UNAVAILABLE while its sidecar is damaged: what was aborted in it was perhaps begun before
        it, so its own batches do not tell.
        """
        summary = segment.summary
        if summary is None:
            return segment.transactions
        try:
            return await self._sidecars.transactions(summary)
        except TidelogError as error:
            self._report(summary, error)
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"find the aborted transactions of {segment.key.path}",
                happened=error.happened,
                hint="Ask again: its sidecar is made again from the segment.",
            ) from None

    async def digests(self, summary: Summary, first: int, count: int) -> list[int] | None:
        """Of pieces of the segment; None if its sidecar is damaged."""
        try:
            return await self._sidecars.digests(summary, first, count)
        except TidelogError as error:
            self._report(summary, error)
            return None

    def remember(self, segment: Segment, offset: int, byte_position: int) -> None:
        """A read of it ended here."""
        if segment.index is None and segment.summary is not None:
            self._sidecars.remember(segment.summary, offset, byte_position)

    def _report(self, summary: Summary, error: TidelogError) -> None:
        """Anything else than a damaged or missing sidecar is for the caller."""
        if error.code not in (ErrorCode.STORAGE_CORRUPT, ErrorCode.STORAGE_FAILED):
            raise error
        if self._reported.get(summary.key) is not summary:
            self._reported.put(summary.key, summary)
            self._on_damaged(summary.key)

    async def _walk(self, segment: Segment, summary: Summary, error: TidelogError) -> SparseIndex:
        """The same index from the segment's batches."""
        self._report(summary, error)
        index = self._walked.get(segment.key)
        if index is None:
            index = await self._walked_index(segment)
            self._walked.put(segment.key, index)
        return index

    async def _walked_index(self, segment: Segment) -> SparseIndex:
        index = SparseIndex()
        plan = plan_of(
            segment, Place(segment.base_offset, BytePosition(0)), WALK_BYTES, has_gaps=True
        )
        while True:
            data = await self._read(plan.segment, plan.byte_position, plan.length_bytes)
            # Epochs are looked at when the batches are served.
            walk = Walk(plan, data, LeaderEpochs(), segment.next_offset)
            while walk.peek():
                start = walk.position + MAX_TIMESTAMP_POSITION
                max_timestamp = int.from_bytes(data[start : start + 8], "big", signed=True)
                index.add(walk.base_offset, plan.byte_position + walk.position, max_timestamp)
                walk.step()
            if walk.position >= plan.readable_bytes:
                return index
            if not walk.position:
                raise walk.damage("the file ends there")
            plan = plan.behind(walk.position, walk.next_offset, WALK_BYTES)
            # What the page cache holds is read without a pause: others must come between.
            await asyncio.sleep(0)
