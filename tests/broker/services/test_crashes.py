"""What a node acknowledged survives every crash, once and in order."""

import asyncio

import pytest

from tests.broker.support.node_in_world import (
    NodeLife,
    PlainClient,
    configuration,
    partition_batch,
    sealed,
)
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.wire.errors import ErrorCode, TidelogError

CRASH_KINDS = (
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
)
ROUNDS = 4
PRODUCERS = 3
PARTITIONS = 2
SMALL_SEGMENTS = {"segment.bytes": "1024", "retention.ms": "-1"}
"""The records are as old as the epoch."""


class History:
    """What producers know: values acknowledged with their offsets, and values of unknown fate."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.number = 0

    async def produce_until_death(self, client: PlainClient, topic_id: bytes, name: int) -> None:
        """One request after the other; ends with the first that gets no answer."""
        while True:
            batches = []
            for partition in range(PARTITIONS):
                self.number += 1
                values = [b"%d/%d/%d" % (name, self.number, each) for each in range(1 + name)]
                batches.append((partition, values))
            try:
                answers = await client.produce(
                    *(
                        partition_batch(topic_id, partition, sealed(values))
                        for partition, values in batches
                    )
                )
            except TidelogError:
                return
            for (partition, values), answer in zip(batches, answers, strict=True):
                assert not answer.HasField("error"), answer.error
                for place, value in enumerate(values):
                    where = (partition, answer.base_offset + place)
                    assert where not in self.acknowledged, f"{where} was given twice"
                    self.acknowledged[where] = value


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


async def check_everything(client: PlainClient, topic_id: bytes, history: History) -> None:
    for partition in range(PARTITIONS):
        records = await client.read_all(topic_id, partition)
        assert [offset for offset, _ in records] == list(range(len(records)))
        stored = dict(records)
        assert len(dict.fromkeys(stored.values())) == len(stored), "a value is stored twice"
        for (where, offset), value in history.acknowledged.items():
            if where == partition:
                assert stored[offset] == value


async def wait_ready(life: NodeLife, world: World) -> None:
    for _ in range(10_000):
        error = world.machine("node").processes["node"].exit_error
        assert error is None, error
        if life.node is not None and life.node.is_ready:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the node did not start")


def run_seed(seed: int, *, is_machine: bool) -> int:
    world = World(seed, enabled=CRASH_KINDS, probabilities=dict.fromkeys(CRASH_KINDS, 0.5))
    history = History()
    life = NodeLife(configuration())

    async def main() -> None:
        random = world.seeds.purpose("crash times")
        client = PlainClient(world.machine("client").start("client", wait_forever).ports.network)
        topic_id = b""
        for _ in range(ROUNDS):
            life.node = None
            process = world.machine("node").start("node", life.live)
            await wait_ready(life, world)
            if not topic_id:
                topic_id = await client.create_topic("t", PARTITIONS, settings=SMALL_SEGMENTS)
            await check_everything(client, topic_id, history)
            producers = [
                asyncio.ensure_future(history.produce_until_death(client, topic_id, name))
                for name in range(PRODUCERS)
            ]
            await asyncio.sleep(random.below(300) / 1000)
            world.machine("node").crash() if is_machine else process.kill()
            for producer in producers:
                await producer
        life.node = None
        world.machine("node").start("node", life.live)
        await wait_ready(life, world)
        await check_everything(client, topic_id, history)

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()
    return len(history.acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("is_machine", [False, True], ids=["process", "machine"])
def test_acknowledged_records_survive_crashes_at_any_moment(is_machine: bool) -> None:
    acknowledged = [run_seed(seed, is_machine=is_machine) for seed in range(12)]
    assert sum(acknowledged) > 500, "too little was produced for this to mean anything"


def test_a_flipped_byte_below_what_was_flushed_stops_that_partition_only() -> None:
    world = World(7)
    life = NodeLife(configuration())

    async def main() -> None:
        client = PlainClient(world.machine("client").start("client", wait_forever).ports.network)
        process = world.machine("node").start("node", life.live)
        await wait_ready(life, world)
        topic_id = await client.create_topic("t", 2)
        for number in range(5):
            for partition in range(2):
                await client.produce(
                    partition_batch(topic_id, partition, sealed([b"value-%d" % number]))
                )
        await asyncio.sleep(1)
        process.kill()
        flip_byte(world, f"{topic_id.hex()}-0/{0:020d}.log", 100)
        life.node = None
        world.machine("node").start("node", life.live)
        await wait_ready(life, world)
        answer = await client.fetch(topic_id, 0, 0)
        assert answer is not None
        assert answer.error.code == ErrorCode.STORAGE_CORRUPT.value
        assert f"{topic_id.hex()}-0/{0:020d}.log" in answer.error.tried
        assert "byte 75" in answer.error.happened
        (refused,) = await client.produce(partition_batch(topic_id, 0, sealed([b"more"])))
        assert refused.error.code == ErrorCode.STORAGE_CORRUPT.value
        assert len(await client.read_all(topic_id, 1)) == 5

    world.run(main())
    world.close()


def test_a_partition_of_which_the_first_segment_is_gone_stops_alone() -> None:
    world = World(8)
    life = NodeLife(configuration())

    async def remove_first(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await disk.remove(f"{topic_ids[0].hex()}-0/{0:020d}.log")

    topic_ids: list[bytes] = []

    async def main() -> None:
        client = PlainClient(world.machine("client").start("client", wait_forever).ports.network)
        process = world.machine("node").start("node", life.live)
        await wait_ready(life, world)
        topic_ids.append(await client.create_topic("t", 2, settings=SMALL_SEGMENTS))
        for partition in range(2):
            for _ in range(4):
                await client.produce(partition_batch(topic_ids[0], partition, sealed([b"x" * 600])))
        process.kill()
        world.machine("node").start("remover", remove_first)
        await asyncio.sleep(1)
        life.node = None
        world.machine("node").start("node", life.live)
        await wait_ready(life, world)
        answer = await client.fetch(topic_ids[0], 0, 1)
        assert answer is not None
        assert answer.error.code == ErrorCode.STORAGE_CORRUPT.value
        assert "begins at offset 1, not 0" in answer.error.happened
        assert len(await client.read_all(topic_ids[0], 1)) == 4

    world.run(main())
    world.close()


def flip_byte(world: World, path: str, byte_position: int) -> None:
    """Damage what the disk and the page cache hold."""
    medium = world.machine("node").medium()
    inode = medium.find(path)
    assert isinstance(inode, Inode), f"{path} is no file"
    before = inode.seen[byte_position]
    assert inode.replace_byte(byte_position, before, before ^ 0x40)
