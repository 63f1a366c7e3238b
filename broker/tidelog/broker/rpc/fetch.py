"""FetchService: conversions, and the loop of a fetch stream."""

import asyncio
from collections.abc import Sequence

from tidelog.broker.handlers.fetch import (
    FetchHandler,
    FetchPosition,
    FetchRequest,
    PartitionBatches,
)
from tidelog.broker.handlers.fetch_stream import FetchSession, FetchStreamRequest
from tidelog.broker.handlers.produce import validate_topic_id
from tidelog.broker.meter import Meter, count
from tidelog.broker.rpc.errors import fill_error
from tidelog.ports import RequestContext, Stream, TaskScope
from tidelog.v1 import fetch_pb2


def read_position(message: fetch_pb2.FetchPosition) -> FetchPosition:
    """Where one partition is read from."""
    return FetchPosition(
        validate_topic_id(message.topic_id, tried="fetch"),
        message.partition,
        message.leader_epoch,
        message.fetch_offset,
        message.last_fetched_epoch,
        message.max_bytes,
        message.stays_here,
    )


def read_request(message: fetch_pb2.FetchRequest) -> FetchRequest:
    """A long poll."""
    return FetchRequest(
        [read_position(each) for each in message.positions],
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.client_rack,
    )


def read_stream_request(message: fetch_pb2.FetchStreamRequest) -> FetchStreamRequest:
    """A change of a stream's positions or credit."""
    return FetchStreamRequest(
        [read_position(each) for each in message.positions],
        [
            (validate_topic_id(each.topic_id, tried="fetch"), each.partition)
            for each in message.removed
        ],
        message.credit_bytes,
        message.session_epoch,
        message.max_bytes,
        message.client_rack,
    )


def partition_message(answer: PartitionBatches) -> fetch_pb2.PartitionBatches:
    """Batches or an error of one partition."""
    message = fetch_pb2.PartitionBatches(
        topic_id=answer.topic_id,
        partition=answer.partition,
        batches=answer.batches,
        fetch_sum=answer.fetch_sum,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        leader_epoch=answer.leader_epoch,
        preferred_replica=answer.preferred_replica,
        leader_id=answer.leader_id,
    )
    if answer.divergence is not None:
        message.divergence.leader_epoch = answer.divergence.leader_epoch
        message.divergence.end_offset = answer.divergence.end_offset
    if answer.error is not None:
        fill_error(message.error, answer.error)
    return message


def _partition_messages(
    answers: Sequence[PartitionBatches], meter: Meter
) -> list[fetch_pb2.PartitionBatches]:
    for answer in answers:
        meter.fetched_bytes += len(answer.batches)
        if answer.error is not None:
            count(meter.fetch_refusals, answer.error.code.name)
    return [partition_message(answer) for answer in answers]


class FetchRpc:
    """The service's two methods over one handler."""

    def __init__(self, handler: FetchHandler, meter: Meter | None = None) -> None:
        self._handler = handler
        self._meter = meter or Meter(())

    async def fetch(self, context: RequestContext, message: bytes) -> bytes:
        """`Fetch`."""
        request = read_request(fetch_pb2.FetchRequest.FromString(message))
        answers = await self._handler.fetch(context, request)
        response = fetch_pb2.FetchResponse(partitions=_partition_messages(answers, self._meter))
        return response.SerializeToString()

    async def fetch_stream(self, context: RequestContext, stream: Stream) -> None:
        """`FetchStream`: one task takes requests, one sends; ends when the client ends."""
        del context
        news = asyncio.Event()
        session = FetchSession(self._handler, news.set)
        try:
            async with TaskScope() as scope:
                scope.start(_send_answers(session, stream, news, self._meter), name="fetch answers")
                while (message := await stream.receive()) is not None:
                    request = fetch_pb2.FetchStreamRequest.FromString(message)
                    session.take(read_stream_request(request))
                scope.cancel()
        finally:
            session.close()


async def _send_answers(
    session: FetchSession, stream: Stream, news: asyncio.Event, meter: Meter
) -> None:
    while True:
        if not session.has_work:
            news.clear()
            await news.wait()
            continue
        answer = await session.next_answer()
        if answer is not None:
            response = fetch_pb2.FetchStreamResponse(
                partitions=_partition_messages(answer.partitions, meter),
                session_epoch=answer.session_epoch,
            )
            await stream.send(response.SerializeToString())
