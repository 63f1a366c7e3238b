"""The marks file's bytes: the last whole entry of a kind counts."""

from tidelog.broker.log.marks import (
    ENTRY_BYTES,
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
    marks_of,
)
from tidelog.broker.log.names import PartitionKey
from tidelog.wire.ids import PartitionId, TopicId

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
