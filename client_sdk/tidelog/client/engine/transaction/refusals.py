"""What a transactional producer says to its user when a call does not work.

Owns the texts: what was tried, what happened, and which call helps.
"""

from typing import Final, assert_never

from tidelog.client.engine.transaction.messages import (
    BeginWanted,
    Call,
    DecideWanted,
    EndWanted,
    InitializeWanted,
    OffsetsWanted,
    PrepareWanted,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Ending,
    Fenced,
    MustAbort,
    New,
    Open,
    Phase,
    Prepared,
    Preparing,
    Ready,
    Starting,
    Undecided,
)
from tidelog.client.errors import TransactionError
from tidelog.wire.errors import ErrorCode, TidelogError

_FIRST: Final = "Call {} first, or use `with producer.transaction()`."
_STANDS: dict[type[Phase], tuple[str, str]] = {
    New: (
        "the producer has not taken its transactional id over",
        _FIRST.format("init_transactions()"),
    ),
    Starting: ("the producer is taking its transactional id over", "Wait for that call."),
    Ready: (
        "no transaction is in progress",
        _FIRST.format("begin_transaction()"),
    ),
    Open: ("a transaction is in progress", "Commit or abort it first."),
    Ending: ("the transaction is being ended", "Wait for that call."),
    Preparing: ("the transaction is being prepared", "Wait for that call."),
    Prepared: (
        "the transaction is prepared, nothing is added to it any more",
        "Complete or abandon it with its token.",
    ),
    MustAbort: ("something of the transaction failed", "Abort it and begin again."),
    Undecided: (
        "whether the transaction was committed is not known",
        "Commit or abort again: both tell what became of it.",
    ),
    Fenced: ("another producer took the transactional id over", "Stop this instance."),
}


class Refusals:
    """One per producer."""

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id

    def unfit(self, verb: str, phase: Phase) -> TidelogError:
        """The call does not fit what the producer is at."""
        happened, hint = _STANDS[type(phase)]
        return TidelogError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"{verb}, as {self._id!r}",
            happened=happened,
            hint=hint,
        )

    def concurrent(self) -> TidelogError:
        """Two calls at once."""
        return TidelogError(
            ErrorCode.CONCURRENT_USE,
            tried=f"call a transaction of {self._id!r}",
            happened="another call of it has not returned yet",
            hint="Make these calls one after the other, from one thread or task.",
        )

    def must_abort(self, error: TidelogError) -> TidelogError:
        """The reason, with the only call that helps."""
        return TidelogError(
            error.code,
            tried=error.tried,
            happened=f"{error.happened}; nothing of the transaction is committed",
            hint="Abort the transaction and begin again.",
        )

    def nothing_to_prepare(self) -> TidelogError:
        """A token stands for something."""
        return TidelogError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"prepare a transaction of {self._id!r}",
            happened="nothing was added to it",
            hint="Send a record or offsets first, or commit.",
        )

    def dropped(self) -> TidelogError:
        """Of records that were not sent yet."""
        return TidelogError(
            ErrorCode.TRANSACTION_ABORTED,
            tried=f"send a record in a transaction of {self._id!r}",
            happened="the transaction was aborted before the record was acknowledged",
        )

    def no_identity(self) -> TidelogError:
        """A broker that breaks the contract."""
        return TidelogError(
            ErrorCode.UNKNOWN,
            tried=f"call the transaction coordinator of {self._id!r}",
            happened="its answer brought no identity",
        )

    def contrary(self, decided: Decision) -> TidelogError:
        """An earlier try had decided otherwise."""
        return TransactionError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"end a transaction of {self._id!r}",
            happened=f"an earlier call had decided: {decided.value}",
            hint="Begin the next transaction; this one ended as the earlier call said.",
            decided=decided.value,
        )

    def withdrawn(self, call: Call) -> TidelogError:
        """The user was interrupted while the call waited."""
        tried, hint = _called(call)
        return TidelogError(
            ErrorCode.CANCELLED,
            tried=f"{tried}, as {self._id!r}",
            happened="the wait for its answer was interrupted",
            hint=hint,
        )

    def called(self, call: Call) -> str:
        """The call, by name."""
        tried, _ = _called(call)
        return f"{tried}, as {self._id!r}"

    def too_late(self, call: Call, reason: TidelogError | None) -> TidelogError:
        """The call's time is over."""
        tried, hint = _called(call)
        happened = "no answer in time" if reason is None else f"in time only: {reason.happened}"
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"{tried}, as {self._id!r}",
            happened=happened,
            hint=hint,
        )


def _called(call: Call) -> tuple[str, str]:
    """What was tried, and what helps where its outcome did not come."""
    match call:
        case InitializeWanted():
            return "initialize a transactional producer", "Initialize it again."
        case BeginWanted():
            return "begin a transaction", "Begin again."
        case OffsetsWanted():
            tried = f"send offsets of group {call.member.group!r}"
            return tried, "Abort the transaction and begin again."
        case EndWanted():
            return f"{call.decision.value} a transaction", "Call it again."
        case PrepareWanted():
            return "prepare a transaction", "Abort the transaction and begin again."
        case DecideWanted():
            return f"{call.decision.value} a prepared transaction", "Call it again."
        case _:
            assert_never(call)
