"""Topics of whole nodes: made, let grow, deleted and made again by calls of an administrator.

Owns the administrator's process. Of an answer only counts that there is one; what topics there are
the metadata tell.
"""

import asyncio
from typing import Final

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from tidelog.chaos.checkers import History
from tidelog.chaos.sim.groups.plan import Plan
from tidelog.chaos.sim.groups.topics import MADE_AGAIN, PARTITIONS_MAX
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.log_client import CREATE_TOPICS
from tidelog.v1 import admin_pb2, config_admin_pb2, topic_admin_pb2
from tidelog.wire.errors import TidelogError

_GROW: Final = "/tidelog.v1.TopicAdminService/CreatePartitions"
_DELETE: Final = "/tidelog.v1.TopicAdminService/DeleteTopics"
_ALTER: Final = "/tidelog.v1.ConfigService/AlterConfigs"
_PAUSE_MS: Final = 150


class NodeTopics:
    """Implements `topics.Topics`."""

    def __init__(self, world: World, plan: Plan, bootstrap: tuple[str, ...]) -> None:
        self._plan: Final = plan
        self._random: Final = world.seeds.purpose("topics")
        self._bootstrap: Final = bootstrap
        self._wanted: list[str] = []
        self._news: Final = asyncio.Event()
        self.is_started = False
        """The first topics are there."""
        self.process: Final = world.machine("administrator").start("administrator", self._live)

    def change(self) -> None:
        """One grows, or `cc` is made again, as soon as somebody carries it out."""
        names = [name for name, _ in self._plan.topics]
        self._wanted.append(names[self._random.below(len(names))])
        self._news.set()

    async def _live(self, ports: SimulatedPorts) -> None:
        client = ClusterClient(ports, History(), name="administrator", bootstrap=self._bootstrap)
        await self._configure(client)
        for name, count in self._plan.topics:
            while await client.refresh(name) is None:
                await self._try(client, CREATE_TOPICS, _create(name, count))
        self.is_started = True
        while True:
            await self._news.wait()
            self._news.clear()
            wanted, self._wanted = self._wanted, []
            for name in wanted:
                await self._change(client, name)

    async def _configure(self, client: ClusterClient) -> None:
        target = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER)
        values = {
            "group.consumer.heartbeat.interval.ms": self._plan.heartbeat_interval_ms,
            "group.consumer.min.session.timeout.ms": self._plan.session_timeout_ms,
        }
        changes = [
            config_admin_pb2.ConfigChange(name=name, value=str(value))
            for name, value in values.items()
        ]
        alteration = config_admin_pb2.ConfigAlteration(target=target, changes=changes)
        request = config_admin_pb2.AlterConfigsRequest(alterations=[alteration])
        while not await self._try(client, _ALTER, request):
            pass

    async def _try(self, client: ClusterClient, method: str, request: Message) -> bool:
        await client.ports.clock.sleep(_PAUSE_MS)
        try:
            await client.ask_any(method, request, Empty)
        except TidelogError:
            return False
        return True

    async def _change(self, client: ClusterClient, name: str) -> None:
        topic = await client.refresh(name)
        if name == MADE_AGAIN and (topic is None or self._random.chance(0.4)):
            if topic is not None:
                await self._try(client, _DELETE, _delete(topic))
            await self._try(client, CREATE_TOPICS, _create(name, self._random.between(1, 3)))
        elif topic is not None and topic.partition_count < PARTITIONS_MAX:
            more = topic.partition_count + self._random.between(1, 2)
            await self._try(client, _GROW, _grow(name, more))


def _create(name: str, count: int) -> admin_pb2.CreateTopicsRequest:
    topic = admin_pb2.NewTopic(name=name, partition_count=count, replication_factor=3)
    return admin_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=2_000)


def _grow(name: str, count: int) -> topic_admin_pb2.CreatePartitionsRequest:
    change = topic_admin_pb2.PartitionCountChange(topic=name, partition_count=count)
    return topic_admin_pb2.CreatePartitionsRequest(topics=[change])


def _delete(topic: Incarnation) -> topic_admin_pb2.DeleteTopicsRequest:
    selector = topic_admin_pb2.TopicSelector(topic_id=topic.topic_id)
    return topic_admin_pb2.DeleteTopicsRequest(topics=[selector])
