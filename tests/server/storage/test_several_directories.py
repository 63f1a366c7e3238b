"""A node with several data directories: where partitions go, and what the failure of one costs."""

import asyncio

import msgspec
import pytest

from tests.server.support.directories_in_world import DATA, FURTHER, Directories, run_directories
from tidelog.server.watching.watcher import WATCH_MS
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import BrokerId, TopicId

ALL = (DATA, *FURTHER)
KEPT = {"retention.ms": "-1"}
"""The records of these tests are as old as can be."""


async def written(directories: Directories, name: str, partitions: int) -> bytes:
    """A topic with one record in each partition."""
    topic_id = await directories.client.create_topic(name, partitions, KEPT)
    for partition in range(partitions):
        assert (
            await directories.write(topic_id, partition, b"%s-%d" % (name.encode(), partition)) == 0
        )
    return topic_id


async def check_whole(directories: Directories, topic_id: bytes, name: str, count: int) -> None:
    """Every partition has its record."""
    for partition in range(count):
        expected = [b"%s-%d" % (name.encode(), partition)]
        assert await directories.values(topic_id, partition) == expected


def test_the_partitions_of_a_topic_take_turns_over_the_directories() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        assert [directories.partitions_in(name, topic_id) for name in ALL] == [
            [0, 3],
            [1, 4],
            [2, 5],
        ]
        assert len({each.uuid for each in directories.broker().directories}) == 3
        directories.kill()
        await directories.start()
        await check_whole(directories, topic_id, "t", 6)

    run_directories(work)


def test_a_partition_lies_where_the_metadata_say() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        uuids = [each.uuid for each in directories.broker().directories]
        (topic,) = [each for each in directories.image().topics.values() if each.name == "t"]
        for name, uuid in zip(ALL, uuids, strict=True):
            of_broker = {
                each.partition: each.directory_of(BrokerId(1)) for each in topic.partitions
            }
            expected = [number for number, named in of_broker.items() if named == uuid]
            assert directories.partitions_in(name, topic_id) == expected

    run_directories(work)


