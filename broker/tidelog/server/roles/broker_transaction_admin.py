"""A broker's part in what operators ask about transactions.

Owns how these parts are put together.
"""

from collections.abc import Callable, Mapping

from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.admin.calls import (
    OwnCoordinators,
    TransactionCalls,
)
from tidelog.broker.services.transactions.admin.partitions import OwnProducers
from tidelog.broker.services.transactions.admin.peers import TransactionPeers
from tidelog.broker.services.transactions.admin.rpc import (
    TransactionAdminRpc,
    TransactionKind,
)
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Method, Network
from tidelog.wire.ids import BrokerId

TRANSACTIONS_TOPIC = "__transactions"


class BrokerTransactionAdmin:
    """The service for operators, and what other brokers ask for it."""

    def __init__(
        self,
        coordinators: OwnCoordinators,
        producers: OwnProducers,
        kind: TransactionKind,
        source: ImageSource,
        network: Network,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        address_of: Callable[[BrokerId], str | None],
    ) -> None:
        peers = PeerCalls(
            network, cluster_id=cluster_id, broker_id=broker_id, address_of=address_of
        )
        own = TransactionCalls(coordinators, producers, broker_id=broker_id)
        self._peers = TransactionPeers(own, peers, topic_name=TRANSACTIONS_TOPIC)
        self.rpc = TransactionAdminRpc(self._peers, kind, source)

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return self._peers.methods()
