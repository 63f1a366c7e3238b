"""Producer ids: each given once, fetched ahead, and a typed refusal without a controller."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import PlainClient
from tidelog.broker.services.producer_ids import handler as module
from tidelog.broker.services.producer_ids.handler import Block, ProducerIds
from tidelog.broker.services.producer_ids.wire import ALLOCATE_BLOCK, ControllerBlocks
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.ports import RequestContext
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.v1 import controller_pb2, producer_id_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId


def context(deadline_ns: int = NO_DEADLINE_NS) -> RequestContext:
    return RequestContext(
        principal="anonymous",
        listener="client",
        client_id="test",
        address="client:1",
        deadline_ns=deadline_ns,
    )


class FakeSource:
    """Gives blocks of ten; waits, or refuses, as a test wants."""

    def __init__(self, count: int = 10) -> None:
        self.count = count
        self.fetches = 0
        self.first = 0
        self.error: TidelogError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, timeout_ms: int) -> Block:
        """As the protocol says."""
        assert timeout_ms > 0
        self.fetches += 1
        await asyncio.sleep(0.001)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        block = Block(first_producer_id=self.first, count=self.count)
        self.first += self.count
        return block


Work = Callable[[ProducerIds, FakeSource, SimulatedPorts], Awaitable[None]]


def with_ids(work: Work, *, count: int = 10) -> None:
    """The owner runs in a process of a simulated world, and so does the work."""
    world = World(1)
    done: list[bool] = []

    async def live(ports: SimulatedPorts) -> None:
        source = FakeSource(count)
        ids = ProducerIds(source, ports.clock)
        owner = asyncio.get_running_loop().create_task(ids.run())
        await work(ids, source, ports)
        done.append(True)
        owner.cancel()

    async def main() -> None:
        process = world.machine("node").start("node", live)
        for _ in range(1_000):
            if done or process.exit_error is not None:
                break
            await asyncio.sleep(0.1)
        assert process.exit_error is None, process.exit_error

    try:
        world.run(main())
    finally:
        world.close()
    assert done, "the work came to its end"


async def take(ids: ProducerIds, count: int) -> list[int]:
    return [(await ids.allocate(context())).producer_id for _ in range(count)]


def test_no_id_is_given_twice_over_the_end_of_a_block() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        del ports
        found = await asyncio.gather(*(ids.allocate(context()) for _ in range(25)))
        assert sorted(each.producer_id for each in found) == list(range(25))
        assert {(each.producer_epoch, each.batches_in_flight_max) for each in found} == {(0, 16)}
        assert source.fetches >= 3

    with_ids(work)


def test_nothing_is_fetched_before_somebody_asks_and_the_next_block_before_the_first_ends() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        await ports.clock.sleep(1_000)
        assert source.fetches == 0
        await take(ids, 1_000 - module.IDS_LEFT_MIN)
        await ports.clock.sleep(1_000)
        assert source.fetches == 1
        await take(ids, 1)
        await ports.clock.sleep(1_000)
        assert source.fetches == 2
        source.gate.clear()
        assert await take(ids, 1_000) == list(range(751, 1_751))

    with_ids(work, count=1_000)


def test_those_who_wait_are_told_why_there_are_no_ids_and_the_next_one_has_it_tried_again() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        source.error = TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="no controller")
        for count in (1, 2):
            with pytest.raises(TidelogError) as caught:
                await ids.allocate(context())
            assert caught.value.code is ErrorCode.UNAVAILABLE
            assert source.fetches == count
            await ports.clock.sleep(10_000)
            assert source.fetches == count, "nobody asks for those who have gone"
        source.error = None
        assert await take(ids, 1) == [0]

    with_ids(work)


def test_what_is_left_is_given_although_the_fetch_ahead_fails() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        await take(ids, 1)
        source.error = TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="no controller")
        assert await take(ids, 99) == list(range(1, 100))
        await ports.clock.sleep(100)
        before = source.fetches
        assert before > 1, "it was tried ahead"
        await ports.clock.sleep(10_000)
        assert source.fetches == before, "nobody has asked since"
        assert await take(ids, 200) == list(range(100, 300))
        with pytest.raises(TidelogError):
            await ids.allocate(context())

    with_ids(work, count=300)


def test_a_caller_waits_no_longer_than_its_deadline_and_is_answered_before_it() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        source.gate.clear()
        start_ns = ports.clock.monotonic_ns()
        with pytest.raises(TidelogError) as caught:
            await ids.allocate(context(start_ns + 1_000_000_000))
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert "900 ms" in caught.value.happened
        assert ports.clock.monotonic_ns() - start_ns < 1_000_000_000

    with_ids(work)


@pytest.mark.slow
def test_an_id_of_a_caller_that_went_away_is_no_harm_and_the_crowd_is_bounded() -> None:
    async def work(ids: ProducerIds, source: FakeSource, ports: SimulatedPorts) -> None:
        source.gate.clear()
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(ids.allocate(context())) for _ in range(module.WAITING_MAX)]
        await ports.clock.sleep(10)
        with pytest.raises(TidelogError) as caught:
            await ids.allocate(context())
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        for each in waiting[1:]:
            each.cancel()
        source.gate.set()
        assert (await waiting[0]).producer_id == 0
        assert await take(ids, 1) == [1]
        for each in waiting[1:]:
            with pytest.raises(asyncio.CancelledError):
                await each

    with_ids(work)


class FakeController:
    """Answers one call; remembers it."""

    def __init__(self, first: int, count: int) -> None:
        self.answer = controller_pb2.AllocateProducerIdBlockResponse(
            first_producer_id=first, count=count
        )
        self.asked: list[tuple[str, controller_pb2.AllocateProducerIdBlockRequest, int]] = []

    async def call(self, method: str, message: bytes, *, tried: str, timeout_ms: int) -> bytes:
        """As the client of the controller."""
        assert tried
        request = controller_pb2.AllocateProducerIdBlockRequest.FromString(message)
        self.asked.append((method, request, timeout_ms))
        return self.answer.SerializeToString()


def blocks_of(controller: FakeController) -> ControllerBlocks:
    return ControllerBlocks(
        cast(ControllerClient, controller),
        cluster_id="c",
        broker_id=BrokerId(3),
        broker_epoch=lambda: BrokerEpoch(9),
    )


def test_a_block_is_asked_for_in_the_name_of_this_broker_and_taken_whole() -> None:
    controller = FakeController(5_000, 1_000)
    block = asyncio.run(blocks_of(controller).fetch(700))
    assert block == Block(first_producer_id=5_000, count=1_000)
    ((method, request, timeout_ms),) = controller.asked
    assert (method, timeout_ms) == (ALLOCATE_BLOCK, 700)
    assert (request.cluster_id, request.broker_id, request.broker_epoch) == ("c", 3, 9)


@pytest.mark.parametrize(("first", "count"), [(-1, 10), (5, 0)])
def test_a_block_that_is_none_is_refused(first: int, count: int) -> None:
    with pytest.raises(TidelogError) as caught:
        asyncio.run(blocks_of(FakeController(first, count)).fetch(700))
    assert caught.value.code is ErrorCode.UNKNOWN


def test_a_node_gives_each_producer_an_id_of_its_own() -> None:
    async def work(client: PlainClient) -> None:
        answers = [
            producer_id_pb2.AllocateProducerIdResponse.FromString(
                await client.call("ProducerIdService/AllocateProducerId", b"")
            )
            for _ in range(3)
        ]
        assert len({each.producer_id for each in answers}) == 3
        assert [each.producer_epoch for each in answers] == [0, 0, 0]
        assert [each.max_in_flight_batches for each in answers] == [16, 16, 16]

    with_node(work)
