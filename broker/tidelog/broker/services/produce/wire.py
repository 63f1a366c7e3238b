"""ProduceService: conversions, and the pipeline of a produce stream."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.produce.handler import (
    Acks,
    PartitionAcknowledgement,
    ProduceHandler,
    ProduceRequest,
    Submitted,
)
from tidelog.contract.errors import fill_error, read_error
from tidelog.ports import RequestContext, Stream, TaskScope
from tidelog.v1 import produce_pb2
from tidelog.wire.calls.produce import PartitionBatch
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId
from tidelog.wire.refusals import validate_topic_id

PRODUCE_STREAM = "/tidelog.v1.ProduceService/ProduceStream"

_ACKS = {
    produce_pb2.ACKS_UNSPECIFIED: Acks.ALL,
    produce_pb2.ACKS_ALL: Acks.ALL,
    produce_pb2.ACKS_LEADER: Acks.LEADER,
    produce_pb2.ACKS_NONE: Acks.NONE,
}

_ACKS_OUT = {
    Acks.ALL: produce_pb2.ACKS_ALL,
    Acks.LEADER: produce_pb2.ACKS_LEADER,
    Acks.NONE: produce_pb2.ACKS_NONE,
}


def read_request(message: produce_pb2.ProduceRequest) -> ProduceRequest:
    """Each batch's bytes are copied out of the message once."""
    return ProduceRequest(
        [
            PartitionBatch(
                validate_topic_id(each.topic_id, tried="produce"),
                PartitionId(each.partition),
                LeaderEpoch(each.leader_epoch),
                each.batch,
                each.route_sum,
            )
            for each in message.batches
        ],
        # A value from a later release is answered as the safest one.
        _ACKS.get(message.acks, Acks.ALL),
        message.timeout_ms,
        message.transactional_id,
    )


def fill_request(message: produce_pb2.ProduceRequest, request: ProduceRequest) -> None:
    """The way back of `read_request`."""
    message.acks = _ACKS_OUT[request.acks]
    message.timeout_ms = request.timeout_ms
    message.transactional_id = request.transactional_id
    for batch in request.batches:
        message.batches.add(
            topic_id=batch.topic_id,
            partition=batch.partition,
            leader_epoch=batch.leader_epoch,
            batch=batch.batch,
            route_sum=batch.route_sum,
        )


def read_response(message: produce_pb2.ProduceResponse) -> list[PartitionAcknowledgement]:
    """The way back of `fill_response`."""
    return [
        PartitionAcknowledgement(
            topic_id=TopicId(each.topic_id),
            partition=PartitionId(each.partition),
            error=read_error(each.error) if each.HasField("error") else None,
            base_offset=Offset(each.base_offset),
            append_time_ms=each.append_time_ms,
            log_start_offset=Offset(each.log_start_offset),
            leader_epoch=LeaderEpoch(each.leader_epoch),
            leader_id=each.leader_id if each.HasField("leader_id") else None,
        )
        for each in message.acknowledgements
    ]


def fill_response(
    message: produce_pb2.ProduceResponse, answers: Sequence[PartitionAcknowledgement]
) -> None:
    """One acknowledgement a batch."""
    for answer in answers:
        each = message.acknowledgements.add(
            topic_id=answer.topic_id,
            partition=answer.partition,
            base_offset=answer.base_offset,
            append_time_ms=answer.append_time_ms,
            log_start_offset=answer.log_start_offset,
            leader_epoch=answer.leader_epoch,
            leader_id=answer.leader_id,
        )
        if answer.error is not None:
            fill_error(each.error, answer.error)


class ProduceRpc:
    """The service's two methods over one handler."""

    def __init__(
        self, handler: ProduceHandler, *, stream_requests_max: int, metering: Metering | None = None
    ) -> None:
        self._handler = handler
        self._stream_requests_max = stream_requests_max
        self._metering = metering

    async def produce(self, context: RequestContext, message: bytes) -> bytes:
        """`Produce`."""
        request = read_request(produce_pb2.ProduceRequest.FromString(message))
        response = produce_pb2.ProduceResponse()
        fill_response(response, await self._handler.produce(context, request))
        return response.SerializeToString()

    async def produce_stream(self, context: RequestContext, stream: Stream) -> None:
        """`ProduceStream`: appended in the order of the stream, answered as they are done."""
        pipeline = _Pipeline(self._handler, stream, self._stream_requests_max, self._metering)
        try:
            async with TaskScope() as scope:
                pipeline.scope = scope
                scope.start(pipeline.send_answers(), name="produce answers")
                while (message := await stream.receive()) is not None:
                    pipeline.begin(context, message)
                    # What is waited for next may come late: neither counted nor kept meanwhile.
                    del message
                    stream.let_go()
                    await pipeline.wait_room()
                pipeline.end()
        finally:
            pipeline.scope = None


