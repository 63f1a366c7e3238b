"""The errors of kafka-python under their own names: what scripts catch.

Owns the classes: those that a client raises, then one for each number of Kafka's protocol, made
from a line each. It must never decide when one is raised: `translation` does.
"""

import re
from collections.abc import Mapping
from typing import Final

from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode


class KafkaError(Exception):
    """Every error of this package but plain mistakes of arguments (TypeError, ValueError)."""

    retriable = False
    invalid_metadata = False
    """Whether metadata should be looked at again."""
    fatal = False
    """Whether the client that raised it cannot be used any more."""
    txn_requires_abort = False
    """Whether abort_transaction() is the only call that helps."""
    code: ErrorCode = ErrorCode.UNSPECIFIED
    """Tidelog's stable code; UNSPECIFIED for an error that never was Tidelog's."""
    tried: str = ""
    happened: str = ""
    hint: str = ""

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class RetriableError(KafkaError):
    retriable = True


class InvalidMetadataError(RetriableError):
    invalid_metadata = True


class Cancelled(RetriableError):
    pass


class CommitFailedError(KafkaError):
    def __init__(self, *args: object) -> None:
        super().__init__(
            *args
            or (
                (
                    "Commit cannot be completed since the group has already rebalanced and "
                    "assigned the partitions to another member."
                ),
            )
        )


class IllegalArgumentError(KafkaError):
    pass


class IllegalStateError(KafkaError):
    pass


class KafkaConfigurationError(KafkaError):
    pass


class UnrecognizedConfigError(KafkaConfigurationError, ValueError):
    """kafka-python's producer raises ValueError here, its consumer KafkaConfigurationError."""


class KafkaConnectionError(InvalidMetadataError):
    pass


class KafkaProtocolError(KafkaError):
    pass


class CorrelationIdError(RetriableError, KafkaProtocolError):
    pass


class InvalidReceiveError(KafkaProtocolError):
    pass


class KafkaTimeoutError(RetriableError):
    pass


class NoBrokersAvailable(KafkaTimeoutError, KafkaConnectionError):
    """No address answered: kafka-python 2's name; version 3 raises KafkaTimeoutError."""


class MetadataEmptyBrokerList(RetriableError):
    pass


class NoOffsetForPartitionError(KafkaError):
    pass


class LogTruncationError(KafkaError):
    """The log was cut below what this consumer has read."""

    def __init__(
        self, divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata | None], *args: object
    ) -> None:
        self.divergent_offsets = dict(divergent_offsets)
        super().__init__(*args or (f"Detected truncated partitions: {divergent_offsets}",))


class NodeNotReadyError(RetriableError):
    pass


class UnknownBrokerIdError(KafkaError):
    pass


class QuotaViolationError(KafkaError):
    pass


class StaleMetadata(InvalidMetadataError):
    pass


class TooManyInFlightRequests(RetriableError):
    pass


class UnrecognizedBrokerVersion(KafkaError):
    pass


class UnsupportedCodecError(KafkaError):
    pass


class TransactionAbortedError(KafkaError):
    message = "Failing batch since transaction was aborted"


class BrokerResponseError(KafkaError):
    """What a broker answered; errno is the number in Kafka's protocol."""

    errno: int | None = None
    message: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    pass


Answer = type[BrokerResponseError]


def _make(name: str, errno: int, message: str, *bases: type[KafkaError]) -> Answer:
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).upper()
    contents = {"__module__": __name__, "errno": errno, "message": message or spelled}
    made: Answer = type(name, bases, contents)
    return made


def _answer(name: str, errno: int, message: str = "") -> Answer:
    return _make(name, errno, message, BrokerResponseError)


def _denied(name: str, errno: int, message: str = "") -> Answer:
    return _make(name, errno, message, AuthorizationError)


def _retriable(name: str, errno: int, message: str = "") -> Answer:
    return _make(name, errno, message, RetriableError, BrokerResponseError)


