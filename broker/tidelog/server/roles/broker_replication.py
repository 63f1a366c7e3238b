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
from tidelog.broker.replication.tasks.follower_streams import FollowerStreams
from tidelog.broker.replication.tasks.in_sync_keeper import InSyncKeeper
from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.replication.tasks.roles import RoleKeeper
from tidelog.broker.services.replica.methods import ReplicaRpc
from tidelog.metadata_quorum.port import ImageSource
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.ports import Clock, Method, Network, Random, TaskScope
from tidelog.server.events import log as log_events
from tidelog.wire.ids import BrokerEpoch, BrokerId


class BrokerReplication:
    """`start` once the logs are open; its tasks live as long as the scope."""

    def __init__(
        self,
        replicas: Replicas,
        source: ImageSource,
        controller: ControllerClient,
        network: Network,
        clock: Clock,
        random: Random,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address_of: Callable[[BrokerId], str | None],
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        calls = ControllerCalls(
            controller, cluster_id=cluster_id, broker_id=broker_id, broker_epoch=broker_epoch
        )
        self._streams = FollowerStreams()
        self.in_sync = InSyncKeeper(
            clock, calls, broker_id=broker_id, told_by=self._streams.told_by
        )
        self.repair = Repair(replicas, source, clock, calls, log_events, broker_id=broker_id)
        self.log_ends = LogEnds(replicas, source, clock, calls, broker_id=broker_id)
        self.reopening = Reopening(replicas, clock, log_events)
        self.fetchers = Fetchers(
            replicas,
            source,
            network,
            clock,
            random,
            cluster_id=cluster_id,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            address_of=address_of,
            limits=limits,
        )
        replicas.announce_to(RoleKeeper(broker_id, self.in_sync, self.fetchers.set_followed))
        self._handler = ReplicaFetchHandler(
            replicas,
            source,
            clock,
            cluster_id=cluster_id,
            on_follower_position=self.in_sync.on_follower_position,
            on_follower_gone=self.in_sync.on_follower_gone,
            streams=self._streams,
            limits=limits,
        )
        self._rpc = ReplicaRpc(self._handler)

    def check(self) -> None:
        """Fails if an invariant of replication does not hold: the simulator asks after steps."""
        for in_sync in self.in_sync.sets:
            in_sync_invariants.check(in_sync)
        for led in self._streams.sessions:
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
