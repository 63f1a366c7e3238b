"""Administrative calls: forwarded, executed by the active controller, read from images."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.message import Message

from tests.metadata_quorum.active.broker_calls import Broker
from tests.metadata_quorum.active.test_sessions import ended, start
from tests.metadata_quorum.active.voters_world import Voter, Voters, simulate
from tests.metadata_quorum.quorum.quorum_world import until
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata_quorum.admin.access import read_accesses
from tidelog.metadata_quorum.controller.partitions.reassignment import REASSIGNMENTS_MAX
from tidelog.metadata_quorum.controller.settings.configuration import CHANGES_MAX
from tidelog.metadata_quorum.services.methods import local_reads
from tidelog.metadata_quorum.shared.forwarding import FORWARDED, SERVED_FILES
from tidelog.v1 import (
    admin_pb2,
    broker_admin_pb2,
    broker_session_pb2,
    common_pb2,
    config_admin_pb2,
    controller_pb2,
    metadata_admin_pb2,
    partition_admin_pb2,
    quorum_admin_pb2,
    topic_admin_pb2,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

OF_CONTROLLERS = (controller_pb2.DESCRIPTOR, broker_session_pb2.DESCRIPTOR)
OF_BROKERS = {
    "/tidelog.v1.AdminService/DescribeTopics",
    "/tidelog.v1.AdminService/DescribeCluster",
    "/tidelog.v1.TopicAdminService/DeleteRecords",
    "/tidelog.v1.MetadataAdminService/ExportMetadata",
}
"""Need what only the answering node has: replicas, or the metadata's file."""
Work = Callable[[Broker, Voter], Awaitable[None]]


def administer(work: Work) -> None:
    """One voter, one broker that serves, and what its clients ask."""

    async def main(world: World) -> None:
        voter = await Voters(world, 1).active()

        async def life(broker: Broker) -> None:
            await broker.serve()
            await work(broker, voter)

        await ended(start(world, 7, life))

    simulate(main)


async def call(broker: Broker, method: str, request: Message) -> bytes:
    """Forward a call of any service by the end of its name."""
    full = [each for each in FORWARDED if each.endswith(f"/{method}")]
    return await broker.forward(full[0], request.SerializeToString())


async def create(broker: Broker, *names: str, partitions: int = 1) -> list[int]:
    """Error codes of the topics, 0 for those created."""
    request = admin_pb2.CreateTopicsRequest()
    for name in names:
        request.topics.add(name=name, partition_count=partitions, replication_factor=1)
    answer = await call(broker, "CreateTopics", request)
    results = admin_pb2.CreateTopicsResponse.FromString(answer).results
    return [int(each.error.code) for each in results]


def read(voter: Voter, method: str, request: Message) -> bytes:
    """A local read of the voter's image."""
    reads = local_reads()
    full = [each for each in reads if each.endswith(f"/{method}")]
    return reads[full[0]](voter.machine.image(), request.SerializeToString())


def test_every_method_is_executed_by_the_controller_or_read_from_an_image_or_a_brokers() -> None:
    known = {*FORWARDED, *local_reads(), *OF_BROKERS}
    assert known == set(read_accesses(SERVED_FILES))


def test_the_table_of_executions_is_the_list_of_forwarded_methods() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        assert voter.parts is not None
        assert sorted(voter.parts.executions) == sorted(FORWARDED)
        assert set(voter.parts.methods()) == set(read_accesses(OF_CONTROLLERS))

    administer(work)


def test_topics_are_created_grown_listed_and_deleted() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        assert await create(broker, "a", "b") == [0, 0]
        assert await create(broker, "b") == [ErrorCode.TOPIC_ALREADY_EXISTS]
        grow = topic_admin_pb2.CreatePartitionsRequest()
        grow.topics.add(topic="a", partition_count=3)
        grow.topics.add(topic="x", partition_count=3)
        grown = topic_admin_pb2.CreatePartitionsResponse.FromString(
            await call(broker, "CreatePartitions", grow)
        )
        assert grown.results[0].partition_count == 3
        assert grown.results[1].error.code == int(ErrorCode.UNKNOWN_TOPIC)
        listed = topic_admin_pb2.ListTopicsResponse.FromString(
            read(voter, "ListTopics", topic_admin_pb2.ListTopicsRequest(max_topics=1))
        )
        assert [each.name for each in listed.topics] == ["a"]
        assert listed.next_after_name == "a"
        delete = topic_admin_pb2.DeleteTopicsRequest(validate_only=True)
        delete.topics.add(name="a")
        await call(broker, "DeleteTopics", delete)
        assert "a" in voter.machine.image().topic_ids
        delete.validate_only = False
        await call(broker, "DeleteTopics", delete)
        assert list(voter.machine.image().topic_ids) == ["b"]

    administer(work)


