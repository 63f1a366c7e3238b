"""What is changed of a topic while a node serves it: settings, at every level, and its end."""

import asyncio

import pytest

from tests.broker.support.node_in_world import partition_batch, sealed
from tests.server.support.directories_in_world import DATA, FURTHER, Directories, run_directories
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.v1 import config_admin_pb2, topic_admin_pb2
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode

ALL = (DATA, *FURTHER)
CLUSTER = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER)
BROKER = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_BROKER, name="1")
TOPIC = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_TOPIC, name="t")
NOW_MS = WALL_START_MS
"""Of records that no retention finds old."""


async def alter(
    directories: Directories, target: config_admin_pb2.ConfigTarget, **settings: str | None
) -> None:
    """Set, or unset with None; `__` for the dot."""
    alteration = config_admin_pb2.ConfigAlteration(target=target)
    for name, value in settings.items():
        alteration.changes.add(name=name.replace("__", "."), value=value)
    request = config_admin_pb2.AlterConfigsRequest(alterations=[alteration])
    answer = await directories.client.call(
        "ConfigService/AlterConfigs", request.SerializeToString()
    )
    (result,) = config_admin_pb2.AlterConfigsResponse.FromString(answer).results
    assert not result.HasField("error"), result


async def delete(directories: Directories, name: str) -> None:
    request = topic_admin_pb2.DeleteTopicsRequest(topics=[topic_admin_pb2.TopicSelector(name=name)])
    answer = await directories.client.call(
        "TopicAdminService/DeleteTopics", request.SerializeToString()
    )
    (result,) = topic_admin_pb2.DeleteTopicsResponse.FromString(answer).results
    assert not result.HasField("error"), result


async def write(directories: Directories, topic_id: bytes, *, at_ms: int, size: int = 10) -> int:
    """One record; the error's code."""
    batch = sealed([b"x" * size], at_ms)
    (answer,) = await directories.client.produce(partition_batch(topic_id, 0, batch))
    return answer.error.code


def segments(directories: Directories) -> list[int]:
    """Base offsets of what lies in the data directory."""
    files = [path for path, _ in directories.medium(DATA).files() if path.endswith(".log")]
    return sorted(int(path.rpartition("/")[2][:20]) for path in files)


@pytest.mark.parametrize("target", [TOPIC, BROKER, CLUSTER], ids=["topic", "broker", "cluster"])
def test_a_shorter_retention_trims_what_a_node_already_serves(
    target: config_admin_pb2.ConfigTarget,
) -> None:
    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1)
        for number in range(4):
            assert await write(directories, topic_id, at_ms=NOW_MS + number) == 0
        await asyncio.sleep(5)
        assert segments(directories) == [0]
        await alter(directories, target, retention__ms="1000")
        await directories.wait(lambda: segments(directories) == [4])
        refused = await directories.client.fetch(topic_id, 0, 0)
        assert refused is not None
        assert refused.error.code == ErrorCode.OFFSET_OUT_OF_RANGE.value
        await alter(directories, target, retention__ms=None)
        assert await write(directories, topic_id, at_ms=NOW_MS) == 0
        await asyncio.sleep(5)
        found = await directories.client.fetch(topic_id, 0, 4)
        assert found is not None
        assert not found.HasField("error")

    run_directories(work)


def test_what_a_topic_sets_itself_outlives_a_change_for_all() -> None:
    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1, {"retention.ms": "-1"})
        assert await write(directories, topic_id, at_ms=1) == 0
        await alter(directories, CLUSTER, retention__ms="1")
        await alter(directories, BROKER, retention__ms="1")
        await asyncio.sleep(5)
        assert await directories.values(topic_id, 0) == [b"x" * 10]
        await alter(directories, TOPIC, retention__ms=None)
        await directories.wait(lambda: segments(directories) == [1])

    run_directories(work)


def test_a_default_for_all_counts_for_topics_of_a_node_that_starts_later() -> None:
    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1)
        await alter(directories, CLUSTER, segment__bytes="1024")
        await directories.stop()
        await directories.start()
        for number in range(8):
            assert await write(directories, topic_id, at_ms=NOW_MS + number, size=500) == 0
        assert len(segments(directories)) > 3

    run_directories(work)


def test_smaller_segments_count_from_the_next_batch_on() -> None:
    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1)
        for _ in range(4):
            assert await write(directories, topic_id, at_ms=NOW_MS, size=900) == 0
        assert segments(directories) == [0]
        await alter(directories, TOPIC, segment__bytes="1024")
        for _ in range(3):
            assert await write(directories, topic_id, at_ms=NOW_MS, size=900) == 0
        assert segments(directories) == [0, 4, 5, 6]
        await alter(directories, TOPIC, segment__bytes=None)
        for _ in range(3):
            assert await write(directories, topic_id, at_ms=NOW_MS, size=900) == 0
        assert segments(directories) == [0, 4, 5, 6]

    run_directories(work)


