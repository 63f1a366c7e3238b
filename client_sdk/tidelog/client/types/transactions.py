"""What the admin client takes and gives about transactions: values only."""

import enum

import msgspec

from tidelog.client.types.records import TopicPartition


class TransactionState(enum.Enum):
    """Where a transactional id stands."""

    EMPTY = "empty"
    """It never had a transaction."""
    ONGOING = "ongoing"
    """A transaction is in progress."""
    PREPARED = "prepared"
    """A transaction stands, without a timeout, until somebody decides it."""
    COMMITTING = "committing"
    """Commit is decided; some partitions may not show it yet."""
    ABORTING = "aborting"
    """Abort is decided; some partitions may not show it yet."""
    COMMITTED = "committed"
    """The last transaction was committed, and none is in progress."""
    ABORTED = "aborted"
    """The last transaction was aborted, and none is in progress."""
    UNKNOWN = "unknown"
    """A state that this release does not know."""


class TransactionListing(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState
    age_ms: int | None
    """For how long a transaction has been in progress; None: none is."""


class TransactionList(msgspec.Struct, frozen=True, kw_only=True):
    """Transactional ids, and whether they are all."""

    transactions: tuple[TransactionListing, ...]
    """In ascending order of id."""
    missing_coordinators: int
    """How many coordinators could not be asked: their ids are not here."""


class TransactionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id, and the transaction that is in progress under it."""

    transactional_id: str
    producer_id: int
    """Of the records of the transaction in progress."""
    producer_epoch: int
    state: TransactionState
    start_time_ms: int | None
    """When it began, in milliseconds since 1970; None: none is in progress."""
    timeout_ms: int
    """After how long the coordinator aborts it; counted again, in full, when another broker takes
    the coordinator's place."""
    coordinator_id: int
    partitions: tuple[TopicPartition, ...]
    """What it touches. The topic's name is empty where the topic was deleted."""
    waits_for: tuple[TopicPartition, ...]
    """Those of them that do not show its end yet, as far as the coordinator knows."""
    principal: str
    """Who prepared it; empty: it is not prepared."""

    @property
    def deadline_ms(self) -> int | None:
        """When the coordinator aborts it, in milliseconds since 1970; None: it does not."""
        if self.state is not TransactionState.ONGOING or self.start_time_ms is None:
            return None
        return self.start_time_ms + self.timeout_ms


class ProducerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition remembers of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    """Of its last record; None: it has none since the last end of a transaction."""
    last_timestamp_ms: int
    """Of its last batch."""
    transaction_start_offset: int | None
    """Where its open transaction begins; None: none is open here."""
    coordinator_epoch: int | None
    """Of the coordinator that ended its last transaction here; None: none did."""


class HangingTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """An open transaction of a partition that no coordinator will ever end."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    transaction_start_offset: int
    """From here on readers of committed records wait."""
    last_timestamp_ms: int
    """Of its last batch."""
