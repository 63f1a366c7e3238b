"""Which transactions of a log are open, and how far its readers may go. Pure.

Owns the order in which open transactions began. Changed with the batches, in their order, by the
owner of the log; a log that is read again after a start gives the same. It must never let the last
stable offset pass a transaction whose end is not committed.

Theory of operation. A transaction begins at the log's end, so new ones come last and the dict of
the open ones is in the order of their first offsets: the first of it bounds readers. One that has
ended bounds them still until the watermark has passed its marker: the end of a leader that dies
before its followers have the marker never happened.
"""

from collections.abc import Iterable

import msgspec

from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.wire.ids import Offset


class Ended(msgspec.Struct, frozen=True):
    """A transaction whose marker stands in the log, perhaps above the watermark."""

    first_offset: Offset
    marker_offset: int


class OpenTransactions:
    """Of one log. `begin` and `end` follow the batches; `commit_to` follows the watermark."""

    __slots__ = ("_ended", "_started")

    def __init__(self, started: Iterable[tuple[int, int]] = ()) -> None:
        """`started`: producer ids and the first offsets of their open transactions, as the state
        of the log's producers tells them."""
        in_order = sorted(started, key=lambda each: each[1])
        self._started = dict(in_order)
        assert len(self._started) == len(in_order), "a producer has one open transaction"
        self._ended: list[Ended] = []
        """In the order of their markers."""

    def begin(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended at the offset; the first one begins a transaction."""
        if producer_id in self._started:
            return
        newest = next(reversed(self._started.values()), -1)
        assert offset > newest, f"a transaction begins at {offset}, another one at {newest}"
        self._started[producer_id] = offset

    def end(
        self, producer_id: int, marker_offset: int, *, is_aborted: bool
    ) -> AbortedTransaction | None:
        """A marker was appended at the offset; the entry for the index, if it aborts a transaction
        that is open here."""
        first_offset = self._started.pop(producer_id, None)
        if first_offset is None:
            return None
        assert first_offset < marker_offset, f"a marker at {marker_offset} ends what comes later"
        self._ended.append(Ended(Offset(first_offset), marker_offset))
        if not is_aborted:
            return None
        return AbortedTransaction(producer_id, Offset(first_offset), marker_offset)

    def commit_to(self, high_watermark: int) -> None:
        """Everything below the watermark is committed, ends of transactions too."""
        passed = 0
        for ended in self._ended:
            if ended.marker_offset >= high_watermark:
                break
            passed += 1
        del self._ended[:passed]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has ended for good; `commit_to` was told that watermark."""
        first_open = self.first_open_offset()
        bounds = [each.first_offset for each in self._ended]
        if first_open >= 0:
            bounds.append(Offset(first_open))
        return min((high_watermark, *bounds))

    def first_open_offset(self) -> int:
        """Where the earliest open transaction begins; -1: none is open."""
        return next(iter(self._started.values()), -1)

    def start_of(self, producer_id: int) -> int:
        """Where the producer's open transaction begins; -1: it has none open."""
        return self._started.get(producer_id, -1)

    def __len__(self) -> int:
        return len(self._started)
