"""Trims partitions on request: deletes all records below an offset (DeleteRecords).

Owns the checks of a trim point; the directory's owner makes it durable before it answers. It must
never trim above the high watermark: what is not committed is not a client's to delete. That a point
is above it is said for good only by a broker that is sure to lead and to know its watermark.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.log.state.watermark_lag import lag_of
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.shared.errors import internal
from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX
from tidelog.ports import RequestContext, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_OFFSET, Offset, PartitionId, TopicId
from tidelog.wire.refusals import invalid

HIGH_WATERMARK: Final = -1
"""As the offset of a point: all that is committed."""
ANY_LEADER_EPOCH: Final = -1


class TrimPoint(msgspec.Struct, frozen=True):
    """Where one partition is to begin."""

    topic_id: TopicId
    partition: PartitionId
    before_offset: int


class TrimOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where it begins now."""

    topic_id: TopicId
    partition: PartitionId
    log_start_offset: Offset = NO_OFFSET
    """-1 with an error."""
    error: TidelogError | None = None


class TrimHandler:
    """Answers each point on its own."""

    def __init__(self, replicas: Replicas, leadership: Leadership) -> None:
        self._replicas = replicas
        self._leadership = leadership

    async def delete_records(
        self, context: RequestContext, points: Sequence[TrimPoint]
    ) -> list[TrimOutcome]:
        """One outcome a point, in their order; all are asked for before the first is waited for."""
        del context
        _validate(points)
        outcomes: list[TrimOutcome | None] = [None] * len(points)
        async with TaskScope() as scope:
            for place, point in enumerate(points):
                scope.start(self._note(point, outcomes, place), name="trim")
        return [outcome for outcome in outcomes if outcome is not None]

    async def _note(self, point: TrimPoint, outcomes: list[TrimOutcome | None], place: int) -> None:
        outcome = await self._trim(point)
        error = outcome.error
        if error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            outcome = await self._trim_confirmed(point, error)
        outcomes[place] = outcome

    async def _trim_confirmed(self, point: TrimPoint, refused: TidelogError) -> TrimOutcome:
        """Once more, by metadata that show who leads by now."""
        try:
            await self._leadership.confirm(refused.tried)
        except TidelogError as error:
            return TrimOutcome(topic_id=point.topic_id, partition=point.partition, error=error)
        return await self._trim(point)

    async def _trim(self, point: TrimPoint) -> TrimOutcome:
        tried = f"delete records of {self._replicas.name_of(point.topic_id, point.partition)}"
        try:
            replica = self._replicas.find(
                point.topic_id, point.partition, ANY_LEADER_EPOCH, tried=tried
            )
            if replica.is_internal:
                raise internal(replica.topic_name, tried=tried)
            offset = _checked_offset(point, replica, tried)
            owner, log = replica.directory.owner, replica.log
            if log.log_start_offset < offset == log.log_end_offset:
                # Only segments that are closed go: nothing is to be left of what is trimmed.
                owner.roll(log.key)
            start = await owner.trim(log, offset)
        except TidelogError as error:
            return TrimOutcome(topic_id=point.topic_id, partition=point.partition, error=error)
        return TrimOutcome(
            topic_id=point.topic_id, partition=point.partition, log_start_offset=start
        )


def _validate(points: Sequence[TrimPoint]) -> None:
    if len(points) > PARTS_PER_REQUEST_MAX:
        raise invalid(
            "delete records",
            f"{len(points)} points, the limit is {PARTS_PER_REQUEST_MAX}",
            "Ask in several requests.",
        )
    places = dict.fromkeys((point.topic_id, point.partition) for point in points)
    if len(places) != len(points):
        raise invalid(
            "delete records", "the request names a partition twice", "Send one point a partition."
        )


def _checked_offset(point: TrimPoint, replica: Replica, tried: str) -> Offset:
    log, offset = replica.log, point.before_offset
    lag = lag_of(log, tried)
    if lag is not None and not 0 <= offset <= log.high_watermark:
        raise lag
    if offset == HIGH_WATERMARK:
        return log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"{tried} below offset {offset}",
            happened=f"it begins at {log.log_start_offset}, its high watermark is "
            f"{log.high_watermark}",
        )
    return Offset(offset)
