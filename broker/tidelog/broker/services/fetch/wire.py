"""FetchService: conversions, and the loop of a fetch stream."""

import asyncio
from collections.abc import Sequence

from tidelog.broker.services.fetch.bytes import LoopTurns, answer_bytes
from tidelog.broker.services.fetch.handler import FetchHandler, FetchRequest, PartitionBatches
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.shared.meter import Meter, count
from tidelog.broker.shared.pauses import Pauses
from tidelog.contract.errors import fill_error
from tidelog.contract.fetch import read_position
from tidelog.contract.isolation import read_isolation
from tidelog.ports import AnswerRoom, RequestContext, Stream, TaskScope
from tidelog.v1 import fetch_pb2
from tidelog.wire.refusals import validate_topic_id


def read_request(message: fetch_pb2.FetchRequest) -> FetchRequest:
    """A long poll."""
    return FetchRequest(
        [read_position(each) for each in message.positions],
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.client_rack,
        read_isolation(message.isolation_level, tried="fetch"),
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
        read_isolation(message.isolation_level, tried="fetch"),
    )


def envelope_message(answer: PartitionBatches) -> fetch_pb2.PartitionBatches:
    """What is told of one partition besides its batches."""
    message = fetch_pb2.PartitionBatches(
        topic_id=answer.topic_id,
        partition=answer.partition,
        fetch_sum=answer.fetch_sum,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        leader_epoch=answer.leader_epoch,
        preferred_replica=answer.preferred_replica,
        leader_id=answer.leader_id,
    )
    for each in answer.aborted:
        message.aborted_transactions.add(
            producer_id=each.producer_id, first_offset=each.first_offset
        )
    if answer.divergence is not None:
        message.divergence.leader_epoch = answer.divergence.leader_epoch
        message.divergence.end_offset = answer.divergence.end_offset
    if answer.error is not None:
        fill_error(message.error, answer.error)
    return message


class FetchRpc:
    """The service's two methods over one handler."""

    def __init__(self, handler: FetchHandler, meter: Meter | None = None) -> None:
        self._handler = handler
        self._meter = meter or Meter(())
        self._turns = LoopTurns()

    async def fetch(self, context: RequestContext, message: bytes) -> bytes:
        """`Fetch`."""
        request = read_request(fetch_pb2.FetchRequest.FromString(message))
        answers = await self._handler.fetch(context, request)
        return await self._serialised(answers)

    async def fetch_stream(self, context: RequestContext, stream: Stream) -> None:
        """`FetchStream`: one task takes requests, one sends; ends when the client ends."""
        news = asyncio.Event()
        session = FetchSession(self._handler, news.set)
        try:
            async with TaskScope() as scope:
                scope.start(
                    self._send_answers(session, stream, news, context.answer_room),
                    name="fetch answers",
                )
                while (message := await stream.receive()) is not None:
                    request = fetch_pb2.FetchStreamRequest.FromString(message)
                    session.take(read_stream_request(request))
                scope.cancel()
        finally:
            session.close()

    async def _send_answers(
        self, session: FetchSession, stream: Stream, news: asyncio.Event, room: AnswerRoom
    ) -> None:
        while True:
            if not session.has_work:
                news.clear()
                await news.wait()
                continue
            wanted_bytes = session.wanted_bytes()
            granted_bytes = await room.take(wanted_bytes) if wanted_bytes else 0
            answer = await session.next_answer(granted_bytes)
            if answer is None:
                room.give_back()
                continue
            rest = fetch_pb2.FetchStreamResponse(session_epoch=answer.session_epoch)
            message = await self._serialised(answer.partitions, rest.SerializeToString())
            await stream.send(message)

    async def _serialised(self, answers: Sequence[PartitionBatches], rest: bytes = b"") -> bytes:
        for answer in answers:
            self._meter.fetched_bytes += len(answer.batches)
            if answer.error is not None:
                count(self._meter.fetch_refusals, answer.error.code.name)
        await self._turns.wait(sum(len(answer.batches) for answer in answers))
        pauses, parts = Pauses(), []
        for each in answers:
            parts.append((envelope_message(each).SerializeToString(), each.batches))
            await pauses.part_done()
        return answer_bytes(parts, rest)
