"""Plans of transactions: what processes will do, drawn from a seed beforehand. Pure."""

from tidelog.chaos.workloads.transactions.plan import (
    Ending,
    Held,
    PlannedPoll,
    PlannedProcess,
    PlannedSend,
    PlannedTransaction,
    TransactionPlan,
    Work,
    amount_of,
    draw_transaction_plan,
)

__all__ = [
    "Ending",
    "Held",
    "PlannedPoll",
    "PlannedProcess",
    "PlannedSend",
    "PlannedTransaction",
    "TransactionPlan",
    "Work",
    "amount_of",
    "draw_transaction_plan",
]
