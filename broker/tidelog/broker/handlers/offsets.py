"""Answers questions for offsets by place and by time; only what is committed counts."""

import asyncio
import enum
from collections.abc import Sequence

import msgspec

from tidelog.broker.errors import invalid
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.limits import PARTS_PER_REQUEST_MAX
from tidelog.broker.log.lookup_by_time import TimeSearch
from tidelog.broker.replicas import Replica, Replicas
from tidelog.ports import RequestContext
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId


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
                search = TimeSearch(replica.directory.reader)
                return await search.first_at(replica.log, query.timestamp_ms)
            case OffsetSpec.MAX_TIMESTAMP:
                search = TimeSearch(replica.directory.reader)
                return await search.newest(replica.log)
