"""Files that somebody moved, cut or replaced, while a node was down or ran: what stops, what comes
back."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.server.cluster.test_damage_in_world import kept, replica
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.log.names import directory_name
from tidelog.chaos.sim.ports.medium import Directory, Inode
from tidelog.v1 import admin_pb2
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import TopicId

pytestmark = pytest.mark.slow
SMALL = {"segment.bytes": "2048", "segment.ms": str(2**62)}
"""The records of these tests are old: their segments close when they are full, and not before."""
Change = Callable[[dict[str, Inode | Directory], str], None]


def rename_the_directory(names: dict[str, Inode | Directory], name: str) -> None:
    names[f"{name}.bak"] = names.pop(name)


def delete_the_directory(names: dict[str, Inode | Directory], name: str) -> None:
    del names[name]


def replace_the_directory(names: dict[str, Inode | Directory], name: str) -> None:
    names[name] = Inode()


def of_last(change: Callable[[Directory, str], None]) -> Change:
    """A change to the newest segment's file."""

    def made(names: dict[str, Inode | Directory], name: str) -> None:
        place = names[name]
        assert isinstance(place, Directory)
        change(place, max(each for each in place.seen if each.endswith(".log")))

    return made


def of_first(change: Callable[[Directory, str], None], suffix: str = ".log") -> Change:
    """A change to the oldest file of its kind."""

    def made(names: dict[str, Inode | Directory], name: str) -> None:
        place = names[name]
        assert isinstance(place, Directory)
        change(place, min(each for each in place.seen if each.endswith(suffix)))

    return made


def delete(place: Directory, name: str) -> None:
    for known in (place.seen, place.durable):
        known.pop(name, None)


def shorten(place: Directory, name: str) -> None:
    inode = place.seen[name]
    assert isinstance(inode, Inode)
    for content in (inode.seen, inode.durable):
        del content[len(content) // 2 :]


def replace_by_a_directory(place: Directory, name: str) -> None:
    for known in (place.seen, place.durable):
        known[name] = Directory()


def add_a_stranger(place: Directory, name: str) -> None:
    del name
    for known in (place.seen, place.durable):
        known["notes.txt"] = Inode()


CHANGES: dict[str, Change] = {
    "the directory is renamed": rename_the_directory,
    "the directory is deleted": delete_the_directory,
    "the directory is a file": replace_the_directory,
    "the newest log is deleted": of_last(delete),
    "the oldest log is deleted": of_first(delete),
    "a sidecar is deleted": of_first(delete, ".sidecar"),
    "the newest log is shorter": of_last(shorten),
    "the oldest log is shorter": of_first(shorten),
    "the newest log is a directory": of_last(replace_by_a_directory),
    "the oldest log is a directory": of_first(replace_by_a_directory),
    "there is a file more": of_last(add_a_stranger),
}


async def second_topic(cluster: Cluster) -> ReplicatedTopic:
    """Beside the one that suffers, in the same data directory."""
    new = admin_pb2.NewTopic(
        name="other",
        partition_count=1,
        replication_factor=3,
        configuration={"retention.ms": "-1"},
    )
    request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
    answer = await cluster.call(1, "AdminService/CreateTopics", request)
    (result,) = admin_pb2.CreateTopicsResponse.FromString(answer).results
    return ReplicatedTopic(cluster, TopicId(result.topic_id))


def is_served(topic: ReplicatedTopic, number: int) -> bool:
    """Not while its files are being opened, nor after they could not be."""
    node = topic.cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    found = node._broker.replicas.get(topic.key.topic_id, topic.key.partition)
    return found is not None and found.log.failure is None


async def stop_in_order(cluster: Cluster, number: int) -> None:
    node = cluster.nodes[number]
    assert node.node is not None
    ended = node.ended
    node.node.request_stop()
    await cluster.wait(lambda: node.ended > ended)


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_file_that_is_gone_after_an_orderly_stop_stops_its_partition_alone(name: str) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, settings=SMALL)
        other = await second_topic(cluster)
        await topic.in_sync(1, 2, 3)
        await other.in_sync(1, 2, 3)
        for _ in range(6):
            await topic.produce(30)
            await other.produce(5)
            await asyncio.sleep(0.3)
        victim = topic.now().leader_id
        await stop_in_order(cluster, victim)
        root = cluster.world.machine(f"n{victim}").medium("data").root
        CHANGES[name](root.seen, directory_name(topic.key))
        root.durable = dict(root.seen)
        await cluster.nodes[victim].restart()
        for _ in range(20):
            await topic.produce(2)
            await other.produce(2)
            assert replica(other, victim).directory.failure is None
            assert replica(other, victim).log.failure is None
            await asyncio.sleep(0.2)
        await topic.in_sync(1, 2, 3)
        await other.in_sync(1, 2, 3)
        await cluster.wait(lambda: is_served(topic, victim))
        # Whoever leads has all of it, the repaired one too.
        for number in (each for each in (1, 2, 3) if each != victim):
            await stop_in_order(cluster, number)
            leader = await topic.led_by_other_than(number)
            with contextlib.suppress(AssertionError):
                # A length is looked at when the file is read first: that copy stops only now.
                await topic.read(leader)
            await cluster.wait(lambda: is_served(topic, victim))
            await topic.led_by_other_than(number)
            await topic.holds_all()
            await cluster.nodes[number].restart()
            await topic.in_sync(1, 2, 3)

    cluster = three()
    if "sidecar" in name:
        # Else nothing is sealed so soon: a job would meet what is gone before an append does.
        for node in cluster.nodes.values():
            node.settings = {**node.settings, "housekeeping.check_interval_ms": "200"}
    cluster.run(work)


