"""An operator at work: topics made, deleted and made again, partitions added and moved, leaders
restored, nodes restarted in order.

Owns what topics there are to be; clients look it up here. It must never wait for an answer for
ever: what is refused is tried again at another time.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from tidelog.broker.services.offsets.trim import HIGH_WATERMARK
from tidelog.chaos.checkers.cluster.board import ANY_START
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.cluster.changes import GROW, PARTITIONS_MAX, REASSIGN, Changes
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.plan import Plan, PlannedTopic, draw_topic
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.log_client import CREATE_TOPICS
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.v1 import (
    admin_pb2,
    common_pb2,
    metadata_pb2,
    partition_admin_pb2,
    topic_admin_pb2,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

_TRIM: Final = "/tidelog.v1.TopicAdminService/DeleteRecords"
_TRIM_ALL_PROBABILITY: Final = 0.15
_DELETE: Final = "/tidelog.v1.TopicAdminService/DeleteTopics"
_ELECT: Final = "/tidelog.v1.PartitionAdminService/ElectLeaders"
KEPT_TOPIC: Final = "topic-0"
"""Never deleted: one reader stays with it."""
_CREATE_TRIES: Final = 40
_STOP_MS: Final = 5_000
_CHANGE_PROBABILITY: Final = 0.6
_ALONE_PROBABILITY: Final = 0.2
"""That a move leaves one replica."""
_CALL_OFF_PROBABILITY: Final = 0.3
_CALL_OFF_MS_MAX: Final = 1_500
_LOOK_MS: Final = 1_000
_LOST_PATIENCE_NS: Final = 4_000_000_000


class Operator:
    """One client that administers."""

    def __init__(
        self,
        client: ClusterClient,
        plan: Plan,
        nodes: list[ClusterNode],
        random: SeededRandom,
        *,
        replication_max: int,
        newest: Callable[[], Image],
        kill: Callable[[ClusterNode], None],
        on_trim: Callable[[PartitionKey, int], None],
    ) -> None:
        self.client = client
        self._on_trim = on_trim
        self.newest = newest
        """Metadata, as anybody shows them."""
        self.kill = kill
        """Ends the process of a node."""
        self.nodes = nodes
        self._plan = plan
        self._random = random
        self._replication_max = replication_max
        self.topics: dict[str, PlannedTopic] = {}
        """What clients may use, by name."""
        self.is_stopped = False
        self.done: dict[str, int] = {}
        """By kind of act, how many succeeded."""
        self.leaving: dict[int, None] = {}
        """Nodes that are being emptied, or are gone."""
        self._lost_ns: dict[tuple[TopicId, int], int] = {}
        """Since when nobody is sure to hold everything."""
        self.changes = Changes(self, plan.changes)

    async def run(self) -> None:
        """The first topics, then acts until stopped; then only what nobody else can decide."""
        for topic in self._plan.topics:
            await self.create(topic)
        while not self.is_stopped:
            await self.client.ports.clock.sleep(100 + self._random.below(1_200))
            await self._act()
        while True:
            await self.client.ports.clock.sleep(_LOOK_MS)
            with contextlib.suppress(TidelogError):
                await self._elect_lost()

    async def create(self, topic: PlannedTopic) -> None:
        """Until it is there, or nobody answers for long."""
        wanted = admin_pb2.NewTopic(
            name=topic.name,
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
            configuration=topic.settings(),
        )
        request = admin_pb2.CreateTopicsRequest(topics=[wanted], timeout_ms=2_000)
        for _ in range(_CREATE_TRIES):
            if self.is_stopped:
                return
            try:
                await self.client.ask_any(CREATE_TOPICS, request, admin_pb2.CreateTopicsResponse)
            except TidelogError as error:
                self.client.on_error(error)
            if await self.client.refresh(topic.name) is not None:
                self.topics[topic.name] = topic
                self._count("create")
                return
            await self.client.ports.clock.sleep(200)

    def _count(self, kind: str) -> None:
        self.done[kind] = self.done.get(kind, 0) + 1

    async def _act(self) -> None:
        kind = self._random.below(12)
        try:
            if self._random.chance(_CHANGE_PROBABILITY):
                await self.changes.try_one()
            await self._elect_lost()
            if kind <= 1:
                await self._restart_in_order()
            elif kind <= 3:
                await self._elect_preferred()
            elif kind <= 6:
                await self._reassign()
            elif kind == 7:
                await self._grow()
            elif kind == 8:
                topic = await self.some_deletable_topic()
                if topic is not None:
                    await self.delete_and_create(topic)
            elif kind == 9 and len(self.topics) < 4:
                name = f"topic-{10 + self.done.get('create', 0)}"
                await self.create(
                    draw_topic(self._random, name, replication_max=self._replication_max)
                )
            elif kind == 10:
                await self._trim()
        except TidelogError as error:
            self.client.on_error(error)

    def some_node(self, among: list[ClusterNode]) -> ClusterNode | None:
        """One of them; None: there is none."""
        return among[self._random.below(len(among))] if among else None

    async def some_deletable_topic(self) -> Incarnation | None:
        """One, unless it is the one that stays."""
        topic = await self.some_topic()
        return None if topic is None or topic.name == KEPT_TOPIC else topic

    async def some_topic(self) -> Incarnation | None:
        """One of those that there are."""
        names = list(self.topics)
        if not names:
            return None
        return await self.client.find_topic(names[self._random.below(len(names))])

    async def _elect_lost(self) -> None:
        """The explicit request that the design wants of an operator: where nobody is left who is
        sure to hold everything, and those that may have the most were waited for, for long; and
        where the disk of the last one that was in sync is gone, whatever others still have."""
        now_ns = self.client.now_ns
        wiped = {node.node_id for node in self.nodes if node.is_wiped}
        lost = {
            (topic.topic_id, partition.partition): bool(partition.in_sync_replicas)
            for topic in self.newest().topics.values()
            for partition in topic.partitions
            if partition.leader_id == NO_LEADER
            and all(each in wiped for each in partition.in_sync_replicas)
        }
        self._lost_ns = {key: self._lost_ns.get(key, now_ns) for key in lost}
        wanted = [
            key
            for key, is_of_wiped in lost.items()
            if now_ns - self._lost_ns[key] > _LOST_PATIENCE_NS
            and (is_of_wiped or not self.is_stopped)
        ]
        if not wanted:
            return
        request = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_UNCLEAN,
            topics=[
                common_pb2.TopicPartitions(topic_id=topic_id, partitions=[number])
                for topic_id, number in wanted
            ],
            broker_id=-1,
        )
        await self.client.ask_any(_ELECT, request, partition_admin_pb2.ElectLeadersResponse)
        self._count("elect_lost")
        if any(lost[key] for key in wanted):
            # Its replica gets a place on the new disk when it registers again.
            for node in self.nodes:
                if node.is_wiped:
                    self.kill(node)

    async def _elect_preferred(self) -> None:
        request = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_PREFERRED
        )
        await self.client.ask_any(_ELECT, request, partition_admin_pb2.ElectLeadersResponse)
        self._count("elect")

    async def _reassign(self) -> None:
        topic = await self.some_topic()
        if topic is None:
            return
        planned = self.topics.get(topic.name)
        if planned is None or self._replication_max == 1:
            return
        staying = [
            node for node in self.nodes if node.is_member and node.node_id not in self.leaving
        ]
        nodes = self._random.shuffled([node.name for node in staying])
        is_left_alone = self._random.chance(_ALONE_PROBABILITY)
        count = 1 if is_left_alone else planned.replication_factor
        ids = {node.name: node.node_id for node in self.nodes}
        place = common_pb2.TopicPartition(
            topic_id=topic.topic_id, partition=self._random.below(topic.partition_count)
        )
        await self._move(place, [ids[name] for name in nodes[:count]])
        self._count("reassign")
        if self._random.chance(_CALL_OFF_PROBABILITY):
            await self.client.ports.clock.sleep(self._random.below(_CALL_OFF_MS_MAX))
            await self._move(place, [])
            self._count("call_off")

    async def _move(self, place: common_pb2.TopicPartition, replicas: list[int]) -> None:
        """To these replicas; without any a move that is under way is called off."""
        move = partition_admin_pb2.Reassignment(partition=place, replicas=replicas)
        request = partition_admin_pb2.AlterReassignmentsRequest(reassignments=[move])
        await self.client.ask_any(REASSIGN, request, partition_admin_pb2.AlterReassignmentsResponse)

    async def _trim(self) -> None:
        """Below an offset of one partition; now and then all that is committed."""
        topic = await self.some_topic()
        number = 0 if topic is None else self._random.below(topic.partition_count)
        leader = None if topic is None else await self.client.find_leader(topic, number)
        if topic is None or leader is None:
            return
        key = PartitionKey(TopicId(topic.topic_id), PartitionId(number))
        place = common_pb2.TopicPartition(topic_id=topic.topic_id, partition=number)
        before_offset = HIGH_WATERMARK
        if not self._random.chance(_TRIM_ALL_PROBABILITY):
            end = await self.client.offset_of(topic, number, metadata_pb2.OFFSET_SPEC_LATEST)
            before_offset = self._random.below(1 + max(0, end))
        request = topic_admin_pb2.DeleteRecordsRequest(
            points=[topic_admin_pb2.TrimPoint(partition=place, before_offset=before_offset)]
        )
        answer = topic_admin_pb2.DeleteRecordsResponse
        self._on_trim(key, ANY_START if before_offset == HIGH_WATERMARK else before_offset)
        await self.client.ask(leader.address, _TRIM, request, answer, timeout_ms=3_000)
        self._count("trim")

    async def _grow(self) -> None:
        topic = await self.some_topic()
        if topic is None or topic.partition_count >= PARTITIONS_MAX:
            return
        request = topic_admin_pb2.CreatePartitionsRequest(
            topics=[
                topic_admin_pb2.PartitionCountChange(
                    topic=topic.name, partition_count=topic.partition_count + 1
                )
            ]
        )
        await self.client.ask_any(GROW, request, topic_admin_pb2.CreatePartitionsResponse)
        self._count("grow")

    async def delete_and_create(self, topic: Incarnation) -> None:
        """Under its name there is another topic afterwards."""
        if topic.name not in self.topics:
            return
        planned = self.topics.pop(topic.name)
        request = topic_admin_pb2.DeleteTopicsRequest(
            topics=[topic_admin_pb2.TopicSelector(topic_id=topic.topic_id)]
        )
        try:
            await self.client.ask_any(_DELETE, request, topic_admin_pb2.DeleteTopicsResponse)
            self._count("delete")
        finally:
            await self.create(planned)

    async def _restart_in_order(self) -> None:
        node = self.nodes[self._random.below(len(self.nodes))]
        if node.living is None:
            return
        node.request_stop()
        waited_ms = 0
        while node.is_alive and waited_ms < _STOP_MS:
            await self.client.ports.clock.sleep(50)
            waited_ms += 50
        self._count("restart")
