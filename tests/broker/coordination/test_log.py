"""A coordinator's log: everything committed is read, in order, and appends belong to one epoch."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.support.group_world import Groups
from tests.broker.support.node_in_world import NodeLife, PlainClient, partition_batch
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.coordination.log import CoordinatorLog, _take_all
from tidelog.broker.replicas.replicas import Replicas
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.wire.batch import BatchHeader, encode_batch, read_header
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.batch.stamp import stamp
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, TopicId

SMALL = {"cleanup.policy": "compact", "segment.bytes": "2048", "min.cleanable.dirty.ratio": "0"}
KEYS = 20
Work = Callable[[PlainClient, Replicas], Awaitable[None]]


def with_replicas(work: Work) -> None:
    """Run the work against a node, its replicas at hand."""
    world = World(1)
    life = NodeLife()

    async def main() -> None:
        process = world.machine("node").start("node", life.live)
        client = world.machine("client").start("client", wait_forever)
        while life.node is None or not life.node.is_ready:
            assert process.exit_error is None, process.exit_error
            await asyncio.sleep(0.01)
        replicas = life.node.view().replicas
        assert replicas is not None
        await work(PlainClient(client.ports.network), replicas)

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


async def loaded(log: CoordinatorLog) -> list[tuple[bytes, bytes | None]]:
    """What a loading hands over."""
    found: list[tuple[bytes, bytes | None]] = []
    count = await log.load(lambda key, value: found.append((key, value)))
    assert count == len(found)
    return found


def log_of(replicas: Replicas, topic_id: bytes, epoch: int = 0) -> CoordinatorLog:
    """Of the topic's only partition."""
    key = PartitionKey(TopicId(topic_id), PartitionId(0))
    return CoordinatorLog(replicas, key, LeaderEpoch(epoch))


@pytest.mark.slow
def test_a_compacted_log_is_loaded_whole_with_the_last_value_of_each_key() -> None:
    async def work(client: PlainClient, replicas: Replicas) -> None:
        topic_id = await client.create_topic("t", settings=SMALL)
        expected: dict[bytes, bytes | None] = {}
        for number in range(300):
            key = b"k%d" % (number % KEYS)
            value = None if number % 97 == 90 else b"v%d" % number
            expected[key] = value
            batch = encode_batch([(number + 1, key, value, ())])
            (told,) = await client.produce(partition_batch(topic_id, 0, batch))
            assert not told.HasField("error"), told
        await asyncio.sleep(40)
        found = await loaded(log_of(replicas, topic_id))
        assert len(found) < 150, "it was compacted"
        assert dict(found) == expected
        assert await loaded(log_of(replicas, topic_id)) == found

    with_replicas(work)


def test_what_is_appended_is_loaded_in_its_order() -> None:
    async def work(client: PlainClient, replicas: Replicas) -> None:
        topic_id = await client.create_topic("t")
        log = log_of(replicas, topic_id)
        assert await loaded(log) == []
        batches = [[(b"a", b"%d" % number), (b"b", None)] for number in range(5)]
        appends = [log.append(batch, wall_ms=1_000) for batch in batches]
        for number, append in enumerate(appends):
            appended = await append
            assert appended.base_offset == 2 * number
            log.check(appended)
        assert await loaded(log) == [record for batch in batches for record in batch]

    with_replicas(work)


def stored(*batches: bytes) -> bytes:
    """As they stand in a log, one behind the other."""
    data, offset = bytearray(), 0
    for batch in batches:
        position = len(data)
        data += batch
        stamp(data, position, base_offset=offset, leader_epoch=0)
        offset += read_header(batch).last_offset_delta + 1
    return bytes(data)


def test_ends_of_transactions_are_handed_out_in_their_place_and_what_is_open_too() -> None:
    """Trap 15: what a load knows of the order is the log's."""

    def sent(value: bytes) -> bytes:
        return encode_batch(
            [(1, b"staged", value, ())],
            producer_id=7,
            producer_epoch=3,
            is_transactional=True,
        )

    end = encode_marker(
        Marker(MarkerType.COMMIT, 5), producer_id=7, producer_epoch=4, timestamp_ms=1
    )
    plain = encode_batch([(1, b"plain", b"2", ())])
    data = stored(plain, sent(b"1"), end, plain, sent(b"3"))
    found: list[object] = []

    def take(key: bytes, value: bytes | None) -> None:
        found.append((key, value))

    def take_marker(header: BatchHeader, marker: Marker) -> None:
        found.append((header.producer_id, header.producer_epoch, marker.type))

    in_order: list[object] = [
        (b"plain", b"2"),
        (b"staged", b"1"),
        (7, 4, MarkerType.COMMIT),
        (b"plain", b"2"),
        (b"staged", b"3"),
    ]
    assert asyncio.run(_take_all(data, 0, take, take_marker)) == 4, "a marker is no record"
    assert found == in_order
    found.clear()
    asyncio.run(_take_all(data, 3, take, take_marker))
    assert found == in_order[3:], "a read may begin with a batch that was taken before"
    found.clear()
    asyncio.run(_take_all(data, 0, take, None))
    assert found == [each for each in in_order if each != (7, 4, MarkerType.COMMIT)]


def test_an_append_of_another_leader_epoch_is_refused() -> None:
    async def work(client: PlainClient, replicas: Replicas) -> None:
        topic_id = await client.create_topic("t")
        later = log_of(replicas, topic_id, epoch=1)
        with pytest.raises(TidelogError) as caught:
            later.append([(b"a", b"1")], wall_ms=1_000)
        assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
        with pytest.raises(TidelogError) as caught:
            await loaded(later)
        assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
        appended = await log_of(replicas, topic_id).append([(b"a", b"1")], wall_ms=1_000)
        with pytest.raises(TidelogError) as caught:
            later.check(appended)
        assert caught.value.code is ErrorCode.NOT_LEADER

    with_replicas(work)


@pytest.mark.slow
def test_a_loading_waits_until_all_that_was_written_before_is_committed() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1, replicas=3)
        await groups.produce("t", 0, 2)
        leader = await groups.leader("t", 0)
        node = cluster.nodes[leader].node
        assert node is not None
        replicas = node.view().replicas
        assert replicas is not None
        replica = replicas.get(TopicId(topic_id), 0)
        assert replica is not None
        log = CoordinatorLog(replicas, replica.log.key, replica.leader_epoch)
        others = [each for number, each in cluster.nodes.items() if number != leader]
        for other in others:
            other.kill()
        appended = log.append([(b"a", b"1")], wall_ms=1_000)
        await asyncio.sleep(3)
        assert replica.log.log_end_offset == 3
        assert replica.log.high_watermark == 2
        found: list[bytes] = []
        loading = asyncio.create_task(_load_keys(log, found))
        await asyncio.sleep(3)
        assert not loading.done(), "the last record may still be lost"
        assert not appended.done()
        for other in others:
            await other.restart()
        await loading
        assert found[-1] == b"a"
        await appended

    three().run(work)


async def _load_keys(log: CoordinatorLog, found: list[bytes]) -> None:
    await log.load(lambda key, value: found.append(key))
