"""The one list of errors: code, what it means, whether a retry can help, what to do.

Owns `ErrorCode` and `TidelogError`, which both ends of the wire and every command line agree on.
`proto/tidelog/v1/errors.proto` mirrors the numbers (a test compares the two); `docs/errors.md` is
generated from `CATALOGUE`. It must never import protobuf, gRPC or any room of Tidelog.
"""

from enum import IntEnum
from typing import Final, NamedTuple

import msgspec


class ErrorCode(IntEnum):
    """Stable numbers; a number is never given a second meaning."""

    UNSPECIFIED = 0
    UNKNOWN = 1
    INVALID_ARGUMENT = 2
    INVALID_CONFIGURATION = 3
    UNSUPPORTED_VERSION = 4
    NOT_IMPLEMENTED = 5
    UNAVAILABLE = 6
    DEADLINE_EXCEEDED = 7
    CANCELLED = 8
    UNAUTHENTICATED = 9
    PERMISSION_DENIED = 10
    RESOURCE_EXHAUSTED = 11
    CLOSED = 12
    FORKED_CLIENT = 13
    CONCURRENT_USE = 14
    UNKNOWN_TOPIC = 20
    UNKNOWN_TOPIC_ID = 21
    UNKNOWN_PARTITION = 22
    TOPIC_ALREADY_EXISTS = 23
    INVALID_TOPIC_NAME = 24
    INVALID_PARTITION_COUNT = 25
    INVALID_REPLICATION_FACTOR = 26
    NOT_LEADER = 27
    FENCED_LEADER_EPOCH = 28
    UNKNOWN_LEADER_EPOCH = 29
    NOT_ENOUGH_IN_SYNC_REPLICAS = 30
    NO_ELIGIBLE_LEADER = 31
    CORRUPT_BATCH = 40
    ROUTE_MISMATCH = 41
    BATCH_TOO_LARGE = 42
    UNSUPPORTED_CODEC = 43
    INVALID_TIMESTAMP = 44
    INDETERMINATE = 45
    OUT_OF_ORDER_SEQUENCE = 46
    DUPLICATE_SEQUENCE = 47
    UNKNOWN_PRODUCER_ID = 48
    FENCED_PRODUCER_EPOCH = 49
    OFFSET_OUT_OF_RANGE = 60
    NO_OFFSET_FOR_PARTITION = 61
    COORDINATOR_NOT_AVAILABLE = 70
    NOT_COORDINATOR = 71
    UNKNOWN_MEMBER = 72
    FENCED_MEMBER_EPOCH = 73
    STALE_ASSIGNMENT = 74
    GROUP_NOT_FOUND = 75
    GROUP_NOT_EMPTY = 76
    INSTANCE_ID_IN_USE = 77
    INVALID_TRANSACTION_STATE = 80
    CONCURRENT_TRANSACTIONS = 81
    TRANSACTION_ABORTED = 82
    SINK_STATE_EXPIRED = 83
    STAGED_TOKEN_MISSING = 84
    TRANSACTION_NOT_FOUND = 85
    TRANSACTION_PREPARED = 86
    NOT_CONTROLLER = 90
    STALE_BROKER_EPOCH = 91
    UNKNOWN_BROKER = 92
    STALE_PARTITION_EPOCH = 93
    MEMBERSHIP_CHANGE_IN_PROGRESS = 94
    WRONG_CLUSTER = 95
    UNKNOWN_VOTER = 96
    VOTER_NOT_CAUGHT_UP = 97
    BROKER_ID_IN_USE = 98
    STORAGE_FAILED = 100
    STORAGE_FULL = 101
    STORAGE_CORRUPT = 102
    STORAGE_IN_USE = 103
    STORAGE_NOT_FORMATTED = 104


class ErrorMeaning(msgspec.Struct, frozen=True, kw_only=True):
    """What the documentation says of one code."""

    meaning: str
    retriable: bool
    remedy: str


def _meaning(meaning: str, remedy: str, *, retriable: bool = False) -> ErrorMeaning:
    return ErrorMeaning(meaning=meaning, retriable=retriable, remedy=remedy)