def test_a_lone_copy_of_which_a_file_is_gone_says_so_and_the_rest_of_the_node_goes_on() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1, settings=SMALL)
        other = ReplicatedTopic(cluster, (await second_alone(cluster)))
        await topic.produce(30)
        await other.produce(5)
        await stop_in_order(cluster, 1)
        root = cluster.world.machine("n1").medium("data").root
        of_last(delete)(root.seen, directory_name(topic.key))
        await cluster.nodes[1].restart()
        assert await topic.try_produce(1) is ErrorCode.STORAGE_CORRUPT
        await other.produce(5)
        await other.holds_all()
        assert replica(other, 1).directory.failure is None

    Cluster(controllers=1, roles="broker,controller").run(work)


WHILE_IT_RUNS = {
    name: change
    for name, change in CHANGES.items()
    # What another program does to the bytes of a file that is open is not what this is about.
    if "shorter" not in name and "more" not in name
}


@pytest.mark.parametrize("name", sorted(WHILE_IT_RUNS))
@pytest.mark.parametrize(("is_leader", "flush"), [(True, "sync"), (False, "replicated")])
def test_a_file_that_is_gone_while_a_node_runs_stops_its_partition_alone(
    name: str, is_leader: bool, flush: str
) -> None:
    async def work(cluster: Cluster) -> None:
        settings = {**SMALL, "flush": flush}
        topic = await ReplicatedTopic.create(cluster, settings=settings)
        other = await second_topic(cluster)
        await topic.in_sync(1, 2, 3)
        await other.in_sync(1, 2, 3)
        for _ in range(6):
            await topic.produce(30)
            await other.produce(5)
            await asyncio.sleep(0.3)
        leader = topic.now().leader_id
        victim = leader if is_leader else next(each for each in (1, 2, 3) if each != leader)
        root = cluster.world.machine(f"n{victim}").medium("data").root
        WHILE_IT_RUNS[name](root.seen, directory_name(topic.key))
        root.durable = dict(root.seen)
        for _ in range(20):
            await topic.produce(10)
            await other.produce(2)
            assert replica(other, victim).directory.failure is None
            assert replica(other, victim).log.failure is None
            await asyncio.sleep(0.2)
        with contextlib.suppress(AssertionError):
            # A file that nobody writes to any more is looked at when it is read.
            await topic.read(victim)
        await topic.in_sync(1, 2, 3)
        await other.in_sync(1, 2, 3)
        await cluster.wait(lambda: is_served(topic, victim))
        # Whoever leads has all of it: the repaired one also once it has started again.
        await stop_in_order(cluster, victim)
        await cluster.nodes[victim].restart()
        await topic.in_sync(1, 2, 3)
        for number in (each for each in (1, 2, 3) if each != victim):
            await stop_in_order(cluster, number)
            with contextlib.suppress(AssertionError):
                await topic.read(await topic.led_by_other_than(number))
            await cluster.wait(lambda: is_served(topic, victim))
            await topic.led_by_other_than(number)
            await topic.holds_all()
            await cluster.nodes[number].restart()
            await topic.in_sync(1, 2, 3)

    cluster = three()
    for node in cluster.nodes.values():
        node.settings = {**node.settings, "housekeeping.check_interval_ms": "200"}
    cluster.run(work)


