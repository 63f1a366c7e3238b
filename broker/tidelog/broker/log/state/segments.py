"""One segment of a log, as the owner of its directory knows it. Pure.

Owns the arithmetic of one file: where its offsets begin and end, how long it is, the highest
timestamp in it. It must never change once it is sealed, but for what is derived from its bytes: the
index in memory serves until the sidecar is there, and is dropped then. Stop 6 of a record's walk.

    active: grows at its end ── roll ──▶ sealed, index in memory ── sidecar ──▶ sealed, summary
"""

from typing import Self

from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.broker.log.transactions.of_segment import NONE_OPEN, SegmentTransactions
from tidelog.wire.ids import Offset

NO_TIMESTAMP = -1


class Segment:
    """One file of a log. The last one of a log is active, the others are sealed and flushed."""

    __slots__ = (
        "are_producers_whole",
        "base_offset",
        "first_timestamp",
        "index",
        "is_sealed",
        "key",
        "max_timestamp",
        "next_offset",
        "producers_at_end",
        "producers_before",
        "size_bytes",
        "summary",
        "transactions",
        "were_producers_known",
    )

    def __init__(self, key: SegmentKey) -> None:
        self.key = key
        self.base_offset = key.base_offset
        """As in its name: a plain attribute because every lookup asks for it."""
        self.next_offset = key.base_offset
        """Where the next segment begins, or will."""
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.first_timestamp = NO_TIMESTAMP
        """The highest timestamp of its first batch: a roll by age counts from there."""
        self.index: SparseIndex | None = SparseIndex()
        """None: it is sealed, and its sidecar tells as much."""
        self.summary: Summary | None = None
        """What the sidecar says; None: there is none yet."""
        self.is_sealed = False
        self.are_producers_whole = True
        """Whether its sidecar tells of all producers that the log knew: not if the one before it
        was trimmed before it had a sidecar to go on from."""
        self.were_producers_known = True
        """Whether the log knew all of them when it was sealed; else it is no measure of a sidecar,
        whose maker may know them again."""
        self.producers_at_end: bytes | None = None
        """The encoded producer state at its end, from the roll until the sidecar is there; None
        also if it is not known."""

        self.transactions: SegmentTransactions | None = None
        """What it holds of transactions, until its sidecar is there; None: nothing."""
        self.producers_before: bytes | None = None
        """The state at its beginning, until its own sidecar is there: what lies before it may be
        trimmed away sooner than it is sealed. None: it is not known."""

    @classmethod
    def from_summary(cls, summary: Summary) -> Self:
        """A sealed segment that nothing was read of but its summary."""
        segment = cls(summary.key)
        segment.next_offset = Offset(summary.next_offset)
        segment.size_bytes = summary.size_bytes
        segment.max_timestamp = summary.max_timestamp
        segment.is_sealed = True
        segment.take_summary(summary)
        return segment

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction wrote it: its offsets may have gaps."""
        return self.key.generation > 0

    def add(
        self,
        base_offset: int,
        next_offset: Offset,
        size_bytes: int,
        max_timestamp: int,
        *,
        has_records: bool = True,
    ) -> None:
        """Take note of a batch that was written at the end. One that a compaction has left without
        records has no time that counts: a sidecar tells none of it either."""
        index = self.index
        assert index is not None, f"{self.key.path} is sealed and grows no more"
        if not self.size_bytes:
            self.first_timestamp = max_timestamp
        index.add(base_offset, self.size_bytes, max_timestamp)
        self.size_bytes += size_bytes
        self.next_offset = next_offset
        if has_records and max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def note_transaction(self, aborted: AbortedTransaction | None) -> None:
        """The batch that was added last is of a transaction; the one that it has aborted."""
        if self.transactions is None:
            self.transactions = SegmentTransactions()
        self.transactions.note(aborted)

    def seal(
        self,
        producers: bytes | None,
        *,
        are_all_known: bool = True,
        first_open_offset: int = NONE_OPEN,
    ) -> None:
        """It grows no more; `producers` is the encoded state of the log's producers behind it, and
        `first_open_offset` where the earliest transaction begins that is open there."""
        assert not self.is_sealed, f"{self.key.path} is sealed once"
        self.is_sealed = True
        if self.transactions is None and first_open_offset != NONE_OPEN:
            self.transactions = SegmentTransactions()
        if self.transactions is not None:
            self.transactions.seal(first_open_offset)
        self.producers_at_end = producers
        self.were_producers_known = are_all_known

    def judge_producers(self, *, are_whole: bool) -> None:
        """Whether its sidecar tells of all producers that the log knew."""
        self.are_producers_whole = are_whole

    def take_summary(self, summary: Summary) -> None:
        """The sidecar is there: what was kept in memory instead of it goes."""
        assert self.is_sealed, f"{self.key.path} has a sidecar before it is sealed"
        assert summary.key == self.key, f"{self.key.path} is given the summary of another"
        self.summary = summary
        self.index = None
        self.transactions = None
        self.producers_at_end = self.producers_before = None
