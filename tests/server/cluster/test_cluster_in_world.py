"""Nodes of a cluster: brokers beside controllers, forwarded calls, deaths, stops, ids in use."""

import asyncio

import pytest

from tests.broker.support.node_in_world import partition_batch, sealed
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.v1 import admin_pb2, broker_admin_pb2, metadata_admin_pb2, metadata_pb2, produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError


async def unfenced(cluster: Cluster, number: int) -> list[int]:
    """Brokers that may lead, as this node sees them."""
    answer = await cluster.call(number, "BrokerAdminService/ListBrokers", b"")
    brokers = broker_admin_pb2.ListBrokersResponse.FromString(answer).brokers
    return [each.broker_id for each in brokers if not each.is_fenced]


async def stopping(cluster: Cluster, number: int) -> list[int]:
    """Brokers that have told the controller that they stop."""
    answer = await cluster.call(number, "BrokerAdminService/ListBrokers", b"")
    brokers = broker_admin_pb2.ListBrokersResponse.FromString(answer).brokers
    return [each.broker_id for each in brokers if each.is_shutting_down]


async def topics_or_not_yet(cluster: Cluster, number: int) -> list[str] | None:
    """None: the node says that it does not know yet."""
    try:
        return await cluster.topics(number)
    except TidelogError as error:
        if error.code is not ErrorCode.UNAVAILABLE:
            raise
        return None


def test_brokers_without_a_vote_serve_what_controllers_decide() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(4, "t", partitions=4)
        assert await cluster.topics(4) == ["t"], "who created it sees it at once"
        assert await unfenced(cluster, 5) == [4, 5]
        request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
        answer = await cluster.call(5, "MetadataService/GetMetadata", request.SerializeToString())
        view = metadata_pb2.GetMetadataResponse.FromString(answer)
        leaders = [each.leader_id for each in view.topics[0].partitions]
        assert sorted(leaders) == [4, 4, 5, 5]
        assert {each.address for each in view.brokers} == {"n4:1", "n5:1"}
        quorum = await cluster.quorum(5)
        assert [each.node_id for each in quorum.observers] == [4, 5] or quorum.leader_id != 1

    Cluster(controllers=3, brokers=2).run(work)


def test_a_controller_without_partitions_answers_operators_and_refuses_producers() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t")
        await asyncio.sleep(1)
        assert await cluster.topics(2) == ["t"]
        with pytest.raises(TidelogError) as caught:
            await cluster.call(1, "ProduceService/Produce", b"")
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED

    Cluster(controllers=3, brokers=1).run(work)


def test_the_client_listener_serves_nothing_of_the_quorum_and_the_other_way_round() -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(TidelogError) as caught:
            await cluster.call(1, "ControllerService/Forward", b"")
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
        with pytest.raises(TidelogError) as caught:
            await cluster.network.call(
                "n1:2", "/tidelog.v1.AdminService/CreateTopics", b"", timeout_ms=1_000
            )
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED

    Cluster(controllers=1, roles="broker,controller").run(work)


def test_calls_go_on_after_the_leader_died_and_nothing_acknowledged_is_lost() -> None:
    async def work(cluster: Cluster) -> None:
        made: list[str] = []
        for round_ in range(3):
            await cluster.create(4, f"before-{round_}")
            made.append(f"before-{round_}")
            leader = cluster.nodes[(await cluster.quorum(4)).leader_id]
            leader.kill()
            started = asyncio.get_running_loop().time()
            await cluster.create(4, f"after-{round_}")
            assert asyncio.get_running_loop().time() - started < 4
            made.append(f"after-{round_}")
            await leader.restart()
            assert await topics_or_not_yet(cluster, leader.number) in (None, sorted(made))
        await asyncio.sleep(1)
        for number in cluster.nodes:
            assert sorted(await cluster.topics(number)) == sorted(made)

    Cluster(controllers=3, brokers=1).run(work)


