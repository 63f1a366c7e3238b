"""A broker's part in what operators ask about transactions.

Owns how these parts are put together, and what stands in for coordinators and leaders of
transactions for as long as this release serves none: everything is refused, nothing pretended.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.admin.calls import (
    OneCoordinator,
    OwnCoordinators,
    TransactionCalls,
)
from tidelog.broker.services.transactions.admin.partitions import OwnProducers, ProducerView
from tidelog.broker.services.transactions.admin.peers import TransactionPeers
from tidelog.broker.services.transactions.admin.rpc import (
    FoundPlace,
    TransactionAdminRpc,
    TransactionKind,
)
from tidelog.metadata.image.image import Image, TopicImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Method, Network
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId, PartitionKey

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


class NoTransactions:
    """Stands where coordinators and leaders of transactions are to be."""

    @property
    def by_partition(self) -> Mapping[PartitionId, OneCoordinator]:
        """None."""
        return {}

    def of(self, transactional_id: str) -> NoReturn:
        """Refuses."""
        raise _not_served(f"coordinate transaction `{transactional_id}`")

    def check_on(self, image: Image, *, tried: str) -> None:
        """Refuses."""
        del image
        raise _not_served(tried)

    def topic_in(self, image: Image) -> TopicImage | None:
        """None."""
        del image
        return None

    def place_of(self, name: str, image: Image, listener: str) -> FoundPlace:
        """Refuses."""
        del image, listener
        raise _not_served(f"find the coordinator of transaction `{name}`")

    async def describe_producers(self, key: PartitionKey) -> Sequence[ProducerView]:
        """Refuses."""
        raise _not_served(f"describe the producers of {key}")

    async def abort_hanging(
        self,
        key: PartitionKey,
        producer_id: int,
        transaction_start_offset: int,
        *,
        validate_only: bool,
    ) -> None:
        """Refuses."""
        del producer_id, transaction_start_offset, validate_only
        raise _not_served(f"abort a hanging transaction on {key}")


def _not_served(tried: str) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_IMPLEMENTED, tried=tried, happened="transactions are not served"
    )
