"""What a transaction coordinator's core answers. Pure; the names are those of the contract."""

import msgspec

from tidelog.broker.transactions.state.states import TransactionState
from tidelog.wire.ids import PartitionKey, ProducerEpoch, ProducerId


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Producer id and epoch: who may write in which transaction.

    Each transaction of a transactional id has an identity of its own, so that whatever was delayed
    tells by its identity which transaction it meant.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch

    def __str__(self) -> str:
        return f"{self.producer_id}@{self.producer_epoch}"


class InitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The identity to work with."""

    identity: Identity


class AddPartitionsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions are part of the open transaction, durably."""


class EndAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The decision is durable; the identity is for the next transaction."""

    identity: Identity


class PrepareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The transaction stands until it is decided."""


class DecideAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The decision is durable."""


class AbortAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is in progress any more."""

    was_aborted: bool
    """Whether there was a transaction to abort."""


class TransactionListing(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id in a list."""

    transactional_id: str
    identity: Identity
    """Of the transaction in progress, also while it ends: with the producer id of its records."""
    state: TransactionState
    age_ms: int
    """-1: none is in progress."""


class ListTransactionsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All ids, in ascending order."""

    transactions: tuple[TransactionListing, ...]


class DescribeTransactionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id as an operator sees it."""

    transactional_id: str
    identity: Identity
    state: TransactionState
    started_ms: int
    """Wall time; -1: none is in progress."""
    timeout_ms: int
    keys: tuple[PartitionKey, ...]
    """What it touches, in ascending order."""
    waits_for: tuple[PartitionKey, ...]
    """Those whose markers are not known to be there, in ascending order."""
    principal: str
    """Who prepared it; empty: it is not prepared."""


Response = (
    InitAnswer
    | AddPartitionsAnswer
    | EndAnswer
    | PrepareAnswer
    | DecideAnswer
    | AbortAnswer
    | ListTransactionsAnswer
    | DescribeTransactionAnswer
)