CATALOGUE: Final[dict[ErrorCode, ErrorMeaning]] = {
    ErrorCode.UNSPECIFIED: _meaning(
        "No error code was set; a reader treats it as UNKNOWN.",
        "Upgrade the peer that sent it.",
    ),
    ErrorCode.UNKNOWN: _meaning(
        "The peer failed in a way that it could not name.",
        "Look at the peer's log at the time of the call and report it.",
    ),
    ErrorCode.INVALID_ARGUMENT: _meaning(
        "A value of the request is not allowed; nothing was done.",
        "Correct the named value.",
    ),
    ErrorCode.INVALID_CONFIGURATION: _meaning(
        "A setting is unknown, malformed or contradicts another.",
        "Correct the named setting; `docs/configuration.md` lists them all.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: _meaning(
        "The peer or the stored data is of a version that this one cannot speak.",
        "Upgrade the older of the two.",
    ),
    ErrorCode.NOT_IMPLEMENTED: _meaning(
        "This release does not serve the call; the contract names it for later, or not at all.",
        "Use a release that lists the feature in its change log.",
    ),
    ErrorCode.UNAVAILABLE: _meaning(
        "The peer could not be reached or is not ready; nothing is known to have been done.",
        "Check that the node runs and that the address is right, then try again.",
        retriable=True,
    ),
    ErrorCode.DEADLINE_EXCEEDED: _meaning(
        "The call did not end within its deadline; it may still take effect. Of a batch without a "
        "producer id: not retriable.",
        "Raise the named timeout, or find out what is slow.",
        retriable=True,
    ),
    ErrorCode.CANCELLED: _meaning(
        "The caller withdrew the call; it may still take effect.",
        "Nothing, if the cancellation was intended.",
    ),
    ErrorCode.UNAUTHENTICATED: _meaning(
        "The listener wants credentials that were not given or not valid.",
        "Configure the client's certificate or credentials.",
    ),
    ErrorCode.PERMISSION_DENIED: _meaning(
        "The principal may not do this operation on this resource.",
        "Ask an operator for the permission that the message names.",
    ),
    ErrorCode.RESOURCE_EXHAUSTED: _meaning(
        "A named limit of the node or the client is reached; nothing was done.",
        "Send less at a time, or raise the named limit.",
        retriable=True,
    ),
    ErrorCode.CLOSED: _meaning(
        "The client, stream or node was closed before the call.",
        "Open a new one.",
    ),
    ErrorCode.FORKED_CLIENT: _meaning(
        "A client is used in a forked child of the process that may not use it there.",
        "Start workers with the spawn or forkserver method, and make clients in the child.",
    ),
    ErrorCode.CONCURRENT_USE: _meaning(
        "A consumer was called from two threads at once, or a call that waits inside a callback.",
        "Give each thread a consumer of its own; a callback hands its work to another thread.",
    ),
    ErrorCode.UNKNOWN_TOPIC: _meaning(
        "No topic has this name.",
        "Check the name, or create the topic with `tidelog topic create`.",
        retriable=True,
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: _meaning(
        "No topic has this id: it was deleted, or created again under its old name.",
        "Refresh metadata and look the topic up by name.",
        retriable=True,
    ),
    ErrorCode.UNKNOWN_PARTITION: _meaning(
        "The topic has no partition of this number.",
        "Use a partition below the topic's partition count.",
        retriable=True,
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: _meaning(
        "A topic of this name exists already.",
        "Choose another name, or use the existing topic.",
    ),
    ErrorCode.INVALID_TOPIC_NAME: _meaning(
        "Topic names are 1–249 of the characters a–z A–Z 0–9 . _ - and not `.` or `..`.",
        "Choose a name of 1–249 of the characters a–z A–Z 0–9 . _ - other than `.` and `..`.",
    ),
    ErrorCode.INVALID_PARTITION_COUNT: _meaning(
        "The number of partitions is below 1, above the limit, or lower than it was.",
        "Choose a number within the limit that the message names.",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: _meaning(
        "The replication factor is below 1 or above the number of live brokers.",
        "Choose a factor of at most the number of live brokers, or start more of them.",
    ),
    ErrorCode.NOT_LEADER: _meaning(
        "This broker does not lead the partition.",
        "Refresh metadata and ask the leader.",
        retriable=True,
    ),
    ErrorCode.FENCED_LEADER_EPOCH: _meaning(
        "The request carries a leader epoch older than the partition's.",
        "Refresh metadata.",
        retriable=True,
    ),
    ErrorCode.UNKNOWN_LEADER_EPOCH: _meaning(
        "The request carries a leader epoch that this broker has not heard of yet.",
        "Wait and try again.",
        retriable=True,
    ),
    ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS: _meaning(
        "Fewer replicas are in sync than the topic demands.",
        "Bring the missing brokers back; `tidelog topic describe` names them.",
        retriable=True,
    ),
    ErrorCode.NO_ELIGIBLE_LEADER: _meaning(
        "No replica that is alive may lead the partition without losing acknowledged records.",
        "Bring the last leaders back, or decide with `tidelog partition elect-leaders`.",
        retriable=True,
    ),
    ErrorCode.CORRUPT_BATCH: _meaning(
        "A batch's bytes contradict its checksum or its format.",
        "If it repeats, look for a faulty disk, memory or network path.",
    ),
    ErrorCode.ROUTE_MISMATCH: _meaning(
        "A batch arrived at a topic or partition that it was not sealed for.",
        "A client bug or corruption in transit; nothing was stored. Send it again.",
    ),
    ErrorCode.BATCH_TOO_LARGE: _meaning(
        "A record, batch or request is larger than a named limit.",
        "Send smaller records, or raise the named limit.",
    ),
    ErrorCode.UNSUPPORTED_CODEC: _meaning(
        "The batch names a compression codec that Tidelog does not know.",
        "Use none, gzip, snappy, lz4 or zstd.",
    ),
    ErrorCode.INVALID_TIMESTAMP: _meaning(
        "A record's timestamp is outside what the topic allows.",
        "Set right the clock that is off, the sender's or the broker's, or change the topic's "
        "timestamp settings.",
    ),
    ErrorCode.INDETERMINATE: _meaning(
        "The outcome is unknown: the records may or may not be stored. Of a batch with a producer "
        "id: retriable.",
        "Send it again under its sequence; without one read the partition before sending again.",
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE: _meaning(
        "A batch's sequence leaves a gap after the last one stored for its producer.",
        "The producer lost a batch; make a new producer.",
    ),
    ErrorCode.DUPLICATE_SEQUENCE: _meaning(
        "The batch was stored before, too long ago to name its offset.",
        "Nothing: the records are stored, once.",
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: _meaning(
        "The partition holds no state of this producer any more.",
        "Make a new producer.",
    ),
    ErrorCode.FENCED_PRODUCER_EPOCH: _meaning(
        "A newer producer with the same transactional id took over.",
        "Stop this instance: it is a zombie.",
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: _meaning(
        "The offset is below the log start or above the high watermark.",
        "Seek within the range that the message names.",
    ),
    ErrorCode.NO_OFFSET_FOR_PARTITION: _meaning(
        "There is no committed offset and auto_offset_reset is none.",
        "Seek, commit an offset, or set auto_offset_reset.",
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _meaning(
        "The coordinator is not there yet: it is loading, or brokers are missing.",
        "Wait and try again; the message names missing brokers.",
        retriable=True,
    ),
    ErrorCode.NOT_COORDINATOR: _meaning(
        "This broker does not coordinate the group or transactional id.",
        "Look the coordinator up again.",
        retriable=True,
    ),
    ErrorCode.UNKNOWN_MEMBER: _meaning(
        "The group does not know this member: it was removed after a silence.",
        "Join again; raise max_poll_interval_ms if a handler is slow, session_timeout_ms if the "
        "process or its network stood still.",
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: _meaning(
        "The member epoch is not the one that the coordinator holds.",
        "Join again.",
    ),
    ErrorCode.STALE_ASSIGNMENT: _meaning(
        "The commit names a partition that the member does not own any more.",
        "Nothing: the new owner goes on from the last committed offset.",
    ),
    ErrorCode.GROUP_NOT_FOUND: _meaning(
        "No group has this name.",
        "Check the name with `tidelog group list`.",
    ),
    ErrorCode.GROUP_NOT_EMPTY: _meaning(
        "The group has active members.",
        "Stop its members first.",
    ),
    ErrorCode.INSTANCE_ID_IN_USE: _meaning(
        "Another living member of the group has this group_instance_id.",
        "Stop the other member, or give this one another group_instance_id.",
    ),
    ErrorCode.INVALID_TRANSACTION_STATE: _meaning(
        "The call does not fit the state of the transaction.",
        "Abort the transaction and begin again.",
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: _meaning(
        "The previous transaction of this id is still being finished.",
        "Wait and try again.",
        retriable=True,
    ),
    ErrorCode.TRANSACTION_ABORTED: _meaning(
        "The transaction was aborted, by its timeout or an operator.",
        "Begin again.",
    ),
    ErrorCode.SINK_STATE_EXPIRED: _meaning(
        "A sink continues at a batch above 0, but its state is gone.",
        "Set allowNewSinkState if writing the batch again is acceptable.",
    ),
    ErrorCode.STAGED_TOKEN_MISSING: _meaning(
        "A staged write is not there any more.",
        "Stage the batch again.",
    ),
    ErrorCode.TRANSACTION_NOT_FOUND: _meaning(
        "No transaction of this transactional id is known.",
        "Check the id with `tidelog txn list`.",
    ),
    ErrorCode.TRANSACTION_PREPARED: _meaning(
        "A prepared transaction of this id stands until it is decided.",
        "Decide it with its token, or abort it as an operator.",
    ),
    ErrorCode.NOT_CONTROLLER: _meaning(
        "This node is not the active controller.",
        "Ask the controller that the message names.",
        retriable=True,
    ),
    ErrorCode.STALE_BROKER_EPOCH: _meaning(
        "The broker was registered again since.",
        "The older process stops itself.",
    ),
    ErrorCode.UNKNOWN_BROKER: _meaning(
        "No broker has this id.",
        "Check the id with `tidelog cluster describe`.",
    ),
    ErrorCode.STALE_PARTITION_EPOCH: _meaning(
        "The partition changed since the request was made.",
        "Refresh metadata and decide again.",
        retriable=True,
    ),
    ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS: _meaning(
        "Another change of the quorum's members is not finished.",
        "Wait until `tidelog quorum describe` shows it done.",
        retriable=True,
    ),
    ErrorCode.WRONG_CLUSTER: _meaning(
        "The peer or the data directory belongs to another cluster or node.",
        "Check the addresses and the data directory.",
    ),
    ErrorCode.UNKNOWN_VOTER: _meaning(
        "The quorum has no member of this node id and directory uuid.",
        "Check both with `tidelog quorum describe`.",
    ),
    ErrorCode.VOTER_NOT_CAUGHT_UP: _meaning(
        "The new member has not caught up with the quorum's log, so it cannot vote yet.",
        "Wait until `tidelog quorum describe` shows no lag, then try again.",
        retriable=True,
    ),
    ErrorCode.BROKER_ID_IN_USE: _meaning(
        "Another living process is registered under this broker id.",
        "Stop the other process, or give this one another id.",
        retriable=True,
    ),
    ErrorCode.STORAGE_FAILED: _meaning(
        "A disk refused a read, write or flush; the replicas on it stop.",
        "Look at the system log, replace the disk, start again.",
    ),
    ErrorCode.STORAGE_FULL: _meaning(
        "The data directory has less free space than the floor.",
        "Free space, or lower the retention of the largest topics.",
        retriable=True,
    ),
    ErrorCode.STORAGE_CORRUPT: _meaning(
        "A file holds bytes that contradict their checksum; nothing was overwritten.",
        "Keep the named file; restore it from a replica or a backup.",
    ),
    ErrorCode.STORAGE_IN_USE: _meaning(
        "Another process has this data directory open.",
        "Stop the other process, or give this one another directory.",
    ),
    ErrorCode.STORAGE_NOT_FORMATTED: _meaning(
        "The data directory does not hold what a node needs to start.",
        "Check the path, or format the directory.",
    ),
}


class ReadPlace(NamedTuple):
    """From where a partition can be read on, behind what cannot be read."""

    topic: str
    """Empty: the caller knows which partition was read."""
    partition: int
    next_offset: int


class TidelogError(Exception):
    """What was tried, what happened, what to do; with a code that stays.

    `fatal` and `txn_requires_abort` are part of the surface that users of Kafka's clients know.
    """

    def __init__(
        self,
        code: ErrorCode,
        *,
        tried: str,
        happened: str,
        hint: str = "",
        retriable: bool | None = None,
        go_on_at: ReadPlace | None = None,
    ) -> None:
        """`retriable`: of this request, where that differs from what the catalogue says;
        `go_on_at`: behind what cannot be read."""
        super().__init__(code, tried, happened, hint)
        self._retriable = retriable
        self.go_on_at = go_on_at
        self.code = code
        self.tried = tried
        self.happened = happened
        self.hint = hint or CATALOGUE[code].remedy

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later without any change by the caller."""
        return CATALOGUE[self.code].retriable if self._retriable is None else self._retriable

    @property
    def fatal(self) -> bool:
        """Whether the client that raised it cannot be used any more."""
        return self.code in _FATAL

    @property
    def txn_requires_abort(self) -> bool:
        """Whether a transaction in progress must be aborted."""
        return self.code is ErrorCode.TRANSACTION_ABORTED

    def __str__(self) -> str:
        return f"[{self.code.name}] {self.tried}: {self.happened} (hint: {self.hint})"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and Spark
        # carries exceptions from its workers to its driver.
        texts = self.tried, self.happened, self.hint
        return (_rebuild, (type(self), self.code, *texts, self._retriable, self.go_on_at))


def _rebuild(
    kind: type[TidelogError],
    code: ErrorCode,
    tried: str,
    happened: str,
    hint: str,
    retriable: bool | None = None,
    go_on_at: ReadPlace | None = None,
) -> TidelogError:
    error = kind.__new__(kind)
    TidelogError.__init__(
        error,
        code,
        tried=tried,
        happened=happened,
        hint=hint,
        retriable=retriable,
        go_on_at=go_on_at,
    )
    return error


_FATAL: Final = frozenset(
    {
        ErrorCode.CLOSED,
        ErrorCode.FORKED_CLIENT,
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