class _Pipeline:
    """Requests of one stream that are not answered yet."""

    def __init__(
        self,
        handler: ProduceHandler,
        stream: Stream,
        requests_max: int,
        metering: Metering | None,
    ) -> None:
        self._handler = handler
        self._metering = metering
        self.scope: TaskScope | None = None
        """Of the stream while it lives: for answers that need more than what this broker knows."""
        self._stream = stream
        self._requests_max = requests_max
        self._unanswered = 0
        self._answers: deque[Callable[[], produce_pb2.ProduceStreamResponse]] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_ended = False

    async def wait_room(self) -> None:
        """Until fewer than the limit are unanswered: the client's sending waits meanwhile."""
        while self._unanswered >= self._requests_max:
            self._has_room.clear()
            await self._has_room.wait()

    def begin(self, context: RequestContext, message: bytes) -> None:
        """Queue the request's batches now; the answer comes when it comes. After the end of the
        stream it is kept for nobody, as are at most as many as the limit.
        """
        envelope = produce_pb2.ProduceStreamRequest.FromString(message)
        self._unanswered += 1
        timing = self._time(context, len(message))
        correlation_id = envelope.correlation_id
        try:
            submitted = self._handler.submit(context, read_request(envelope.request))
        except TidelogError as error:
            self._push(partial(_refused, correlation_id, error))
            if timing is not None:
                timing(codes=[error.code.name])
            return
        tell = partial(self._on_answers, correlation_id, timing)
        self._handler.begin_wait(submitted, partial(self._check_answers, submitted, tell))

    def _check_answers(
        self,
        submitted: Submitted,
        tell: Callable[[Sequence[PartitionAcknowledgement]], None],
        answers: Sequence[PartitionAcknowledgement],
    ) -> None:
        """Tell them, at once or when it is sure that this broker may say so."""
        if self.scope is not None and self._handler.is_doubted(answers):
            self.scope.start(self._confirm(submitted, tell, answers), name="doubted answers")
        else:
            tell(answers)

    async def _confirm(
        self,
        submitted: Submitted,
        tell: Callable[[Sequence[PartitionAcknowledgement]], None],
        answers: Sequence[PartitionAcknowledgement],
    ) -> None:
        tell(await self._handler.confirm(submitted, answers))

    def _time(self, context: RequestContext, request_bytes: int) -> Callable[..., None] | None:
        """To be called when the request is answered; None: nobody counts."""
        metering = self._metering
        if metering is None:
            return None
        return partial(
            metering.stream_request_ended,
            PRODUCE_STREAM,
            context,
            begun_ns=metering.clock.monotonic_ns(),
            request_bytes=request_bytes,
        )

    def end(self) -> None:
        """No more requests will come."""
        self._has_ended = True
        self._changed.set()

    async def send_answers(self) -> None:
        """The one task that sends; returns when all are answered after the end."""
        while True:
            while self._answers:
                # Made here and not where its batches were judged: each is a turn's work where a
                # request names very many partitions.
                await self._stream.send(self._answers.popleft()().SerializeToString())
                self._unanswered -= 1
                self._has_room.set()
            if self._has_ended and self._unanswered == 0:
                return
            self._changed.clear()
            await self._changed.wait()

    def _on_answers(
        self,
        correlation_id: int,
        timing: Callable[..., None] | None,
        answers: Sequence[PartitionAcknowledgement],
    ) -> None:
        if timing is not None:
            timing(codes=[each.error.code.name for each in answers if each.error is not None])
        self._push(partial(_accepted, correlation_id, answers))

    def _push(self, answer: Callable[[], produce_pb2.ProduceStreamResponse]) -> None:
        self._answers.append(answer)
        self._changed.set()


def _accepted(
    correlation_id: int, answers: Sequence[PartitionAcknowledgement]
) -> produce_pb2.ProduceStreamResponse:
    message = produce_pb2.ProduceStreamResponse(correlation_id=correlation_id)
    fill_response(message.response, answers)
    # An empty list still tells that the request as a whole was accepted.
    message.response.SetInParent()
    return message


def _refused(correlation_id: int, error: TidelogError) -> produce_pb2.ProduceStreamResponse:
    message = produce_pb2.ProduceStreamResponse(correlation_id=correlation_id)
    fill_error(message.error, error)
    return message
