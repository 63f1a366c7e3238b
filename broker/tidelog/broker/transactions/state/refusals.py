"""Refusals of a transaction coordinator: what was tried, what happened, what to do. Pure."""

from typing import Final

from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import EPOCH_MAX
from tidelog.wire.errors import ErrorCode, TidelogError

LOADING: Final = TidelogError(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    tried="ask a transaction's coordinator",
    happened="it is still loading its transactions",
)


def no_producer_id() -> TidelogError:
    """Returns the refusal of what needs a producer id while none is at hand."""
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried="take a new producer id",
        happened="the controller has not granted this coordinator any yet",
    )


def invalid(tried: str, happened: str) -> TidelogError:
    """Returns the refusal of a value that is not allowed."""
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened)


def exhausted(tried: str, what: str, limit_name: str, limit: int, hint: str) -> TidelogError:
    """Returns the refusal of what would pass a limit."""
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried=tried,
        happened=f"{what}: the limit is {limit:,} ({limit_name})",
        hint=hint,
    )


def fenced(tried: str, happened: str) -> TidelogError:
    """Returns the refusal of an identity that must not work any more."""
    return TidelogError(ErrorCode.FENCED_PRODUCER_EPOCH, tried=tried, happened=happened)


def concurrent(tried: str, happened: str) -> TidelogError:
    """Returns the refusal of what can be done a moment later."""
    return TidelogError(ErrorCode.CONCURRENT_TRANSACTIONS, tried=tried, happened=happened)


def wrong_state(tried: str, happened: str, hint: str = "") -> TidelogError:
    """Returns the refusal of what does not fit the state of the transaction."""
    return TidelogError(
        ErrorCode.INVALID_TRANSACTION_STATE, tried=tried, happened=happened, hint=hint
    )


def aborted(tried: str, happened: str) -> TidelogError:
    """Returns the refusal of what comes after the coordinator's own abort."""
    return TidelogError(
        ErrorCode.TRANSACTION_ABORTED,
        tried=tried,
        happened=happened,
        hint="Take the transactional id over again with the last identity, then begin again.",
    )


def prepared(tried: str, identity: Identity) -> TidelogError:
    """Returns the refusal of what only the decision of a prepared transaction makes possible."""
    return TidelogError(
        ErrorCode.TRANSACTION_PREPARED,
        tried=tried,
        happened=f"the transaction of identity {identity} is prepared and not decided",
    )


def not_found(tried: str, happened: str, hint: str = "") -> TidelogError:
    """Returns the refusal of what names no transaction that is known."""
    return TidelogError(ErrorCode.TRANSACTION_NOT_FOUND, tried=tried, happened=happened, hint=hint)


def check_id(tried: str, transactional_id: str) -> None:
    """Raises INVALID_ARGUMENT unless it is 1 to 249 bytes of UTF-8."""
    length = len(transactional_id.encode())
    if not 1 <= length <= limits.TRANSACTIONAL_ID_BYTES_MAX:
        raise invalid(
            tried,
            f"the transactional id has {length} bytes; 1 to {limits.TRANSACTIONAL_ID_BYTES_MAX} "
            "are allowed",
        )


def check_identity(tried: str, identity: Identity) -> None:
    """Raises INVALID_ARGUMENT unless it can have been given to a producer."""
    if identity.producer_id < 0 or not 0 <= identity.producer_epoch <= EPOCH_MAX:
        raise invalid(tried, f"{identity} is no identity: epochs go from 0 to {EPOCH_MAX:,}")
