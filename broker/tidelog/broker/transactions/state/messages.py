"""What a transaction coordinator's core is told, and what it wants done. Pure.

Every request carries `now_ms`, monotonic, and `wall_ms`, milliseconds since 1970 that never fall
(the glue reads a steady clock: a jump of the wall must not make ids expire). Answers are in
`answers`.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.transactions.state.answers import Identity, Response
from tidelog.broker.transactions.state.states import TRANSACTION_VERSION, Decision
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey, ProducerId, TopicId


class TransactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What every request has; whoever hands it to the core fills in the id and the time.

    Each is answered once, by an `Answer` with its id; an id is never used twice in a core's life.
    """

    request_id: int = 0
    now_ms: int = 0
    wall_ms: int = 0
    transactional_id: str


class InitTransactionalProducer(TransactionRequest, frozen=True, kw_only=True):
    """Take the id over."""

    transaction_timeout_ms: int = 0
    """0: the default."""
    expected: Identity | None = None
    """The last identity that the caller was given; None: take over from whoever has it."""


class AddPartitions(TransactionRequest, frozen=True, kw_only=True):
    """A leader asks before it accepts data: are these partitions part of the open transaction?

    The coordinator of a group asks the same for its partition of `__groups`, before it takes
    offsets that are sent to a transaction.
    """

    identity: Identity
    keys: tuple[PartitionKey, ...]
    verify_only: bool = False
    """Add none of them."""


class EndTransaction(TransactionRequest, frozen=True, kw_only=True):
    """Decide the transaction in progress."""

    identity: Identity
    decision: Decision


class PrepareTransaction(TransactionRequest, frozen=True, kw_only=True):
    """Take the first half of a commit in two phases."""

    identity: Identity
    principal: str
    """Who asks: prepared transactions are limited for each."""


class DecidePrepared(TransactionRequest, frozen=True, kw_only=True):
    """Take the second half, with the token: id and identity."""

    identity: Identity
    decision: Decision


class AbortTransaction(TransactionRequest, frozen=True, kw_only=True):
    """An operator ends what is in progress."""

    validate_only: bool = False


class DescribeTransaction(TransactionRequest, frozen=True, kw_only=True):
    """Tell an operator about one id."""


class ListTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """Tell all ids of this core, in ascending order. Filters and pages are the caller's."""

    request_id: int = 0
    now_ms: int = 0
    wall_ms: int = 0


class TransactionTopics(msgspec.Struct, frozen=True, kw_only=True):
    """All topics that exist, internal ones too, with their partition counts: replaces the former.

    The view never goes back, and the first one is at least as new as the metadata that made this
    broker the partition's leader. Every partition that was ever added was in the view of the
    coordinator that added it, so whatever of it a later view lacks was deleted.
    """

    partition_counts: Mapping[TopicId, int]
    now_ms: int
    wall_ms: int


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may set."""

    timeout_ms_default: int = 60_000
    timeout_ms_max: int = 15 * 60 * 1000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """An id with nothing in progress that nobody uses for so long is forgotten."""


class TransactionSettingsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Settings from now on; transactions in progress keep their timeouts."""

    settings: TransactionSettings


class PreparedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Prepared transactions of other coordinators, as last heard: for the cluster's limits."""

    by_principal: Mapping[str, int]


class ProducerIdsGranted(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that nobody else ever uses."""

    first: ProducerId
    count: int
    now_ms: int
    wall_ms: int


class MarkersAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """Some partitions of a `SendMarkers` are answered for; None: the marker is committed there."""

    send_id: int
    results: tuple[tuple[PartitionKey, TidelogError | None], ...]
    now_ms: int
    wall_ms: int


class TransactionsLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything committed was given to `apply`. Before it no request is taken.

    Timeouts of transactions in progress begin again in full. `TransactionTopics` comes next.
    """

    coordinator_epoch: LeaderEpoch
    """In which this broker leads the partition of `__transactions`: markers carry it."""
    now_ms: int
    wall_ms: int


class TransactionTick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed: due at `next_deadline_ms()` at the latest."""

    now_ms: int
    wall_ms: int
    may_expire: bool = False
    """Whether the node's clock is one to forget ids by."""


class AppendCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The append with this token, and all before it, are committed: replicated as acks=all says."""

    token: int


class AppendFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The append was refused or its fate is unknown; or this broker does not lead any more."""

    error: TidelogError
    """NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE: what everything that waits is answered with."""


OneRequest = (
    InitTransactionalProducer
    | AddPartitions
    | EndTransaction
    | PrepareTransaction
    | DecidePrepared
    | AbortTransaction
    | DescribeTransaction
)
"""Of one transactional id."""

AnyRequest = OneRequest | ListTransactions

Notice = (
    TransactionTopics
    | TransactionSettingsChanged
    | PreparedElsewhere
    | ProducerIdsGranted
    | MarkersAnswered
    | TransactionsLoaded
)

Message = AnyRequest | Notice

Completion = AppendCommitted | AppendFailed


class StoredRecord(msgspec.Struct, frozen=True):
    """A record of `__transactions`."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""


class AppendRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Append the records as one batch, in the order of the tokens; then say `AppendCommitted`.

    Appends may be in flight together.
    """

    token: int
    """One more than the one before; 1 is a core's first."""
    records: tuple[StoredRecord, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The request is done with."""

    request_id: int
    result: Response | TidelogError
    """An error: nothing was changed; but CONCURRENT_TRANSACTIONS of a takeover may tell of an abort
    that it began, and after AppendFailed nothing is known."""


class SendMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Have the leaders of these partitions end the transaction there.

    Look the leaders up now, group what goes to one broker, and say of each partition once, in one
    or several `MarkersAnswered`, how it went; without a leader, or without an answer in time, that
    is an error. The answer None means that the marker is committed there.
    """

    send_id: int
    transactional_id: str
    identity: Identity
    decision: Decision
    keys: tuple[PartitionKey, ...]
    """In ascending order."""
    coordinator_epoch: LeaderEpoch
    attempt: int
    """From 1."""
    transaction_version: int = TRANSACTION_VERSION


class RequestProducerIds(msgspec.Struct, frozen=True, kw_only=True):
    """Get so many producer ids, however long it takes; then say `ProducerIdsGranted`."""

    count: int


class ReloadNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The core is of no more use: throw it away, and load again if this broker still leads.

    It comes last; every request that was waiting has been answered before it.
    """

    error: TidelogError


Effect = AppendRecords | Answer | SendMarkers | RequestProducerIds | ReloadNeeded