def test_settings_and_quotas_are_set_and_described() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        await create(broker, "a")
        request = config_admin_pb2.AlterConfigsRequest()
        topic = request.alterations.add()
        topic.target.kind = config_admin_pb2.CONFIG_TARGET_KIND_TOPIC
        topic.target.name = "a"
        topic.changes.add(name="segment.bytes", value="2048")
        group = request.alterations.add()
        group.target.kind = config_admin_pb2.CONFIG_TARGET_KIND_GROUP
        group.target.name = "readers"
        group.changes.add(name="group.consumer.session.timeout.ms", value="7000")
        wrong = request.alterations.add()
        wrong.target.kind = config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER
        wrong.changes.add(name="segment.bites", value="1")
        altered = config_admin_pb2.AlterConfigsResponse.FromString(
            await call(broker, "AlterConfigs", request)
        )
        assert [int(each.error.code) for each in altered.results] == [
            0,
            0,
            ErrorCode.INVALID_CONFIGURATION,
        ]
        describe = config_admin_pb2.DescribeConfigsRequest(names=["segment.bytes"])
        describe.targets.add().CopyFrom(topic.target)
        described = config_admin_pb2.DescribeConfigsResponse.FromString(
            read(voter, "DescribeConfigs", describe)
        )
        value = described.descriptions[0].values[0]
        assert (value.value, value.source) == ("2048", config_admin_pb2.CONFIG_SOURCE_TARGET)
        of_group = config_admin_pb2.DescribeConfigsRequest()
        of_group.targets.add().CopyFrom(group.target)
        described = config_admin_pb2.DescribeConfigsResponse.FromString(
            read(voter, "DescribeConfigs", of_group)
        )
        found_values = {each.name: each.value for each in described.descriptions[0].values}
        assert found_values["group.consumer.session.timeout.ms"] == "7000"
        assert found_values["group.consumer.heartbeat.interval.ms"] == "3000"
        quotas = config_admin_pb2.AlterQuotasRequest()
        quotas.quotas.add(client_id="c", fetch_bytes_per_second=5)
        await call(broker, "AlterQuotas", quotas)
        found = config_admin_pb2.DescribeQuotasResponse.FromString(
            read(voter, "DescribeQuotas", config_admin_pb2.DescribeQuotasRequest())
        )
        assert [each.client_id for each in found.quotas] == ["c"]
        assert not found.quotas[0].HasField("produce_bytes_per_second")

    administer(work)


def test_brokers_are_listed_drained_and_not_removed_while_they_live() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        listed = broker_admin_pb2.ListBrokersResponse.FromString(
            await call(broker, "ListBrokers", broker_admin_pb2.ListBrokersRequest())
        )
        assert [(each.broker_id, each.address) for each in listed.brokers] == [(7, "b7:8")]
        assert 0 <= listed.brokers[0].last_contact_ms < 1_000
        drain = broker_admin_pb2.DrainBrokerRequest(broker_id=7)
        with pytest.raises(TidelogError, match="no other broker is alive"):
            await call(broker, "DrainBroker", drain)
        other = Broker(broker.ports, 8)
        await other.register()
        await other.beat(unfence=True)
        await call(broker, "DrainBroker", drain)
        assert voter.machine.image().brokers[BrokerId(7)].is_draining
        drain.throttle_bytes_per_second = 9
        await call(broker, "DrainBroker", drain)
        settings = voter.machine.image().cluster_configuration
        assert settings["reassignment.throttle.bytes.per.second"] == "9"
        with pytest.raises(TidelogError) as caught:
            await call(broker, "RemoveBroker", broker_admin_pb2.RemoveBrokerRequest(broker_id=7))
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        with pytest.raises(TidelogError) as caught:
            await call(broker, "RemoveBroker", broker_admin_pb2.RemoveBrokerRequest(broker_id=9))
        assert caught.value.code is ErrorCode.UNKNOWN_BROKER

    administer(work)