def test_the_largest_batch_may_change_while_a_topic_is_written() -> None:
    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1)
        await alter(directories, TOPIC, max__message__bytes="200")
        code = await write(directories, topic_id, at_ms=NOW_MS, size=500)
        assert code == ErrorCode.BATCH_TOO_LARGE.value
        await alter(directories, TOPIC, max__message__bytes="1000")
        assert await write(directories, topic_id, at_ms=NOW_MS, size=500) == 0

    run_directories(work)


def test_a_topic_that_becomes_compacted_keeps_the_last_of_each_key() -> None:
    async def keyed(directories: Directories, topic_id: bytes, number: int) -> None:
        batch = encode_batch([(NOW_MS + number, b"k%d" % (number % 2), b"%d" % number, ())])
        (answer,) = await directories.client.produce(partition_batch(topic_id, 0, batch))
        assert not answer.error.code, answer

    async def work(directories: Directories) -> None:
        directories.log_dirs = ()
        await directories.start()
        settings = {"segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
        topic_id = await directories.client.create_topic("t", 1, settings)
        for number in range(60):
            await keyed(directories, topic_id, number)
        assert len(segments(directories)) > 3
        await alter(directories, TOPIC, cleanup__policy="compact")
        code = await write(directories, topic_id, at_ms=NOW_MS)
        assert code == ErrorCode.INVALID_ARGUMENT.value, "it has no key"
        await directories.wait(lambda: is_compacted(directories))

    run_directories(work)


def is_compacted(directories: Directories) -> bool:
    names = [path for path, _ in directories.medium(DATA).files()]
    return any(path.endswith("-00000001.log") for path in names)


@pytest.mark.parametrize("restarts", [False, True], ids=["while it runs", "and after a restart"])
def test_a_deleted_topic_leaves_no_file_in_any_directory(
    restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        gone = await directories.client.create_topic("gone", 6, {"retention.ms": "-1"})
        kept = await directories.client.create_topic("kept", 3, {"retention.ms": "-1"})
        for partition in range(6):
            assert await directories.write(gone, partition, b"x") == 0
        for partition in range(3):
            assert await directories.write(kept, partition, b"y") == 0
        await delete(directories, "gone")
        await directories.wait(lambda: not of_topic(directories, gone))
        refused = await directories.write(gone, 0, b"x")
        assert refused == ErrorCode.UNKNOWN_TOPIC_ID.value
        if restarts:
            directories.kill()
            await directories.start()
            assert not of_topic(directories, gone)
        for partition in range(3):
            assert await directories.values(kept, partition) == [b"y"]

    run_directories(work)
    assert not [each for each in caplog.messages if "orphan" in each]


def of_topic(directories: Directories, topic_id: bytes) -> list[str]:
    """Directories of the topic, in any data directory."""
    return [
        name
        for directory in ALL
        for name in directories.medium(directory).root.seen
        if name.startswith(topic_id.hex())
    ]


def test_what_a_failed_directory_keeps_of_a_deleted_topic_is_reported_and_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        gone = await directories.client.create_topic("gone", 3, {"retention.ms": "-1"})
        for partition in range(3):
            assert await directories.write(gone, partition, b"x") == 0
        directories.medium("disk1").is_failed = True
        assert await directories.write(gone, 1, b"x") == ErrorCode.STORAGE_FAILED.value
        await delete(directories, "gone")
        await directories.wait(lambda: of_topic(directories, gone) == [f"{gone.hex()}-1"])
        directories.kill()
        directories.medium("disk1").is_failed = False
        await directories.start()
        assert of_topic(directories, gone) == [f"{gone.hex()}-1"]

    run_directories(work)
    told = [each for each in caplog.messages if each.startswith("orphan_directory_kept")]
    assert len(told) == 1
    assert "node:disk1/" in told[0]


def test_a_topic_that_is_deleted_while_it_is_written_and_read_hurts_nobody() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        topic_id = await directories.client.create_topic("t", 1, {"segment.bytes": "1024"})
        other = await directories.client.create_topic("other", 1)
        codes: list[int] = []

        async def writing() -> None:
            for number in range(60):
                codes.append(await write(directories, topic_id, at_ms=NOW_MS + number, size=300))

        async def reading() -> None:
            for number in range(60):
                await directories.client.fetch(topic_id, 0, number % 20)

        tasks = [asyncio.create_task(writing()), asyncio.create_task(reading())]
        await asyncio.sleep(0.1)
        await delete(directories, "t")
        for task in tasks:
            await task
        assert codes[0] == 0
        assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_ID.value
        await directories.wait(lambda: not of_topic(directories, topic_id))
        assert await write(directories, other, at_ms=NOW_MS) == 0

    run_directories(work)
