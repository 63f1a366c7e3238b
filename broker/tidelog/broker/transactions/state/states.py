"""The states of a transaction and which may follow which. Pure.

Owns the numbers that are stored and sent; they are those of the contract. A number is never given a
second meaning.

    may be entered      from
    EMPTY               (new), EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT
    ONGOING             ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT
    PREPARED            ONGOING; EMPTY, COMPLETE_* where nothing was added
    PREPARE_COMMIT      ONGOING, PREPARED; EMPTY, COMPLETE_* where nothing was added
    PREPARE_ABORT       the same
    COMPLETE_COMMIT     PREPARE_COMMIT
    COMPLETE_ABORT      PREPARE_ABORT
    (forgotten)         EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT

PREPARE is the coordinator's own word: the decision is durable, markers are on their way. PREPARED
is the application's: the first half of a commit in two phases is done, nothing is decided.
"""

from enum import IntEnum
from typing import Final

EPOCH_MAX: Final = 32_766
"""The last epoch that a producer is given."""

FENCING_EPOCH: Final = EPOCH_MAX + 1
"""Only markers carry it: whatever epoch a producer has reached, one above it is left to end its
transaction with."""

TRANSACTION_VERSION: Final = 2
"""Every end brings a new epoch. 1 is reserved for the listener for Kafka's protocol."""


class Decision(IntEnum):
    """How a transaction ends."""

    COMMIT = 1
    ABORT = 2


class TransactionState(IntEnum):
    """Where a transactional id stands."""

    EMPTY = 1
    ONGOING = 2
    PREPARE_COMMIT = 3
    PREPARE_ABORT = 4
    COMPLETE_COMMIT = 5
    COMPLETE_ABORT = 6
    PREPARED = 7


class Succession(IntEnum):
    """Why the last identity gave way to the current one: what its holder is told from then on."""

    NONE = 0
    """There was none before."""
    COMMITTED = 1
    """Its holder, or a holder of its token, decided so."""
    ABORTED = 2
    """Its holder, or a holder of its token, decided so."""
    TIMED_OUT = 3
    """The coordinator aborted, because the transaction took too long."""
    OPERATOR = 4
    """The coordinator aborted, because an operator asked for it."""
    TAKEN_OVER = 5
    """Somebody took the id over without naming an identity: its holder is a zombie."""
    RENEWED = 6
    """Its holder took the id over and named it."""


IDLE: Final = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""Nothing is in progress."""

_OPEN: Final = (TransactionState.ONGOING, TransactionState.PREPARED)

MAY_FOLLOW: Final[dict[TransactionState, tuple[TransactionState, ...]]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: (TransactionState.ONGOING, *IDLE),
    TransactionState.PREPARED: (TransactionState.ONGOING, *IDLE),
    TransactionState.PREPARE_COMMIT: (*_OPEN, *IDLE),
    TransactionState.PREPARE_ABORT: (*_OPEN, *IDLE),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
}
"""For each state, those from which it may be entered."""

PREPARE_OF: Final[dict[Decision, TransactionState]] = {
    Decision.COMMIT: TransactionState.PREPARE_COMMIT,
    Decision.ABORT: TransactionState.PREPARE_ABORT,
}

COMPLETE_OF: Final[dict[TransactionState, TransactionState]] = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
"""Also tells which states wait for markers: those that stand here."""

SUCCESSION_OF: Final[dict[Decision, Succession]] = {
    Decision.COMMIT: Succession.COMMITTED,
    Decision.ABORT: Succession.ABORTED,
}
"""Of an end that its holder has asked for."""
