"""One partition's log as its owner knows it: segments and the four offsets. Pure.

Owns the chain of segments and what is kept for the log as a whole: leader epochs, producers,
transactions. They
change by `take_in` and at a seal only, also when a log is read again after a start, so that what is
rebuilt equals what was kept. Changed by the directory's core only; read by fetches. Stops 6, 8 and
10 of a record's walk.

    log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset,
    flushed_offset ≤ log_end_offset;
    with flush=sync and one replica high_watermark ≤ flushed_offset
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final

from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.admission import ProducerHere
from tidelog.broker.log.transactions.open import Ended, OpenTransactions
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.layout import PREFIX_BYTES, TRANSACTIONAL_BIT
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

NO_GAPS: Final = Offset(-1)
NOT_LED: Final = Offset(-1)
UNKNOWN_EPOCH: Final = LeaderEpoch(-1)
UNCOMMITTED_MAX: Final = 65_536
"""Batch ends that are kept above a watermark; of more every second one is forgotten, and the
watermark passes over it."""

BatchEnd = tuple[Offset, int, int]
"""The offset behind a batch; the base offset of its segment; the byte behind it there."""


class PartitionLog:
    """One main state a partition; see the module for its four offsets."""

    __slots__ = (
        "are_producers_known",
        "cut_count",
        "failure",
        "flushed_offset",
        "gaps_from",
        "high_watermark",
        "high_watermark_position",
        "is_being_cut",
        "kept_apart_at",
        "key",
        "leader_epoch",
        "leader_epochs",
        "led_from",
        "log_end_offset",
        "log_start_epoch",
        "log_start_offset",
        "producers",
        "segments",
        "transactions",
        "uncommitted",
        "unopened",
    )

    def __init__(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.segments: list[Segment] = []
        """Ascending, each begins where the one before it ends. Only the last may be unsealed."""
        self.log_start_offset = Offset(0)
        self.log_start_epoch = UNKNOWN_EPOCH
        """Whose leader moved the start there; -1: not known, or nobody has moved it."""
        self.log_end_offset = Offset(0)
        self.flushed_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.high_watermark_position: tuple[int, int] = (0, 0)
        """Base offset of the segment that holds the watermark, and the byte behind it there."""
        self.leader_epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.transactions = OpenTransactions()
        """Those of which the producers tell that they are open, and ends above the watermark."""
        self.are_producers_known = True
        """False: a cut began with a sidecar that could not be read, and some may be forgotten."""
        self.gaps_from = NO_GAPS
        """From this offset on offsets may ascend with gaps; -1: they are contiguous but for
        segments that were compacted here."""
        self.led_from = NOT_LED
        """Where the log ended when this replica began to lead others in its epoch; -1: it does not.
        A follower that has come so far holds all that was committed before."""
        self.is_being_cut = False
        """Its end is about to move back: nobody may be told meanwhile that all up to it is here."""
        self.cut_count = 0
        """How often its tail was cut: a segment of the same name may hold other bytes since."""
        self.uncommitted: deque[BatchEnd] | None = None
        """Where batches above the high watermark end, ascending; None: nobody asks, because the
        partition has no other replica. The watermark of a replica moves from one to the next."""
        self.failure: TidelogError | None = None
        """Set once the partition has stopped: nothing is appended or served any more."""
        self.kept_apart_at: LeaderEpoch | None = None
        """It has stopped because its leader of this epoch lacks what is committed here. Nothing is
        wrong with it: it goes on with the next leader, be it this broker itself."""
        self.unopened: PartitionMarks | None = None
        """What marks tell of a log that could not be opened; None: it was opened."""

    def lead(self, leader_epoch: LeaderEpoch) -> None:
        """What is appended from now on carries this epoch."""
        assert leader_epoch >= self.leader_epoch, (
            f"{self.key}: leader epoch {leader_epoch} comes after {self.leader_epoch}"
        )
        self.leader_epoch = leader_epoch

    def lead_others(self, end_offset: Offset) -> None:
        """This replica begins to lead others; behind the offset it has appended nothing yet."""
        self.led_from = end_offset

    def lead_nobody(self) -> None:
        """It follows, or is the only one."""
        self.led_from = NOT_LED

    def drop_planned(self) -> None:
        """What was planned behind the log's end is not stored after all."""
        self.led_from = min(self.led_from, self.log_end_offset)

    @property
    def has_other_replicas(self) -> bool:
        """Whether the partition has others, as its owner was told."""
        return self.uncommitted is not None

    @property
    def decides_its_start(self) -> bool:
        """Whether it leads, or is the only replica: nobody else says where a log begins."""
        return not self.has_other_replicas or self.led_from != NOT_LED

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def has_bytes(self) -> bool:
        """Whether any of its segments is not empty, and so has a file."""
        return any(segment.size_bytes for segment in self.segments)

    def begin_segment(self, key: SegmentKey) -> Segment:
        """Seal the active segment, if there is one, and go on in a new, empty one."""
        assert key.base_offset == self.log_end_offset, (
            f"{self.key}: a segment begins at its log's end"
        )
        if self.segments and not self.segments[-1].is_sealed:
            self.seal_active()
        known = self.segments[-1].producers_at_end if self.segments else None
        segment = Segment(key)
        segment.producers_before = self.producers.encode() if known is None else known
        self.segments.append(segment)
        return segment

    def seal_active(self) -> None:
        """The active segment grows no more. Producers are forgotten at a roll only, so that their
        state behind a segment is a function of the segments up to it."""
        self.producers.expire()
        self.segments[-1].seal(
            self.producers.encode(),
            are_all_known=self.are_producers_known,
            first_open_offset=self.transactions.first_open_offset(),
        )

    def stop(self, error: TidelogError, *, kept_apart_at: LeaderEpoch | None = None) -> None:
        """Nothing is appended or served any more."""
        assert self.failure is None, f"{self.key}: it stops once"
        self.failure, self.kept_apart_at = error, kept_apart_at

    @property
    def last_stable_offset(self) -> Offset:
        """Below it, and not below the log's start, every transaction has ended for good."""
        stable_offset = self.transactions.last_stable_offset(self.high_watermark)
        # Whoever trims a log may trim an open transaction's beginning as well.
        return Offset(max(stable_offset, self.log_start_offset))

    def producer_here(self, producer_id: int) -> ProducerHere | None:
        """What is known of the producer, for whoever admits its batches and markers."""
        return self.producers.here(producer_id)

    def know_producers(self, producers: ProducerState) -> None:
        """The log goes on with this state of its producers: with it come the open transactions."""
        self.producers = producers
        self.transactions.go_on_from(producers.open_transactions())

    def take_in(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """A batch with this header, as it is stored, lies at the end of the active segment.

        `marker`: what its record says, if it is a marker (`transactions.markers`).
        """
        base_offset, epochs = header.base_offset, self.leader_epochs
        next_offset = Offset(base_offset + header.last_offset_delta + 1)
        self.segments[-1].add(
            base_offset,
            next_offset,
            header.batch_length + PREFIX_BYTES,
            header.max_timestamp,
            has_records=header.record_count > 0,
        )
        if header.leader_epoch != epochs.latest:
            # What was trimmed up to here has left the mark of an epoch that wrote no more.
            epochs.truncate(base_offset)
            epochs.note(header.leader_epoch, base_offset)
        if header.attributes & TRANSACTIONAL_BIT:  # In place: nearly no batch has it.
            self.segments[-1].note_transaction(self.transactions.note(header, marker))
        self.producers.note(header, marker)
        self.log_end_offset = next_offset
        if self.uncommitted is not None:
            self._note_uncommitted(self.uncommitted)

    def _note_uncommitted(self, uncommitted: deque[BatchEnd]) -> None:
        if len(uncommitted) >= UNCOMMITTED_MAX:
            # The last one is the log's end until now: it stays, so all can be committed.
            kept = list(uncommitted)
            uncommitted.clear()
            uncommitted.extend(kept[1::2])
        uncommitted.append((self.log_end_offset, *self.end_position()))

    def keep_uncommitted(self) -> None:
        """From now on the watermark moves from batch to batch, not with the log's end."""
        if self.uncommitted is None:
            self.uncommitted = deque()
            if self.log_end_offset > self.high_watermark:
                self._note_uncommitted(self.uncommitted)

    def forget_uncommitted(self) -> None:
        """The partition has no other replica any more: its end is committed as it is flushed."""
        self.uncommitted = None

    def hold_back(self, committed_offset: int) -> None:
        """The log of one of several replicas was opened: what is above may be uncommitted."""
        offset = max(self.log_start_offset, min(committed_offset, self.log_end_offset))
        if offset < self.high_watermark:
            self.lower_high_watermark(offset)
            self.high_watermark = Offset(offset)
        self.keep_uncommitted()

    def begin_committed(self) -> None:
        """The log was opened and its watermark is where it begins: ends below it have happened."""
        self.transactions.commit_to(self.high_watermark)

    def commit_to(self, offset: int) -> bool:
        """All whole batches below the offset may be read; whether the watermark moved."""
        uncommitted = self.uncommitted
        assert uncommitted is not None, f"{self.key}: its watermark moves with its end"
        last = None
        while uncommitted and uncommitted[0][0] <= offset:
            last = uncommitted.popleft()
        if last is None or last[0] <= self.high_watermark:
            return False
        self.commit(last[0], last[1:])
        return True

    def end_position(self) -> tuple[int, int]:
        """Base offset of the active segment, and its length."""
        if not self.segments:
            return (0, 0)
        return (self.segments[-1].base_offset, self.segments[-1].size_bytes)

    def note_flushed(self, offset: Offset) -> None:
        """All below the offset is durable."""
        assert self.flushed_offset <= offset <= self.log_end_offset, (
            f"{self.key}: flushed up to {offset}, was {self.flushed_offset}, "
            f"ends at {self.log_end_offset}"
        )
        self.flushed_offset = offset

    def promise_up_to(self, offset: Offset) -> Offset:
        """Count no more than this as flushed: what is behind will be cut off. What counted until
        now, for `promise_again`."""
        before = self.flushed_offset
        self.flushed_offset = min(before, offset)
        return before

    def promise_again(self, offset: Offset) -> None:
        """Nothing is cut off: what was durable still is."""
        assert offset <= self.log_end_offset, f"{self.key}: {offset} was never flushed"
        self.flushed_offset = offset

    def note_gaps(self, offset: Offset) -> None:
        """Behind this offset a follower skips some."""
        self.gaps_from = offset

    def begin_cut(self) -> None:
        """Its end is about to move back."""
        self.is_being_cut = True

    def end_cut(self) -> None:
        """It has, or stays where it was."""
        self.is_being_cut = False

    def commit(self, offset: Offset, position: tuple[int, int]) -> None:
        """All below the offset may be read."""
        assert self.high_watermark <= offset <= self.log_end_offset, (
            f"{self.key}: the high watermark moves from {self.high_watermark} to {offset}, "
            f"the log ends at {self.log_end_offset}"
        )
        self.high_watermark = offset
        self.high_watermark_position = position
        if self.transactions.ended:
            self.transactions.commit_to(offset)

    def trim(self, offset: Offset, leader_epoch: LeaderEpoch) -> list[Segment]:
        """The log begins here now, by the word of that epoch's leader; the segments that are no
        part of it any more."""
        assert offset <= self.high_watermark, f"{self.key}: {offset} is not committed"
        if offset < self.log_start_offset:
            return []
        self.log_start_epoch = leader_epoch
        if offset == self.log_start_offset:
            return []
        self.log_start_offset = offset
        self.leader_epochs.trim(offset)
        return self.drop_trimmed()

    def drop_trimmed(self) -> list[Segment]:
        """Let go of the segments wholly below the log's start; also after a roll."""
        count = 0
        # The last one stays, whatever it holds: its name tells where the log goes on.
        for segment in self.segments[:-1]:
            if segment.next_offset > self.log_start_offset:
                break
            count += 1
        if not count:
            return []
        removed = self.segments[:count]
        del self.segments[:count]
        self._place_high_watermark(removed)
        return removed

    def replace(self, removed: list[Segment], made: list[Segment]) -> None:
        """A compaction wrote `made` in place of `removed`, a run of sealed segments."""
        place = self.segments.index(removed[0])
        behind = place + len(removed)
        assert self.segments[place:behind] == removed, f"{self.key}: a run of segments is replaced"
        end = removed[-1].next_offset
        assert end <= self.high_watermark, f"{self.key}: what is not committed is compacted"
        assert made[0].base_offset <= max(removed[0].base_offset, self.log_start_offset), (
            f"{self.key}: the compaction begins at {made[0].base_offset}"
        )
        assert made[-1].next_offset == end, (
            f"{self.key}: the compaction ends at {made[-1].next_offset}, not at {end}"
        )
        self.segments[place:behind] = made
        self._place_high_watermark(removed)

    def boundary_below(self, offset: int) -> Offset:
        """A batch begins here, at or below the offset, though perhaps not the last such batch."""
        if not self.segments or offset >= self.log_end_offset:
            return self.log_end_offset
        segment = self.segment_of(offset)
        if segment.index is None or not segment.size_bytes:
            return segment.base_offset
        return Offset(min(offset, segment.index.floor(offset).base_offset))

    def lower_high_watermark(self, offset: int) -> None:
        """What is at or above the offset is not committed any more: somebody decided so."""
        if offset >= self.high_watermark:
            return
        segment = self.segment_of(offset)
        position = 0
        if segment.index is not None and segment.size_bytes:
            position = segment.index.floor(offset).byte_position
        self.high_watermark = max(self.boundary_below(offset), self.log_start_offset)
        self.high_watermark_position = (segment.base_offset, position)

    def cut(
        self,
        last: Segment | None,
        producers: ProducerState,
        offset: Offset,
        *,
        are_producers_known: bool = True,
        ended: Iterable[Ended] = (),
    ) -> None:
        """The log's tail was cut off: it ends with `last`, read again, or with what is before.

        `ended`: transactions that end in what was read again. One whose marker was cut off is open
        again.
        """
        kept = [segment for segment in self.segments if segment.next_offset <= offset]
        if last is not None:
            kept = [segment for segment in kept if segment.base_offset < last.base_offset]
            kept.append(last)
        elif offset <= self.log_start_offset:
            kept = []
        self.segments = kept
        self.log_end_offset = kept[-1].next_offset if kept else self.log_start_offset
        assert self.log_end_offset >= self.log_start_offset, f"{self.key}: its head was cut off"
        self.flushed_offset = self.log_end_offset
        self.led_from = min(self.led_from, self.log_end_offset)
        self.leader_epochs.truncate(self.log_end_offset)
        self.know_producers(producers)
        self.transactions.cut(self.log_end_offset, ended)
        self.are_producers_known = are_producers_known
        self.cut_count += 1
        if self.high_watermark >= self.log_end_offset:
            self.high_watermark = self.log_end_offset
            self.high_watermark_position = self.end_position()
        self.transactions.commit_to(self.high_watermark)
        if self.uncommitted is not None:
            while self.uncommitted and self.uncommitted[-1][0] > self.log_end_offset:
                self.uncommitted.pop()
            known = self.uncommitted[-1][0] if self.uncommitted else self.high_watermark
            if known < self.log_end_offset:
                self._note_uncommitted(self.uncommitted)

    def restart(self, offset: Offset, start_epoch: LeaderEpoch) -> None:
        """The empty log goes on at the offset, which may be below where it began."""
        assert not self.segments, f"{self.key}: only an empty log goes on elsewhere"
        self.log_start_epoch = start_epoch
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.high_watermark, self.high_watermark_position = offset, self.end_position()
        self.leader_epochs = LeaderEpochs()
        self.producers, self.are_producers_known = ProducerState(), True
        self.transactions = OpenTransactions()
        self.cut_count += 1
        if self.uncommitted is not None:
            self.uncommitted.clear()

    def _place_high_watermark(self, removed: list[Segment]) -> None:
        """The segment that the high watermark was placed in is gone: it lies at the end of what
        took its place."""
        base_offset, _ = self.high_watermark_position
        if all(segment.base_offset != base_offset for segment in removed):
            return
        segment = self.segment_of(self.high_watermark)
        is_at_end = self.high_watermark >= segment.next_offset
        position = segment.size_bytes if is_at_end else 0
        self.high_watermark_position = (segment.base_offset, position)

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds the offset, or would."""
        assert self.segments, "an empty log holds no offset"
        place = bisect_right(self.segments, offset, key=_base_offset_of)
        return self.segments[max(0, place - 1)]

    def readable_bytes_of(self, segment: Segment) -> int:
        """How much of the segment lies below the high watermark."""
        base_offset, position = self.high_watermark_position
        if segment.base_offset < base_offset:
            return segment.size_bytes
        return position if segment.base_offset == base_offset else 0

    def available_bytes(self, offset: int, enough_bytes: int) -> int:
        """About how much can be read from the offset on; stops counting at enough."""
        if offset >= self.high_watermark:
            return 0
        first = self.segment_of(offset)
        total = self._bytes_from(first, offset)
        for segment in reversed(self.segments):
            if total >= enough_bytes or segment is first:
                break
            total += self.readable_bytes_of(segment)
        return total

    def _bytes_from(self, segment: Segment, offset: int) -> int:
        """How much of the segment lies at or behind the offset; estimated if it is sealed."""
        if segment.index is not None and segment.size_bytes:
            return self.readable_bytes_of(segment) - segment.index.floor(offset).byte_position
        offsets = segment.next_offset - segment.base_offset
        return segment.size_bytes * (segment.next_offset - offset) // offsets if offsets else 0


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
