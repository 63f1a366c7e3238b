"""Which id is due when. Pure.

Owns a heap. A deadline that moves back leaves its entry where it is: when the old time comes, the
id is looked at, is not due, and is entered again.
"""

import heapq
from typing import Final

from tidelog.broker.transactions.state.transaction import NEVER_MS, Transaction, Transactions


class TransactionTimers:
    """Knows the deadlines of all ids."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions: Final = transactions
        self._heap: Final[list[tuple[int, str]]] = []

    def set(self, transaction: Transaction, due_ms: int) -> None:
        """Something is to be done about the id then, and not before."""
        transaction.due_ms = due_ms
        if due_ms < transaction.timer_ms:
            transaction.timer_ms = due_ms
            heapq.heappush(self._heap, (due_ms, transaction.transactional_id))

    def next_ms(self) -> int:
        """Returns when to look; perhaps nothing is due then."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def take_due(self, now_ms: int) -> list[Transaction]:
        """Returns what is due, each once, in the order of ids."""
        looked_at: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            since_ms, name = heapq.heappop(self._heap)
            transaction = self._transactions.by_id.get(name)
            # An id that was forgotten and made again has entries of its own.
            if transaction is not None and transaction.timer_ms == since_ms:
                transaction.timer_ms = NEVER_MS
                looked_at[name] = None
        due: list[Transaction] = []
        for name in sorted(looked_at):
            transaction = self._transactions.by_id[name]
            if transaction.due_ms <= now_ms:
                transaction.due_ms = NEVER_MS
                due.append(transaction)
            elif transaction.due_ms != NEVER_MS:
                self.set(transaction, transaction.due_ms)
        return due
