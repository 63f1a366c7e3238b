"""A topic with three replicas on whole simulated nodes: what its tests ask and wait for."""

import asyncio

from tests.broker.support.node_in_world import partition_batch, position, sealed, values_of
from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.log.names import directory_name
from tidelog.metadata.image.image import Image, PartitionImage
from tidelog.v1 import admin_pb2, fetch_pb2, partition_admin_pb2, produce_pb2, topic_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

CALL_MS = 5_000
LEADS_SINCE_MS_MAX = 200
"""So long may whoever begins to lead take until it shows what it holds: a round of its disk."""


class ReplicatedTopic:
    """One partition; `acknowledged` is what acks=all was answered for, by offset."""

    def __init__(self, cluster: Cluster, topic_id: TopicId) -> None:
        self.cluster = cluster
        self.key = PartitionKey(topic_id, PartitionId(0))
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0

    @classmethod
    async def create(
        cls, cluster: Cluster, replicas: int = 3, settings: dict[str, str] | None = None
    ) -> "ReplicatedTopic":
        """Placed by the controller."""
        # The records of the tests are as old as time itself.
        settings = {"retention.ms": "-1", **(settings or {})}
        new = admin_pb2.NewTopic(
            name="t", partition_count=1, replication_factor=replicas, configuration=settings
        )
        request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
        answer = await cluster.call(1, "AdminService/CreateTopics", request)
        (result,) = admin_pb2.CreateTopicsResponse.FromString(answer).results
        assert not result.HasField("error"), result
        return cls(cluster, TopicId(result.topic_id))

    def image_of(self, number: int) -> Image | None:
        """What the node knows; None: it does not run."""
        node = self.cluster.nodes[number].node
        return None if node is None else node.view().image

    def seen_by(self, number: int) -> PartitionImage | None:
        """What the node's image says."""
        image = self.image_of(number)
        return None if image is None else image.partition(self.key.topic_id, self.key.partition)

    def now(self) -> PartitionImage:
        """What the newest image of any living node says."""
        known = [self.seen_by(number) for number in self.cluster.nodes]
        return max(
            (each for each in known if each is not None), key=lambda each: each.partition_epoch
        )

    async def in_sync(self, *brokers: int) -> None:
        """Wait until exactly these are."""
        await self.cluster.wait(lambda: sorted(self.now().in_sync_replicas) == sorted(brokers))

    async def led_by_other_than(self, *brokers: int) -> int:
        """Wait until another one leads and knows it; which."""
        await self.cluster.wait(lambda: self._knowing_leader() not in (-1, *brokers))
        return self._knowing_leader()

    def _knowing_leader(self) -> int:
        leader = self.now().leader_id
        known = None if leader == -1 else self.seen_by(leader)
        return leader if known is not None and known.leader_id == leader else -1

    async def try_produce(self, number: int, *, timeout_ms: int = CALL_MS) -> ErrorCode | None:
        """One record at this broker; None: acknowledged."""
        self.sent += 1
        value = b"%d" % self.sent
        batch = partition_batch(self.key.topic_id, 0, sealed([value]))
        request = produce_pb2.ProduceRequest(
            batches=[batch], acks=produce_pb2.ACKS_ALL, timeout_ms=timeout_ms
        )
        try:
            answer = await self.cluster.network.call(
                self.cluster.nodes[number].address,
                "/tidelog.v1.ProduceService/Produce",
                request.SerializeToString(),
                timeout_ms=timeout_ms + 1_000,
            )
        except TidelogError as error:
            return error.code
        (result,) = produce_pb2.ProduceResponse.FromString(answer).acknowledgements
        if result.HasField("error"):
            return ErrorCode(result.error.code)
        self.acknowledged[result.base_offset] = value
        return None

    async def produce(self, count: int = 1) -> None:
        """Records at whoever leads, until each is acknowledged; none may be refused for good."""
        for _ in range(count):
            for _ in range(200):
                leader = self.now().leader_id
                if leader != -1 and await self.try_produce(leader) is None:
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError("nothing was acknowledged")

    async def read(self, number: int, offset: int = 0) -> dict[int, bytes]:
        """Every committed record from the offset on, as this broker shows them."""
        found: dict[int, bytes] = {}
        while True:
            request = fetch_pb2.FetchRequest(positions=[position(self.key.topic_id, 0, offset)])
            data = await self.cluster.call(
                number, "FetchService/Fetch", request.SerializeToString()
            )
            partitions = fetch_pb2.FetchResponse.FromString(data).partitions
            if not partitions:
                return found
            assert not partitions[0].HasField("error"), partitions[0].error
            if not partitions[0].batches:
                return found
            found.update(
                (place, value)
                for place, value in values_of(partitions[0].batches)
                if place >= offset
            )
            offset = max(found) + 1

    async def holds_all(self) -> None:
        """Everything acknowledged is read from whoever leads. One that leads since a moment ago
        may show the last records only after a round: they are waited for, those before are not."""
        leader = await self.led_by_other_than()
        read = await self.read(leader)
        for _ in range(LEADS_SINCE_MS_MAX):
            end = max(read, default=-1) + 1
            if end > max(self.acknowledged, default=-1):
                break
            await asyncio.sleep(0.001)
            read.update(await self.read(leader, end))
        missing = {
            place: value for place, value in self.acknowledged.items() if read.get(place) != value
        }
        assert not missing, f"of {len(self.acknowledged)} these are lost: {missing}"

    async def move(self, *replicas: int) -> None:
        """Let them stand there; returns when the move has begun."""
        request = partition_admin_pb2.AlterReassignmentsRequest()
        wanted = request.reassignments.add(replicas=replicas)
        wanted.partition.topic_id = self.key.topic_id
        answer = await self.cluster.call(
            1, "PartitionAdminService/AlterReassignments", request.SerializeToString()
        )
        (result,) = partition_admin_pb2.AlterReassignmentsResponse.FromString(answer).results
        assert not result.HasField("error"), result

    async def delete(self) -> None:
        """Returns when it is committed."""
        request = topic_admin_pb2.DeleteTopicsRequest()
        request.topics.add(topic_id=self.key.topic_id)
        answer = await self.cluster.call(
            1, "TopicAdminService/DeleteTopics", request.SerializeToString()
        )
        (result,) = topic_admin_pb2.DeleteTopicsResponse.FromString(answer).results
        assert not result.HasField("error"), result

    async def elect_unclean(self, asked: int, broker: int) -> None:
        """An operator's explicit wish."""
        request = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_UNCLEAN, broker_id=broker
        )
        request.topics.add(topic_id=self.key.topic_id, partitions=[0])
        answer = await self.cluster.call(
            asked, "PartitionAdminService/ElectLeaders", request.SerializeToString()
        )
        (result,) = partition_admin_pb2.ElectLeadersResponse.FromString(answer).results
        assert not result.HasField("error"), result

    def ends(self) -> list[int]:
        """Where the log ends at each broker that holds it."""
        found = []
        for node in self.cluster.nodes.values():
            if node.node is not None and node.node._broker is not None:
                replica = node.node._broker.replicas.get(self.key.topic_id, self.key.partition)
                if replica is not None:
                    found.append(int(replica.log.log_end_offset))
        return found

    def has_files(self, number: int) -> bool:
        """Whether the partition has a directory on the node's disk."""
        medium = self.cluster.world.machine(f"n{number}").medium("data")
        return directory_name(self.key) in medium.root.seen
