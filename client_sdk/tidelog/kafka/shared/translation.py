"""Tidelog's errors become kafka-python's: one table, from ErrorCode to class.

Owns the translation. An error keeps what it says: `code`, `tried`, `happened`, `hint`, and the
TidelogError itself as `__cause__`. It must never let a TidelogError reach a script.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from tidelog.client.errors import ArgumentTypeError, LogTruncationError
from tidelog.client.types.records import OffsetAndMetadata
from tidelog.kafka import errors
from tidelog.kafka.errors import KafkaError
from tidelog.wire.errors import ErrorCode, TidelogError

CLASSES: Final[Mapping[ErrorCode, type[KafkaError]]] = {
    ErrorCode.UNSPECIFIED: errors.UnknownError,
    ErrorCode.UNKNOWN: errors.UnknownError,
    ErrorCode.INVALID_ARGUMENT: errors.IllegalArgumentError,
    ErrorCode.INVALID_CONFIGURATION: errors.KafkaConfigurationError,
    ErrorCode.UNSUPPORTED_VERSION: errors.UnsupportedVersionError,
    ErrorCode.NOT_IMPLEMENTED: errors.UnsupportedVersionError,
    ErrorCode.UNAVAILABLE: errors.NoBrokersAvailable,
    ErrorCode.DEADLINE_EXCEEDED: errors.KafkaTimeoutError,
    ErrorCode.CANCELLED: errors.Cancelled,
    ErrorCode.UNAUTHENTICATED: errors.KafkaConnectionError,
    ErrorCode.PERMISSION_DENIED: errors.AuthorizationError,
    ErrorCode.RESOURCE_EXHAUSTED: errors.ThrottlingQuotaExceededError,
    ErrorCode.CLOSED: errors.IllegalStateError,
    ErrorCode.FORKED_CLIENT: errors.IllegalStateError,
    ErrorCode.CONCURRENT_USE: errors.IllegalStateError,
    ErrorCode.UNKNOWN_TOPIC: errors.UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_ID: errors.UnknownTopicIdError,
    ErrorCode.UNKNOWN_PARTITION: errors.UnknownTopicOrPartitionError,
    ErrorCode.TOPIC_ALREADY_EXISTS: errors.TopicAlreadyExistsError,
    ErrorCode.INVALID_TOPIC_NAME: errors.InvalidTopicError,
    ErrorCode.INVALID_PARTITION_COUNT: errors.InvalidPartitionsError,
    ErrorCode.INVALID_REPLICATION_FACTOR: errors.InvalidReplicationFactorError,
    ErrorCode.NOT_LEADER: errors.NotLeaderForPartitionError,
    ErrorCode.FENCED_LEADER_EPOCH: errors.FencedLeaderEpochError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: errors.UnknownLeaderEpochError,
    ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS: errors.NotEnoughReplicasError,
    ErrorCode.NO_ELIGIBLE_LEADER: errors.LeaderNotAvailableError,
    ErrorCode.CORRUPT_BATCH: errors.CorruptRecordError,
    ErrorCode.ROUTE_MISMATCH: errors.CorruptRecordError,
    ErrorCode.BATCH_TOO_LARGE: errors.MessageSizeTooLargeError,
    ErrorCode.UNSUPPORTED_CODEC: errors.UnsupportedCompressionTypeError,
    ErrorCode.INVALID_TIMESTAMP: errors.InvalidTimestampError,
    ErrorCode.INDETERMINATE: errors.KafkaTimeoutError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE: errors.OutOfOrderSequenceNumberError,
    ErrorCode.DUPLICATE_SEQUENCE: errors.DuplicateSequenceNumberError,
    ErrorCode.UNKNOWN_PRODUCER_ID: errors.UnknownProducerIdError,
    ErrorCode.FENCED_PRODUCER_EPOCH: errors.ProducerFencedError,
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRangeError,
    ErrorCode.NO_OFFSET_FOR_PARTITION: errors.NoOffsetForPartitionError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: errors.CoordinatorNotAvailableError,
    ErrorCode.NOT_COORDINATOR: errors.NotCoordinatorError,
    ErrorCode.UNKNOWN_MEMBER: errors.UnknownMemberIdError,
    ErrorCode.FENCED_MEMBER_EPOCH: errors.FencedMemberEpochError,
    ErrorCode.STALE_ASSIGNMENT: errors.CommitFailedError,
    ErrorCode.GROUP_NOT_FOUND: errors.GroupIdNotFoundError,
    ErrorCode.GROUP_NOT_EMPTY: errors.NonEmptyGroupError,
    ErrorCode.INSTANCE_ID_IN_USE: errors.UnreleasedInstanceIdError,
    ErrorCode.INVALID_TRANSACTION_STATE: errors.InvalidTxnStateError,
    ErrorCode.CONCURRENT_TRANSACTIONS: errors.ConcurrentTransactionsError,
    ErrorCode.TRANSACTION_ABORTED: errors.TransactionAbortedError,
    ErrorCode.SINK_STATE_EXPIRED: errors.InvalidTxnStateError,
    ErrorCode.STAGED_TOKEN_MISSING: errors.InvalidTxnStateError,
    ErrorCode.TRANSACTION_NOT_FOUND: errors.TransactionalIdNotFoundError,
    ErrorCode.TRANSACTION_PREPARED: errors.InvalidTxnStateError,
    ErrorCode.NOT_CONTROLLER: errors.NotControllerError,
    ErrorCode.STALE_BROKER_EPOCH: errors.StaleBrokerEpochError,
    ErrorCode.UNKNOWN_BROKER: errors.UnknownBrokerIdError,
    ErrorCode.STALE_PARTITION_EPOCH: errors.StaleMetadata,
    ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS: errors.OperationNotAttemptedError,
    ErrorCode.WRONG_CLUSTER: errors.InconsistentClusterIdError,
    ErrorCode.UNKNOWN_VOTER: errors.VoterNotFoundError,
    ErrorCode.VOTER_NOT_CAUGHT_UP: errors.InconsistentVoterSetError,
    ErrorCode.BROKER_ID_IN_USE: errors.DuplicateBrokerRegistrationError,
    ErrorCode.STORAGE_FAILED: errors.KafkaStorageError,
    ErrorCode.STORAGE_FULL: errors.KafkaStorageError,
    ErrorCode.STORAGE_CORRUPT: errors.KafkaStorageError,
    ErrorCode.STORAGE_IN_USE: errors.KafkaStorageError,
    ErrorCode.STORAGE_NOT_FORMATTED: errors.KafkaStorageError,
}
"""As what each of Tidelog's codes is raised here."""


