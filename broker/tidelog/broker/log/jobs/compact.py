"""The job that compacts a run of sealed segments. See `tidelog.broker.log.compaction`.

Runs in the worker, over `JobFiles`. It reads the dirty part once for its keys and then all segments
once more, and holds the map, one piece and one batch. It must never leave a file behind when it
fails, nor hand over a group that is not flushed. What it made has unfinished names: nothing counts
until the node has renamed it.
"""

from collections.abc import Generator

import msgspec

from tidelog.broker.log.compaction.cleaning import (
    Rules,
    StoredBatch,
    clean_batch,
    clean_marker,
    note_keys,
)
from tidelog.broker.log.compaction.contract import (
    CompactArguments,
    CompactResult,
    Replacement,
    decode_arguments,
    encode_result,
)
from tidelog.broker.log.compaction.grouping import group_segments
from tidelog.broker.log.compaction.offset_map import OffsetMap
from tidelog.broker.log.compaction.segment_input import read_batches
from tidelog.broker.log.compaction.segment_output import SegmentWriter
from tidelog.broker.log.compaction.transactions import RoundTransactions
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.sidecar.files import read_producers, read_transactions
from tidelog.broker.log.transactions.aborted import AbortedIndex
from tidelog.broker.log.transactions.of_segment import SegmentTransactions, joined
from tidelog.ports.worker import JobFiles
from tidelog.wire.errors import ErrorCode, TidelogError


def compact(files: JobFiles, arguments: bytes) -> Generator[int, None, bytes]:
    """`CompactArguments` → `CompactResult`; STORAGE_CORRUPT names file and byte of damage."""
    round_ = _Round(files, decode_arguments(arguments))
    try:
        result = yield from round_.run()
    except _SidecarDamaged as damaged:
        result = CompactResult(
            replacements=(), cleaned_below=0, damaged_sidecar=damaged.key, damage=damaged.happened
        )
    return encode_result(result)


class _SidecarDamaged(Exception):
    """Not an error of the round's: the sidecar is made again, then the round is planned again."""

    def __init__(self, key: SegmentKey, happened: str) -> None:
        super().__init__(happened)
        self.key = key
        self.happened = happened