def test_without_a_majority_a_node_answers_what_it_knows_and_says_what_is_missing() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t")
        cluster.nodes[2].kill()
        cluster.nodes[3].kill()
        await asyncio.sleep(5)
        assert await cluster.topics(1) == ["t"]
        with pytest.raises(TidelogError) as caught:
            await cluster.call(1, "QuorumAdminService/DescribeQuorum", b"", seconds=5)
        assert caught.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED)
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        await asyncio.sleep(5)
        assert cluster.nodes[1].ready == 1, "a broker is not ready without its registration"
        with pytest.raises(TidelogError) as caught:
            await cluster.call(1, "QuorumAdminService/DescribeQuorum", b"", seconds=2)
        assert caught.value.code is ErrorCode.UNAVAILABLE
        cluster.nodes[2].start()
        await cluster.wait(lambda: cluster.nodes[1].ready == 2 and cluster.nodes[2].ready == 2)
        assert await cluster.topics(1) == ["t"]

    three().run(work)


def test_a_stop_while_no_majority_is_there_still_ends() -> None:
    async def work(cluster: Cluster) -> None:
        cluster.nodes[2].kill()
        cluster.nodes[3].kill()
        node = cluster.nodes[1].node
        assert node is not None
        node.request_stop()
        await cluster.wait(lambda: cluster.nodes[1].ended == 1, seconds=10)
        assert cluster.nodes[1].error is None

    three().run(work)


def test_a_broker_that_stops_is_fenced_before_it_is_gone() -> None:
    async def work(cluster: Cluster) -> None:
        node = cluster.nodes[5].node
        assert node is not None
        node.request_stop()
        await cluster.wait(lambda: cluster.nodes[5].ended == 1)
        assert await stopping(cluster, 4) == [5]
        await asyncio.sleep(2)
        assert await unfenced(cluster, 4) == [4]
        cluster.nodes[5].start()
        await cluster.wait(lambda: cluster.nodes[5].ready == 2)
        assert await unfenced(cluster, 4) == [4, 5]

    Cluster(controllers=3, brokers=2).run(work)


def test_a_second_process_under_a_broker_id_in_use_is_refused() -> None:
    async def work(cluster: Cluster) -> None:
        impostor = cluster.nodes[5]
        impostor.kill()
        await asyncio.sleep(20)
        impostor.number = 4
        impostor.settings = {
            "listeners.client.bind": "n5:1",
            "listeners.cluster.bind": "n5:2",
        }
        cluster.world.machine("n5").media.clear()
        cluster.world.machine("n5").start("n5", impostor._live)
        await cluster.wait(lambda: impostor.error is not None)
        assert impostor.error is not None
        assert impostor.error.code is ErrorCode.BROKER_ID_IN_USE
        assert cluster.nodes[4].node is not None
        assert await unfenced(cluster, 1) == [2, 3, 4]

    Cluster(controllers=1, brokers=4).run(work)


def test_a_process_whose_id_another_one_took_over_stops() -> None:
    async def work(cluster: Cluster) -> None:
        older, younger = cluster.nodes[2], cluster.nodes[3]
        younger.kill()
        assert older.process is not None
        older.process.pause()
        await asyncio.sleep(20)
        younger.number = 2
        younger.settings = {
            "listeners.client.bind": "n3:1",
            "listeners.cluster.bind": "n3:2",
        }
        cluster.world.machine("n3").media.clear()
        cluster.world.machine("n3").start("n3", younger._live)
        await cluster.wait(lambda: younger.ready == 2)
        older.process.resume()
        await cluster.wait(lambda: older.error is not None)
        assert older.error is not None
        assert older.error.code is ErrorCode.STALE_BROKER_EPOCH
        assert await unfenced(cluster, 1) == [2]

    Cluster(controllers=1, brokers=2).run(work)


