"""Judges of what clients saw: a history in, anomalies out. Pure, for simulated and live runs."""

from tidelog.chaos.checkers.history import (
    Anomaly,
    History,
    Outcome,
    PartitionKey,
    Poll,
    Send,
)
from tidelog.chaos.checkers.log import LOG_CHECKS, check_log

__all__ = [
    "LOG_CHECKS",
    "Anomaly",
    "History",
    "Outcome",
    "PartitionKey",
    "Poll",
    "Send",
    "check_log",
]
