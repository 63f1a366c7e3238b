"""Records of one transactional id that are about to be appended; each takes effect when it is put.

Pure. Owns the order, and the table of states: a value that may not follow the present one is a bug.
It must never be left after something was put without being appended: state and log would part.
"""

from typing import Final

from tidelog.broker.transactions.state import replay
from tidelog.broker.transactions.state.messages import StoredRecord
from tidelog.broker.transactions.state.records import (
    TransactionKey,
    TransactionValue,
    encode_record,
)
from tidelog.broker.transactions.state.states import MAY_FOLLOW, TransactionState
from tidelog.broker.transactions.state.transaction import Transaction, Transactions


class TransactionDraft:
    """What one request, or one look at the time, writes about one transactional id."""

    def __init__(self, transactions: Transactions, transactional_id: str) -> None:
        self.transactional_id: Final = transactional_id
        self._transactions: Final = transactions
        self._records: Final[list[StoredRecord]] = []

    @property
    def transaction(self) -> Transaction | None:
        """As it is now; None: nothing is known of the id."""
        return self._transactions.by_id.get(self.transactional_id)

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """What is to be appended, as one batch; empty: nothing was changed."""
        return tuple(self._records)

    def put(self, value: TransactionValue) -> None:
        """Replaces what is known of the id."""
        before = self.transaction
        if before is None:
            assert value.state is TransactionState.EMPTY, f"a new id begins {value.state.name}"
        else:
            old = before.value.state
            assert old in MAY_FOLLOW[value.state], f"{value.state.name} may not follow {old.name}"
        self._write(value)

    def forget(self) -> None:
        """Writes a tombstone."""
        before = self.transaction
        assert before is not None, f"`{self.transactional_id}` is not known"
        # A transaction in progress that is forgotten holds its partitions for ever.
        assert before.value.is_idle, f"`{self.transactional_id}` is {before.value.state.name}"
        self._write(None)

    def _write(self, value: TransactionValue | None) -> None:
        key = TransactionKey(self.transactional_id)
        replay.apply(self._transactions, key, value)
        self._records.append(encode_record(key, value))
