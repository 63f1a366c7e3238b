"""Judges of what clients saw: a history in, anomalies out. Pure, for simulated and live runs."""

from tidelog.chaos.checkers.history.checks import HISTORY_CHECKS, check_clients
from tidelog.chaos.checkers.history.history import (
    Acks,
    Anomaly,
    Excuse,
    History,
    Outcome,
    PartitionKey,
    Poll,
    Send,
)
from tidelog.chaos.checkers.log.log import LOG_CHECKS, check_log

__all__ = [
    "HISTORY_CHECKS",
    "LOG_CHECKS",
    "Acks",
    "Anomaly",
    "Excuse",
    "History",
    "Outcome",
    "PartitionKey",
    "Poll",
    "Send",
    "check_clients",
    "check_log",
]
