"""Metrics of transactions, of those that a broker coordinates."""

from typing import Final

from tidelog.server.metrics.seen import of_records, of_transactions
from tidelog.server.metrics.table.metric import Rows, counter, gauge

TRANSACTIONS: Final[Rows] = {
    "tidelog_transaction_coordinators": gauge(
        "Partitions of `__transactions` that it leads; `loading`: what is stored is being read, "
        "and nobody is answered.",
        of_transactions(lambda sums: {"loaded": sums.loaded, "loading": sums.led - sums.loaded}),
        "state",
    ),
    "tidelog_transactional_ids": gauge(
        "Transactional ids: `idle`, with an `open` transaction, one that is `prepared` and not "
        "decided, or one that is `ending`: decided, its markers not yet everywhere.",
        of_transactions(lambda sums: dict(sums.ids)),
        "state",
    ),
    "tidelog_transaction_oldest_seconds": gauge(
        "How long the oldest transaction in progress has lasted: readers of committed records "
        "wait for it. 0: there is none.",
        of_transactions(lambda sums: dict(sums.oldest_seconds)),
        "state",
    ),
    "tidelog_transaction_commits": counter(
        "Transactions whose commit was decided.",
        of_records(lambda meter: meter.transactions_committed),
    ),
    "tidelog_transaction_aborts": counter(
        "Transactions whose abort was decided, by whomever.",
        of_records(lambda meter: meter.transactions_aborted),
    ),
    "tidelog_transaction_timeouts": counter(
        "Those of them that were aborted because they took too long.",
        of_records(lambda meter: meter.transaction_timeouts),
    ),
    "tidelog_transaction_fences": counter(
        "Requests of producers, or of leaders for them, whose identity is over.",
        of_records(lambda meter: meter.transaction_fences),
    ),
}
