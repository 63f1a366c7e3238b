"""From a record to the state: the only place where anything persistent of an id changes. Pure.

Owns `apply`. A live core calls it for each record that it is about to append, a loading one for
each that it reads; both end in the same state. It must never ask what was there before: a compacted
log has the last value of each key, not the history. Whether one state may follow another is for the
draft to judge, which sees every step.
"""

from tidelog.broker.transactions.state.records import Key, TransactionValue
from tidelog.broker.transactions.state.states import TransactionState
from tidelog.broker.transactions.state.transaction import (
    NEVER_MS,
    Transaction,
    Transactions,
    keys_of,
)


def apply(transactions: Transactions, key: Key, value: TransactionValue | None) -> None:
    """Changes the state as the record says."""
    name = key.transactional_id
    transactions.prepared.pop(name, None)
    if value is None:
        transactions.by_id.pop(name, None)
        return
    if value.state is TransactionState.PREPARED:
        transactions.prepared[name] = value.principal
    known = transactions.by_id.get(name)
    if known is None:
        transactions.by_id[name] = Transaction(
            transactional_id=name, value=value, keys=keys_of(value.topics)
        )
        return
    if known.value.state is not value.state:
        # Whatever was due or on its way belonged to the state that is left.
        known.due_ms = NEVER_MS
        known.markers = None
    if known.value.topics != value.topics:
        known.keys = keys_of(value.topics)
    known.value = value
