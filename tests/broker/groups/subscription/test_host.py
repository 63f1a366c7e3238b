"""All streams of a broker: bounded, and each one's member leaves when it is over."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import pytest

from tests.broker.groups.subscription.test_subscription import BEGIN, P0
from tidelog.broker.groups.coordinator.leader_offsets import Found
from tidelog.broker.groups.subscription.core.messages import Begin
from tidelog.broker.groups.subscription.host import Subscriptions
from tidelog.broker.groups.subscription.runner import ForClient, Read
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata_quorum.stream.local_image import LocalImage
from tidelog.wire.calls.groups import (
    LEAVING_EPOCH,
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey


class FakeGroup:
    """A coordinator that gives nothing to anybody."""

    def __init__(self) -> None:
        self.heartbeats: list[Heartbeat] = []

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """Stay, with nothing."""
        self.heartbeats.append(request)
        return HeartbeatAnswer(
            member_epoch=max(1, request.member_epoch),
            heartbeat_interval_ms=1_000,
            session_timeout_ms=6_000,
            assignment=(),
        )

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """Nothing is owned."""
        raise AssertionError(f"{request} of a member that owns nothing")

    async def fetch_offsets(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """Nothing is owned."""
        raise AssertionError(f"{request} of a member that owns nothing")


class NoReads:
    """Partitions that nobody reads."""

    def leader(self, key: PartitionKey) -> BrokerId | None:
        """None."""
        raise AssertionError(f"{key} is read")

    async def offsets(self, keys: Sequence[PartitionKey]) -> Found:
        """None."""
        raise AssertionError(f"{keys} are looked up")

    async def read(
        self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int], isolation: IsolationLevel
    ) -> list[Read]:
        """None."""
        raise AssertionError(f"{wanted} are read at {broker_id}, {isolation.name}")


async def _no_client(told: ForClient) -> None:
    del told


def with_host(
    work: Callable[[Subscriptions, FakeGroup, asyncio.Task[None]], Awaitable[None]],
) -> None:
    """A host of one stream at most, its group, and its task."""
    world, group = World(1), FakeGroup()

    async def serve(ports: SimulatedPorts) -> None:
        def to_group(begin: Begin) -> FakeGroup:
            del begin
            return group

        host = Subscriptions(
            LocalImage(), to_group, NoReads(), ports.clock, ports.random, streams_max=1
        )
        running = asyncio.create_task(host.run())
        await work(host, group, running)
        running.cancel()

    async def main() -> None:
        process = world.machine("m").start("p", serve)
        await asyncio.sleep(20)
        assert process.exit_error is None, process.exit_error

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


def test_one_stream_more_than_allowed_is_refused_and_a_member_leaves_at_its_end() -> None:
    async def work(host: Subscriptions, group: FakeGroup, running: asyncio.Task[None]) -> None:
        assert not running.done()
        with host.stream(BEGIN, _no_client) as runner:
            streaming = asyncio.create_task(runner.run())
            await asyncio.sleep(3)
            with pytest.raises(TidelogError) as caught, host.stream(BEGIN, _no_client):
                pass
            assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
            streaming.cancel()
        assert host.count == 0
        await asyncio.sleep(1)
        epochs = [each.member_epoch for each in group.heartbeats]
        assert epochs[:2] == [0, 1]
        assert epochs[-1] == LEAVING_EPOCH
        assert epochs.count(LEAVING_EPOCH) == 1
        with host.stream(msgspec.structs.replace(BEGIN, group=""), _no_client):
            assert host.count == 1

    with_host(work)


def test_time_that_passes_beside_a_stream_that_has_ended_harms_no_other() -> None:
    async def work(host: Subscriptions, group: FakeGroup, running: asyncio.Task[None]) -> None:
        with host.stream(BEGIN, _no_client) as runner:
            streaming = asyncio.create_task(runner.run())
            await asyncio.sleep(3)
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
            count = len(group.heartbeats)
            await asyncio.sleep(3)
            assert not running.done(), "the task of all streams"
            assert len(group.heartbeats) == count, "it is a member no more"

    with_host(work)


def test_topics_that_appear_beside_a_stream_that_has_ended_are_not_read() -> None:
    async def work(host: Subscriptions, group: FakeGroup, running: asyncio.Task[None]) -> None:
        del group, running
        with host.stream(msgspec.structs.replace(BEGIN, group=""), _no_client) as runner:
            streaming = asyncio.create_task(runner.run())
            await asyncio.sleep(1)
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
            runner.show({P0: "t"})
            await asyncio.sleep(1)

    with_host(work)


def test_a_stream_that_ends_after_the_task_of_all_ends_in_order() -> None:
    async def work(host: Subscriptions, group: FakeGroup, running: asyncio.Task[None]) -> None:
        with host.stream(BEGIN, _no_client) as runner:
            streaming = asyncio.create_task(runner.run())
            await asyncio.sleep(3)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            streaming.cancel()
        assert group.heartbeats[-1].member_epoch != LEAVING_EPOCH, "nobody is left to tell it"

    with_host(work)
