"""Calls that name very many partitions let others come between, and lose nothing by it."""

import asyncio
from collections.abc import Awaitable
from typing import NoReturn, TypeVar

import pytest

from tests.broker.services.test_reads_fetch import CONTEXT, Node, position
from tidelog.broker.services.fetch.handler import FetchRequest
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.shared.pauses import PARTS_A_TURN
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

pytestmark = pytest.mark.slow
MANY = 3 * PARTS_A_TURN + 1
T = TypeVar("T")


class Strange(Node):
    """No partition that is asked for is here: each answer is an error, known at once."""

    def __init__(self) -> None:
        super().__init__([])

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> NoReturn:
        del topic_id, partition, leader_epoch
        raise TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, tried=tried, happened="nobody knows it")

    def told(self, key: PartitionKey, error: TidelogError) -> TidelogError:
        del key
        return error

    def get(self, topic_id: bytes, partition: int) -> None:
        del topic_id, partition


async def with_turns(work: Awaitable[T]) -> tuple[T, int]:
    """What came of it, and how often somebody else was let in."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(others())
    try:
        return await work, turns
    finally:
        beside.cancel()


def asked(count: int) -> list[FetchPosition]:
    return [position(partition) for partition in range(count)]


@pytest.mark.parametrize(("count", "turns_min"), [(MANY, 5), (10, 0)], ids=["many", "few"])
def test_a_long_poll_pauses_while_it_looks_and_while_it_reads(count: int, turns_min: int) -> None:
    request = FetchRequest(asked(count), 0, 1, 0)

    async def run() -> tuple[int, int]:
        answers, turns = await with_turns(Strange().handler().fetch(CONTEXT, request))
        return len(answers), turns

    answered, turns = asyncio.run(run())
    assert answered == count
    assert turns >= turns_min
    assert turns_min or turns <= 1, "a call of ordinary size pauses for nobody"


@pytest.mark.parametrize("credit_bytes", [0, 1_000_000], ids=["no credit", "credit"])
def test_a_stream_tells_every_partition_once_though_requests_come_between(
    credit_bytes: int,
) -> None:
    session = FetchSession(Strange().handler(), lambda: None)

    async def run() -> tuple[list[int], int]:
        session.take(FetchStreamRequest(asked(MANY), [], credit_bytes, 1, 0))
        told: list[int] = []
        answers_count = 0
        while session.has_work:
            reading = asyncio.ensure_future(session.next_answer(session.wanted_bytes()))
            # The client grants and moves on in the middle of an answer that is being made.
            await asyncio.sleep(0)
            session.take(FetchStreamRequest([position(MANY + answers_count)], [], 1, 2, 0))
            answer = await reading
            if answer is not None:
                assert len(answer.partitions) <= PARTS_A_TURN
                told += [each.partition for each in answer.partitions]
            answers_count += 1
            if answers_count == 5:
                break
        while (left := await session.next_answer(session.wanted_bytes())) is not None:
            told += [each.partition for each in left.partitions]
        return told, answers_count

    told, answers_count = asyncio.run(run())
    assert sorted(told) == list(range(MANY + answers_count))
    session.close()