@pytest.mark.parametrize("place", [0, 1], ids=["data_dir", "one of log_dirs"])
def test_a_directory_that_fails_while_running_takes_only_its_own_partitions_with_it(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        directories.medium(ALL[place]).is_failed = True
        assert await directories.write(topic_id, place, b"x") == ErrorCode.STORAGE_FAILED.value
        for partition in {0, 1, 2} - {place}:
            assert await directories.write(topic_id, partition, b"y") == 0
            assert (await directories.values(topic_id, partition))[-1] == b"y"
        refused = await directories.client.fetch(topic_id, place, 0)
        assert refused is not None
        assert refused.error.code == ErrorCode.STORAGE_FAILED.value
        expected = [number != place for number in range(3)]
        await directories.wait(lambda: directories.online() == expected)
        later = await written(directories, "later", 4)
        await check_whole(directories, later, "later", 4)
        assert directories.node is not None
        assert directories.node.is_ready
        await asyncio.sleep(WATCH_MS / 1000)

    run_directories(work)
    told = [each for each in caplog.messages if each.startswith("storage_stopped")]
    assert len(told) == 1
    assert f"node:{ALL[place]}" in told[0] or f"directory={ALL[place]}" in told[0]


@pytest.mark.parametrize("age_ms", [0, 300, 600])
def test_the_controller_hears_of_a_failed_directory_at_once(age_ms: int) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        await asyncio.sleep(age_ms / 1000)
        directories.medium(ALL[1]).is_failed = True
        assert await directories.write(topic_id, 1, b"x") == ErrorCode.STORAGE_FAILED.value
        async with asyncio.timeout(0.2):
            await directories.wait(lambda: directories.online() == [True, False, True])

    run_directories(work)


def test_a_node_that_starts_without_a_directory_does_not_make_its_partitions_anew() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        unwritten = await directories.client.create_topic("unwritten", 3, KEPT)
        await directories.stop()
        directories.missing["disk1"] = None
        await directories.start()
        for refusing in (topic_id, unwritten):
            assert await directories.write(refusing, 1, b"x") == ErrorCode.STORAGE_FAILED.value
        for partition in (0, 2):
            assert await directories.write(topic_id, partition, b"y") == 0
            assert await directories.write(unwritten, partition, b"y") == 0
        later = await written(directories, "later", 4)
        assert [directories.partitions_in(name, topic_id) for name in ALL] == [[0], [1], [2]]
        assert [directories.partitions_in(name, later) for name in ALL] == [[0, 2], [], [1, 3]]
        directories.kill()
        directories.missing.clear()
        await directories.start()
        assert await directories.values(topic_id, 1) == [b"t-1"]
        assert await directories.values(topic_id, 0) == [b"t-0", b"y"]
        assert await directories.write(unwritten, 1, b"z") == 0
        await check_whole(directories, later, "later", 4)
        assert directories.online() == [True, True, True]

    run_directories(work)


def test_partitions_of_a_directory_that_is_no_longer_named_stop_until_it_is_named_again() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        await directories.stop()
        directories.log_dirs = ("disk1",)
        await directories.start()
        assert await directories.write(topic_id, 2, b"x") == ErrorCode.STORAGE_FAILED.value
        assert await directories.write(topic_id, 1, b"x") == 0
        await directories.stop()
        directories.log_dirs = ("disk2", "disk1")
        await directories.start()
        assert await directories.values(topic_id, 2) == [b"t-2"]
        assert await directories.values(topic_id, 1) == [b"t-1", b"x"]

    run_directories(work)


def test_an_operator_lets_a_partition_of_a_lost_directory_begin_anew() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        await directories.stop()
        directories.missing["disk2"] = None
        await directories.start()
        assert await directories.write(topic_id, 2, b"x") == ErrorCode.STORAGE_FAILED.value
        await directories.elect_unclean(topic_id, 2)
        assert await directories.write(topic_id, 2, b"new") == 0
        assert await directories.values(topic_id, 2) == [b"new"]
        (segment,) = [path for path, _ in directories.medium("disk2").files() if "/" in path]
        directories.missing.clear()
        directories.kill()
        await directories.start()
        assert await directories.values(topic_id, 2) == [b"new"], "the old one is an orphan"
        assert segment in dict(directories.medium("disk2").files())

    run_directories(work)


def test_a_partition_begins_anew_elsewhere_while_the_node_runs_if_an_operator_says_so() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        directories.medium("disk2").is_failed = True
        assert await directories.write(topic_id, 2, b"x") == ErrorCode.STORAGE_FAILED.value
        await directories.wait(lambda: directories.online() == [True, True, False])
        await directories.elect_unclean(topic_id, 2)
        assert await directories.write(topic_id, 2, b"new") == 0
        assert await directories.values(topic_id, 2) == [b"new"]

    run_directories(work)


def test_a_directory_that_cannot_be_read_at_the_start_costs_its_own_partitions_only() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        directories.kill()
        directories.medium("disk1").is_read_only = True
        await directories.start()
        assert await directories.write(topic_id, 1, b"x") == ErrorCode.STORAGE_FAILED.value
        assert await directories.write(topic_id, 2, b"x") == 0
        assert directories.online() == [True, False, True]
        directories.kill()
        directories.medium("disk1").is_read_only = False
        await directories.start()
        await check_whole(directories, topic_id, "t", 2)

    run_directories(work)


def test_a_node_without_any_directory_that_works_says_so_and_lives() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 3)
        for place, name in enumerate(ALL):
            directories.medium(name).is_failed = True
            code = await directories.write(topic_id, place, b"x")
            assert code == ErrorCode.STORAGE_FAILED.value
        await directories.wait(lambda: not any(directories.online()))
        assert directories.node is not None
        assert directories.node.is_ready

    run_directories(work)


