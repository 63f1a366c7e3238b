"""The judgement of sequences: what continues, what was sent again, what cannot be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.directory.core.producer_check import SEQUENCES, find_duplicate
from tidelog.broker.log.producer_state import WINDOW_BATCHES, ProducedBatch, Producer, ProducerState
from tidelog.wire.batch import BatchHeader, encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset


def header(sequence: int, *, records: int = 1, epoch: int = 0, base_offset: int = 0) -> BatchHeader:
    batch = encode_batch(
        [(1, None, b"v", ())] * records,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(batch)


def known_of(*batches: tuple[int, int], epoch: int = 0) -> Producer:
    """A producer with batches of (sequence, records), the first one at offset 100."""
    made, offset = [], 100
    for sequence, records in batches:
        made.append(ProducedBatch(sequence, records - 1, Offset(offset), 1))
        offset += records
    return Producer(7, epoch, tuple(made), 1)


def refused(known: Producer | None, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(TidelogError) as caught:
        find_duplicate(known, batch, tried="append")
    return caught.value.code


def judged(state: ProducerState, batch: BatchHeader) -> ProducedBatch | ErrorCode | None:
    """What becomes of it: None, it is appended."""
    try:
        return find_duplicate(state.find(7), batch, tried="append")
    except TidelogError as error:
        return error.code


def test_the_first_batch_of_a_producer_begins_at_zero() -> None:
    assert find_duplicate(None, header(0), tried="append") is None
    assert refused(None, header(3)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_batch_that_continues_is_appended() -> None:
    known = known_of((0, 3), (3, 2))
    assert find_duplicate(known, header(5), tried="append") is None


def test_a_batch_of_the_window_has_the_offset_that_it_got() -> None:
    known = known_of((0, 3), (3, 2), (5, 1))
    again = find_duplicate(known, header(3, records=2), tried="append")
    assert again is not None
    assert again.base_offset == 103


def test_a_gap_is_out_of_order() -> None:
    assert refused(known_of((0, 3)), header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_what_lies_before_the_window_is_stored_but_its_offset_is_not_known() -> None:
    assert refused(known_of((50, 1)), header(10)) is ErrorCode.DUPLICATE_SEQUENCE
    assert refused(known_of((50, 4)), header(47, records=3)) is ErrorCode.DUPLICATE_SEQUENCE


@pytest.mark.parametrize(
    ("sequence", "records", "says"),
    [
        (50, 5, "54 to 54 are not stored"),
        (51, 4, "54 to 54 are not stored"),
        (47, 9, "54 to 55 are not stored"),
        (51, 1, "51 to 51 are stored in batches"),
        (47, 4, "47 to 50 are stored in batches"),
        (53, 1, "53 to 53 are stored in batches"),
    ],
)
def test_what_overlaps_with_stored_batches_and_is_none_of_them_is_no_duplicate(
    sequence: int, records: int, says: str
) -> None:
    """Who hears of a duplicate takes all of its records for stored."""
    with pytest.raises(TidelogError) as caught:
        find_duplicate(
            known_of((50, 2), (52, 2)), header(sequence, records=records), tried="append"
        )
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert not caught.value.retriable
    assert says in caught.value.happened
    assert "the batch is not stored" in caught.value.happened


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.integers(0, SEQUENCES - 1),
    st.integers(0, 40),
    st.integers(1, 9),
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_of_what_is_called_a_duplicate_every_record_was_stored_before_the_window(
    counts: list[int], begin: int, back: int, records: int
) -> None:
    state, sequence, sent = ProducerState(), begin, 0
    state.note(header(begin))
    first = ProducedBatch(begin, 0, Offset(0), 1)
    batches = [first]
    sequence = (begin + 1) % SEQUENCES
    for count in counts:
        state.note(header(sequence, records=count))
        batches.append(ProducedBatch(sequence, count - 1, Offset(0), 1))
        sequence, sent = (sequence + count) % SEQUENCES, sent + count
    again = header((sequence - back) % SEQUENCES, records=records)
    found = judged(state, again)
    window = batches[-WINDOW_BATCHES:]
    known = sum(each.last_offset_delta + 1 for each in window)
    if found is ErrorCode.DUPLICATE_SEQUENCE:
        assert back - records >= known, "no sequence of it is one of the window's"
    elif found is ErrorCode.INVALID_ARGUMENT:
        assert back - records < known
        assert back > 0


def test_an_old_epoch_is_fenced_whatever_its_sequence() -> None:
    known = known_of((0, 1), epoch=2)
    for sequence in (0, 1, 9):
        assert refused(known, header(sequence, epoch=1)) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_new_epoch_begins_at_zero() -> None:
    known = known_of((0, 1), epoch=2)
    assert find_duplicate(known, header(0, epoch=3), tried="append") is None
    assert refused(known, header(1, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_sequences_begin_again_behind_the_highest() -> None:
    known = known_of((SEQUENCES - 2, 2))
    assert find_duplicate(known, header(0), tried="append") is None
    assert refused(known, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    wrapped = known_of((SEQUENCES - 2, 3))
    assert find_duplicate(wrapped, header(1), tried="append") is None
    again = find_duplicate(wrapped, header(SEQUENCES - 2, records=3), tried="append")
    assert again is not None
    assert refused(wrapped, header(SEQUENCES - 9)) is ErrorCode.DUPLICATE_SEQUENCE


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 25)), min_size=1, max_size=40))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_of_what_is_sent_again_everything_is_stored_once(
    sent: list[tuple[int, int]],
) -> None:
    """A producer sends batches, and after each of them an older one again."""
    state, stored = ProducerState(), dict[int, int]()
    batches: list[tuple[int, int]] = []
    sequence, offset = 0, 0
    for records, back in sent:
        batches.append((sequence, records))
        sequence = (sequence + records) % SEQUENCES
        for number in dict.fromkeys((len(batches) - 1, max(0, len(batches) - 1 - back))):
            begin, count = batches[number]
            batch = header(begin, records=count, base_offset=offset)
            again = judged(state, batch)
            if isinstance(again, ErrorCode):
                assert again is ErrorCode.DUPLICATE_SEQUENCE
                assert number <= len(batches) - 1 - WINDOW_BATCHES
                continue
            assert (again is None) == (number not in stored)
            if again is None:
                state.note(batch)
                stored[number] = offset
                offset += count
            else:
                assert again.base_offset == stored[number]