def test_leaders_are_elected_and_moves_refused_where_nobody_can_take_them() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        await create(broker, "a", partitions=2)
        topic_id = voter.machine.image().topic_ids["a"]
        elect = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_PREFERRED, broker_id=-1
        )
        elect.topics.add(topic_id=topic_id, partitions=[0, 1, 5])
        elected = partition_admin_pb2.ElectLeadersResponse.FromString(
            await call(broker, "ElectLeaders", elect)
        )
        assert [each.leader_id for each in elected.results] == [7, 7, -1]
        assert elected.results[2].error.code == int(ErrorCode.UNKNOWN_PARTITION)
        with pytest.raises(TidelogError) as caught:
            await call(broker, "ElectLeaders", partition_admin_pb2.ElectLeadersRequest())
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        move = partition_admin_pb2.AlterReassignmentsRequest()
        each = move.reassignments.add(replicas=[8])
        each.partition.topic_id = topic_id
        moved = partition_admin_pb2.AlterReassignmentsResponse.FromString(
            await call(broker, "AlterReassignments", move)
        )
        assert moved.results[0].error.code != 0
        plan = partition_admin_pb2.PlanReassignmentsResponse.FromString(
            read(voter, "PlanReassignments", partition_admin_pb2.PlanReassignmentsRequest())
        )
        assert plan.copied_bytes == -1
        assert not partition_admin_pb2.ListReassignmentsResponse.FromString(
            read(voter, "ListReassignments", partition_admin_pb2.ListReassignmentsRequest())
        ).reassignments

    administer(work)


def test_more_than_is_looked_for_at_once_in_an_image_is_refused() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        del broker
        count = REASSIGNMENTS_MAX + 1
        many = [bytes(16)] * count
        whole = common_pb2.TopicPartitions(partitions=range(count))
        topics = [common_pb2.TopicPartitions(topic_id=each) for each in many]
        listed = partition_admin_pb2.ListReassignmentsRequest
        planned = partition_admin_pb2.PlanReassignmentsRequest
        described = config_admin_pb2.DescribeConfigsRequest
        for method, request, most in (
            ("ListReassignments", listed(topics=[whole]), count - 1),
            (
                "ListReassignments",
                listed(topics=topics),
                count - 1,
            ),
            ("PlanReassignments", planned(topic_ids=many), count - 1),
            ("PlanReassignments", planned(drained_brokers=range(count)), count - 1),
            ("DescribeConfigs", described(names=[""] * (CHANGES_MAX + 1)), CHANGES_MAX),
        ):
            with pytest.raises(TidelogError) as caught:
                read(voter, method, request)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
            assert f"at most {most}" in caught.value.happened

    administer(work)


def test_the_metadata_is_a_tree() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        await create(broker, "a")

        def names(path: str) -> list[str]:
            request = metadata_admin_pb2.ListMetadataRequest(path=path)
            answer = read(voter, "ListMetadata", request)
            return list(metadata_admin_pb2.ListMetadataResponse.FromString(answer).names)

        def json(path: str) -> str:
            request = metadata_admin_pb2.DescribeMetadataRequest(path=path)
            answer = read(voter, "DescribeMetadata", request)
            return metadata_admin_pb2.DescribeMetadataResponse.FromString(answer).json

        assert names("/topics/") == ["a/"]
        assert names("topics/a/partitions") == ["0"]
        assert names("/features") == [
            "group.version",
            "metadata.version",
            "transaction.version",
        ]
        assert json("/features/metadata.version") == "1"
        assert '"leader_id":7' in json("/topics/a/partitions/0")
        with pytest.raises(TidelogError) as caught:
            names("/topiks")
        assert "topics" in caught.value.hint
        request = metadata_admin_pb2.DescribeFeaturesRequest()
        features = metadata_admin_pb2.DescribeFeaturesResponse.FromString(
            read(voter, "DescribeFeatures", request)
        ).features
        assert [each.name for each in features] == [
            "group.version",
            "metadata.version",
            "transaction.version",
        ]
        finalise = metadata_admin_pb2.FinaliseFeaturesRequest()
        finalise.levels.add(name="metadata.version", level=9)
        with pytest.raises(TidelogError) as caught:
            await call(broker, "FinaliseFeatures", finalise)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    administer(work)


