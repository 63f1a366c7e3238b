"""Judges of transactions: a history of what processes sent and read in, anomalies out. Pure."""

from tidelog.chaos.checkers.transactions.builder import HistoryBuilder, HistoryFull
from tidelog.chaos.checkers.transactions.history import (
    Assignment,
    AssignmentKind,
    PollOperation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

__all__ = [
    "Assignment",
    "AssignmentKind",
    "HistoryBuilder",
    "HistoryFull",
    "PollOperation",
    "SendOperation",
    "Transaction",
    "TransactionHistory",
    "TransactionOutcome",
]
