"""A broker's part in consumer groups: its coordinators, and the way to those on other brokers.

Owns how these parts are put together. It must never start before the logs are open: a coordinator
reads what it knows from its partition.
"""

from collections.abc import Callable, Mapping

from tidelog.broker.coordination.finding import CoordinatorFinder
from tidelog.broker.groups.coordinator.ends import GroupEnds
from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.coordinator.lag import LagKeeper
from tidelog.broker.groups.coordinator.leader_offsets import LeaderOffsets
from tidelog.broker.groups.coordinator.watermarks import OwnWatermarks
from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.messages import BrokerLife
from tidelog.broker.groups.state.places import GROUPS
from tidelog.broker.groups.subscription.host import GroupPorts, Subscriptions
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.fetch.handler import FetchHandler
from tidelog.broker.services.groups.admin import GroupAdminRpc
from tidelog.broker.services.groups.calls import GroupCalls
from tidelog.broker.services.groups.handler import GroupsHandler
from tidelog.broker.services.groups.peer_offsets import PeerOffsets
from tidelog.broker.services.groups.peers import GroupPeers
from tidelog.broker.services.groups.wire import GroupRpc
from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.subscribe.ports import PeerGroup, PeerReads
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.metadata_quorum.port import ImageSource, Metadata
from tidelog.ports import Clock, Method, Network, Random, TaskScope
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import WINDOW_MS, LimitedEvents
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import BrokerEpoch, BrokerId


class BrokerGroups:
    """`start` once the logs are open; its tasks live as long as the scope."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: Metadata,
        source: ImageSource,
        network: Network,
        clock: Clock,
        random: Random,
        fetch: FetchHandler,
        meter: Meter,
        *,
        time: HouseTime,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address_of: Callable[[BrokerId], str | None],
        is_in_contact: Callable[[], bool],
    ) -> None:
        self._clock = clock
        # Strangers make groups and members as they like: their ends must not fill the log.
        self._events = LimitedEvents(log_events, clock)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self.finder = CoordinatorFinder(
            GROUPS, validate_group_name, metadata, replicas, clock, broker_id=broker_id
        )
        self.coordinators = GroupCoordinators(
            replicas,
            clock,
            time=time,
            broker_id=broker_id,
            make_core=GroupCoordinatorCore,
            is_in_contact=is_in_contact,
            events=self._events,
            meter=meter,
        )
        self.ends = GroupEnds(replicas, self.coordinators)
        handler = GroupsHandler(self.coordinators, meter, replicas.name_of)
        self.members = GroupRpc(handler)
        peers = PeerCalls(
            network, cluster_id=cluster_id, broker_id=broker_id, address_of=address_of
        )
        self._peer_offsets = PeerOffsets(OwnWatermarks(replicas), fetch.leadership, peers)
        offsets = LeaderOffsets(source, self._peer_offsets)
        self.lag = LagKeeper(self.coordinators, offsets, clock)
        calls = GroupCalls(
            self.coordinators,
            self.members,
            broker_id=broker_id,
            lag_of=self.lag.lag_of,
            look_at_lags=self.lag.look_again,
        )
        self._peers = GroupPeers(calls, fetch, peers)
        self.admin = GroupAdminRpc(self._peers, self.finder, offsets, source)
        reads = PeerReads(source, self._peers, offsets, fetch, broker_id=broker_id)
        group = self._group_of(handler, clock)
        self.subscriptions = Subscriptions(source, group, reads, clock, random)

    def _group_of(self, handler: GroupsHandler, clock: Clock) -> GroupPorts:
        def own_life() -> BrokerLife:
            return BrokerLife(self._broker_id, self._broker_epoch())

        return lambda begin: PeerGroup(begin, self.finder, self._peers, handler, clock, own_life)

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {**self._peers.methods(), **self._peer_offsets.methods()}

    def start(self, scope: TaskScope) -> None:
        """Its tasks."""
        scope.start(self.coordinators.run(), name="group coordinators")
        scope.start(self.lag.run(), name="lag of groups")
        scope.start(self.subscriptions.run(), name="subscriptions")
        scope.start(self._tell_left_out(), name="events of groups left out")

    async def _tell_left_out(self) -> None:
        """Also when nothing else comes that would tell it."""
        while True:
            await self._clock.sleep(WINDOW_MS)
            self._events.sweep()
