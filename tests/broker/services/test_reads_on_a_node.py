"""Reads of a whole node whose housekeeping seals and compacts what is read."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.support.node_in_world import (
    NodeLife,
    PlainClient,
    configuration,
    partition_batch,
    sealed,
)
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.medium import Directory, Inode
from tidelog.v1 import metadata_pb2
from tidelog.wire.batch import decode_batch, encode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode

SMALL = {"segment.bytes": "1024", "retention.ms": "-1"}
"""The records are as old as the epoch."""
Work = Callable[[PlainClient, World], Awaitable[None]]


def with_world(work: Work) -> None:
    world = World(3)
    life = NodeLife(configuration())

    async def main() -> None:
        world.machine("node").start("node", life.live)
        client = world.machine("client").start("client", wait_forever)
        for _ in range(1_000):
            if life.node is not None and life.node.is_ready:
                break
            await asyncio.sleep(0.01)
        await work(PlainClient(client.ports.network), world)

    try:
        world.run(main())
    finally:
        world.close()


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def names_of(world: World, topic_id: bytes) -> list[str]:
    """The files of its only partition."""
    directory = world.machine("node").medium().find(f"{topic_id.hex()}-0")
    assert isinstance(directory, Directory)
    return sorted(directory.seen)


async def records_of(client: PlainClient, topic_id: bytes) -> list[tuple[int, bytes | None]]:
    """Offset and value of all, also of batches with gaps."""
    found: list[tuple[int, bytes | None]] = []
    offset = 0
    while (answer := await client.fetch(topic_id, 0, offset)) is not None:
        assert not answer.HasField("error"), answer.error
        begin = offset
        for place, header in iterate_headers(answer.batches, is_compacted=True):
            records = decode_batch(answer.batches, place, is_compacted=True)
            found += [(each[0], each[4]) for each in records if each[0] >= begin]
            offset = max(offset, header.next_offset)
    return found


async def offset_at(client: PlainClient, topic_id: bytes, timestamp_ms: int) -> int:
    query = metadata_pb2.OffsetQuery(
        topic_id=topic_id,
        leader_epoch=-1,
        spec=metadata_pb2.OffsetSpec.OFFSET_SPEC_AT_TIME,
        timestamp_ms=timestamp_ms,
    )
    request = metadata_pb2.ListOffsetsRequest(queries=[query])
    raw = await client.call("MetadataService/ListOffsets", request.SerializeToString())
    (answer,) = metadata_pb2.ListOffsetsResponse.FromString(raw).answers
    assert not answer.HasField("error"), answer.error
    return answer.offset


@pytest.mark.slow
def test_sealed_segments_are_read_and_searched_and_stop_the_partition_if_they_are_damaged() -> None:
    async def work(client: PlainClient, world: World) -> None:
        topic_id = await client.create_topic("t", settings=SMALL)
        for number in range(30):
            batch = sealed([b"%d" % number * 150], 1_000 + number)
            await client.produce(partition_batch(topic_id, 0, batch))
        expected = [(number, b"%d" % number * 150) for number in range(30)]
        assert await client.read_all(topic_id) == expected
        await asyncio.sleep(120)
        names = names_of(world, topic_id)
        logs = [name for name in names if name.endswith(".log")]
        assert len(logs) > 5
        assert len([name for name in names if name.endswith(".sidecar")]) == len(logs) - 1
        assert await client.read_all(topic_id) == expected
        assert [await offset_at(client, topic_id, 1_000 + each) for each in (0, 7, 29, 30)] == [
            0,
            7,
            29,
            -1,
        ]
        inode = world.machine("node").medium().find(f"{topic_id.hex()}-0/{logs[2]}")
        assert isinstance(inode, Inode)
        inode.replace_byte(100, inode.seen[100], inode.seen[100] ^ 4)
        answer = await client.fetch(topic_id, 0, int(logs[2].removesuffix(".log")))
        assert answer is not None
        assert answer.error.code == ErrorCode.STORAGE_CORRUPT.value
        assert logs[2] in answer.error.tried
        await asyncio.sleep(1)
        (refused,) = await client.produce(partition_batch(topic_id, 0, sealed([b"a"])))
        assert refused.error.code == ErrorCode.STORAGE_CORRUPT.value, "the partition has stopped"

    with_world(work)


@pytest.mark.slow
def test_a_compacted_topic_is_read_with_its_gaps_and_keeps_the_last_of_each_key() -> None:
    async def work(client: PlainClient, world: World) -> None:
        settings = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        topic_id = await client.create_topic("t", settings=settings)
        for number in range(40):
            records = [(1_000 + number, b"k%d" % (number % 3), b"%d" % number * 100, ())]
            await client.produce(partition_batch(topic_id, 0, encode_batch(records)))
        await asyncio.sleep(600)
        assert any("-" in name for name in names_of(world, topic_id)), "a higher generation"
        found = await records_of(client, topic_id)
        assert len(found) < 20
        assert found[-3:] == [(number, b"%d" % number * 100) for number in (37, 38, 39)]
        for offset in range(40):
            answer = await client.fetch(topic_id, 0, offset)
            assert answer is not None
            assert not answer.HasField("error"), answer.error
            _, header = next(iterate_headers(answer.batches, is_compacted=True))
            assert header.next_offset > offset

    with_world(work)
