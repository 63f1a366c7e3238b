"""An operator who moves leaders of whole nodes at any moment: of coordinators above all.

Owns its process. A move is a new order of the same replicas, and an election of the first of them:
nothing fails, both brokers live, and the one that led hears of it a moment later.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.coordination.places import partition_of
from tidelog.chaos.checkers import History
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.cluster.changes import REASSIGN
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.cluster_client import ClusterClient
from tidelog.metadata.image.image import Image
from tidelog.metadata.internal_topics import TRANSACTIONS_TOPIC
from tidelog.v1 import common_pb2, partition_admin_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

_ELECT: Final = "/tidelog.v1.PartitionAdminService/ElectLeaders"
_COORDINATORS: Final = 0.6


class LeaderMover:
    """Of one run; `names`: the transactional ids whose coordinators it moves."""

    def __init__(
        self,
        world: World,
        image: Callable[[], Image],
        bootstrap: list[str],
        names: list[str],
        gap_ms: tuple[int, int],
    ) -> None:
        self.is_over = False
        self.moves = 0
        self._image = image
        self._bootstrap = bootstrap
        self._names = names
        self._gap_ms = gap_ms
        self._random: SeededRandom = world.seeds.purpose("mover")

    async def run(self, ports: SimulatedPorts) -> None:
        """For as long as its process lives."""
        client = ClusterClient(ports, History(), name="mover", bootstrap=self._bootstrap)
        while True:
            await ports.clock.sleep(self._random.between(*self._gap_ms))
            key = self._choose()
            if self.is_over or key is None:
                continue
            try:
                await self._move(client, key)
            except TidelogError:
                continue
            self.moves += 1

    def _choose(self) -> PartitionKey | None:
        topics = list(self._image().topics.values())
        coordinators = [each for each in topics if each.name == TRANSACTIONS_TOPIC]
        if coordinators and self._random.chance(_COORDINATORS):
            name = self._names[self._random.below(len(self._names))]
            found = partition_of(name, coordinators[0])
            return PartitionKey(coordinators[0].topic_id, found.partition)
        if not topics:
            return None
        topic = topics[self._random.below(len(topics))]
        number = self._random.below(len(topic.partitions))
        return PartitionKey(topic.topic_id, topic.partitions[number].partition)

    async def _move(self, client: ClusterClient, key: PartitionKey) -> None:
        known = self._image().partition(key.topic_id, key.partition)
        if known is None or known.is_reassigning:
            return
        replicas = [int(each) for each in known.replicas]
        first = 1 + self._random.below(len(replicas))
        place = common_pb2.TopicPartition(topic_id=key.topic_id, partition=key.partition)
        move = partition_admin_pb2.Reassignment(
            partition=place, replicas=replicas[first:] + replicas[:first]
        )
        request = partition_admin_pb2.AlterReassignmentsRequest(reassignments=[move])
        await client.ask_any(REASSIGN, request, partition_admin_pb2.AlterReassignmentsResponse)
        elect = partition_admin_pb2.ElectLeadersRequest(
            kind=partition_admin_pb2.ELECTION_KIND_PREFERRED
        )
        await client.ask_any(_ELECT, elect, partition_admin_pb2.ElectLeadersResponse)