COMMITTING: Final[Mapping[ErrorCode, type[KafkaError]]] = {
    ErrorCode.UNKNOWN_MEMBER: errors.CommitFailedError,
    ErrorCode.FENCED_MEMBER_EPOCH: errors.CommitFailedError,
}
"""As kafka-python: whatever the reason, the partitions are not this consumer's any more."""


def translated(
    error: TidelogError, special: Mapping[ErrorCode, type[KafkaError]] | None = None
) -> KafkaError:
    """The same error for a caller that catches Kafka's names; `special` goes before the table."""
    text = f"{error.tried}: {error.happened} (hint: {error.hint})"
    made: KafkaError
    if isinstance(error, LogTruncationError):
        safe = OffsetAndMetadata(error.divergent_offset)
        made = errors.LogTruncationError({error.topic_partition: safe}, text)
    else:
        kind = (special or {}).get(error.code) or CLASSES.get(error.code, errors.UnknownError)
        made = kind(text)
    made.code = error.code
    made.tried, made.happened, made.hint = error.tried, error.happened, error.hint
    made.retriable = error.retriable
    made.fatal, made.txn_requires_abort = error.fatal, error.txn_requires_abort
    made.__cause__ = error
    return made


@contextmanager
def translating(
    special: Mapping[ErrorCode, type[KafkaError]] | None = None,
) -> Generator[None, None, None]:
    """Around a call of the client."""
    try:
        yield
    except ArgumentTypeError as error:
        # As kafka-python: a plain mistake of the caller's is Python's own error.
        raise TypeError(str(error)) from error
    except TidelogError as error:
        raise translated(error, special) from error
