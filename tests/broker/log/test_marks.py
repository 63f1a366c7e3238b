"""The marks file's bytes: the last whole entry of a kind counts."""

from tidelog.broker.log.marks.marks import (
    ENTRY_BYTES,
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
    marks_of,
    start_marks,
)
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))
OTHER = PartitionKey(TopicId(bytes(16)), PartitionId(0))


def flushed(key: PartitionKey, offset: int) -> Mark:
    return Mark(key, MarkKind.FLUSHED, offset)


def test_the_last_entry_counts_also_if_it_is_the_lower_one() -> None:
    data = encode_marks([flushed(KEY, 9), flushed(OTHER, 1), flushed(KEY, 5)])
    assert len(data) == 3 * ENTRY_BYTES
    assert decode_marks(data) == {
        KEY: PartitionMarks(flushed_offset=5),
        OTHER: PartitionMarks(flushed_offset=1),
    }


def test_kinds_are_told_apart_and_come_back() -> None:
    known = PartitionMarks(flushed_offset=9, log_start_offset=4, committed_offset=7, gaps_from=6)
    assert decode_marks(encode_marks(marks_of(KEY, known))) == {KEY: known}
    assert decode_marks(encode_marks([Mark(KEY, MarkKind.LOG_START, 2)])) == {
        KEY: PartitionMarks(log_start_offset=2)
    }


def test_torn_entries_and_unknown_kinds_are_skipped() -> None:
    data = encode_marks([flushed(KEY, 5), flushed(OTHER, 1), flushed(KEY, 9)])
    expected = {KEY: PartitionMarks(flushed_offset=5), OTHER: PartitionMarks(flushed_offset=1)}
    assert decode_marks(data[:-1]) == expected
    damaged = bytearray(data)
    damaged[2 * ENTRY_BYTES + 30] ^= 1
    assert decode_marks(bytes(damaged)) == expected
    assert decode_marks(bytes(2 * ENTRY_BYTES)) == {}


def test_a_mark_is_stored_as_it_was_in_the_first_release_that_had_it() -> None:
    golden = "000102030405060708090a0b0c0d0e0f00000003010000000000000000000009bb17fe9c"
    assert encode_marks([flushed(KEY, 9)]).hex() == golden


# -- by whose word a log begins ------------------------------------------------------------------


def test_a_start_is_told_with_the_epoch_that_moved_it() -> None:
    known = PartitionMarks(log_start_offset=4, log_start_epoch=7)
    data = encode_marks(marks_of(KEY, known))
    assert len(data) == 2 * ENTRY_BYTES
    assert decode_marks(data) == {KEY: known}


def test_a_start_that_an_earlier_version_has_stored_is_nobodys() -> None:
    earlier = encode_marks([Mark(KEY, MarkKind.LOG_START, 9)])
    assert decode_marks(earlier) == {KEY: PartitionMarks(log_start_offset=9)}
    behind = encode_marks(start_marks(KEY, 4, 7)) + earlier
    assert decode_marks(behind) == {KEY: PartitionMarks(log_start_offset=9)}, (
        "the epoch of another start says nothing of this one"
    )


def test_an_epoch_counts_for_the_very_next_entry_only() -> None:
    epoch, start = start_marks(KEY, 4, 7)
    between = encode_marks([epoch, flushed(KEY, 5), start])
    assert decode_marks(between)[KEY].log_start_epoch == -1
    of_another = encode_marks([epoch, Mark(OTHER, MarkKind.LOG_START, 3), start])
    assert {each.log_start_epoch for each in decode_marks(of_another).values()} == {-1}


def test_a_start_behind_a_damaged_entry_is_left_to_the_other_file() -> None:
    earlier = start_marks(KEY, 4, 7)
    data = bytearray(encode_marks([*earlier, *start_marks(KEY, 6, 8)]))
    data[2 * ENTRY_BYTES + 30] ^= 1
    assert decode_marks(bytes(data)) == {
        KEY: PartitionMarks(log_start_offset=4, log_start_epoch=7)
    }, "torn off by a crash nobody had acted on it; else the other file has both"
    data = bytearray(encode_marks([flushed(KEY, 3), flushed(KEY, 5), flushed(KEY, 6)]))
    data[ENTRY_BYTES + 30] ^= 1
    assert decode_marks(bytes(data)) == {KEY: PartitionMarks(flushed_offset=6)}
    data = bytearray(encode_marks([*earlier, *start_marks(KEY, 6, 8)]))
    data[3 * ENTRY_BYTES + 30] ^= 1
    assert decode_marks(bytes(data)) == {KEY: PartitionMarks(log_start_offset=4, log_start_epoch=7)}


def test_a_start_with_its_epoch_is_stored_as_it_was_in_the_first_release_that_had_it() -> None:
    golden = (
        "000102030405060708090a0b0c0d0e0f00000003050000000000000000000007d2a8117b"
        "000102030405060708090a0b0c0d0e0f0000000302000000000000000000000457adce1f"
    )
    assert encode_marks(start_marks(KEY, 4, 7)).hex() == golden
