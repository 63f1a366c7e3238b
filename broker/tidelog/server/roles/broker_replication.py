"""A broker's replicas among those of others: who leads, who follows, who pulls, who is in sync.

Owns how these parts are put together; each of them is told of the others here only. It must never
start before the logs are open: a follower's first word is where its log ends.
"""

from collections.abc import Callable, Mapping

from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replication.follower import invariants as follower_invariants
from tidelog.broker.replication.in_sync import invariants as in_sync_invariants
from tidelog.broker.replication.leader import invariants as leader_invariants
from tidelog.broker.replication.repair.log_ends import LogEnds
from tidelog.broker.replication.repair.reopening import Reopening
from tidelog.broker.replication.repair.repair import Repair
from tidelog.broker.replication.shared.messages import DEFAULT_REPLICATION_LIMITS, ReplicationLimits
from tidelog.broker.replication.tasks.controller_calls import ControllerCalls
from tidelog.broker.replication.tasks.fetchers import Fetchers
from tidelog.broker.replication.tasks.in_sync_keeper import InSyncKeeper
from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.replication.tasks.roles import RoleKeeper
from tidelog.broker.services.replica.methods import ReplicaRpc
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.ports import Method, TaskScope
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.server.events import log as log_events
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.wire.ids import BrokerEpoch, BrokerId


class BrokerReplication:
    """`start` once the logs are open; its tasks live as long as the scope."""

    def __init__(
        self,
        replicas: Replicas,
        ports: NodePorts,
        side: MetadataSide,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        peer_addresses: Mapping[str, str],
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        self._side = side
        self._peer_addresses = peer_addresses
        calls = _calls(side.controller, cluster_id, broker_id, broker_epoch)
        self.in_sync = InSyncKeeper(ports.clock, calls, broker_id=broker_id)
        self.repair = Repair(
            replicas, side.source, ports.clock, calls, log_events, broker_id=broker_id
        )
        self.log_ends = LogEnds(replicas, side.source, ports.clock, calls, broker_id=broker_id)
        self.reopening = Reopening(replicas, ports.clock, log_events)
        self.fetchers = Fetchers(
            replicas,
            side.source,
            ports.network,
            ports.clock,
            ports.random,
            cluster_id=cluster_id,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            address_of=self.address_of,
            limits=limits,
        )
        replicas.roles = RoleKeeper(broker_id, self.in_sync, self.fetchers.set_followed)
        self._handler = ReplicaFetchHandler(
            replicas,
            side.source,
            ports.clock,
            cluster_id=cluster_id,
            on_follower_position=self.in_sync.on_follower_position,
            on_follower_gone=self.in_sync.on_follower_gone,
            limits=limits,
        )
        self.in_sync.told_by = self._handler.told_by
        self._rpc = ReplicaRpc(self._handler)

    def check(self) -> None:
        """Fails if an invariant of replication does not hold: the simulator asks after steps."""
        for in_sync in self.in_sync.sets:
            in_sync_invariants.check(in_sync)
        for led in self._handler.in_force:
            leader_invariants.check(led)
        for followed in self.fetchers.sessions:
            follower_invariants.check(followed)

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return self._rpc.methods()

    def start(self, scope: TaskScope) -> None:
        """Its tasks."""
        scope.start(self.in_sync.run(), name="in-sync sets")
        scope.start(self.fetchers.run(scope), name="fetchers")
        scope.start(self.repair.run(), name="repair")
        scope.start(self.reopening.run(), name="reopening")
        scope.start(self.log_ends.run(), name="log ends")

    def address_of(self, broker_id: BrokerId) -> str | None:
        """Where another broker serves its replicas; None: it is not registered."""
        known = self._side.source.image().brokers.get(broker_id)
        if known is None:
            return None
        own = self._peer_addresses.get(str(broker_id))
        return own or known.listeners.get(CLUSTER_LISTENER)


def _calls(
    controller: ControllerClient,
    cluster_id: str,
    broker_id: BrokerId,
    broker_epoch: Callable[[], BrokerEpoch],
) -> ControllerCalls:
    return ControllerCalls(
        controller, cluster_id=cluster_id, broker_id=broker_id, broker_epoch=broker_epoch
    )