def stored_epoch(directories: Directories, name: str) -> int:
    """What lies in the directory."""
    (content,) = [
        bytes(inode.seen)
        for path, inode in directories.medium(name).durable_files()
        if path == "broker_epoch.json"
    ]
    return int(msgspec.json.decode(content)["broker_epoch"])


def test_each_directory_holds_the_epoch_under_which_it_is_served() -> None:
    async def work(directories: Directories) -> None:
        for _ in range(3):
            await directories.start()
            epochs = [stored_epoch(directories, name) for name in ALL]
            assert epochs == [directories.broker().epoch] * 3
            served = [each.served_epoch for each in directories.broker().directory_epochs]
            assert served == epochs
            directories.kill()

    run_directories(work)


def test_of_several_directories_the_one_that_went_back_is_told_and_the_others_are_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        await directories.stop()
        copied = directories.medium("disk1").copy()
        await directories.start()
        for partition in range(6):
            assert await directories.write(topic_id, partition, b"later") == 0
        await directories.stop()
        directories.medium("disk1").put_back(copied)
        await directories.start()
        old = directories.partitions_in("disk1", topic_id)
        assert len(old) == 2
        for found in directories.image().topics[TopicId(topic_id)].partitions:
            is_old = found.partition in old
            assert found.leader_id == 1, "it is the only replica there is"
            assert found.is_recovered_unclean is is_old
            values = await directories.values(topic_id, found.partition)
            assert (b"later" in values) is not is_old

    run_directories(work)
    (told,) = [each for each in caplog.messages if each.startswith("directory_went_back")]
    assert "directory=disk1" in told
    assert "stored_epoch=1 served_epoch=2" in told


def test_a_directory_in_which_no_epoch_can_be_stored_costs_its_own_partitions_only() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        await directories.stop()
        directories.medium("disk1").is_read_only = True
        await directories.start()
        assert directories.online() == [True, False, True]
        served = {each.uuid: each for each in directories.broker().directory_epochs}
        epochs = [served[each.uuid].served_epoch for each in directories.broker().directories]
        assert epochs == [2, 1, 2]
        directories.medium("disk1").is_read_only = False
        directories.kill()
        await directories.start()
        await check_whole(directories, topic_id, "t", 6)
        assert all(each.went_back_from is None for each in directories.broker().directory_epochs)

    run_directories(work)


def test_after_a_clean_stop_every_log_is_restored_and_after_a_kill_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        await directories.stop()
        for name in ALL:
            assert "log_checkpoint" in dict(directories.medium(name).files())
        await directories.start()
        for name in ALL:
            assert "log_checkpoint" not in dict(directories.medium(name).files())
        await check_whole(directories, topic_id, "t", 6)
        directories.kill()
        await directories.start()
        await check_whole(directories, topic_id, "t", 6)

    run_directories(work)
    told = [each for each in caplog.messages if each.startswith("logs_recovered")]
    assert [f"restored={count}" in each for count, each in zip((0, 6, 0), told, strict=True)] == [
        True
    ] * 3, told


def test_a_directory_that_failed_leaves_no_checkpoint_and_the_node_no_marker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await written(directories, "t", 6)
        directories.medium("disk1").is_failed = True
        assert await directories.write(topic_id, 1, b"x") == ErrorCode.STORAGE_FAILED.value
        await directories.stop()
        left = {name: dict(directories.medium(name).files()) for name in ALL}
        assert ["log_checkpoint" in left[name] for name in ALL] == [True, False, True]
        assert "clean_shutdown.json" not in left[DATA]
        directories.medium("disk1").is_failed = False
        await directories.start()
        await check_whole(directories, topic_id, "t", 1)

    run_directories(work)
    told = [each for each in caplog.messages if each.startswith("logs_recovered")]
    assert "restored=4" in told[1], told
