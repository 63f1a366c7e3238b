"""What a log knows of its producers: a function of the headers that it holds."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segment_bytes import (
    Batch,
    batches,
    header_of,
    headers_of,
    markers_in,
    segment_bytes,
)
from tidelog.broker.log.producer_state import (
    EXPIRATION_MS,
    NO_TRANSACTION,
    PRODUCERS_MAX,
    WINDOW_BATCHES,
    ProducedBatch,
    Producer,
    ProducerState,
)
from tidelog.broker.log.transactions.admission import NO_COORDINATOR, ProducerHere
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

DAY_MS = EXPIRATION_MS


def noted(*batches: Batch) -> ProducerState:
    """The state behind these batches, one record each."""
    state = ProducerState()
    note_all(state, segment_bytes(batches))
    return state


def note_all(state: ProducerState, data: bytes) -> None:
    for header, marker in zip(headers_of(data), markers_in(data), strict=True):
        state.note(header, marker)


def found(state: ProducerState, producer_id: int = 7) -> Producer:
    producer = state.find(producer_id)
    assert producer is not None
    return producer


def test_a_batch_is_known_by_its_sequence_and_its_offset() -> None:
    state = noted(Batch(records=4), Batch(producer_id=7, base_sequence=5, records=3, timestamp=9))
    assert found(state).batches == (ProducedBatch(5, 2, Offset(4), 9),)
    assert state.find(8) is None


def test_the_last_sixteen_batches_are_known() -> None:
    state = noted(*(Batch(producer_id=7, base_sequence=number) for number in range(20)))
    assert [each.base_sequence for each in found(state).batches] == list(range(4, 20))
    assert [each.base_offset for each in found(state).batches] == list(range(4, 20))
    assert len(found(state).batches) == WINDOW_BATCHES == 16


def test_a_new_epoch_begins_a_new_window() -> None:
    state = noted(
        Batch(producer_id=7, base_sequence=0),
        Batch(producer_id=7, base_sequence=1),
        Batch(producer_id=7, producer_epoch=1, base_sequence=0),
    )
    assert found(state).epoch == 1
    assert found(state).batches == (ProducedBatch(0, 0, Offset(2), 1_000),)


def test_a_batch_of_an_older_epoch_changes_nothing_of_the_producer() -> None:
    new = Batch(producer_id=7, producer_epoch=2, base_sequence=9, is_transactional=True)
    state = noted(new, Batch(producer_id=7, producer_epoch=1, timestamp=5_000))
    assert found(state) == found(noted(new))
    assert state.log_time_ms == 5_000


def test_what_is_stored_counts_for_transactions_whatever_its_epoch() -> None:
    new = Batch(producer_id=7, producer_epoch=2, base_sequence=9, is_transactional=True)
    ended = noted(new, Batch(producer_id=7, producer_epoch=1, is_control=True))
    assert found(ended).transaction_start == NO_TRANSACTION
    late = Batch(producer_id=7, producer_epoch=1, base_sequence=3, is_transactional=True)
    begun = noted(new, Batch(producer_id=7, producer_epoch=3, is_control=True), late)
    assert (found(begun).transaction_start, found(begun).epoch) == (2, 3)
    assert found(begun).batches == ()


def test_the_highest_epoch_of_a_coordinator_is_known_though_a_lower_one_is_stored_behind() -> None:
    state = noted(
        Batch(producer_id=7, is_control=True, coordinator_epoch=4),
        Batch(producer_id=7, producer_epoch=1, is_control=True, coordinator_epoch=2),
        Batch(producer_id=7, producer_epoch=1, is_transactional=True),
    )
    assert found(state).coordinator_epoch == 4
    assert state.here(7) == ProducerHere(epoch=1, is_open=True, coordinator_epoch=4)
    assert state.here(8) is None


def test_a_producer_whose_markers_alone_are_young_is_not_forgotten() -> None:
    state = noted(
        Batch(producer_id=7, timestamp=100),
        Batch(producer_id=7, timestamp=DAY_MS, is_control=True, coordinator_epoch=4),
        Batch(timestamp=100 + DAY_MS),
    )
    state.expire()
    assert found(state).coordinator_epoch == 4


def test_a_transaction_lasts_from_its_first_batch_to_its_marker() -> None:
    begun = Batch(producer_id=7, is_transactional=True)
    state = noted(Batch(), begun, begun)
    assert found(state).transaction_start == 1
    assert state.first_open_offset() == 1
    ended = noted(Batch(), begun, begun, Batch(producer_id=7, is_control=True))
    assert found(ended).transaction_start == NO_TRANSACTION
    assert ended.first_open_offset() == NO_TRANSACTION
    assert len(found(ended).batches) == 2


def test_the_first_open_offset_is_the_lowest_of_all_open_transactions() -> None:
    state = noted(
        *(Batch(producer_id=each, is_transactional=True) for each in (5, 4, 6)),
        Batch(producer_id=5, is_control=True),
    )
    assert state.first_open_offset() == 1


def test_a_marker_with_a_new_epoch_ends_the_transaction_and_the_window() -> None:
    state = noted(
        Batch(producer_id=7, is_transactional=True),
        Batch(producer_id=7, producer_epoch=1, is_control=True),
    )
    assert found(state) == Producer(7, 1, (), 1_000, coordinator_epoch=0)


def test_a_marker_of_an_unknown_producer_makes_its_epoch_known() -> None:
    assert found(noted(Batch(producer_id=7, producer_epoch=3, is_control=True))).epoch == 3


def test_a_data_batch_of_a_new_epoch_leaves_an_open_transaction_open() -> None:
    state = noted(
        Batch(producer_id=7, is_transactional=True),
        Batch(producer_id=7, producer_epoch=1, is_transactional=True),
    )
    assert found(state).transaction_start == 0


def test_a_batch_that_belongs_to_no_transaction_opens_none() -> None:
    assert found(noted(Batch(producer_id=7))).transaction_start == NO_TRANSACTION


def test_a_producer_is_forgotten_a_day_of_the_logs_time_after_it_wrote() -> None:
    old = Batch(producer_id=7, timestamp=100)
    state = noted(old, Batch(timestamp=99 + DAY_MS))
    state.expire()
    assert state.find(7) is not None
    state = noted(old, Batch(timestamp=100 + DAY_MS))
    state.expire()
    assert state.find(7) is None
    assert state.log_time_ms == 100 + DAY_MS


def test_records_of_old_events_make_no_producer_old() -> None:
    state = noted(Batch(timestamp=10 * DAY_MS), Batch(producer_id=7, timestamp=5))
    state.expire()
    assert found(state).last_timestamp == 10 * DAY_MS


def test_an_open_transaction_is_never_forgotten() -> None:
    state = noted(
        Batch(producer_id=7, is_transactional=True, timestamp=0), Batch(timestamp=5 * DAY_MS)
    )
    state.expire()
    assert found(state).transaction_start == 0


def test_of_too_many_producers_the_one_that_wrote_longest_ago_is_forgotten() -> None:
    open_one = Producer(1, 0, (), 0, transaction_start=3)
    others = tuple(Producer(number, 0, (), 0) for number in range(2, PRODUCERS_MAX + 1))
    state = ProducerState((open_one, *others), 0)
    state.note(header_of(Batch(producer_id=2)))
    assert len(state) == PRODUCERS_MAX
    state.note(header_of(Batch(producer_id=77_777)))
    assert len(state) == PRODUCERS_MAX
    assert state.find(1) is not None
    assert state.find(2) is not None
    assert state.find(3) is None


def test_a_copy_changes_by_itself() -> None:
    state = noted(Batch(producer_id=7))
    other = state.copy()
    assert other == state
    other.note(header_of(Batch(producer_id=7)))
    assert other != state
    assert len(found(state).batches) == 1


def test_states_differ_by_their_log_time_and_by_who_wrote_last() -> None:
    one, two = Producer(1, 0, (), 0), Producer(2, 0, (), 0)
    assert ProducerState((one,), 0) != ProducerState((one,), 1)
    assert ProducerState((one, two), 0) != ProducerState((two, one), 0)
    assert ProducerState((one,), 0) != one


@settings(max_examples=60)
@given(stored=batches(), cut=st.integers(0, 40))
def test_a_state_that_was_stored_between_goes_on_as_if_it_had_not_been(
    stored: list[Batch], cut: int
) -> None:
    data = segment_bytes(stored)
    whole, resumed = ProducerState(), ProducerState()
    for number, (header, marker) in enumerate(zip(headers_of(data), markers_in(data), strict=True)):
        whole.note(header, marker)
        if number == cut:
            resumed = ProducerState.decode(resumed.encode())
        resumed.note(header, marker)
    assert resumed == whole
    assert resumed.encode() == whole.encode()
    assert ProducerState.decode(whole.encode()) == whole


@settings(max_examples=60)
@given(stored=batches(max_size=200))
def test_what_is_known_is_what_a_plain_reading_of_the_headers_says(stored: list[Batch]) -> None:
    data = segment_bytes(stored)
    headers, state = headers_of(data), ProducerState()
    note_all(state, data)
    for producer_id in range(4):
        mine = [each for each in headers if each.producer_id == producer_id]
        producer = state.find(producer_id)
        assert (producer is None) == (not mine)
        if producer is None:
            continue
        assert producer.epoch == max(each.producer_epoch for each in mine)
        present = [
            each.base_offset
            for each in mine
            if each.producer_epoch == producer.epoch and not each.is_control
        ]
        markers = [
            marker.coordinator_epoch
            for header, marker in zip(headers, markers_in(data), strict=True)
            if marker is not None and header.producer_id == producer_id
        ]
        assert producer.coordinator_epoch == max(markers, default=NO_COORDINATOR)
        assert [each.base_offset for each in producer.batches] == present[-WINDOW_BATCHES:]


GOLDEN = bytes.fromhex("00010000000000140af9947392cd03e8919507009194050204cd03e8cd03e804")


def test_the_bytes_of_a_state_are_pinned() -> None:
    state = noted(
        Batch(records=4),
        Batch(producer_id=7, base_sequence=5, records=3, is_transactional=True),
    )
    assert state.encode().hex() == GOLDEN.hex()
    assert ProducerState.decode(GOLDEN) == state


GOLDEN_OF_MARKERS = bytes.fromhex(
    "000200000000001e18feecbe92cd03e89296070190cd03e8ff0c9608009194000004cd03e8cd03e804ff"
)


def test_the_bytes_of_a_state_that_knows_of_markers_are_pinned() -> None:
    state = noted(
        Batch(producer_id=7, base_sequence=5, records=3, is_transactional=True),
        Batch(producer_id=7, producer_epoch=1, is_control=True, coordinator_epoch=12),
        Batch(producer_id=8, is_transactional=True),
    )
    assert state.encode().hex() == GOLDEN_OF_MARKERS.hex()
    assert ProducerState.decode(GOLDEN_OF_MARKERS) == state
    assert (GOLDEN[1], GOLDEN_OF_MARKERS[1]) == (1, 2)


def test_a_version_says_what_a_state_tells_and_nothing_else() -> None:
    plain, marked = GOLDEN[12:], GOLDEN_OF_MARKERS[12:]
    assert code_of(forged(plain, version=2)) is ErrorCode.STORAGE_CORRUPT
    assert code_of(forged(marked, version=1)) is ErrorCode.STORAGE_CORRUPT
    assert ProducerState.decode(forged(plain)).encode() == GOLDEN


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = noted(*(Batch(producer_id=each, is_transactional=True) for each in range(3))).encode()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert code_of(bytes(flipped)) is ErrorCode.STORAGE_CORRUPT
    for length in range(len(data)):
        assert code_of(data[:length]) is ErrorCode.STORAGE_CORRUPT
    assert code_of(data + b"\x00") is ErrorCode.STORAGE_CORRUPT


def code_of(data: bytes) -> ErrorCode:
    with pytest.raises(TidelogError) as raised:
        ProducerState.decode(data)
    return raised.value.code


def forged(body: bytes, *, version: int = 1) -> bytes:
    """A state with a right checksum over whatever it holds."""
    head = version.to_bytes(2, "big") + bytes(2) + len(body).to_bytes(4, "big")
    return head + checksum(head + body).to_bytes(4, "big") + body


def test_a_newer_version_is_named() -> None:
    assert code_of(forged(b"\x92\x00\x90", version=3)) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "producers",
    [
        (Producer(-1, 0, (), 0),),
        (Producer(1, -1, (), 0),),
        (Producer(1, 2**15, (), 0),),
        (Producer(1, 0, (), 1),),
        (Producer(1, 0, (), 0, -2),),
        (Producer(1, 0, (ProducedBatch(0, 0, Offset(0), 0),) * 17, 0),),
        (Producer(1, 0, (ProducedBatch(-1, 0, Offset(0), 0),), 0),),
        (Producer(1, 0, (ProducedBatch(0, 0, Offset(-1), 0),), 0),),
        (Producer(1, 0, (ProducedBatch(0, 0, Offset(0), 9),), 0),),
        (Producer(1, 0, (), 0, coordinator_epoch=-2),),
        (Producer(1, 0, (), 0, coordinator_epoch=2**31),),
        (Producer(1, 0, (), 0), Producer(1, 0, (), 0)),
    ],
)
def test_what_cannot_be_is_refused_also_with_a_right_checksum(
    producers: tuple[Producer, ...],
) -> None:
    assert code_of(forged(msgspec.msgpack.encode((0, producers)))) is ErrorCode.STORAGE_CORRUPT


@pytest.mark.fuzz
@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_state_or_corrupt(body: bytes) -> None:
    for data in (body, forged(body)):
        with contextlib.suppress(TidelogError):
            ProducerState.decode(data)
            continue
        assert code_of(data) is ErrorCode.STORAGE_CORRUPT
