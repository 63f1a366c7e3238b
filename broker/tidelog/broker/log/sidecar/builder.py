"""Makes a sidecar from a segment's bytes, as they come in pieces. Pure.

Owns the verification of a sealed segment: every header, the chain of base offsets, the order of
leader epochs, every checksum. Used by the job that seals, by the one that scrubs and by compaction.
It must never finish a sidecar of bytes that it has not verified to the last.

Theory of operation. All of a sidecar is a function of the segment's bytes and of what came before
it: leader epochs and producers as the sidecar before tells them. So the one that is made again
equals the first byte for byte, however the pieces were cut.
"""

from typing import Final

import msgspec

from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.leader_epochs import EpochStart, LeaderEpochs
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, encode_sidecar
from tidelog.broker.log.sidecar.contents import NEVER_MS, Replaced, Summary
from tidelog.broker.log.sidecar.digests import DIGESTS, DigestStream, encode_digests
from tidelog.broker.log.sidecar.index import INDEX, INDEX_TOP, encode_index
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.broker.log.transactions.of_segment import NONE_OPEN, SegmentTransactions
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    peek_size,
    read_header,
    verify_checksum,
)
from tidelog.wire.batch.limits import BATCH_BYTES_MAX
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_OFFSET, Offset

LEADER_EPOCH_MAX: Final = 2**31 - 1


class SegmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment's bytes do not say."""

    key: SegmentKey
    is_contiguous: bool = True
    """Each batch begins where the one before ends. False: compacted, or copied from such a log."""
    next_offset: Offset = NO_OFFSET
    """Where it must end; -1: wherever it does."""
    leader_epoch_max: int = LEADER_EPOCH_MAX
    """The partition's own: no batch can carry a later one."""
    epochs_before: tuple[EpochStart, ...] = ()
    """The history up to the segment's start."""
    epochs_at_end: tuple[EpochStart, ...] | None = None
    """Of a compacted segment: the history up to its end. Batches that were dropped have taken part
    in it, so the ones that are left cannot tell it; they must agree with it. It may begin behind
    the first of them: where the log was trimmed."""
    cleaned_below: int = 0
    replaces: tuple[Replaced, ...] = ()