class _Figures(msgspec.Struct):
    """What the result tells of the work."""

    records_read: int = 0
    records_kept: int = 0
    batches_unreadable: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class _Round:
    """One run of the job."""

    def __init__(self, files: JobFiles, asked: CompactArguments) -> None:
        assert asked.segments, "a round has at least one segment"
        self._files = files
        self._asked = asked
        self._offsets = OffsetMap(asked.map_bytes_max)
        self._transactions = RoundTransactions(
            AbortedIndex.decode(asked.aborted, where="what a round was told of transactions"),
            is_from_start=asked.is_from_start,
        )
        self._dropped_markers: set[int] = set()
        self._cleaned_below = asked.first_dirty_offset
        self._is_map_full = False
        self._figures = _Figures()
        self._created: list[str] = []

    def run(self) -> Generator[int, None, CompactResult]:
        """Fill the map, then rewrite group by group."""
        yield from self._fill_map()
        segments = [each for each in self._asked.segments if each.base_offset < self._cleaned_below]
        assert segments, "the round comes forward by at least one batch"
        rules = yield from self._rules(segments[-1])
        replacements: list[Replacement] = []
        is_done = False
        try:
            for group in group_segments(segments, self._asked.segment_bytes):
                replacements.append((yield from self._rewrite(group, rules)))
            is_done = True
        finally:
            if not is_done:
                self._remove_created()
        return CompactResult(
            replacements=tuple(replacements),
            cleaned_below=self._cleaned_below,
            is_map_full=self._is_map_full,
            **msgspec.structs.asdict(self._figures),
        )

    def _fill_map(self) -> Generator[int, None, None]:
        """Sets where the round's keys end: behind the last batch that the map has taken."""
        for summary in self._asked.segments:
            if summary.next_offset <= self._asked.first_dirty_offset:
                continue
            for piece in read_batches(self._files, summary):
                yield self._count_read(piece.bytes_read)
                for batch in piece.batches:
                    if not self._note(batch):
                        self._is_map_full = True
                        return
            self._cleaned_below = summary.next_offset

    def _note(self, batch: StoredBatch) -> bool:
        if batch.header.base_offset < self._asked.first_dirty_offset:
            return True
        is_aborted = self._transactions.is_aborted(batch.header)
        if not is_aborted and not note_keys(self._offsets, batch):
            return False
        self._cleaned_below = batch.header.next_offset
        return True

    def _rules(self, last: Summary) -> Generator[int, None, Rules]:
        """What a producer needs is told by the state behind the last segment of the round; what
        tells where leader epochs begin, by the summaries."""
        state = yield from self._producers(last)
        of_producers = [each.batches[-1].base_offset for each in state.producers if each.batches]
        of_epochs = [
            start.start_offset for each in self._asked.segments for start in each.leader_epochs
        ]
        return Rules(
            offsets=self._offsets,
            cleaned_below=self._cleaned_below,
            now_ms=self._asked.now_ms,
            delete_retention_ms=self._asked.delete_retention_ms,
            may_expire=self._asked.may_expire,
            needed_base_offsets=frozenset((*of_producers, *of_epochs)),
        )

    def _producers(self, summary: Summary) -> Generator[int, None, ProducerState]:
        try:
            return (yield from read_producers(self._files, summary))
        except TidelogError as error:
            if error.code is not ErrorCode.STORAGE_CORRUPT:
                raise
            raise _SidecarDamaged(summary.key, error.happened) from None

    def _told_of_transactions(
        self, group: tuple[Summary, ...]
    ) -> Generator[int, None, SegmentTransactions | None]:
        """Of all that the group holds, as their sidecars tell."""
        told: SegmentTransactions | None = None
        for summary in group:
            try:
                of_one = yield from read_transactions(self._files, summary)
            except TidelogError as error:
                if error.code is not ErrorCode.STORAGE_CORRUPT:
                    raise
                raise _SidecarDamaged(summary.key, error.happened) from None
            told = joined(told, of_one)
        return told

    def _rewrite(
        self, group: tuple[Summary, ...], rules: Rules
    ) -> Generator[int, None, Replacement]:
        producers = yield from self._producers(group[-1])
        transactions = yield from self._told_of_transactions(group)
        writer = SegmentWriter(
            self._files, group, cleaned_below=self._cleaned_below, created=self._created
        )
        end_offset = group[-1].next_offset
        for summary in group:
            for piece in read_batches(self._files, summary):
                yield self._count_read(piece.bytes_read)
                for batch in piece.batches:
                    self._clean(batch, rules, writer, end_offset)
                yield from writer.drain()
        if transactions is not None:
            transactions.forget(self._dropped_markers)
        replacement = yield from writer.finish(producers, transactions)
        self._figures.bytes_written += writer.bytes_written
        return replacement

    def _clean(
        self, batch: StoredBatch, rules: Rules, writer: SegmentWriter, end_offset: int
    ) -> None:
        header, transactions = batch.header, self._transactions
        is_last = header.next_offset == end_offset
        if header.is_control:
            are_gone = transactions.end(header)
            cleaned = clean_marker(batch, rules, is_last=is_last, are_batches_gone=are_gone)
            if not cleaned.data:
                self._dropped_markers.add(header.base_offset)
        else:
            is_aborted = transactions.is_aborted(header)
            cleaned = clean_batch(batch, rules, is_last=is_last, is_aborted=is_aborted)
            if cleaned.data:
                transactions.keep(header)
        self._figures.records_read += header.record_count
        self._figures.records_kept += cleaned.records_kept
        self._figures.batches_unreadable += cleaned.is_unreadable
        if cleaned.data:
            writer.add(cleaned.data)

    def _count_read(self, bytes_read: int) -> int:
        self._figures.bytes_read += bytes_read
        return bytes_read

    def _remove_created(self) -> None:
        """Best effort: what stays behind has an unfinished name, and goes at the next start."""
        for path in self._created:
            try:
                self._files.remove(path)
            except TidelogError:
                continue
