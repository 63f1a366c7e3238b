"""Answers questions for offsets by place and by time; only what is committed counts.

To a reader of committed records the log ends at its last stable offset, for every question.

Owns the rule that the end never seems to fall: a new leader whose watermark has not reached the
start of its own epoch knows of less than its predecessor had told, and says so instead of a number.
It must never answer of a partition that this broker does not lead. One that has lost contact to the
controllers, as after it was stopped, first tries to learn whether it still leads; where no
controller is in reach at all it answers what it knows, since a cluster goes on serving without one.
But it tells a reader of committed records no end then: another broker may have shown a later one,
and whoever reads to the end after somebody else must not see less.
"""

import asyncio
from collections.abc import Sequence

from tidelog.broker.log.reading.lookup_by_time import NONE_FOUND, TimeSearch
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.watermark_lag import lag_of
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.fetch.isolation import readable_end
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX
from tidelog.ports import RequestContext
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery, OffsetSpec
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tidelog.wire.refusals import invalid


class OffsetsHandler:
    """Answers each query on its own."""

    def __init__(self, replicas: Replicas, leadership: Leadership) -> None:
        self._replicas = replicas
        self._leadership = leadership

    async def list_offsets(
        self,
        context: RequestContext,
        queries: Sequence[OffsetQuery],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[OffsetAnswer]:
        """One answer a query, in their order."""
        del context
        if len(queries) > PARTS_PER_REQUEST_MAX:
            raise invalid(
                "list offsets",
                f"{len(queries)} queries, the limit is {PARTS_PER_REQUEST_MAX}",
                "Ask in several requests.",
            )
        doubt = await self._leadership.catch_up()
        if isolation is IsolationLevel.READ_UNCOMMITTED:
            doubt = None
        answers = []
        for query in queries:
            answers.append(await self._answer(query, isolation, doubt))
            # What the page cache holds is read without a pause: others must come between.
            await asyncio.sleep(0)
        return answers

    async def _answer(
        self, query: OffsetQuery, isolation: IsolationLevel, doubt: TidelogError | None
    ) -> OffsetAnswer:
        """`doubt`: why the end may not be told."""
        tried = f"list offsets of {self._replicas.name_of(query.topic_id, query.partition)}"
        try:
            replica = self._replicas.find(
                query.topic_id, query.partition, query.leader_epoch, tried=tried
            )
            why_not = lag_of(replica.log, tried) or doubt
            offset, timestamp_ms = await self._search(replica, query, isolation)
            is_final = query.spec is OffsetSpec.EARLIEST or (
                query.spec is OffsetSpec.AT_TIME and offset != NONE_FOUND[0]
            )
            if why_not is not None and not is_final:
                raise why_not
        except TidelogError as error:
            return OffsetAnswer(topic_id=query.topic_id, partition=query.partition, error=error)
        return OffsetAnswer(
            topic_id=query.topic_id,
            partition=query.partition,
            offset=Offset(offset),
            timestamp_ms=timestamp_ms,
            leader_epoch=LeaderEpoch(_epoch_of(replica.log, query.spec, offset)),
        )

    async def _search(
        self, replica: Replica, query: OffsetQuery, isolation: IsolationLevel
    ) -> tuple[int, int]:
        end = readable_end(replica.log, isolation)
        match query.spec:
            case OffsetSpec.EARLIEST:
                return replica.log.log_start_offset, -1
            case OffsetSpec.LATEST:
                return end, -1
            case OffsetSpec.AT_TIME:
                search = TimeSearch(replica.directory.reader)
                return await search.first_at(replica.log, query.timestamp_ms, bound=end)
            case OffsetSpec.MAX_TIMESTAMP:
                search = TimeSearch(replica.directory.reader)
                return await search.newest(replica.log, bound=end)


def _epoch_of(log: PartitionLog, spec: OffsetSpec, offset: int) -> int:
    """Of the record found, or of the last one before the end; -1: there is none."""
    at = offset - 1 if spec is OffsetSpec.LATEST else offset
    return NO_LEADER_EPOCH if at < 0 else log.leader_epochs.epoch_at(at)
