"""Waiting for acknowledgements when everything happens in one moment."""

import asyncio
import gc
from typing import Any, cast

import pytest

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.produce.handler import Acks, ProduceHandler, Submitted
from tidelog.broker.services.produce.wire import ProduceRpc
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.image.image import Image
from tidelog.ports import RequestContext
from tidelog.ports.real.clock import RealClock
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.v1 import produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, TopicId

APPENDED = Appended(token=0, base_offset=7, append_time_ms=-1, log_start_offset=0, leader_epoch=0)
FAILED = TidelogError(ErrorCode.STORAGE_FAILED, tried="flush", happened="EIO")


@pytest.mark.parametrize("is_cancelled_first", [False, True])
@pytest.mark.parametrize("has_failed", [False, True])
def test_a_caller_that_goes_away_as_the_outcome_comes_leaves_nothing_behind(
    is_cancelled_first: bool, has_failed: bool
) -> None:
    reported: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        outcome: asyncio.Future[Appended] = loop.create_future()
        handler = ProduceHandler(cast(Replicas, None), RealClock(), BrokerLimits())
        submitted = Submitted(
            [(TopicId(bytes(16)), PartitionId(0))], Acks.ALL, 0, [outcome], Image().name_partition
        )
        caller = asyncio.ensure_future(handler.wait(submitted))
        await asyncio.sleep(0)
        if is_cancelled_first:
            caller.cancel()
        if has_failed:
            outcome.set_exception(FAILED)
        else:
            outcome.set_result(APPENDED)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await asyncio.sleep(0)
        del outcome, submitted, caller

    asyncio.run(main())
    assert reported == []


def test_a_refused_batch_is_known_though_the_process_dies_before_the_next_one_is_answered() -> None:
    reported: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        outcomes: list[asyncio.Future[Appended]] = [loop.create_future(), loop.create_future()]
        handler = ProduceHandler(cast(Replicas, None), RealClock(), BrokerLimits())
        places = [(TopicId(bytes(16)), PartitionId(each)) for each in range(2)]
        submitted = Submitted(places, Acks.ALL, 0, outcomes, Image().name_partition)
        handler.begin_wait(submitted, lambda _: None)
        outcomes[0].set_exception(FAILED)
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert reported == []


class Requests:
    """The client's end of a stream, as its handler sees it: always one more request."""

    def __init__(self) -> None:
        self.received = 0
        self.held_bytes = 0
        """Of the last message, until it is let go, or the next one is asked for."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        self.received += 1
        message = produce_pb2.ProduceStreamRequest(correlation_id=self.received)
        self.held_bytes = message.ByteSize()
        return message.SerializeToString()

    def let_go(self) -> None:
        self.held_bytes = 0

    async def end_sending(self) -> None: ...

    def cancel(self) -> None: ...


class Unanswering:
    """A handler whose answers do not come."""

    def submit(self, context: RequestContext, request: object) -> Submitted:
        return Submitted([], Acks.ALL, 0, [], Image().name_partition)

    def begin_wait(self, submitted: Submitted, on_answers: object) -> None: ...


def test_a_stream_that_may_not_send_more_before_an_answer_holds_no_message_meanwhile() -> None:
    stream = Requests()
    rpc = ProduceRpc(cast(Any, Unanswering()), stream_requests_max=3)
    context = RequestContext(
        principal="", listener="client", client_id="c", address="", deadline_ns=NO_DEADLINE_NS
    )

    async def main() -> None:
        serving = asyncio.ensure_future(rpc.produce_stream(context, stream))
        for _ in range(10):
            await asyncio.sleep(0)
        assert stream.received == 3
        assert stream.held_bytes == 0
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(main())
