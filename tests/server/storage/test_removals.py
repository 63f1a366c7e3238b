"""A deleted topic whose files somebody still reads: nobody else waits for them."""

from tests.broker.support.node_in_world import partition_batch, sealed
from tests.server.storage.test_changes_while_serving import delete, of_topic
from tests.server.support.directories_in_world import Directories, run_directories
from tidelog.broker.log.names import SegmentKey
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId


def test_a_topic_is_made_and_served_while_files_of_a_deleted_one_are_held() -> None:
    async def work(directories: Directories) -> None:
        await directories.start()
        gone = await directories.client.create_topic("gone", 1, {"retention.ms": "-1"})
        assert await directories.write(gone, 0, b"x") == 0
        assert directories.node is not None
        segment = SegmentKey(PartitionKey(TopicId(gone), PartitionId(0)), Offset(0))
        (home,) = [each for each in directories.node.view().directories if each.partition_count]
        with home.owner.reading(segment):
            await delete(directories, "gone")
            made = await directories.client.create_topic("made", 1, {"retention.ms": "-1"})
            (answer,) = await directories.client.produce(partition_batch(made, 0, sealed([b"y"])))
            assert not answer.HasField("error"), answer.error
            assert of_topic(directories, gone)
        await directories.wait(lambda: not of_topic(directories, gone))

    run_directories(work)