def _stale(name: str, errno: int, message: str = "") -> Answer:
    return _make(name, errno, message, InvalidMetadataError, BrokerResponseError)


# Kafka's protocol numbers, in their order.
UnknownError = _answer("UnknownError", -1)
NoError = _answer("NoError", 0, "NO_ERROR")
OffsetOutOfRangeError = _answer("OffsetOutOfRangeError", 1)
CorruptRecordError = _answer("CorruptRecordError", 2, "CORRUPT_MESSAGE")
CorruptRecordException = CorruptRecordError
UnknownTopicOrPartitionError = _stale("UnknownTopicOrPartitionError", 3)
InvalidFetchRequestError = _answer("InvalidFetchRequestError", 4, "INVALID_FETCH_SIZE")
LeaderNotAvailableError = _stale("LeaderNotAvailableError", 5)
NotLeaderForPartitionError = _stale("NotLeaderForPartitionError", 6)
RequestTimedOutError = _retriable("RequestTimedOutError", 7)
BrokerNotAvailableError = _answer("BrokerNotAvailableError", 8)
ReplicaNotAvailableError = _stale("ReplicaNotAvailableError", 9)
MessageSizeTooLargeError = _answer("MessageSizeTooLargeError", 10)
StaleControllerEpochError = _answer("StaleControllerEpochError", 11)
OffsetMetadataTooLargeError = _answer("OffsetMetadataTooLargeError", 12)
NetworkExceptionError = _stale("NetworkExceptionError", 13)
CoordinatorLoadInProgressError = _retriable("CoordinatorLoadInProgressError", 14)
CoordinatorNotAvailableError = _retriable("CoordinatorNotAvailableError", 15)
NotCoordinatorError = _retriable("NotCoordinatorError", 16)
InvalidTopicError = _answer("InvalidTopicError", 17)
RecordListTooLargeError = _answer("RecordListTooLargeError", 18)
NotEnoughReplicasError = _retriable("NotEnoughReplicasError", 19)
NotEnoughReplicasAfterAppendError = _retriable("NotEnoughReplicasAfterAppendError", 20)
InvalidRequiredAcksError = _answer("InvalidRequiredAcksError", 21)
IllegalGenerationError = _answer("IllegalGenerationError", 22)
InconsistentGroupProtocolError = _answer("InconsistentGroupProtocolError", 23)
InvalidGroupIdError = _answer("InvalidGroupIdError", 24)
UnknownMemberIdError = _answer("UnknownMemberIdError", 25)
InvalidSessionTimeoutError = _answer("InvalidSessionTimeoutError", 26)
RebalanceInProgressError = _answer("RebalanceInProgressError", 27)
InvalidCommitOffsetSizeError = _answer("InvalidCommitOffsetSizeError", 28)
TopicAuthorizationFailedError = _denied("TopicAuthorizationFailedError", 29)
GroupAuthorizationFailedError = _denied("GroupAuthorizationFailedError", 30)
ClusterAuthorizationFailedError = _denied("ClusterAuthorizationFailedError", 31)
InvalidTimestampError = _answer("InvalidTimestampError", 32)
UnsupportedSaslMechanismError = _answer("UnsupportedSaslMechanismError", 33)
IllegalSaslStateError = _answer("IllegalSaslStateError", 34)
UnsupportedVersionError = _answer("UnsupportedVersionError", 35)
TopicAlreadyExistsError = _answer("TopicAlreadyExistsError", 36)
InvalidPartitionsError = _answer("InvalidPartitionsError", 37)
InvalidReplicationFactorError = _answer("InvalidReplicationFactorError", 38)
InvalidReplicationAssignmentError = _answer("InvalidReplicationAssignmentError", 39)
InvalidConfigurationError = _answer("InvalidConfigurationError", 40, "INVALID_CONFIG")
NotControllerError = _retriable("NotControllerError", 41)
InvalidRequestError = _answer("InvalidRequestError", 42)
UnsupportedForMessageFormatError = _answer("UnsupportedForMessageFormatError", 43)
PolicyViolationError = _answer("PolicyViolationError", 44)
OutOfOrderSequenceNumberError = _answer("OutOfOrderSequenceNumberError", 45)
DuplicateSequenceNumberError = _answer("DuplicateSequenceNumberError", 46)
InvalidProducerEpochError = _answer("InvalidProducerEpochError", 47)
InvalidTxnStateError = _answer("InvalidTxnStateError", 48)
InvalidProducerIdMappingError = _answer("InvalidProducerIdMappingError", 49)
InvalidTransactionTimeoutError = _answer("InvalidTransactionTimeoutError", 50)
ConcurrentTransactionsError = _retriable("ConcurrentTransactionsError", 51)
TransactionCoordinatorFencedError = _answer("TransactionCoordinatorFencedError", 52)
TransactionalIdAuthorizationFailedError = _denied("TransactionalIdAuthorizationFailedError", 53)
SecurityDisabledError = _answer("SecurityDisabledError", 54)
OperationNotAttemptedError = _answer("OperationNotAttemptedError", 55)
KafkaStorageError = _stale("KafkaStorageError", 56, "KAFKA_STORAGE_ERROR")
LogDirNotFoundError = _answer("LogDirNotFoundError", 57)
SaslAuthenticationFailedError = _answer("SaslAuthenticationFailedError", 58)
UnknownProducerIdError = _answer("UnknownProducerIdError", 59)
ReassignmentInProgressError = _answer("ReassignmentInProgressError", 60)
DelegationTokenAuthDisabledError = _answer("DelegationTokenAuthDisabledError", 61)
DelegationTokenNotFoundError = _answer("DelegationTokenNotFoundError", 62)
DelegationTokenOwnerMismatchError = _answer("DelegationTokenOwnerMismatchError", 63)
DelegationTokenRequestNotAllowedError = _answer("DelegationTokenRequestNotAllowedError", 64)
DelegationTokenAuthorizationFailedError = _denied("DelegationTokenAuthorizationFailedError", 65)
DelegationTokenExpiredError = _answer("DelegationTokenExpiredError", 66)
InvalidPrincipalTypeError = _answer("InvalidPrincipalTypeError", 67)
NonEmptyGroupError = _answer("NonEmptyGroupError", 68)
GroupIdNotFoundError = _answer("GroupIdNotFoundError", 69)
FetchSessionIdNotFoundError = _retriable("FetchSessionIdNotFoundError", 70)
InvalidFetchSessionEpochError = _retriable("InvalidFetchSessionEpochError", 71)
ListenerNotFoundError = _stale("ListenerNotFoundError", 72)
TopicDeletionDisabledError = _answer("TopicDeletionDisabledError", 73)
FencedLeaderEpochError = _stale("FencedLeaderEpochError", 74)
UnknownLeaderEpochError = _stale("UnknownLeaderEpochError", 75)
UnsupportedCompressionTypeError = _answer("UnsupportedCompressionTypeError", 76)
StaleBrokerEpochError = _answer("StaleBrokerEpochError", 77)
OffsetNotAvailableError = _retriable("OffsetNotAvailableError", 78)
MemberIdRequiredError = _answer("MemberIdRequiredError", 79)
PreferredLeaderNotAvailableError = _stale("PreferredLeaderNotAvailableError", 80)
GroupMaxSizeReachedError = _answer("GroupMaxSizeReachedError", 81)
FencedInstanceIdError = _answer("FencedInstanceIdError", 82)
EligibleLeadersNotAvailableError = _stale("EligibleLeadersNotAvailableError", 83)
ElectionNotNeededError = _stale("ElectionNotNeededError", 84)
NoReassignmentInProgressError = _answer("NoReassignmentInProgressError", 85)
GroupSubscribedToTopicError = _answer("GroupSubscribedToTopicError", 86)
InvalidRecordError = _answer("InvalidRecordError", 87)
UnstableOffsetCommitError = _retriable("UnstableOffsetCommitError", 88)
ThrottlingQuotaExceededError = _retriable("ThrottlingQuotaExceededError", 89)
ProducerFencedError = _answer("ProducerFencedError", 90)
ResourceNotFoundError = _answer("ResourceNotFoundError", 91)
DuplicateResourceError = _answer("DuplicateResourceError", 92)
UnacceptableCredentialError = _answer("UnacceptableCredentialError", 93)
InconsistentVoterSetError = _answer("InconsistentVoterSetError", 94)
InvalidUpdateVersionError = _answer("InvalidUpdateVersionError", 95)
FeatureUpdateFailedError = _answer("FeatureUpdateFailedError", 96)
PrincipalDeserializationFailureError = _answer("PrincipalDeserializationFailureError", 97)
SnapshotNotFoundError = _answer("SnapshotNotFoundError", 98)
PositionOutOfRangeError = _answer("PositionOutOfRangeError", 99)
UnknownTopicIdError = _stale("UnknownTopicIdError", 100)
DuplicateBrokerRegistrationError = _answer("DuplicateBrokerRegistrationError", 101)
BrokerIdNotRegisteredError = _answer("BrokerIdNotRegisteredError", 102)
InconsistentTopicIdError = _stale("InconsistentTopicIdError", 103)
InconsistentClusterIdError = _answer("InconsistentClusterIdError", 104)
TransactionalIdNotFoundError = _answer("TransactionalIdNotFoundError", 105)
FetchSessionTopicIdError = _retriable(
    "FetchSessionTopicIdError", 106, "FETCH_SESSION_TOPIC_ID_ERROR"
)
IneligibleReplicaError = _answer("IneligibleReplicaError", 107)
NewLeaderElectedError = _answer("NewLeaderElectedError", 108)
OffsetMovedToTieredStorageError = _answer("OffsetMovedToTieredStorageError", 109)
FencedMemberEpochError = _answer("FencedMemberEpochError", 110)
UnreleasedInstanceIdError = _answer("UnreleasedInstanceIdError", 111)
UnsupportedAssignorError = _answer("UnsupportedAssignorError", 112)
StaleMemberEpochError = _answer("StaleMemberEpochError", 113)
MismatchedEndpointTypeError = _answer("MismatchedEndpointTypeError", 114)
UnsupportedEndpointTypeError = _answer("UnsupportedEndpointTypeError", 115)
UnknownControllerIdError = _answer("UnknownControllerIdError", 116)
UnknownSubscriptionIdError = _answer("UnknownSubscriptionIdError", 117)
TelemetryTooLargeError = _answer("TelemetryTooLargeError", 118)
InvalidRegistrationError = _answer("InvalidRegistrationError", 119)
TransactionAbortableError = _answer("TransactionAbortableError", 120)
InvalidRecordStateError = _answer("InvalidRecordStateError", 121)
ShareSessionNotFoundError = _retriable("ShareSessionNotFoundError", 122)
InvalidShareSessionEpochError = _retriable("InvalidShareSessionEpochError", 123)
FencedStateEpochError = _answer("FencedStateEpochError", 124)
InvalidVoterKeyError = _answer("InvalidVoterKeyError", 125)
DuplicateVoterError = _answer("DuplicateVoterError", 126)
VoterNotFoundError = _answer("VoterNotFoundError", 127)
IncompatibleBrokerVersion = _make(
    "IncompatibleBrokerVersion", 35, "UNSUPPORTED_VERSION", UnsupportedVersionError
)

kafka_errors: Final[dict[int, Answer]] = {
    each.errno: each
    for each in globals().copy().values()
    if isinstance(each, type)
    and issubclass(each, BrokerResponseError)
    and each.errno is not None
    and each is not IncompatibleBrokerVersion
}


def for_code(error_code: int) -> Answer:
    """The class of a number of Kafka's protocol."""
    return kafka_errors.get(error_code) or _make(
        "UnrecognizedBrokerError", error_code, "", UnknownError
    )