@pytest.mark.parametrize("change", [rename_the_directory, of_last(delete), replace_the_directory])
def test_a_lone_copy_of_which_a_file_goes_while_it_runs_acknowledges_nothing_more(
    change: Change,
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1, settings=SMALL)
        other = ReplicatedTopic(cluster, (await second_alone(cluster)))
        await topic.produce(30)
        await other.produce(5)
        root = cluster.world.machine("n1").medium("data").root
        change(root.seen, directory_name(topic.key))
        root.durable = dict(root.seen)
        assert await topic.try_produce(1) is ErrorCode.STORAGE_FAILED
        failure = replica(topic, 1).log.failure
        assert failure is not None
        assert directory_name(topic.key) in failure.tried
        assert "put it back" in failure.hint.lower()
        await other.produce(5)
        await cluster.wait(
            lambda: (
                getattr(replica(topic, 1).log.failure, "code", None) is ErrorCode.STORAGE_CORRUPT
            )
        )
        assert await topic.try_produce(1) is ErrorCode.STORAGE_CORRUPT
        await other.holds_all()
        assert replica(other, 1).directory.failure is None

    Cluster(controllers=1, roles="broker,controller").run(work)


def test_a_data_directory_that_has_lost_its_marks_stops_as_a_whole() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1, settings=SMALL)
        await topic.produce(3)
        root = cluster.world.machine("n1").medium("data").root
        for names in (root.seen, root.durable):
            del names["marks"]
        directory = replica(topic, 1).directory
        for _ in range(4):
            await topic.try_produce(1)
            await asyncio.sleep(0.5)
        assert directory.failure is not None
        assert directory.failure.code is ErrorCode.STORAGE_FAILED

    Cluster(controllers=1, roles="broker,controller").run(work)


def test_a_directory_that_is_put_back_is_served_as_if_nothing_had_happened() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1, settings=SMALL)
        await topic.produce(30)
        root = cluster.world.machine("n1").medium("data").root
        name = directory_name(topic.key)
        place = root.seen.pop(name)
        root.durable = dict(root.seen)
        assert await topic.try_produce(1) is ErrorCode.STORAGE_FAILED
        root.seen[name] = root.durable[name] = place
        await cluster.wait(lambda: is_served(topic, 1))
        await topic.produce(5)
        await topic.holds_all()

    Cluster(controllers=1, roles="broker,controller").run(work)


async def second_alone(cluster: Cluster) -> TopicId:
    new = admin_pb2.NewTopic(name="other", partition_count=1, replication_factor=1)
    request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
    answer = await cluster.call(1, "AdminService/CreateTopics", request)
    (result,) = admin_pb2.CreateTopicsResponse.FromString(answer).results
    return TopicId(result.topic_id)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_file_that_is_locked_while_a_node_runs_stops_its_partition_until_it_is_not(
    is_leader: bool,
) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        other = await second_topic(cluster)
        for each in (topic, other):
            await each.produce(5)
            await each.in_sync(1, 2, 3)
        leader = topic.now().leader_id
        victim = leader if is_leader else next(each for each in (1, 2, 3) if each != leader)
        place = cluster.world.machine(f"n{victim}").medium("data").find(directory_name(topic.key))
        assert isinstance(place, Directory)
        locked = place.seen[max(each for each in place.seen if each.endswith(".log"))]
        assert isinstance(locked, Inode)
        locked.is_locked = True
        for _ in range(20):
            await topic.produce(2)
            await other.produce(2)
            assert replica(other, victim).directory.failure is None
            assert replica(other, victim).log.failure is None
            await asyncio.sleep(0.2)
        assert not is_served(topic, victim)
        failure = replica(topic, victim).log.failure
        assert failure is not None
        assert directory_name(topic.key) in failure.tried
        assert "EPERM" in failure.happened
        assert sorted(other.now().in_sync_replicas) == [1, 2, 3]
        locked.is_locked = False
        await topic.in_sync(1, 2, 3)
        await cluster.wait(lambda: is_served(topic, victim))
        await topic.produce(2)
        for each in (topic, other):
            await each.holds_all()
        assert kept(topic, victim) == []

    three().run(work)
