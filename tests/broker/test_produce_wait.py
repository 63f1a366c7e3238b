"""Waiting for acknowledgements when everything happens in one moment."""

import asyncio
import gc
from typing import cast

import pytest

from tidelog.broker.handlers.produce import (
    Acks,
    ProduceHandler,
    Submitted,
)
from tidelog.broker.limits import BrokerLimits
from tidelog.broker.partition.owner import Appended
from tidelog.broker.replicas import Replicas
from tidelog.ports.real.clock import RealClock
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

APPENDED = Appended(base_offset=7, append_time_ms=-1, log_start_offset=0, leader_epoch=0)
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
        submitted = Submitted([(TopicId(bytes(16)), 0)], Acks.ALL, 0, [outcome])
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
        places = [(TopicId(bytes(16)), each) for each in range(2)]
        submitted = Submitted(places, Acks.ALL, 0, outcomes)
        handler.begin_wait(submitted, lambda _: None)
        outcomes[0].set_exception(FAILED)
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert reported == []
