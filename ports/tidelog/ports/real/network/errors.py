"""Errors across the wire: TidelogError ↔ gRPC status with the error itself in the trailer.

Owns the table of statuses (for clients that look at nothing else), the trailer, and what a failed
connection tells. It must never guess an outcome: what is not the peer's own answer is
PeerUnreachable or DEADLINE_EXCEEDED.
"""

from typing import Final

import grpc

from tidelog.ports.network import DeathHint, PeerUnreachable
from tidelog.ports.real.tls import reasons as tls_reasons
from tidelog.v1 import errors_pb2
from tidelog.wire.errors import ErrorCode, ReadPlace, TidelogError

TRAILER: Final = "tidelog-error-bin"
"""Holds a serialised tidelog.v1.Error after every call that failed by the peer's own answer."""

TLS_PREFIX: Final = "TLS: "
"""Before what happened, where an operator has to mend a certificate."""

TEXT_BYTES_MAX: Final = 1_000
STATUS_BYTES_MAX: Final = 500
"""Of each text in the trailer, and of the status message, which travels percent-encoded: callers
refuse more than 8 KiB of metadata, and then see neither. Longer texts are cut."""

STATUS: Final[dict[ErrorCode, grpc.StatusCode]] = {
    ErrorCode.UNSPECIFIED: grpc.StatusCode.UNKNOWN,
    ErrorCode.UNKNOWN: grpc.StatusCode.UNKNOWN,
    ErrorCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_CONFIGURATION: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorCode.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.CANCELLED: grpc.StatusCode.CANCELLED,
    ErrorCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorCode.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.CLOSED: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.UNKNOWN_TOPIC: grpc.StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: grpc.StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_PARTITION: grpc.StatusCode.NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.INVALID_TOPIC_NAME: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_PARTITION_COUNT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_REPLICATION_FACTOR: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.NOT_LEADER: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.FENCED_LEADER_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.CORRUPT_BATCH: grpc.StatusCode.DATA_LOSS,
    ErrorCode.ROUTE_MISMATCH: grpc.StatusCode.DATA_LOSS,
    ErrorCode.BATCH_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.UNSUPPORTED_CODEC: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_TIMESTAMP: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.INDETERMINATE: grpc.StatusCode.UNKNOWN,
    ErrorCode.DUPLICATE_SEQUENCE: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.UNKNOWN_PRODUCER_ID: grpc.StatusCode.NOT_FOUND,
    ErrorCode.OFFSET_OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    ErrorCode.NO_OFFSET_FOR_PARTITION: grpc.StatusCode.NOT_FOUND,
    ErrorCode.NOT_COORDINATOR: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.UNKNOWN_MEMBER: grpc.StatusCode.NOT_FOUND,
    ErrorCode.GROUP_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.CONCURRENT_TRANSACTIONS: grpc.StatusCode.ABORTED,
    ErrorCode.TRANSACTION_ABORTED: grpc.StatusCode.ABORTED,
    ErrorCode.STAGED_TOKEN_MISSING: grpc.StatusCode.NOT_FOUND,
    ErrorCode.NOT_CONTROLLER: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.UNKNOWN_BROKER: grpc.StatusCode.NOT_FOUND,
    ErrorCode.STALE_PARTITION_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.MEMBERSHIP_CHANGE_IN_PROGRESS: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STORAGE_FAILED: grpc.StatusCode.INTERNAL,
    ErrorCode.STORAGE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.STORAGE_CORRUPT: grpc.StatusCode.DATA_LOSS,
}
"""Codes that are not in it: UNAVAILABLE if they are retriable, FAILED_PRECONDITION if not."""

# A status without a trailer comes from gRPC itself or from something between the two ends. These
# are answers all the same: the request was refused before any handler saw it.
_REFUSALS: Final[dict[grpc.StatusCode, ErrorCode]] = {
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.NOT_IMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.PERMISSION_DENIED,
}

_REFUSED: Final = "Connection refused"
_LAST_ERROR: Final = "last error: "
CAUSE_CHARACTERS_MAX: Final = 200
_TOO_LARGE: Final = "larger than max"


class UnknownService(TidelogError):
    """Of gRPC's health protocol, which wants a status that its code has nowhere else."""


def status_of(error: TidelogError) -> grpc.StatusCode:
    """The status of a call that ended with this error."""
    if isinstance(error, UnknownService):
        return grpc.StatusCode.NOT_FOUND
    default = grpc.StatusCode.FAILED_PRECONDITION
    if error.retriable:
        default = grpc.StatusCode.UNAVAILABLE
    return STATUS.get(error.code, default)


