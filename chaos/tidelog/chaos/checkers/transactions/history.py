"""The history of a run with transactions: what every process called, and what it was answered.

The clients write it down themselves, in a simulated run as in a live one. Times are any monotonic
nanoseconds that all processes share. Every value is sent once, so that a value names its send.
Nothing in here may know how a broker works, and nothing in here judges.
"""

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey

OFFSET_UNKNOWN: Final = -1
NEVER_NS: Final = -1
"""Stands where a call was never made."""

PolledRecords = tuple[tuple[PartitionKey, tuple[tuple[int, str], ...]], ...]
"""For each partition the offsets and values, in the order in which they were delivered."""

Positions = tuple[tuple[PartitionKey, int], ...]


class TransactionOutcome(enum.Enum):
    """What a process knows of the end of its transaction. The values are Jepsen's words."""

    COMMITTED = "ok"
    ABORTED = "fail"
    """It was aborted, or never began to take effect: nothing of it may ever be read."""
    UNKNOWN = "info"
    """It may have committed, or may still commit. Reading a part of it shows that it did.

    A commit that is refused because another producer has taken over is unknown as well, if any try
    of it was not answered: that one may have decided.
    """


class SendOperation(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """One record on its way into a partition."""

    partition: PartitionKey
    value: str
    began_ns: int
    ended_ns: int
    """When it was acknowledged; without an offset: when the process gave it up."""
    offset: int = OFFSET_UNKNOWN


class PollOperation(msgspec.Struct, frozen=True, kw_only=True, tag="poll"):
    """One answer to a read_committed consumer."""

    began_ns: int
    ended_ns: int
    records: PolledRecords = ()
    ends: Positions = ()
    """The process asked for these last stable offsets after `began_ns` and read up to them.

    Only a read that does so promises freshness: a plain poll may return any next part of a log.
    """
    rebalanced: tuple[PartitionKey, ...] = ()
    """Partitions that this consumer lost or got since its previous poll."""
    is_final: bool = False
    """Part of the drain after everything had ended and healed."""


Operation = SendOperation | PollOperation


class Transaction(msgspec.Struct, frozen=True, kw_only=True, tag="transaction"):
    """A transaction with all its operations, or one plain operation outside any transaction."""

    number: int
    """Its place among the transactions of the history."""
    process: str
    began_ns: int
    deciding_ns: int
    """When commit or abort was first called; NEVER_NS: it was not."""
    ended_ns: int
    """When the process knew the outcome, or gave it up."""
    outcome: TransactionOutcome
    operations: tuple[Operation, ...]
    is_transactional: bool = True
    is_commit_asked: bool = False

    @property
    def may_commit(self) -> bool:
        """Whether a read of its records is allowed at any time.

        One whose process never asked for the commit cannot commit, whatever became of it.
        """
        is_asked = self.is_commit_asked or not self.is_transactional
        return is_asked and self.outcome is not TransactionOutcome.ABORTED

    @property
    def name(self) -> str:
        """How evidence calls it."""
        kind = "transaction" if self.is_transactional else "plain call"
        return f"{kind} {self.number} of {self.process}"

    def sends(self) -> Iterator[SendOperation]:
        """Its sends, in the order in which they were called."""
        return (each for each in self.operations if isinstance(each, SendOperation))

    def polls(self) -> Iterator[PollOperation]:
        """Its polls, in the order in which they were called."""
        return (each for each in self.operations if isinstance(each, PollOperation))


class AssignmentKind(enum.Enum):
    """How a consumer comes to its partitions."""

    ASSIGN = "assign"
    """The process chose them: it reads exactly these, and no others any longer."""
    SUBSCRIBE = "subscribe"
    """A group hands them out, and may skip at a rebalance."""
    SEEK = "seek"
    """The process moved within partitions that it reads."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True, tag="assignment"):
    """From now on a process reads these partitions, each from a position."""

    process: str
    at_ns: int
    kind: AssignmentKind
    positions: Positions
    """Where each is read from; OFFSET_UNKNOWN: where the consumer stood, or was committed."""
    polls_before: int
    """How many polls of this process were answered before: with a coarse clock times do not say."""


class TransactionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the processes of a run wrote down."""

    transactions: tuple[Transaction, ...]
    assignments: tuple[Assignment, ...] = ()
    log_starts: dict[PartitionKey, int] = {}
    """The highest offset that a trim or retention may have made the first one kept."""
    compacted: tuple[PartitionKey, ...] = ()
    """Partitions that may drop records which a later one of the same key replaces."""

    @property
    def operations(self) -> int:
        """How many sends and polls there are."""
        return sum(len(each.operations) for each in self.transactions)
