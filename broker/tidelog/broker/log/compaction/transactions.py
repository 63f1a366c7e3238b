"""What one round of compaction knows of transactions. Pure.

Owns two questions: whether a batch was aborted, and whether batches are left that a marker ends. A
round touches only what lies below the last stable offset, so every transaction in it has its end,
perhaps in a segment behind the round: whoever schedules the round tells it all that were aborted.

A batch is judged by its place: an aborted transaction is a range of offsets of its producer. What
the producer did later changes nothing of it, however often the round reads the batch, and in
whatever order (KAFKA-20036).
"""

from bisect import bisect_left
from operator import itemgetter
from typing import Final

from tidelog.broker.log.transactions.aborted import AbortedIndex
from tidelog.wire.batch import BatchHeader

_MARKER: Final = itemgetter(1)


class RoundTransactions:
    """Of one round, which asks in the order of offsets where it writes."""

    def __init__(self, aborted: AbortedIndex, *, is_from_start: bool) -> None:
        """`is_from_start`: the round began with the log's first segment, so it has seen all that
        is left of a transaction when it comes to its marker."""
        self._aborted: Final[dict[int, list[tuple[int, int]]]] = {}
        for entry in aborted.entries():
            ranges = self._aborted.setdefault(entry.producer_id, [])
            ranges.append((entry.first_offset, entry.marker_offset))
        self._is_from_start = is_from_start
        self._standing: Final[set[int]] = set()
        """Producers with batches that the round has kept of the transaction that it is in."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch's transaction was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._aborted.get(header.producer_id, ())
        place = bisect_left(ranges, header.base_offset, key=_MARKER)
        return place < len(ranges) and ranges[place][0] <= header.base_offset

    def keep(self, header: BatchHeader) -> None:
        """The batch stays, be it without its records: a log that is read again takes it for the
        beginning of a transaction, so its marker stays too."""
        if header.is_transactional:
            self._standing.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """Whether it is certain that no batch is left that the marker ends."""
        is_left = header.producer_id in self._standing
        self._standing.discard(header.producer_id)
        return self._is_from_start and not is_left
