"""The job that seals: a whole segment gets a sidecar, a damaged one gets none."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.job_files import MemoryJobFiles, disk_failed, run_job
from tests.support.segment_bytes import Batch, batches, segment_bytes, segment_key
from tidelog.broker.log.jobs.seal import (
    SEAL_JOB,
    SealArguments,
    Sealed,
    decode_result,
    encode_arguments,
    seal,
    unfinished_path,
)
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.producer_state import Producer, ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, decode_summary, find_section
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

FIRST, SECOND = segment_key(), segment_key(3)
FIRST_BYTES = segment_bytes([Batch(records=2, producer_id=4), Batch(leader_epoch_step=1)])
SECOND_BYTES = segment_bytes([Batch(producer_id=4, base_sequence=2)], base_offset=3, leader_epoch=1)


def sealed(files: MemoryJobFiles, asked: SealArguments) -> Sealed:
    return decode_result(run_job(seal, files, encode_arguments(asked)))


def renamed(files: MemoryJobFiles, asked: SealArguments) -> Summary:
    """As the node does it."""
    result = sealed(files, asked)
    path = unfinished_path(asked.segment)
    data = files.flushed[path]
    assert bytes(files.files.pop(path)) == data, "all of it is flushed"
    assert result.sidecar_bytes == len(data)
    assert result.summary is not None
    files.files[asked.segment.sidecar_path] = bytearray(data)
    return result.summary


def error_of(files: MemoryJobFiles, asked: SealArguments) -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        sealed(files, asked)
    return raised.value


def test_the_job_is_found_by_its_name() -> None:
    assert f"{seal.__module__}:{seal.__name__}" == SEAL_JOB


def test_a_segment_gets_its_sidecar_under_an_unfinished_name() -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES})
    summary = renamed(files, SealArguments(segment=FIRST, next_offset=Offset(3)))
    assert unfinished_path(FIRST) == f"{FIRST.sidecar_path}.new"
    data = bytes(files.files[FIRST.sidecar_path])
    assert decode_summary(data, FIRST, file_bytes=len(data)) == summary
    assert summary.leader_epochs == (EpochStart(0, 0), EpochStart(1, 2))
    assert bytes(files.files[FIRST.path]) == FIRST_BYTES


def test_epochs_and_producers_go_on_from_the_sidecar_before() -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES, SECOND.path: SECOND_BYTES})
    renamed(files, SealArguments(segment=FIRST))
    summary = renamed(files, SealArguments(segment=SECOND, previous=FIRST))
    assert summary.leader_epochs == (EpochStart(0, 0), EpochStart(1, 2))
    section = find_section(summary, PRODUCERS)
    data = files.files[SECOND.sidecar_path][section.byte_position :]
    producer = ProducerState.decode(bytes(data)).find(4)
    assert producer is not None
    assert [each.base_offset for each in producer.batches] == [0, 3]


@pytest.mark.parametrize("previous", [None, FIRST])
def test_without_a_sidecar_before_they_begin_with_the_segment(
    previous: SealArguments | None,
) -> None:
    files = MemoryJobFiles({SECOND.path: SECOND_BYTES})
    asked = SealArguments(segment=SECOND, previous=FIRST if previous else None)
    assert renamed(files, asked).leader_epochs == (EpochStart(1, 3),)


def test_producers_that_are_told_take_the_place_of_a_segment_that_is_gone() -> None:
    known = ProducerState((Producer(8, 2, (), 500),), 500)
    files = MemoryJobFiles({SECOND.path: SECOND_BYTES})
    summary = renamed(files, SealArguments(segment=SECOND, producers_before=known.encode()))
    data = files.files[SECOND.sidecar_path][find_section(summary, PRODUCERS).byte_position :]
    assert [each.producer_id for each in ProducerState.decode(bytes(data)).producers] == [8, 4]


def test_a_damaged_sidecar_before_is_named_and_nothing_is_written() -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES, SECOND.path: SECOND_BYTES})
    renamed(files, SealArguments(segment=FIRST))
    good = bytes(files.files[FIRST.sidecar_path])
    for position in (0, 9, 40, len(good) - 1):
        files.files[FIRST.sidecar_path] = bytearray(good)
        files.files[FIRST.sidecar_path][position] ^= 1
        result = sealed(files, SealArguments(segment=SECOND, previous=FIRST))
        assert result.summary is None
        assert FIRST.sidecar_path in result.previous_damage
        assert unfinished_path(SECOND) not in files.files


def test_a_sidecar_before_that_reaches_into_the_segment_is_damaged() -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES, SECOND.path: SECOND_BYTES})
    renamed(files, SealArguments(segment=FIRST))
    overlapping = segment_key(2)
    result = sealed(files, SealArguments(segment=overlapping, previous=FIRST))
    assert "behind the next" in result.previous_damage


@settings(max_examples=30)
@given(stored=batches(max_size=20, max_gap=2))
def test_the_sidecar_made_again_equals_the_first(stored: list[Batch]) -> None:
    data = segment_bytes(stored)
    files = MemoryJobFiles({FIRST.path: data})
    asked = SealArguments(segment=FIRST, is_contiguous=False)
    summary = renamed(files, asked)
    first = bytes(files.files[FIRST.sidecar_path])
    assert renamed(files, asked) == summary
    assert bytes(files.files[FIRST.sidecar_path]) == first


def test_what_is_told_of_a_compaction_is_in_the_summary() -> None:
    key = segment_key(0, generation=4)
    files = MemoryJobFiles({key.path: FIRST_BYTES})
    asked = SealArguments(
        segment=key, is_contiguous=False, cleaned_below=9, replaces=(Replaced(Offset(0), 3),)
    )
    summary = renamed(files, asked)
    assert (summary.generation, summary.cleaned_below) == (4, 9)
    assert summary.replaces == (Replaced(Offset(0), 3),)


def test_a_segment_longer_than_a_piece_is_read_in_pieces() -> None:
    many = [Batch(value_bytes=5_000, leader_epoch_step=0) for _ in range(700)]
    data = segment_bytes(many)
    assert len(data) > 3 * 2**20
    files = MemoryJobFiles({FIRST.path: data})
    summary = renamed(files, SealArguments(segment=FIRST))
    builder = SidecarBuilder(SegmentFacts(key=FIRST))
    builder.feed(data)
    assert builder.finish() == (summary, bytes(files.files[FIRST.sidecar_path]))


@pytest.mark.parametrize(
    ("asked", "happened"),
    [
        (SealArguments(segment=FIRST, next_offset=Offset(4)), "it ends at offset 3, not 4"),
        (SealArguments(segment=FIRST, size_bytes=len(FIRST_BYTES) + 5), "belong to it"),
        (SealArguments(segment=FIRST, size_bytes=len(FIRST_BYTES) - 70), "belong to it"),
        (SealArguments(segment=FIRST, leader_epoch_max=0), "its leader epoch is 1"),
        (SealArguments(segment=SECOND), "damage at byte 0: the file is not there"),
        (SealArguments(segment=segment_key(0, 1)), "the file is not there"),
    ],
)
def test_a_segment_that_is_not_what_it_should_be_is_damaged(
    asked: SealArguments, happened: str
) -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES})
    error = error_of(files, asked)
    assert error.code is ErrorCode.STORAGE_CORRUPT
    assert asked.segment.path in error.tried
    assert happened in error.happened
    assert not files.made


@pytest.mark.fuzz
@settings(max_examples=200)
@given(position=st.integers(0, len(FIRST_BYTES) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_sealed_but_in_a_leader_epoch(position: int, bit: int) -> None:
    data = bytearray(FIRST_BYTES)
    data[position] ^= 1 << bit
    files = MemoryJobFiles({FIRST.path: bytes(data)})
    asked = SealArguments(segment=FIRST, next_offset=Offset(3), leader_epoch_max=1)
    second = len(FIRST_BYTES) - len(segment_bytes([Batch()]))
    if position in range(12, 16) or position in range(second + 12, second + 16):
        # The epochs 0 and 1 may be turned into each other: digests are made of what is there.
        return
    error = error_of(files, asked)
    assert error.code is ErrorCode.STORAGE_CORRUPT
    assert error.happened.startswith(f"damage at byte {0 if position < second else second}: ")


@pytest.mark.parametrize("operation", ["read", "create", "append", "flush"])
def test_a_disk_that_fails_is_told_as_it_is(operation: str) -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES})

    def fail(done: str, path: str) -> None:
        if done == operation:
            raise disk_failed(f"{done} {path}")

    files.fail = fail
    assert error_of(files, SealArguments(segment=FIRST)).code is ErrorCode.STORAGE_FAILED


def test_a_disk_that_fails_at_the_sidecar_before_is_no_damage() -> None:
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES, SECOND.path: SECOND_BYTES})
    renamed(files, SealArguments(segment=FIRST))

    def fail(done: str, path: str) -> None:
        if path == FIRST.sidecar_path:
            raise disk_failed(f"{done} {path}")

    files.fail = fail
    error = error_of(files, SealArguments(segment=SECOND, previous=FIRST))
    assert error.code is ErrorCode.STORAGE_FAILED


def test_arguments_of_a_later_release_may_have_more_fields() -> None:
    arguments = msgspec.msgpack.decode(encode_arguments(SealArguments(segment=FIRST)))
    arguments["later"] = 1
    files = MemoryJobFiles({FIRST.path: FIRST_BYTES})
    result = decode_result(run_job(seal, files, msgspec.msgpack.encode(arguments)))
    assert result.summary is not None
