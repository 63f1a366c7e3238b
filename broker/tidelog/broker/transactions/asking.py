"""How a leader, or a group's coordinator, asks before it takes data of a transaction.

Owns the question as a port: leaders and coordinators of groups need not know which broker
coordinates a transactional id, nor whether it is this one.
"""

from typing import Protocol

from tidelog.broker.transactions.state.answers import Identity
from tidelog.wire.ids import PartitionKey


class TransactionAsking(Protocol):
    """Asks the coordinator of a transactional id, in this process or over the network."""

    async def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        keys: tuple[PartitionKey, ...],
        *,
        verify_only: bool = False,
        timeout_ms: int,
    ) -> None:
        """Returns once the partitions are part of the identity's open transaction, durably; the
        transaction begins with the first of them. Asking twice is the same as once.

        With `verify_only` none is added: INVALID_TRANSACTION_STATE says that they are not part of
        an open transaction of this identity.

        Raises the `TidelogError` that goes to the producer: retriable where it may ask again
        (CONCURRENT_TRANSACTIONS while an end is being finished, COORDINATOR_NOT_AVAILABLE where
        nobody answers within `timeout_ms`), TRANSACTION_ABORTED where the producer goes on by a
        takeover, FENCED_PRODUCER_EPOCH, TRANSACTION_PREPARED. After any error the partitions may
        have been added all the same: the end of the transaction brings them a marker that ends
        nothing there.
        """
        ...
