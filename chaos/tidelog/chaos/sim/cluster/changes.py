"""Changes of a cluster that a seed plans, each to be carried out once: a topic grown to its most
partitions under load, a topic deleted and made again while a broker is away, a broker that comes,
a broker that goes.

Owns how each is done, and when it counts as done: when the metadata show it, and somebody was
concerned. It must never wait without a bound; what did not come about is tried again later.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.plan import Change
from tidelog.v1 import broker_admin_pb2, common_pb2, partition_admin_pb2, topic_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

if TYPE_CHECKING:
    from tidelog.chaos.sim.cluster.operator import Operator

PARTITIONS_MAX: Final = 12
GROW: Final = "/tidelog.v1.TopicAdminService/CreatePartitions"
REASSIGN: Final = "/tidelog.v1.PartitionAdminService/AlterReassignments"
_DRAIN: Final = "/tidelog.v1.BrokerAdminService/DrainBroker"
_REMOVE: Final = "/tidelog.v1.BrokerAdminService/RemoveBroker"
_LOOK_MS: Final = 100
_PATIENCE_MS: Final = 6_000
_REMOVE_TRIES: Final = 400


class Changes:
    """The operator's, of one run."""

    def __init__(self, operator: "Operator", planned: tuple[Change, ...]) -> None:
        self._operator = operator
        self._client = operator.client
        self.undone = dict.fromkeys(planned)

    async def try_one(self) -> None:
        """The first that is not done."""
        change = next(iter(self.undone), None)
        if change is None:
            return
        acts = {
            Change.GROW_TO_TWELVE: self._grow,
            Change.DELETE_WHILE_AWAY: self._delete_while_away,
            Change.ADD_BROKER: self._add_broker,
            Change.REMOVE_BROKER: self._remove_broker,
        }
        del self.undone[change]
        is_done = False
        try:
            is_done = await acts[change]()
        finally:
            if is_done:
                trace = self._operator.nodes[0].world.trace
                trace.note("operator", f"change:{change.value}")
            else:
                # Behind the others: one that waits for something holds up none of them.
                self.undone[change] = None

    # -- topics --------------------------------------------------------------------------------

    async def _grow(self) -> bool:
        topic = await self._operator.some_topic()
        if topic is None or topic.partition_count >= PARTITIONS_MAX:
            return False
        wanted = topic_admin_pb2.PartitionCountChange(
            topic=topic.name, partition_count=PARTITIONS_MAX
        )
        request = topic_admin_pb2.CreatePartitionsRequest(topics=[wanted])
        await self._client.ask_any(GROW, request, topic_admin_pb2.CreatePartitionsResponse)
        topic_id = topic.topic_id

        def is_grown() -> bool:
            known = self._operator.newest().topics.get(topic_id)
            return known is not None and len(known.partitions) == PARTITIONS_MAX

        return await self._wait(is_grown)

    async def _delete_while_away(self) -> bool:
        """The broker holds replicas of it, and comes back to another topic of that name."""
        topic = await self._operator.some_deletable_topic()
        known = None if topic is None else self._operator.newest().topics.get(topic.topic_id)
        if topic is None or known is None:
            return False
        holders = {each for partition in known.partitions for each in partition.replicas}
        away = self._operator.some_node(
            [node for node in self._operator.nodes if node.is_alive and node.node_id in holders]
        )
        if away is None:
            return False
        away.is_wanted = False
        try:
            self._operator.kill(away)
            await self._operator.delete_and_create(topic)
            return not away.is_alive and topic.topic_id not in self._operator.newest().topics
        finally:
            away.is_wanted = True

    # -- brokers -------------------------------------------------------------------------------

    async def _add_broker(self) -> bool:
        """It counts once it holds a replica."""
        node = self._operator.nodes[-1]
        node.is_member = node.is_wanted = True
        if not await self._wait(lambda: self._is_able(node)):
            return False
        topic = await self._operator.some_topic()
        known = None if topic is None else self._operator.newest().topics.get(topic.topic_id)
        if topic is None or known is None:
            return False
        number = self._client.below(len(known.partitions))
        before = known.partitions[number].replicas
        target = [node.node_id, *(each for each in before[1:] if each != node.node_id)]
        move = partition_admin_pb2.Reassignment(
            partition=common_pb2.TopicPartition(topic_id=topic.topic_id, partition=number),
            replicas=target,
        )
        request = partition_admin_pb2.AlterReassignmentsRequest(reassignments=[move])
        answer = partition_admin_pb2.AlterReassignmentsResponse
        await self._client.ask_any(REASSIGN, request, answer)
        return await self._wait(lambda: self._held(node) > 0)

    async def _remove_broker(self) -> bool:
        """Emptied, stopped, and forgotten."""
        node = self._operator.nodes[-1]
        if Change.ADD_BROKER in self.undone or not node.is_member:
            return False
        self._operator.leaving[node.node_id] = None
        request = broker_admin_pb2.DrainBrokerRequest(broker_id=node.node_id)
        await self._client.ask_any(_DRAIN, request, broker_admin_pb2.DrainBrokerResponse)
        if not await self._wait(lambda: self._held(node) == 0):
            return False
        node.is_wanted = False
        node.request_stop()
        await self._wait(lambda: not node.is_alive)
        if node.is_alive:
            self._operator.kill(node)
        if self._held(node):
            # Something was placed there before it was seen to be empty.
            node.is_wanted = True
            return False
        node.is_member = False
        return await self._forget(node)

    async def _forget(self, node: ClusterNode) -> bool:
        """Refused as long as its session may live."""
        request = broker_admin_pb2.RemoveBrokerRequest(broker_id=node.node_id)
        for _ in range(_REMOVE_TRIES):
            try:
                answer = broker_admin_pb2.RemoveBrokerResponse
                await self._client.ask_any(_REMOVE, request, answer)
            except TidelogError as error:
                if error.code is ErrorCode.UNKNOWN_BROKER:
                    return True
                self._client.on_error(error)
            else:
                return True
            await self._client.ports.clock.sleep(_LOOK_MS)
        return False

    def _is_able(self, node: ClusterNode) -> bool:
        broker = self._operator.newest().brokers.get(BrokerId(node.node_id))
        return broker is not None and not broker.is_fenced

    def _held(self, node: ClusterNode) -> int:
        return self._operator.newest().held_by(BrokerId(node.node_id)).count

    async def _wait(self, is_so: Callable[[], bool]) -> bool:
        waited_ms = 0
        while not is_so() and waited_ms < _PATIENCE_MS:
            await self._client.ports.clock.sleep(_LOOK_MS)
            waited_ms += _LOOK_MS
        return is_so()