def encode_error(error: TidelogError) -> bytes:
    """What the trailer holds."""
    place = None
    if error.go_on_at is not None:
        place = errors_pb2.ReadPlace(
            topic=_cut(error.go_on_at.topic, TEXT_BYTES_MAX),
            partition=error.go_on_at.partition,
            next_offset=error.go_on_at.next_offset,
        )
    return errors_pb2.Error(
        code=errors_pb2.ErrorCode.ValueType(int(error.code)),
        tried=_cut(error.tried, TEXT_BYTES_MAX),
        happened=_cut(error.happened, TEXT_BYTES_MAX),
        hint=_cut(error.hint, TEXT_BYTES_MAX),
        retriable=error.retriable,
        go_on_at=place,
    ).SerializeToString()


def decode_error(trailer: bytes) -> TidelogError:
    """Read a trailer; a code that this release does not know becomes UNKNOWN and is named."""
    message = errors_pb2.Error.FromString(trailer)
    happened = message.happened
    try:
        code = ErrorCode(message.code)
    except ValueError:
        code = ErrorCode.UNKNOWN
        happened = f"{happened} (error code {message.code}, unknown to this release)"
    place = None
    if message.HasField("go_on_at"):
        found = message.go_on_at
        place = ReadPlace(found.topic, found.partition, found.next_offset)
    return TidelogError(
        code, tried=message.tried, happened=happened, hint=message.hint, go_on_at=place
    )


def status_text(error: TidelogError) -> str:
    """The status message, for clients that show nothing else."""
    return _cut(f"[{error.code.name}] {error.tried}: {error.happened}", STATUS_BYTES_MAX)


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode("utf-8", errors="replace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    return data[: bytes_max - len("…".encode())].decode("utf-8", errors="ignore") + "…"


def from_status(
    status: grpc.StatusCode,
    details: str,
    trailer: bytes | None,
    *,
    tried: str,
    is_encrypted: bool = False,
) -> TidelogError:
    """What a caller learns from the end of a call."""
    if trailer is not None:
        return decode_error(trailer)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened="no answer within the deadline"
        )
    if (code := _REFUSALS.get(status)) is not None:
        if code is ErrorCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
            code = ErrorCode.BATCH_TOO_LARGE
        return TidelogError(code, tried=tried, happened=details or status.name)
    return PeerUnreachable(
        tried=tried,
        happened=_happened(details, is_encrypted=is_encrypted) or status.name,
        death_hint=death_hint(details, is_encrypted=is_encrypted),
    )


def _happened(details: str, *, is_encrypted: bool) -> str:
    mistake = tls_reasons.find(details)
    if mistake is None and is_encrypted and tls_reasons.is_closed_after_handshake(details):
        mistake = tls_reasons.CLIENT_REFUSED
    cause = cause_of(details, is_encrypted=is_encrypted)
    return cause if mistake is None else f"{TLS_PREFIX}{mistake.happened} ({cause})"


def cause_of(details: str, *, is_encrypted: bool) -> str:
    """What gRPC says at length of a connection that never came to be, without its frame; where it
    is a common thing, in a few words."""
    if tls_reasons.NEVER_CONNECTED not in details:
        return details
    cause = details.rpartition(_LAST_ERROR)[2].removeprefix("UNKNOWN:").strip()
    if _REFUSED in cause:
        return "connection refused, nothing listens there"
    if not is_encrypted and any(mark in cause for mark in tls_reasons.CLOSED):
        return "it closed the connection at once: a node with TLS, which this one has not, or none"
    return cause if len(cause) <= CAUSE_CHARACTERS_MAX else f"{cause[:CAUSE_CHARACTERS_MAX]}…"


def death_hint(details: str, *, is_encrypted: bool = False) -> DeathHint:
    """Read what gRPC says of a connection that never came to be.

    An encrypted connection that is closed after the handshake was closed by a living process: it
    refuses this end's certificate, and must not be taken for dead.

    A peer behind several addresses may be alive at one that the text does not show; a hint may be
    wrong, and whoever acts on it is protected by epochs.
    """
    if tls_reasons.NEVER_CONNECTED not in details:
        return DeathHint.NONE
    if _REFUSED in details:
        return DeathHint.REFUSED
    is_early = not is_encrypted or tls_reasons.BROKEN_HANDSHAKE in details
    if is_early and any(mark in details for mark in tls_reasons.CLOSED):
        return DeathHint.CLOSED_EARLY
    return DeathHint.NONE


def too_large(tried: str, length_bytes: int, limit_bytes: int) -> TidelogError:
    """A message over the limit, refused before it is sent."""
    return TidelogError(
        ErrorCode.BATCH_TOO_LARGE,
        tried=tried,
        happened=f"a message of {length_bytes} bytes is over the limit of {limit_bytes}",
    )
