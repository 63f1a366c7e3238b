"""Offsets by place and by time. Searches by time read whole batches below the high watermark."""

import asyncio
import enum
from collections.abc import Sequence

import msgspec

from tidelog.broker.errors import invalid
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.limits import PARTS_PER_REQUEST_MAX
from tidelog.broker.log.state import PartitionLog, Segment
from tidelog.broker.replicas import Replica, Replicas
from tidelog.ports import RequestContext
from tidelog.wire.batch import decode_batch, iterate_headers
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId

NONE_FOUND = (-1, -1)
SEARCH_BYTES = 64 * 1024
"""Read at a time: an index leads to within 4 KiB and one batch of what is sought."""


class OffsetSpec(enum.Enum):
    """What offset is asked for."""

    EARLIEST = "earliest"
    LATEST = "latest"
    AT_TIME = "at_time"
    MAX_TIMESTAMP = "max_timestamp"


class OffsetQuery(msgspec.Struct, frozen=True):
    """One question."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    spec: OffsetSpec
    timestamp_ms: int


class OffsetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """-1: there is no such record."""

    topic_id: TopicId
    partition: int
    error: TidelogError | None = None
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class OffsetsHandler:
    """Answers each query on its own."""

    def __init__(self, replicas: Replicas, fetch: FetchHandler) -> None:
        self._replicas = replicas
        self._fetch = fetch

    async def list_offsets(
        self, context: RequestContext, queries: Sequence[OffsetQuery]
    ) -> list[OffsetAnswer]:
        """One answer a query, in their order."""
        del context
        if len(queries) > PARTS_PER_REQUEST_MAX:
            raise invalid(
                "list offsets",
                f"{len(queries)} queries, the limit is {PARTS_PER_REQUEST_MAX}",
                "Ask in several requests.",
            )
        answers = []
        for query in queries:
            answers.append(await self._answer(query))
            # What the page cache holds is read without a pause: others must come between.
            await asyncio.sleep(0)
        return answers

    async def _answer(self, query: OffsetQuery) -> OffsetAnswer:
        tried = f"list offsets of {query.topic_id.hex()}-{query.partition}"
        try:
            replica = self._replicas.find(
                query.topic_id, query.partition, query.leader_epoch, tried=tried
            )
            offset, timestamp_ms = await self._search(replica, query)
        except TidelogError as error:
            return OffsetAnswer(topic_id=query.topic_id, partition=query.partition, error=error)
        return OffsetAnswer(
            topic_id=query.topic_id,
            partition=query.partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            leader_epoch=replica.log.leader_epoch,
        )

    async def _search(self, replica: Replica, query: OffsetQuery) -> tuple[int, int]:
        match query.spec:
            case OffsetSpec.EARLIEST:
                return replica.log.log_start_offset, -1
            case OffsetSpec.LATEST:
                return replica.log.high_watermark, -1
            case OffsetSpec.AT_TIME:
                return await self._at_time(replica, query.timestamp_ms)
            case OffsetSpec.MAX_TIMESTAMP:
                return await self._max_timestamp(replica)

    async def _at_time(self, replica: Replica, timestamp_ms: int) -> tuple[int, int]:
        """The first committed record at or after the time."""
        for segment in _segments_with(replica.log, timestamp_ms):
            start = segment.index.floor_of_time(timestamp_ms).base_offset
            found = await self._first_at(replica, segment, start, timestamp_ms)
            if found != NONE_FOUND:
                return found
        return NONE_FOUND

    async def _first_at(
        self, replica: Replica, segment: Segment, start: int, timestamp_ms: int
    ) -> tuple[int, int]:
        offset = start
        while offset < replica.log.high_watermark and (replica.log.segment_of(offset) is segment):
            found = await self._fetch.read(replica, offset, SEARCH_BYTES)
            for position, header in iterate_headers(found.data):
                if header.max_timestamp < timestamp_ms:
                    continue
                for record_offset, record_time_ms, *_ in decode_batch(found.data, position):
                    if record_time_ms >= timestamp_ms and record_offset >= start:
                        return record_offset, record_time_ms
            offset = found.next_offset
        return NONE_FOUND

    async def _max_timestamp(self, replica: Replica) -> tuple[int, int]:
        """The first record of the highest committed timestamp: found by the indexes, so that a
        long log is not read for it."""
        newest_ms = -1
        for segment in list(replica.log.segments):
            if segment.index.max_timestamp > newest_ms:
                newest_ms = max(newest_ms, await self._newest_of(replica, segment))
        return NONE_FOUND if newest_ms < 0 else await self._at_time(replica, newest_ms)

    async def _newest_of(self, replica: Replica, segment: Segment) -> int:
        """The highest committed timestamp of a segment; what its headers say is enough."""
        high_watermark = replica.log.high_watermark
        if replica.log.end_position()[0] != segment.base_offset:
            return segment.index.max_timestamp
        if not segment.size_bytes:
            return -1
        place, newest_ms = segment.index.highest_time_below(high_watermark)
        offset = place.base_offset
        while offset < high_watermark:
            found = await self._fetch.read(replica, offset, SEARCH_BYTES)
            for _, header in iterate_headers(found.data):
                newest_ms = max(newest_ms, header.max_timestamp)
            offset = found.next_offset
        return newest_ms


def _segments_with(log: PartitionLog, timestamp_ms: int) -> list[Segment]:
    return [
        segment
        for segment in log.segments
        if segment.size_bytes and segment.index.max_timestamp >= timestamp_ms
    ]
