"""A broker that led a moment ago follows: what it was still writing comes first."""

import asyncio

import pytest

from tests.broker.support.copy_brokers import BROKERS, TOPIC, CopyBroker, SharedMetadata
from tidelog.broker.replication.follower.partition import Phase
from tidelog.broker.replication.shared.messages import Lane
from tidelog.chaos.sim import World
from tidelog.wire.ids import BrokerId, PartitionId, PartitionKey

KEY = PartitionKey(TOPIC, PartitionId(0))
OLD, NEW = BROKERS[0], BROKERS[1]
STEP_S = 10e-6


async def named_after_a_write_in_flight(world: World, steps: int) -> bool:
    """Whether the write was in flight when the other one began to lead."""
    metadata = SharedMetadata(1)
    brokers = {number: CopyBroker(world, metadata, number) for number in BROKERS}
    await asyncio.sleep(2)
    old = brokers[OLD]
    assert old.is_serving
    old.process.start_task(_write(old), "write")
    await asyncio.sleep(steps * STEP_S)
    metadata.decide(0, leader=NEW, in_sync=(NEW, BrokerId(3)))
    was_in_flight = False
    for _ in range(20_000):
        await asyncio.sleep(STEP_S)
        is_writing = old.replica(0).directory.owner._core.state.partitions[KEY].plan is not None
        assert old.fetchers is not None
        lane = old.fetchers._lanes.get((NEW, Lane.LIVE))
        partition = None if lane is None else lane.session.partitions.get(KEY)
        was_in_flight |= is_writing and partition is not None
        if partition is not None and partition.phase is Phase.NAMED:
            assert not is_writing, "its log goes on growing behind the position that it named"
            return was_in_flight
    raise AssertionError("it was never named")


async def _write(broker: CopyBroker) -> None:
    await broker.write(0, b"written while another one began to lead", is_awaited=False)


@pytest.mark.slow
def test_a_log_is_named_only_once_nothing_is_written_to_it_any_more() -> None:
    times_in_flight = 0
    for seed in range(20):
        for steps in (0, 1, 3, 10):
            world = World(seed)
            try:
                times_in_flight += world.run(named_after_a_write_in_flight(world, steps))
            finally:
                world.close()
    assert times_in_flight, "the write was always over before the other one led"
