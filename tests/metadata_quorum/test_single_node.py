"""The metadata port over one file, on a simulated disk that fills, fails and crashes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.chaos.sim.medium import Inode
from tidelog.metadata_quorum import invariants, record_log, single_node
from tidelog.metadata_quorum.controller.brokers import Registration
from tidelog.metadata_quorum.controller.topics import NewTopic, TopicDefaults
from tidelog.metadata_quorum.port import CreatedTopic
from tidelog.metadata_quorum.records import FormatRecord, encode_entry
from tidelog.metadata_quorum.single_node import SingleNodeMetadata
from tidelog.ports import Append, RequestContext, TaskScope
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

CONTEXT = RequestContext(
    principal="somebody", listener="client", client_id="", address="", deadline_ns=NO_DEADLINE_NS
)
Work = Callable[[SingleNodeMetadata], Awaitable[None]]


async def life(ports: SimulatedPorts, work: Work, cluster_id: str = "c") -> None:
    """Open, run the owning task, register broker 1, do the work."""
    disk = ports.open_disk()
    file, image, _ = await single_node.open_log(disk, cluster_id)
    invariants.check(image)
    metadata = SingleNodeMetadata(
        disk,
        file,
        image,
        random=ports.random,
        broker_id=BrokerId(1),
        defaults=TopicDefaults(),
    )
    async with TaskScope() as scope:
        task = scope.start(metadata.run(), name="metadata")
        registration = Registration(broker_id=BrokerId(1), incarnation=bytes(16), listeners={})
        epoch = await metadata.register_broker(registration)
        await metadata.unfence_broker(BrokerId(1), epoch)
        await work(metadata)
        await metadata.stop()
        await task


async def create(metadata: SingleNodeMetadata, *names: str) -> list[CreatedTopic | TidelogError]:
    """Create topics with one partition."""
    topics = [NewTopic(name=name) for name in names]
    return await metadata.create_topics(CONTEXT, topics, validate_only=False, timeout_ms=60_000)


def run(world: World, *lives: Work) -> None:
    """One life after the other on one machine; each must end without an error."""

    async def main() -> None:
        for work in lives:
            process = world.machine("m").start("p", lambda ports, w=work: life(ports, w))  # type: ignore[misc]
            for _ in range(10_000):
                if process.is_dead:
                    break
                await asyncio.sleep(0.05)
            if process.exit_error is not None:
                raise process.exit_error

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


def test_topics_are_there_after_a_restart_and_versions_grow() -> None:
    versions: list[int] = []

    async def first(metadata: SingleNodeMetadata) -> None:
        results = await create(metadata, "a", "b")
        assert all(isinstance(result, CreatedTopic) for result in results)
        versions.append(metadata.image().version)

    async def second(metadata: SingleNodeMetadata) -> None:
        assert sorted(metadata.image().topic_ids) == ["a", "b"]
        assert metadata.image().version > versions[0]

    run(World(1), first, second)


def test_a_request_fails_in_part_and_the_rest_is_created() -> None:
    async def work(metadata: SingleNodeMetadata) -> None:
        good, bad, twice = await create(metadata, "a", "no such name!", "a")
        assert isinstance(good, CreatedTopic)
        assert isinstance(bad, TidelogError)
        assert bad.code is ErrorCode.INVALID_TOPIC_NAME
        assert isinstance(twice, TidelogError)
        assert twice.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(World(2), work)


def test_topics_of_one_request_are_there_all_or_none_after_a_torn_write() -> None:
    world = World(8)
    names = ["a", "b", "c"]

    async def first(metadata: SingleNodeMetadata) -> None:
        await create(metadata, *names)

    async def second(metadata: SingleNodeMetadata) -> None:
        assert dict(metadata.image().topic_ids) == {}

    async def main() -> None:
        await one_life(world, first)
        inode = log_inode(world)
        end = bytes(inode.seen).index(b"\xa1a")
        # A crash may keep the later bytes of a write without the earlier ones.
        assert inode.replace_byte(end, inode.seen[end], 0)
        await one_life(world, second)

    world.run(main())
    world.close()


def log_inode(world: World) -> Inode:
    inode = world.machine("m").medium().find(single_node.LOG_PATH)
    assert isinstance(inode, Inode)
    return inode


async def one_life(world: World, work: Work) -> None:
    process = world.machine("m").start("p", lambda ports: life(ports, work))
    for _ in range(1_000):
        if process.is_dead:
            break
        await asyncio.sleep(0.05)
    if process.exit_error is not None:
        raise process.exit_error


@pytest.mark.parametrize("seed", range(5))
def test_a_log_whose_name_a_killed_process_left_unflushed_survives_the_next_crash(
    seed: int,
) -> None:
    """Bytes and names of the first life may be in memory only; the second life relies on them."""
    world = World(seed, enabled=[FaultKind.LOST_NAME], probabilities={FaultKind.LOST_NAME: 1.0})

    async def first_start(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await disk.make_directory(single_node.DIRECTORY)
        file = await disk.open(single_node.LOG_PATH, create=True)
        format_entry = encode_entry((FormatRecord(cluster_id="c"),))
        await disk.append([Append(file, [record_log.frame(format_entry)])])

    async def second(metadata: SingleNodeMetadata) -> None:
        (created,) = await create(metadata, "a")
        assert isinstance(created, CreatedTopic)

    async def third(metadata: SingleNodeMetadata) -> None:
        assert sorted(metadata.image().topic_ids) == ["a"]

    async def main() -> None:
        process = world.machine("m").start("p", first_start)
        await asyncio.sleep(5)
        assert process.is_dead
        await one_life(world, second)
        world.machine("m").crash()
        await one_life(world, third)

    world.run(main())
    world.close()


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_log_that_is_gone_is_damage_once_the_directory_was_in_use(is_empty: bool) -> None:
    world = World(9)

    async def start(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        if is_empty:
            await disk.make_directory(single_node.DIRECTORY)
            await disk.open(single_node.LOG_PATH, create=True)
        await single_node.open_log(disk, "c", must_exist=True)

    async def main() -> None:
        process = world.machine("m").start("p", start)
        await asyncio.sleep(5)
        assert isinstance(process.exit_error, TidelogError)
        assert process.exit_error.code is ErrorCode.STORAGE_CORRUPT
        assert "was in use before" in process.exit_error.happened

    world.run(main())
    world.close()


def test_more_partitions_than_an_entry_holds_are_refused_and_the_rest_is_created() -> None:
    async def work(metadata: SingleNodeMetadata) -> None:
        topics = [NewTopic(name=name, partition_count=9_000) for name in ("a", "b", "c")]
        *good, refused = await metadata.create_topics(
            CONTEXT, topics, validate_only=False, timeout_ms=60_000
        )
        assert all(isinstance(result, CreatedTopic) for result in good)
        assert isinstance(refused, TidelogError)
        assert refused.code is ErrorCode.INVALID_PARTITION_COUNT
        assert sorted(metadata.image().topic_ids) == ["a", "b"]

    run(World(10), work)


def test_validate_only_changes_nothing() -> None:
    async def work(metadata: SingleNodeMetadata) -> None:
        before = metadata.image()
        (result,) = await metadata.create_topics(
            CONTEXT, [NewTopic(name="a")], validate_only=True, timeout_ms=60_000
        )
        assert isinstance(result, CreatedTopic)
        assert metadata.image() is before

    run(World(3), work)


def test_who_waits_for_a_version_is_woken_by_it() -> None:
    async def work(metadata: SingleNodeMetadata) -> None:
        wanted = metadata.image().version + 2
        waiter = asyncio.ensure_future(metadata.wait_version(wanted))
        await create(metadata, "a")
        assert not waiter.done()
        await create(metadata, "b")
        assert (await waiter).version == wanted

    run(World(4), work)


def test_a_write_whose_caller_went_away_goes_on() -> None:
    async def work(metadata: SingleNodeMetadata) -> None:
        wanted = metadata.image().version + 1
        caller = asyncio.ensure_future(create(metadata, "a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        image = await metadata.wait_version(wanted)
        assert "a" in image.topic_ids

    run(World(5), work)


def test_a_log_of_another_cluster_is_refused_and_not_touched() -> None:
    world = World(6)

    async def nothing(metadata: SingleNodeMetadata) -> None:
        del metadata

    async def main() -> None:
        error: BaseException | None = None
        machine = world.machine("m")
        for cluster_id in ("c", "another"):
            process = machine.start("p", lambda ports, c=cluster_id: life(ports, nothing, c))  # type: ignore[misc]
            await asyncio.sleep(5)
            assert process.is_dead
            error = process.exit_error
        assert isinstance(error, TidelogError)
        assert error.code is ErrorCode.WRONG_CLUSTER

    world.run(main())
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_created_topics_survive_a_crash_of_the_machine_at_any_moment(seed: int) -> None:
    kinds = (FaultKind.LOST_WRITE, FaultKind.TORN_WRITE, FaultKind.HOLE, FaultKind.LOST_NAME)
    world = World(seed, enabled=kinds, probabilities=dict.fromkeys(kinds, 0.5))
    created: list[str] = []

    async def work(metadata: SingleNodeMetadata) -> None:
        known = metadata.image().topic_ids
        assert all(name in known for name in created)
        for number in range(len(known), 1000):
            names = [f"t{number}-{place}" for place in range(1 + number % 4)]
            for result in await create(metadata, *names):
                assert isinstance(result, CreatedTopic)
            created.extend(names)

    async def main() -> None:
        random = world.seeds.purpose("crash times")
        for _ in range(6):
            process = world.machine("m").start("p", lambda ports: life(ports, work))
            await asyncio.sleep(random.below(200) / 1000)
            assert process.exit_error is None, process.exit_error
            world.machine("m").crash()

    try:
        world.run(main())
        assert world.findings() == []
        assert created, "nothing was created before the crashes"
    finally:
        world.close()
