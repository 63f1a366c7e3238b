"""A broker's part in transactions: its coordinators, and the way to those on other brokers.

Owns how these parts are put together. It must never start before the logs are open: a coordinator
reads what it knows from its partition.
"""

from collections.abc import Awaitable, Callable, Mapping

from tidelog.broker.coordination.finding import CoordinatorFinder
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.admin.calls import TransactionCalls
from tidelog.broker.services.transactions.admin.partitions import OwnProducers
from tidelog.broker.services.transactions.admin.peers import OperatorPeers
from tidelog.broker.services.transactions.admin.rpc import TransactionAdminRpc
from tidelog.broker.services.transactions.handler import TransactionsHandler
from tidelog.broker.services.transactions.marker_calls import MarkerPeers
from tidelog.broker.services.transactions.peers import TransactionPeers
from tidelog.broker.services.transactions.wire import TransactionRpc
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import HouseTime
from tidelog.broker.transactions.asking import TransactionAsking
from tidelog.broker.transactions.coordinator.id_blocks import ProducerIdBlocks, ProducerIdSource
from tidelog.broker.transactions.coordinator.keeper import TransactionCoordinators
from tidelog.broker.transactions.coordinator.marker_sender import MarkerSender
from tidelog.broker.transactions.coordinator.prepared import PreparedElsewhereKeeper, prepared_at
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.marking import MarkerWriting
from tidelog.broker.transactions.state.places import TRANSACTIONS, validate_transactional_id
from tidelog.metadata_quorum.port import ImageSource, Metadata
from tidelog.ports import Clock, Method, Network, TaskScope
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import WINDOW_MS, LimitedEvents
from tidelog.wire.ids import BrokerId


class BrokerTransactions:
    """`start` once the logs are open; its tasks live as long as the scope."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: Metadata,
        network: Network,
        clock: Clock,
        meter: Meter,
        markers: MarkerWriting,
        producers: OwnProducers,
        producer_ids: ProducerIdSource,
        source: ImageSource,
        *,
        time: HouseTime,
        cluster_id: str,
        broker_id: BrokerId,
        address_of: Callable[[BrokerId], str | None],
        is_in_contact: Callable[[], bool],
        confirm: Callable[[str], Awaitable[None]],
    ) -> None:
        self._clock = clock
        # Strangers make transactional ids as they like: their ends must not fill the log.
        self._events = LimitedEvents(log_events, clock)
        self.finder = CoordinatorFinder(
            TRANSACTIONS, validate_transactional_id, metadata, replicas, clock, broker_id=broker_id
        )
        peers = PeerCalls(
            network, cluster_id=cluster_id, broker_id=broker_id, address_of=address_of
        )
        # What this broker acts on: a coordinator's view of topics is never newer than this.
        self._markers = MarkerSender(
            lambda: replicas.applied, markers, MarkerPeers(peers), broker_id=broker_id
        )
        self.coordinators = TransactionCoordinators(
            replicas,
            clock,
            time=time,
            broker_id=broker_id,
            make_core=TransactionCoordinatorCore,
            producer_ids=ProducerIdBlocks(producer_ids, clock),
            markers=self._markers,
            is_in_contact=is_in_contact,
            events=self._events,
            meter=meter,
        )
        self.members = TransactionRpc(TransactionsHandler(self.coordinators))
        self._peers = TransactionPeers(
            self.coordinators,
            lambda: replicas.applied,
            peers,
            own_prepared=lambda: prepared_at(self.coordinators.led()),
        )
        self._prepared = PreparedElsewhereKeeper(
            self.coordinators, lambda: replicas.applied, self._peers, clock, broker_id=broker_id
        )

        own = TransactionCalls(self.coordinators, producers, broker_id=broker_id)
        self._operators = OperatorPeers(
            own, peers, replicas.wait_applied, topic_name=TRANSACTIONS.topic_name
        )
        self.admin = TransactionAdminRpc(self._operators, TRANSACTIONS, source, confirm)

    @property
    def asking(self) -> TransactionAsking:
        """How leaders and coordinators of groups ask before they take data of a transaction."""
        return self._peers

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {**self._peers.methods(), **self._operators.methods()}

    def start(self, scope: TaskScope) -> None:
        """Its tasks."""
        scope.start(self._markers.run(), name="markers of transactions")
        scope.start(self.coordinators.run(), name="transaction coordinators")
        scope.start(self._prepared.run(), name="prepared transactions elsewhere")
        scope.start(self._tell_left_out(), name="events of transactions left out")

    async def _tell_left_out(self) -> None:
        """Also when nothing else comes that would tell it."""
        while True:
            await self._clock.sleep(WINDOW_MS)
            self._events.sweep()