def test_a_leader_changes_the_in_sync_set_and_gets_producer_ids() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        await create(broker, "a")
        topic_id = voter.machine.image().topic_ids["a"]
        alter = controller_pb2.AlterPartitionsRequest(
            cluster_id="c", broker_id=7, broker_epoch=broker.epoch
        )
        change = alter.changes.add(topic_id=topic_id)
        change.in_sync_replicas.add(broker_id=7, broker_epoch=broker.epoch)
        network = broker.ports.network
        altered = controller_pb2.AlterPartitionsResponse.FromString(
            await network.call(
                "node1:9",
                "/tidelog.v1.ControllerService/AlterPartitions",
                alter.SerializeToString(),
                timeout_ms=1_000,
            )
        )
        assert list(altered.results[0].in_sync_replicas) == [7]
        blocks = []
        for _ in range(2):
            request = controller_pb2.AllocateProducerIdBlockRequest(
                cluster_id="c", broker_id=7, broker_epoch=broker.epoch
            )
            answer = await network.call(
                "node1:9",
                "/tidelog.v1.ControllerService/AllocateProducerIdBlock",
                request.SerializeToString(),
                timeout_ms=1_000,
            )
            blocks.append(controller_pb2.AllocateProducerIdBlockResponse.FromString(answer))
        assert blocks[0].first_producer_id + blocks[0].count == blocks[1].first_producer_id

    administer(work)


def test_only_methods_that_the_controller_executes_are_forwarded() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        for method in ("/tidelog.v1.ProduceService/Produce", "/x/y"):
            with pytest.raises(TidelogError) as caught:
                await broker.forward(method, b"")
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        with pytest.raises(TidelogError) as caught:
            await broker.forward("/tidelog.v1.AdminService/CreateTopics", b"\xff\xff")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        broker.cluster_id = "other"
        with pytest.raises(TidelogError) as caught:
            await create(broker, "a")
        assert caught.value.code is ErrorCode.WRONG_CLUSTER

    administer(work)


def test_a_forwarded_call_is_authorised_with_the_clients_principal() -> None:
    async def work(broker: Broker, voter: Voter) -> None:
        voter.authorizer.denied = ("mallory", "topic", "create")
        request = admin_pb2.CreateTopicsRequest()
        request.topics.add(name="a", partition_count=1, replication_factor=1)
        method = "/tidelog.v1.AdminService/CreateTopics"
        with pytest.raises(TidelogError) as caught:
            await broker.forward(method, request.SerializeToString(), principal="mallory")
        assert caught.value.code is ErrorCode.PERMISSION_DENIED
        assert "a" not in voter.machine.image().topic_ids
        await broker.forward(method, request.SerializeToString(), principal="alice")
        assert "a" in voter.machine.image().topic_ids

    administer(work)


def test_the_quorum_is_described_and_handed_over_and_loses_a_member() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 3)
        first = await voters.active()

        async def ask(broker: Broker, method: str, request: Message) -> bytes:
            for _ in range(200):
                leader = await voters.active()
                controller = f"node{leader.node}:9"
                full = f"/tidelog.v1.QuorumAdminService/{method}"
                try:
                    return await broker.forward(
                        full, request.SerializeToString(), controller=controller
                    )
                except TidelogError as error:
                    if error.code is not ErrorCode.NOT_CONTROLLER:
                        raise
                await asyncio.sleep(0.05)
            raise AssertionError("nobody answered")

        async def life(broker: Broker) -> None:
            described = quorum_admin_pb2.DescribeQuorumResponse.FromString(
                await ask(broker, "DescribeQuorum", quorum_admin_pb2.DescribeQuorumRequest())
            )
            assert described.leader_id == first.node
            assert [each.member.node_id for each in described.members] == [1, 2, 3]
            assert all(each.lag <= 1 for each in described.members)
            assert all(0 <= each.last_contact_ms < 1_000 for each in described.members)
            target = 1 + first.node % 3
            request = quorum_admin_pb2.TransferLeadershipRequest(node_id=target)
            moved = quorum_admin_pb2.TransferLeadershipResponse.FromString(
                await ask(broker, "TransferLeadership", request)
            )
            assert moved.leader_id == target
            await until(lambda: voters.active_now() is voters.all[target] or None)
            removal = quorum_admin_pb2.RemoveVoterRequest(
                node_id=target, directory_uuid=bytes([target, 1]) * 8
            )
            removed = quorum_admin_pb2.RemoveVoterResponse.FromString(
                await ask(broker, "RemoveVoter", removal)
            )
            left = [each.node_id for each in removed.members.members]
            assert left == [each for each in (1, 2, 3) if each != target]
            with pytest.raises(TidelogError) as caught:
                await ask(broker, "RemoveVoter", removal)
            assert caught.value.code is ErrorCode.UNKNOWN_VOTER

        async def live(ports: SimulatedPorts) -> None:
            await life(Broker(ports, 7))

        await ended(world.machine("b7").start("broker7", live))

    simulate(work)
