"""Metrics of transactions: of those that a broker coordinates, and in the partitions it leads."""

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
LED: Final[Rows] = {
    "tidelog_transaction_verifications": counter(
        "Questions of leaders here to coordinators, before the first batch of a transaction: one "
        "for all partitions that it reaches here at once.",
        of_records(lambda meter: meter.verifications),
    ),
    "tidelog_transaction_verification_refusals": counter(
        "Those of them that were answered with an error, by its code: `CONCURRENT_TRANSACTIONS` is "
        "a producer that was faster than the end of its last transaction.",
        of_records(lambda meter: meter.verification_refusals),
        "code",
    ),
    "tidelog_transaction_markers": counter(
        "Ends of transactions that coordinators were told to be committed in a partition here; "
        "one that was there already counts too.",
        of_records(lambda meter: meter.markers_written),
    ),
    "tidelog_transaction_marker_refusals": counter(
        "Those that were refused, by the code told; their coordinators send them again.",
        of_records(lambda meter: meter.marker_refusals),
        "code",
    ),
}