class SidecarBuilder:
    """`feed` all bytes of the segment, then `finish`."""

    def __init__(self, facts: SegmentFacts, producers_before: ProducerState | None = None) -> None:
        self._facts = facts
        self._index = SparseIndex()
        self._digests = DigestStream(facts.key.partition)
        self._epochs = LeaderEpochs(facts.epochs_before)
        self._history = None if facts.epochs_at_end is None else LeaderEpochs(facts.epochs_at_end)
        self._producers = ProducerState() if producers_before is None else producers_before.copy()
        self._open = OpenTransactions(self._producers.open_transactions())
        self._transactions: SegmentTransactions | None = None
        self._rest: list[bytes] = []
        """Pieces of a batch whose end has not come yet."""
        self._rest_bytes = 0
        self._wanted_bytes = HEADER_BYTES
        """With so many bytes there is something to look at."""
        self._next_offset: int = facts.key.base_offset
        self._position = 0
        self._batch_count = 0
        self._record_count = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = -1
        self._tombstone_horizon_ms = NEVER_MS

    @property
    def next_offset(self) -> int:
        """Behind the last batch that was verified."""
        return self._next_offset

    @property
    def verified_bytes(self) -> int:
        """How much of the segment was verified: up to the end of a batch."""
        return self._position

    @property
    def digests(self) -> list[int]:
        """Of all that was fed, as far as they are whole; all of them once it is finished."""
        return self._digests.digests

    def feed(self, data: bytes) -> None:
        """The next bytes, cut anywhere; STORAGE_CORRUPT names the byte at which damage begins."""
        self._digests.feed(data)
        self._rest.append(data)
        self._rest_bytes += len(data)
        if self._rest_bytes < self._wanted_bytes:
            return
        joined = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
        used_bytes = self._take_batches(joined)
        rest = joined[used_bytes:]
        self._rest = [rest] if rest else []
        self._rest_bytes = len(rest)

    def _take_batches(self, data: bytes) -> int:
        """Verify every whole batch; how many bytes they have."""
        position = 0
        while True:
            left = len(data) - position
            self._wanted_bytes = HEADER_BYTES
            if left < HEADER_BYTES:
                return position
            try:
                size_bytes = peek_size(data, position) or 0
                if BATCH_BYTES_MAX >= size_bytes > left:
                    self._wanted_bytes = size_bytes
                    return position
                header = read_header(data, position, is_compacted=not self._facts.is_contiguous)
                verify_checksum(data, header, position)
                marker = marker_of(data, header, position) if header.is_control else None
            except TidelogError as error:
                raise self._damage(error.happened) from None
            self._take(header, marker)
            position += size_bytes

    def _take(self, header: BatchHeader, marker: Marker | None) -> None:
        facts, base_offset, epoch = self._facts, header.base_offset, header.leader_epoch
        if base_offset != self._next_offset and (
            facts.is_contiguous or base_offset < self._next_offset
        ):
            raise self._damage(f"its base offset is {base_offset}, not {self._next_offset}")
        if not self._epochs.latest <= epoch <= facts.leader_epoch_max:
            raise self._damage(
                f"its leader epoch is {epoch}, "
                f"not from {self._epochs.latest} to {facts.leader_epoch_max}"
            )
        if self._history is not None and not _agrees(self._history, epoch, base_offset):
            raise self._damage(
                f"its leader epoch is {epoch}, the one of its offset "
                f"is {self._history.epoch_at(base_offset)}"
            )
        size_bytes, max_timestamp = header.size_bytes, header.max_timestamp
        self._epochs.note(epoch, base_offset)
        self._index.add(base_offset, self._position, max_timestamp)
        if header.is_transactional:
            self._note_transaction(header, marker)
        self._producers.note(header, marker)
        if max_timestamp > self._max_timestamp and header.record_count:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = base_offset
        if header.has_delete_horizon:
            self._note_horizon(header.base_timestamp)
        self._batch_count += 1
        self._record_count += header.record_count
        self._position += size_bytes
        self._next_offset = header.next_offset

    def _note_transaction(self, header: BatchHeader, marker: Marker | None) -> None:
        if self._transactions is None:
            self._transactions = SegmentTransactions()
        self._transactions.note(self._open.note(header, marker))
        self._open.commit_to(header.next_offset)

    def _note_horizon(self, horizon_ms: int) -> None:
        earliest = self._tombstone_horizon_ms
        if horizon_ms >= 0 and (earliest == NEVER_MS or horizon_ms < earliest):
            self._tombstone_horizon_ms = horizon_ms

    def know_producers(self, producers: ProducerState | None) -> None:
        """Behind the last batch; None: only what the batches tell."""
        if producers is not None:
            self._producers = producers.copy()

    def finish(self) -> tuple[Summary, bytes]:
        """The sidecar, and its summary; STORAGE_CORRUPT if the segment does not end as it must."""
        facts = self._facts
        if self._rest_bytes:
            raise self._damage(f"the batch is cut off after {self._rest_bytes} bytes")
        if facts.next_offset not in (-1, self._next_offset):
            raise self._damage(f"it ends at offset {self._next_offset}, not {facts.next_offset}")
        self._producers.expire()
        partition = facts.key.partition
        summary = Summary(
            topic_id=partition.topic_id,
            partition=partition.partition,
            base_offset=facts.key.base_offset,
            generation=facts.key.generation,
            next_offset=Offset(self._next_offset),
            size_bytes=self._position,
            batch_count=self._batch_count,
            record_count=self._record_count,
            max_timestamp=self._max_timestamp,
            max_timestamp_offset=self._max_timestamp_offset,
            leader_epochs=self._all_epochs(),
            cleaned_below=facts.cleaned_below,
            tombstone_horizon_ms=self._tombstone_horizon_ms,
            replaces=facts.replaces,
        )
        index, index_top = encode_index(facts.key, self._index.entries())
        sections = {
            INDEX: index,
            INDEX_TOP: index_top,
            DIGESTS: encode_digests(facts.key, self._digests.finish()),
            PRODUCERS: self._producers.encode(),
        }
        first_open_offset = self._producers.first_open_offset()
        if self._transactions is None and first_open_offset != NONE_OPEN:
            self._transactions = SegmentTransactions()
        if self._transactions is not None:
            self._transactions.seal(first_open_offset)
            sections[TRANSACTIONS] = self._transactions.encode()
        return encode_sidecar(summary, sections)

    def _all_epochs(self) -> tuple[EpochStart, ...]:
        """Of the history and of the batches, whichever knows of an earlier start."""
        if self._history is None:
            return self._epochs.starts
        starts = {start.epoch: start.start_offset for start in self._epochs.starts}
        for start in self._history.starts:
            known = starts.get(start.epoch, start.start_offset)
            starts[start.epoch] = min(start.start_offset, known)
        return tuple(EpochStart(epoch, starts[epoch]) for epoch in sorted(starts))

    def _damage(self, happened: str) -> TidelogError:
        return segment_damage(self._facts.key, self._position, happened)


def _agrees(history: LeaderEpochs, epoch: int, offset: int) -> bool:
    """Whether the epoch may have written the offset; of what lies before it a history knows only
    that no later epoch than its first did."""
    known = history.epoch_at(offset)
    if known >= 0:
        return known == epoch
    return not history.starts or epoch <= history.starts[0].epoch


def segment_damage(key: SegmentKey, byte_position: int, happened: str) -> TidelogError:
    """The segment is damaged: file and byte are named, nothing was changed."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=f"verify {key.path}",
        happened=f"damage at byte {byte_position}: {happened}",
    )
