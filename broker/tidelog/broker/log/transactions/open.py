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
from typing import Final

import msgspec

from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.marker import Marker, MarkerType
from tidelog.wire.ids import Offset

NOTHING_ENDED: Final = 2**63 - 1
"""Above every offset: nothing that has ended holds readers."""


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A transaction whose marker stands in the log, perhaps above the watermark."""

    first_offset: Offset
    marker_offset: int


class OpenTransactions:
    """Of one log. `note` follows the batches, `commit_to` the watermark."""

    __slots__ = ("_lowest_ended", "_started", "ended")

    def __init__(self, started: Iterable[tuple[int, int]] = ()) -> None:
        """`started`: producer ids and the first offsets of their open transactions, as the state
        of the log's producers tells them."""
        self._started: dict[int, int] = {}
        self.ended: list[Ended] = []
        """Ends that may be above the watermark, in the order of their markers: to be read."""
        self._lowest_ended = NOTHING_ENDED
        self.go_on_from(started)

    def note(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """A transactional batch or a marker was appended; the entry for the index, if the marker
        aborts a transaction that is open here."""
        if not header.is_control:
            self.begin(header.producer_id, header.base_offset)
            return None
        assert marker is not None, f"what the marker at {header.base_offset} says was not read"
        is_aborted = marker.type is MarkerType.ABORT
        return self.end(header.producer_id, header.base_offset, is_aborted=is_aborted)

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
        self.hold(Ended(Offset(first_offset), marker_offset))
        if not is_aborted:
            return None
        return AbortedTransaction(producer_id, Offset(first_offset), marker_offset)

    def hold(self, ended: Ended) -> None:
        """Readers wait at its first offset until the watermark has passed its marker."""
        self.ended.append(ended)
        self._lowest_ended = min(self._lowest_ended, ended.first_offset)

    def go_on_from(self, started: Iterable[tuple[int, int]]) -> None:
        """These are open, and no others: a log is read again from here on."""
        in_order = sorted(started, key=lambda each: each[1])
        self._started = dict(in_order)
        assert len(self._started) == len(in_order), "a producer has one open transaction"

    def cut(self, end_offset: int, again: Iterable[Ended]) -> None:
        """The log ends at the offset now: markers behind it ended nothing.

        `again`: the ends in the segment that was read again. The watermark may have gone back to
        before some of them, although it had passed them once.
        """
        kept = {each.marker_offset: each for each in (*self.ended, *again)}
        self.ended = [kept[offset] for offset in sorted(kept) if offset < end_offset]
        self._lowest_ended = min((each.first_offset for each in self.ended), default=NOTHING_ENDED)

    def commit_to(self, high_watermark: int) -> None:
        """Everything below the watermark is committed, ends of transactions too."""
        passed = 0
        for ended in self.ended:
            if ended.marker_offset >= high_watermark:
                break
            passed += 1
        if passed:
            del self.ended[:passed]
            self._lowest_ended = min(
                (each.first_offset for each in self.ended), default=NOTHING_ENDED
            )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has ended for good; `commit_to` was told that watermark."""
        first_open = next(iter(self._started.values()), NOTHING_ENDED)
        return min(high_watermark, first_open, self._lowest_ended)

    def first_open_offset(self) -> int:
        """Where the earliest open transaction begins; -1: none is open."""
        return next(iter(self._started.values()), -1)

    def start_of(self, producer_id: int) -> int:
        """Where the producer's open transaction begins; -1: it has none open."""
        return self._started.get(producer_id, -1)

    @property
    def started(self) -> tuple[tuple[int, int], ...]:
        """Producer ids and first offsets of the open ones, the earliest first."""
        return tuple(self._started.items())

    def __len__(self) -> int:
        return len(self._started)
