"""Judges of transactions: a history of what processes sent and read in, anomalies out. Pure.

What a user can hold us to. A reader is a consumer with read_committed. Offsets have gaps, because
markers and aborted records take offsets too.

    check                       what must never be

    from_nowhere                a record that nobody sent
    misplaced                   a record at another place than it was sent to or acknowledged at
    duplicate                   a record at two places
    inconsistent_offsets        two records at one offset
    precommitted_read           a read of a record of one's own open transaction
    aborted_read                a read of a record whose transaction did not commit (G1a)
    uncommitted_read            a read of a record before its transaction asked for its commit
    int_nonmonotonic_send       the records of a transaction in another order than it sent them
    ext_nonmonotonic_send       the same between the transactions of one process
    G0                          a record below one that was acknowledged before it was sent
    int_nonmonotonic_poll       an answer that goes back
    ext_nonmonotonic_poll       an answer that begins where its consumer has been, without a seek
    dirty_order                 a read of a record above one whose transaction commits only later
    torn_transaction            a transaction of which part is read, and part never
    lost_write                  a committed record below what was read, and never read itself
    unseen                      a committed record that the final drain ends without
    vanished                    a committed record that was read, and is not in the final drain
    intermediate_read           a reader of one record of a transaction that passes another (G1b)
    int_poll_skip               an answer that leaves out any other committed record
    ext_poll_skip               the same between two answers
    G1c, _process, _realtime    reads that put each of several transactions before the others
    G_single, _process, _realtime, G2
                                after a read to the end of a partition: a later reader to whom
                                an earlier end is shown (one rw edge, or several)

"Never" is judged where a reader passed the place, or where the final drain ended. Sends are judged
inside one partition. G1c counts what is read, the order inside the partitions that are read, since
all that lies below a readable record is decided, and with a suffix the order of each process or of
real time. A read to the end asks for the last stable offset and reads up to it.

What is allowed, and why:

    other records between those of one transaction (int-send-skip), and write cycles across
    partitions (G0): transactions do not lock partitions
    cycles of writes to one partition and reads of another: the same
    a poll that returns less than there is: a consumer reads on from its position, and no plain
    poll promises to be fresh, so it draws no rw edge
    part of a transaction readable in one partition, the rest not yet in another (read skew): the
    commit is decided once, and each partition shows it when its marker has arrived
    an unknown outcome that turns out either way, as a whole: the answer was lost
    with `subscribe`, in addition: skips and repetitions at a rebalance

Jepsen's workload for Kafka allows G0 inside a partition too, allows G1c as soon as write order
takes part in it, and draws no rw edges: these checks are stricter.
"""

from tidelog.chaos.checkers.transactions.bank import check_bank
from tidelog.chaos.checkers.transactions.builder import HistoryBuilder, HistoryFull
from tidelog.chaos.checkers.transactions.checks import TRANSACTION_CHECKS, check_transactions
from tidelog.chaos.checkers.transactions.history import (
    Assignment,
    AssignmentKind,
    PollOperation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)
from tidelog.chaos.checkers.transactions.pipeline import (
    Derived,
    Pipeline,
    check_pipeline,
    drained_logs,
)

__all__ = [
    "TRANSACTION_CHECKS",
    "Assignment",
    "AssignmentKind",
    "Derived",
    "HistoryBuilder",
    "HistoryFull",
    "Pipeline",
    "PollOperation",
    "SendOperation",
    "Transaction",
    "TransactionHistory",
    "TransactionOutcome",
    "check_bank",
    "check_pipeline",
    "check_transactions",
    "drained_logs",
]
