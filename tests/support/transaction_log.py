"""Random logs with transactions, and what readers of them are to be given, by the plainest means.

Every record's value is its own offset as text, so that a reader's records tell where they are from.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from tidelog.wire.batch import AbortedStretch, encode_batch, stamp
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.ids import Offset, ProducerId

PLAIN = "plain"
DATA = "data"
COMMIT = "commit"
ABORT = "abort"


class StoredBatch(msgspec.Struct, frozen=True):
    """A batch of a log, stamped."""

    base_offset: int
    next_offset: int
    kind: str
    producer_id: int
    data: bytes
    offsets: tuple[int, ...]
    """Of its records, which compaction may have thinned out."""


class Transaction(msgspec.Struct):
    """What became of one."""

    producer_id: int
    first_offset: int
    marker_offset: int = -1
    """-1: it is open."""
    is_aborted: bool = False


class TransactionLog:
    """Batches one behind the other; `transactions` in the order of their first batches."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.transactions: list[Transaction] = []
        self.next_offset = 0

    def add(self, kind: str, producer_id: int, count: int = 1, size: int = 0) -> StoredBatch:
        """A batch of `count` records, or a marker."""
        base_offset, is_marker = self.next_offset, kind in (COMMIT, ABORT)
        running = self.running(producer_id)
        offsets = tuple(range(base_offset, base_offset + (0 if is_marker else count)))
        if is_marker:
            type_ = MarkerType.COMMIT if kind == COMMIT else MarkerType.ABORT
            data = encode_marker(
                Marker(type_, 0), producer_id=producer_id, producer_epoch=1, timestamp_ms=0
            )
            if running is not None:
                running.marker_offset, running.is_aborted = base_offset, kind == ABORT
        else:
            if kind == DATA and running is None:
                self.transactions.append(Transaction(producer_id, base_offset))
            data = encode_batch(
                [(0, None, b"%d" % offset + bytes(size), ()) for offset in offsets],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 else -1,
                is_transactional=kind == DATA,
            )
        self.next_offset = base_offset + max(1, len(offsets))
        stored = bytearray(data)
        stamp(stored, 0, base_offset=base_offset, leader_epoch=0)
        batch = StoredBatch(
            base_offset, self.next_offset, kind, producer_id, bytes(stored), offsets
        )
        self.batches.append(batch)
        return batch

    def running(self, producer_id: int) -> Transaction | None:
        """The producer's open transaction."""
        for each in self.transactions:
            if each.producer_id == producer_id and each.marker_offset < 0:
                return each
        return None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has an end below the watermark."""
        uncertain = [
            each.first_offset
            for each in self.transactions
            if each.marker_offset < 0 or each.marker_offset >= high_watermark
        ]
        return min([high_watermark, *uncertain])

    def aborted(self, begin: int, end: int) -> list[AbortedStretch]:
        """What overlaps the offsets, in the order of the markers."""
        found = [
            each
            for each in self.transactions
            if each.is_aborted and each.first_offset < end and each.marker_offset >= begin
        ]
        return [
            AbortedStretch(ProducerId(each.producer_id), Offset(each.first_offset))
            for each in sorted(found, key=lambda each: each.marker_offset)
        ]

    def is_aborted(self, batch: StoredBatch) -> bool:
        """Whether it belongs to a transaction that was aborted."""
        return batch.kind == DATA and any(
            each.is_aborted
            and each.producer_id == batch.producer_id
            and each.first_offset <= batch.base_offset < each.marker_offset
            for each in self.transactions
        )

    def all_records(self, end: int) -> list[int]:
        """Offsets that a reader of everything is given below `end`."""
        return [offset for batch in self._below(end) for offset in batch.offsets if offset < end]

    def committed_records(self, high_watermark: int) -> list[int]:
        """Offsets that a reader of committed records is given."""
        stable = self.last_stable_offset(high_watermark)
        return [
            offset
            for batch in self._below(stable)
            if not self.is_aborted(batch)
            for offset in batch.offsets
        ]

    def _below(self, end: int) -> Iterator[StoredBatch]:
        return (batch for batch in self.batches if batch.base_offset < end)


def random_log(
    random: Random, steps: int, *, producers: int = 4, size_max: int = 0
) -> TransactionLog:
    """Transactions of several producers among each other and among plain batches; some repeat
    their markers, some producers write plainly between two transactions, some stay open."""
    log = TransactionLog()
    for _ in range(steps):
        producer_id = random.randrange(producers)
        kind = random.choice([PLAIN, DATA, DATA, DATA, DATA, COMMIT, ABORT, ABORT])
        if kind == PLAIN:
            is_bare = random.random() < 0.5 or log.running(producer_id) is not None
            producer_id = -1 if is_bare else producer_id
        log.add(kind, producer_id, random.randrange(1, 5), random.randrange(size_max + 1))
    return log
