"""Every check of a history of transactions: one call for simulated and live runs.

The checks run in this order, and each believes no longer what an earlier one has explained: so one
fault is told once, under its most telling name.
"""

from collections.abc import Callable
from typing import Final

from tidelog.chaos.checkers.history.history import Anomaly
from tidelog.chaos.checkers.transactions.cycles import CYCLE_CHECKS, find_cycles
from tidelog.chaos.checkers.transactions.history import TransactionHistory
from tidelog.chaos.checkers.transactions.order import (
    G0,
    ext_nonmonotonic_send,
    int_nonmonotonic_send,
)
from tidelog.chaos.checkers.transactions.reads import (
    dirty_order,
    ext_nonmonotonic_poll,
    ext_poll_skip,
    int_nonmonotonic_poll,
    int_poll_skip,
    intermediate_read,
)
from tidelog.chaos.checkers.transactions.records import (
    aborted_read,
    duplicate,
    from_nowhere,
    inconsistent_offsets,
    misplaced,
    precommitted_read,
    uncommitted_read,
)
from tidelog.chaos.checkers.transactions.survival import (
    lost_write,
    torn_transaction,
    unseen,
    vanished,
)
from tidelog.chaos.checkers.transactions.view import Findings, TransactionView

FINDINGS_MAX: Final = 5
"""Of one check in one history; the others are counted."""

TransactionCheck = Callable[[TransactionView], Findings]

_CHECKS: Final[tuple[TransactionCheck, ...]] = (
    from_nowhere,
    duplicate,
    misplaced,
    inconsistent_offsets,
    precommitted_read,
    aborted_read,
    uncommitted_read,
    int_nonmonotonic_send,
    ext_nonmonotonic_send,
    G0,
    int_nonmonotonic_poll,
    ext_nonmonotonic_poll,
    dirty_order,
    torn_transaction,
    lost_write,
    unseen,
    vanished,
    intermediate_read,
    int_poll_skip,
    ext_poll_skip,
)

TRANSACTION_CHECKS: Final = (*(check.__name__ for check in _CHECKS), *CYCLE_CHECKS)


def check_transactions(history: TransactionHistory) -> list[Anomaly]:
    """Run every check."""
    view = TransactionView(history)
    anomalies: list[Anomaly] = []
    for check in _CHECKS:
        findings = list(check(view))
        for finding in findings:
            view.blame.take(finding)
        anomalies += [
            Anomaly(check.__name__, finding.partition, finding.detail)
            for finding in findings[:FINDINGS_MAX]
        ]
        if len(findings) > FINDINGS_MAX:
            more = f"and {len(findings) - FINDINGS_MAX} more"
            anomalies.append(Anomaly(check.__name__, findings[-1].partition, more))
    anomalies += [
        Anomaly(name, finding.partition, finding.detail) for name, finding in find_cycles(view)
    ]
    return anomalies