def test_a_broker_that_was_silent_too_long_is_fenced_and_serves_again_when_it_is_back() -> None:
    async def work(cluster: Cluster) -> None:
        process = cluster.nodes[2].process
        assert process is not None
        process.pause()
        await asyncio.sleep(15)
        assert await unfenced(cluster, 1) == [3]
        process.resume()
        await asyncio.sleep(3)
        assert await unfenced(cluster, 1) == [2, 3]
        assert cluster.nodes[2].error is None

    Cluster(controllers=1, brokers=2).run(work)


def test_batches_carry_the_leader_epoch_that_the_metadata_tell_also_after_a_restart() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t")
        epochs = []
        for _ in range(3):
            request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
            raw = await cluster.call(1, "MetadataService/GetMetadata", request.SerializeToString())
            (topic,) = metadata_pb2.GetMetadataResponse.FromString(raw).topics
            epoch = topic.partitions[0].leader_epoch
            batch = partition_batch(topic.topic_id, 0, sealed([b"x"]))
            batch.leader_epoch = epoch
            produce = produce_pb2.ProduceRequest(batches=[batch], acks=produce_pb2.ACKS_ALL)
            raw = await cluster.call(1, "ProduceService/Produce", produce.SerializeToString())
            (done,) = produce_pb2.ProduceResponse.FromString(raw).acknowledgements
            assert not done.HasField("error"), done
            epochs.append(epoch)
            cluster.nodes[1].kill()
            await cluster.nodes[1].restart()
        assert epochs == sorted(set(epochs)), "each start has an epoch of its own"

    Cluster(controllers=1, roles="broker,controller").run(work)


def test_everything_can_be_exported_from_any_node() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(4, "t", partitions=3)
        stream = cluster.network.stream("n4:1", "/tidelog.v1.MetadataAdminService/ExportMetadata")
        await stream.send(metadata_admin_pb2.ExportMetadataRequest().SerializeToString())
        await stream.end_sending()
        data = b""
        while (message := await stream.receive()) is not None:
            piece = metadata_admin_pb2.ExportMetadataResponse.FromString(message)
            assert piece.position == len(data)
            data += piece.data
            assert len(data) <= piece.total_bytes
        from tidelog.metadata.apply.snapshot import decode_image
        from tidelog.metadata_quorum.storage.snapshot_format import decode_snapshot

        image, group = decode_image(decode_snapshot(data, "the export").state)
        assert group is None
        assert [topic.name for topic in image.topics.values()] == ["t"]

    Cluster(controllers=3, brokers=1).run(work)


def test_a_node_describes_its_part_in_figures() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.create(1, "t", partitions=3)
        leader = (await cluster.quorum(1)).leader_id
        for number, each in cluster.nodes.items():
            assert each.node is not None
            described = each.node.describe()
            assert described.node_id == number
            assert described.quorum is not None
            assert described.quorum.leader_id == leader
            assert described.quorum.voters == 3
            assert described.quorum.is_active_controller == (number == leader)
            assert described.broker is not None
            assert (described.broker.is_fenced, described.broker.partitions) == (False, 1)

    three().run(work)


@pytest.mark.parametrize(("timeout_ms", "most_ms"), [(1_500, 1_500), (3_000, 3_000)])
def test_a_creation_of_topics_without_a_majority_is_answered_in_the_time_that_it_names(
    timeout_ms: int, most_ms: int
) -> None:
    async def work(cluster: Cluster) -> None:
        for number in (2, 3):
            cluster.nodes[number].kill()
        await asyncio.sleep(5)
        new = admin_pb2.NewTopic(name="t", partition_count=1, replication_factor=1)
        request = admin_pb2.CreateTopicsRequest(topics=[new], timeout_ms=timeout_ms)
        began_ns = cluster.world.loop.now_ns
        with pytest.raises(TidelogError) as caught:
            await cluster.call(1, "AdminService/CreateTopics", request.SerializeToString())
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert (cluster.world.loop.now_ns - began_ns) // 1_000_000 <= most_ms

    three().run(work)
