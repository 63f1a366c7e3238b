"""Compaction against a dictionary: whatever is appended, compacted, interrupted and waited for, a
reader ends with the latest value of each key, from wherever it began in time."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.broker.support.compaction_log import CompactedLog, batch, marker
from tidelog.broker.log.compaction.contract import CompactArguments
from tidelog.broker.log.compaction.offset_map import ENTRY_BYTES
from tidelog.broker.log.compaction.planner import CompactionSettings, first_dirty_offset
from tidelog.broker.log.producer_state import EXPIRATION_MS, ProducerState
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    DecodedRecord,
    RecordTuple,
    decode_batch,
    read_header,
)
from tidelog.wire.batch.marker import MarkerType

RETENTION_MS = 1_000
KEYS = [b"", b"a", b"b", b"c", b"k" * 31, b"k" * 32, b"l" * 33]

RECORDS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=50),
        st.none() | st.sampled_from(KEYS),
        st.none() | st.binary(min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=5,
)


class Stored(msgspec.Struct, kw_only=True):
    """What the model knows of a record."""

    record: DecodedRecord
    transaction: int = -1
    """Which one it belongs to; -1: none."""
    first_cleaned_ms: int = -1
    """When a round first covered it, and was swapped in."""

    @property
    def offset(self) -> int:
        return self.record[0]

    @property
    def key(self) -> bytes | None:
        return self.record[3]

    @property
    def value(self) -> bytes | None:
        return self.record[4]


class Compaction(RuleBasedStateMachine):
    """The log beside the list of all that was ever appended."""

    @initialize(
        segment_bytes=st.sampled_from([1, 200, 500, 10**6]),
        map_entries=st.sampled_from([1, 2, 4, 1_000]),
    )
    def begin(self, segment_bytes: int, map_entries: int) -> None:
        self.settings = CompactionSettings(
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=segment_bytes,
            map_bytes_max=map_entries * ENTRY_BYTES,
        )
        self.now_ms = 1_000_000
        self.log = CompactedLog()
        self.history: list[Stored] = []
        self.open: list[bytes] = []
        self.next_offset = 0
        self.sequences = {0: 0, 1: 0, 2: 0}
        self.live = ProducerState()
        self.transactions = OpenTransactions()
        self.numbers: dict[int, int] = {}
        """Of each producer the open transaction."""
        self.outcomes: list[MarkerType | None] = []
        """Of each transaction; None: it is open."""
        self.first_of: list[int] = []
        """First offsets of all batches: where readers may have stopped."""

    @rule(
        records=RECORDS,
        codec=st.sampled_from(list(Codec)),
        producer=st.sampled_from([-1, -1, 0, 1, 2]),
        is_transactional=st.sampled_from([False, False, False, True]),
    )
    def append(
        self,
        records: list[tuple[int, bytes | None, bytes | None]],
        codec: Codec,
        producer: int,
        is_transactional: bool,
    ) -> None:
        base_offset = self.next_offset
        tuples: list[RecordTuple] = [
            (self.now_ms - age_ms, key, value, ()) for age_ms, key, value in records
        ]
        is_transactional = is_transactional and producer >= 0
        data = batch(
            tuples,
            base_offset,
            codec=codec,
            producer_id=producer,
            base_sequence=self.sequences[producer] if producer >= 0 else -1,
            is_transactional=is_transactional,
        )
        self._store(data)
        if producer >= 0:
            self.sequences[producer] += len(records)
        if is_transactional and producer not in self.numbers:
            self.numbers[producer] = len(self.outcomes)
            self.outcomes.append(None)
        transaction = self.numbers[producer] if is_transactional else -1
        for number, (timestamp_ms, key, value, _) in enumerate(tuples):
            record = (base_offset + number, timestamp_ms, 0, key, value, ())
            self.history.append(Stored(record=record, transaction=transaction))

    @rule(producer=st.sampled_from([0, 1, 2]), is_abort=st.booleans())
    def end_transaction(self, producer: int, is_abort: bool) -> None:
        """Also where none is open: a marker may be repeated."""
        ended = marker(
            self.next_offset,
            producer,
            is_abort=is_abort,
            producer_epoch=0,
            timestamp_ms=self.now_ms,
        )
        self._store(ended)
        if producer in self.numbers:
            kind = MarkerType.ABORT if is_abort else MarkerType.COMMIT
            self.outcomes[self.numbers.pop(producer)] = kind

    def _store(self, data: bytes) -> None:
        header = read_header(data)
        self.open.append(data)
        self.first_of.append(self.next_offset)
        self.next_offset = header.next_offset
        self.live.note(header, marker_of(data, header))
        if header.is_transactional:
            aborted = self.transactions.note(header, marker_of(data, header))
            if aborted is not None:
                self.log.aborted_behind.append(aborted)
        self.transactions.commit_to(self.next_offset)
        self.log.bound_offset = self.transactions.last_stable_offset(self.next_offset)

    @precondition(lambda self: self.open)
    @rule()
    def roll(self) -> None:
        self.log.seal(self.open)
        self.open = []
        self.log.aborted_behind = []
        self.live.expire()

    @rule(wait_ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS, 3 * RETENTION_MS]))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule()
    def wait_until_producers_are_forgotten(self) -> None:
        self.now_ms += EXPIRATION_MS + 1

    @rule(groups_max=st.sampled_from([0, 1, 2, 1_000, 1_000, 1_000]))
    def compact(self, groups_max: int) -> None:
        before = [each.key for each in self.log.segments]
        self.log.compact(self.settings, now_ms=self.now_ms, groups_max=groups_max)
        for made in self.log.segments:
            if made.key not in before:
                self._note_cleaned(made.base_offset, min(made.next_offset, made.cleaned_below))

    @precondition(lambda self: self.log.segments and not self.log.plan(self.settings))
    @rule()
    def compact_again_and_change_nothing_but_by_time(self) -> None:
        before = self._batches_with_records()
        bound = self.log.bound_offset or 0
        segments = [each for each in self.log.segments if each.next_offset <= bound]
        if not segments:
            return
        arguments = CompactArguments(
            segments=tuple(segments),
            first_dirty_offset=first_dirty_offset(segments),
            now_ms=0,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=self.settings.segment_bytes,
        )
        for replacement in self.log.run(self.log.with_aborted(arguments)).replacements:
            self.log.swap(replacement)
        # Empty ones may go: segments that have shrunk are joined, and producers are forgotten.
        assert self._batches_with_records() == before

    def _batches_with_records(self) -> list[bytes]:
        return [
            data
            for header, data in self.log.batches()
            if header.record_count and not header.is_control
        ]

    def _note_cleaned(self, start: int, end: int) -> None:
        for stored in self.history:
            if start <= stored.offset < end and stored.first_cleaned_ms < 0:
                stored.first_cleaned_ms = self.now_ms

    @invariant()
    def records_are_as_they_were_appended(self) -> None:
        stored = {each.offset: each.record for each in self.history}
        found = self.log.records()
        assert [stored[record[0]] for record in found] == [_plain(record) for record in found]

    @invariant()
    def the_latest_record_of_each_key_is_there_or_a_tombstone_that_was_long_enough(self) -> None:
        found = {record[0] for record in self.log.records()}
        for latest in _latest(self._sealed()).values():
            if latest.offset in found:
                continue
            assert latest.value is None, f"the last value of {latest.key!r} is gone"
            assert latest.first_cleaned_ms >= 0
            assert self.now_ms >= latest.first_cleaned_ms + RETENTION_MS, (
                "a tombstone is gone early"
            )

    @invariant()
    def a_reader_from_anywhere_ends_with_the_latest_values(self) -> None:
        """It read everything below some offset when that was all there was, and goes on there."""
        expected = _values(self._sealed())
        visible = {each.offset for each in self._sealed()}
        for start in (0, *self.first_of[-3:], *self.first_of[:3]):
            known = _values(each for each in self._sealed() if each.offset < start)
            for offset, _, _, key, value, _ in self.log.records(start):
                if key is not None and offset in visible:
                    known[key] = value
            for key, value in known.items():
                if value is not None and value != expected.get(key):
                    gone = _latest(self._sealed())[key]
                    assert gone.value is None, "an old value is left"
                    assert self.now_ms >= gone.first_cleaned_ms + RETENTION_MS
                    assert start > 0, "a deleted value has come back"
            assert {key: value for key, value in expected.items() if value is not None} == {
                key: value
                for key, value in known.items()
                if value is not None and expected.get(key) is not None
            }

    @invariant()
    def the_clean_part_holds_a_key_once(self) -> None:
        end = first_dirty_offset(self.log.segments)
        keys = [record[3] for record in self.log.records() if record[0] < end]
        visible = {each.offset for each in self._sealed()}
        clean = {record[0] for record in self.log.records() if record[0] < end}
        assert clean <= visible, "what was aborted is left"
        assert None not in keys
        assert len(keys) == len(set(keys))

    @invariant()
    def the_chain_of_segments_and_every_offset_can_be_read(self) -> None:
        headers = [header for header, _ in self.log.batches()]
        for start in range(0, self.log.next_offset, 1 + self.log.next_offset // 20):
            assert any(header.next_offset > start for header in headers)

    @invariant()
    def known_producers_have_their_last_batch_and_the_state_is_carried_over(self) -> None:
        if not self.log.segments:
            return
        state = self.log.producers_behind(self.log.segments[-1])
        if not self.open:
            assert state == self.live
        headers = {int(header.base_offset): header for header, _ in self.log.batches()}
        for producer in state.producers:
            for last in producer.batches[-1:]:
                header = headers[last.base_offset]
                assert _identity(header) == (
                    producer.producer_id,
                    producer.epoch,
                    last.base_sequence,
                    last.last_offset_delta,
                )

    @invariant()
    def what_was_aborted_is_told_and_nothing_else(self) -> None:
        """As a reader of committed records filters: by the producer and the place of a batch."""
        told = self.log.aborted()
        by_offset = {each.offset: each for each in self.history}
        for header, data in self.log.batches():
            if header.is_control or not header.is_transactional:
                continue
            is_told = any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset < each.marker_offset
                for each in told
            )
            for record in decode_batch(data, is_compacted=True):
                outcome = self.outcomes[by_offset[record[0]].transaction]
                assert is_told == (outcome is MarkerType.ABORT)

    @invariant()
    def a_copy_of_the_log_meets_the_end_of_all_that_it_has_met_the_beginning_of(self) -> None:
        copy = OpenTransactions()
        for header, data in (
            *self.log.batches(),
            *((read_header(each), each) for each in self.open),
        ):
            if header.is_transactional:
                copy.note(header, marker_of(data, header))
        open_here = {producer for producer, _ in copy.started}
        assert open_here == {producer for producer, _ in self.transactions.started}

    @invariant()
    def horizons_in_summaries_are_those_of_tombstones(self) -> None:
        for summary in self.log.segments:
            horizons = [
                header.base_timestamp
                for header, _ in self.log.batches()
                if header.has_delete_horizon
                and summary.base_offset <= header.base_offset < summary.next_offset
            ]
            assert summary.tombstone_horizon_ms == min(horizons, default=-1)

    def teardown(self) -> None:
        """In the end all is compacted, waited for, and compacted once more."""
        for producer in list(self.numbers):
            self.end_transaction(producer, False)
        for _ in range(3):
            # A marker begins to die in a round from the log's start: one for new records.
            self.append([(0, b"last", b"1")], Codec.NONE, -1, False)
            self.roll()
            for _ in range(100):
                if self.log.compact(self.settings, now_ms=self.now_ms) is None:
                    break
            self.now_ms += 2 * RETENTION_MS + 1
        dead = {each.offset for each in self._sealed() if each.value is None}
        found = {record[0] for record in self.log.records()}
        assert not found & dead, "a tombstone never dies"
        self._check_markers_left()

    def _check_markers_left(self) -> None:
        """Those of which a batch is left, and what a segment ends with; an epoch begins at 0.
        Others have their horizon: one that ended a segment until this round waits for it."""
        standing: set[int] = set()
        for header, _ in self.log.batches():
            if not header.is_control and header.is_transactional:
                standing.add(header.producer_id)
            elif header.is_control:
                ends = {each.next_offset for each in self.log.segments}
                is_needed = header.next_offset in ends or not header.base_offset
                is_dying = header.has_delete_horizon
                assert header.producer_id in standing or is_needed or is_dying
                standing.discard(header.producer_id)

    def _sealed(self) -> list[Stored]:
        """What readers of committed records see of the sealed segments, or will have seen."""
        return [
            each
            for each in self.history
            if each.offset < self.log.next_offset
            and (each.transaction < 0 or self.outcomes[each.transaction] is MarkerType.COMMIT)
        ]


def _plain(record: DecodedRecord) -> DecodedRecord:
    offset, timestamp_ms, kind, key, value, headers = record
    return (offset, timestamp_ms, kind, key, value, tuple(headers))


def _latest(history: Iterable[Stored]) -> dict[bytes, Stored]:
    return {each.key: each for each in history if each.key is not None}


def _values(history: Iterable[Stored]) -> dict[bytes, bytes | None]:
    return {each.key: each.value for each in history if each.key is not None}


def _identity(header: BatchHeader) -> tuple[int, int, int, int]:
    return (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta,
    )


@pytest.mark.slow
def test_compaction_agrees_with_a_dictionary() -> None:
    run_state_machine_as_test(
        Compaction, settings=settings(max_examples=150, stateful_step_count=30, deadline=None)
    )
