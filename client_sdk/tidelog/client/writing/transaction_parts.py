"""What both forms of a producer share about transactions: words, and how a call is made.

Owns no state. It must never wait.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.client.engine.transaction.messages import Call
from tidelog.client.engine.transaction.phases import Decision, Ending, Phase
from tidelog.client.engine.transaction.refusals import Refusals
from tidelog.client.errors import NextStep, TransactionError
from tidelog.wire.errors import ErrorCode, TidelogError

COORDINATOR_TIMEOUT_MS: Final = 5_000
"""So long one coordinator may take for one request; then it is looked up again, and asked again:
every request may be sent twice. One that died without a word holds nobody up for longer."""

Refusal = Callable[[str], TidelogError]


class OnPhase(Protocol):
    """Told what the transactions are at, and which call has ended."""

    def __call__(
        self, phase: Phase, trouble: TidelogError | None, done: int | None = None
    ) -> None: ...


class MakeCall(Protocol):
    """The core's message for a call of the user's."""

    def __call__(self, *, call: int, deadline_ns: int) -> Call: ...


def gate_of(say: Refusals, phase: Phase, trouble: TidelogError | None) -> Refusal:
    """Why nothing can be appended, for whoever tries."""

    def refuse(tried: str) -> TidelogError:
        if trouble is not None:
            return TransactionError.of(trouble, getattr(trouble, "next_step", NextStep.ABORT))
        return TransactionError.of(say.unfit(tried, phase), NextStep.CORRECT)

    return refuse


ENDING: Final[Phase] = Ending(Decision.COMMIT)
"""While a call that ends the transaction is on its way to the core."""


def no_transactional_id(tried: str, client: str) -> TidelogError:
    """A plain producer has no transactions."""
    return TransactionError(
        ErrorCode.INVALID_TRANSACTION_STATE,
        tried=tried,
        happened="the producer has no transactional_id",
        hint=f"make it with {client}(transactional_id='a name of its own', ...)",
    )


def no_consumer(value: object, wanted: str) -> TidelogError:
    """Only a consumer of the same form can be rewound."""
    return TransactionError(
        ErrorCode.INVALID_ARGUMENT,
        tried="make a transaction",
        happened=f"consumer is of type {type(value).__name__}, it can be a {wanted}",
        hint="send offsets of anything else by send_offsets()",
    )


def not_in_progress(tried: str, *, is_over: bool) -> TidelogError:
    """The object's transaction has ended, or its block was never entered."""
    happened = "this one has not begun"
    hint = "Enter it: with producer.transaction() as t."
    if is_over:
        happened = "this one is over"
        hint = "Each block has a transaction of its own: call producer.transaction() again."
    return TransactionError(
        ErrorCode.INVALID_TRANSACTION_STATE, tried=tried, happened=happened, hint=hint
    )


def ended_late() -> TidelogError:
    """The block before could not be ended; now it is, and not by a commit."""
    return TransactionError(
        ErrorCode.TRANSACTION_ABORTED,
        tried="begin a transaction",
        happened="the one before, whose block could not end it, is aborted now; a consumer of it "
        "delivers again what it had read",
        hint="Poll again, and begin again.",
        next_step=NextStep.AGAIN,
    )


def abort_failed(failure: TidelogError) -> str:
    """For whoever reads the exception that the block was left by."""
    if isinstance(failure, TransactionError) and failure.decided is not None:
        return f"and the transaction had ended before: {failure.happened}"
    return (
        f"and the transaction could not be aborted: {failure}; unless a commit was sent before, "
        "nothing of it counts: its coordinator aborts it after transaction_timeout_ms"
    )
