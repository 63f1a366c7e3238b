"""Opening a log after a crash: every cut, every flipped byte, with and without flush marks."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import (
    SegmentKey,
    directory_name,
    parse_directory_name,
    parse_segment_name,
    segment_name,
)
from tidelog.broker.log.opening.log import OpenedLog, open_log
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.ports import Append
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

T = TypeVar("T")

KEY = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))
RECORDS = [2, 1, 3]
BASES = [0, 2, 3, 6]


def log_of(bases: list[int], epoch: int = 0) -> list[bytes]:
    """Batches that begin at the bases."""
    return [
        encode_batch([(7, None, b"v%d" % base, ())] * records, base_offset=base, leader_epoch=epoch)
        for base, records in zip(bases, RECORDS, strict=False)
    ]


BATCHES = log_of(BASES)
LOG = b"".join(BATCHES)
ENDS = [0, len(BATCHES[0]), len(BATCHES[0]) + len(BATCHES[1]), len(LOG)]


def run(world: World, work: Coroutine[object, object, T]) -> T:
    """Run and bury."""
    try:
        return world.run(work)
    finally:
        world.close()


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def reopened(
    *segments: tuple[int, bytes], known_flushed_offset: int | None
) -> tuple[OpenedLog, dict[int, int]]:
    """The log over files of this content, and the files' sizes afterwards."""
    world = World(1)

    async def main() -> tuple[OpenedLog, dict[int, int]]:
        disk = world.machine("m").start("p", wait_forever).ports.open_disk()
        await disk.make_directory(directory_name(KEY))
        for base, content in segments:
            path = SegmentKey(KEY, Offset(base)).path
            await disk.append([Append(await disk.open(path, create=True), [content])])
        known = known_flushed_offset
        marks = None if known is None else PartitionMarks(flushed_offset=known)
        opened = await open_log(disk, KEY, LeaderEpoch(0), marks)
        sizes = {key.base_offset: file.size_bytes for key, file in opened.files.items()}
        return opened, {int(base): size for base, size in sizes.items()}

    return run(world, main())


def code_of(opened: OpenedLog) -> ErrorCode | None:
    """None: it can be served."""
    return opened.log.failure.code if opened.log.failure else None


@pytest.mark.parametrize("known", [None, 0])
@pytest.mark.parametrize("length", [*range(0, len(LOG), 7), *ENDS])
def test_a_log_cut_anywhere_keeps_its_whole_batches(length: int, known: int | None) -> None:
    opened, sizes = reopened((0, LOG[:length]), known_flushed_offset=known)
    whole = max(place for place, end in enumerate(ENDS) if end <= length)
    assert code_of(opened) is None
    assert opened.log.log_end_offset == opened.log.high_watermark == BASES[whole]
    assert sizes == {0: ENDS[whole]}
    assert opened.torn_bytes == length - ENDS[whole]


@pytest.mark.parametrize("position", range(0, ENDS[3], 5))
def test_damage_below_what_was_flushed_stops_the_partition_and_changes_nothing(
    position: int,
) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x20
    opened, sizes = reopened((0, bytes(damaged)), known_flushed_offset=6)
    assert code_of(opened) is ErrorCode.STORAGE_CORRUPT
    assert opened.log.failure is not None
    assert SegmentKey(KEY, Offset(0)).path in opened.log.failure.tried
    batch_start = max(end for end in ENDS if end <= position)
    assert f"byte {batch_start}:" in opened.log.failure.happened
    assert sizes == {0: len(LOG)}


@pytest.mark.parametrize("position", range(ENDS[1], ENDS[2], 5))
def test_damage_above_what_was_flushed_ends_the_log_whatever_lies_behind(position: int) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x20
    opened, sizes = reopened((0, bytes(damaged)), known_flushed_offset=2)
    assert code_of(opened) is None
    assert opened.log.log_end_offset == 2
    assert sizes == {0: ENDS[1]}


def test_without_marks_a_whole_batch_behind_the_damage_is_corruption() -> None:
    damaged = bytearray(LOG)
    damaged[ENDS[1] + 30] ^= 0x20
    opened, sizes = reopened((0, bytes(damaged)), known_flushed_offset=None)
    assert code_of(opened) is ErrorCode.STORAGE_CORRUPT
    assert sizes == {0: len(LOG)}


def test_without_marks_a_damaged_last_batch_is_a_torn_tail() -> None:
    damaged = bytearray(LOG)
    damaged[-1] ^= 0x20
    opened, _ = reopened((0, bytes(damaged)), known_flushed_offset=None)
    assert code_of(opened) is None
    assert opened.log.log_end_offset == 3


def test_a_hole_of_zeros_before_a_whole_batch_is_cut_when_nothing_of_it_was_flushed() -> None:
    content = BATCHES[0] + bytes(len(BATCHES[1])) + BATCHES[2]
    opened, sizes = reopened((0, content), known_flushed_offset=2)
    assert code_of(opened) is None
    assert sizes == {0: ENDS[1]}


def test_a_log_that_ends_below_what_was_flushed_is_corrupt() -> None:
    for content in (LOG[: ENDS[2]], b""):
        opened, _ = reopened((0, content), known_flushed_offset=6)
        assert code_of(opened) is ErrorCode.STORAGE_CORRUPT
    opened, _ = reopened(known_flushed_offset=6)
    assert code_of(opened) is ErrorCode.STORAGE_CORRUPT


def test_segments_follow_one_another_and_only_the_last_may_be_torn() -> None:
    first, second = BATCHES[0] + BATCHES[1], BATCHES[2]
    opened, _ = reopened((0, first), (3, second + b"torn"), known_flushed_offset=3)
    assert code_of(opened) is None
    assert opened.log.log_end_offset == 6
    assert [segment.base_offset for segment in opened.log.segments] == [0, 3]
    for segments in (
        ((0, first + b"torn"), (3, second)),
        ((0, BATCHES[0]), (3, second)),
        ((0, first), (2, second)),
    ):
        opened, _ = reopened(*segments, known_flushed_offset=0)
        assert code_of(opened) is ErrorCode.STORAGE_CORRUPT


def test_an_epoch_that_falls_or_is_yet_to_come_is_damage() -> None:
    later = log_of(BASES, epoch=5)
    for content in (later[0] + BATCHES[1], BATCHES[0] + later[1]):
        opened, _ = reopened((0, content), known_flushed_offset=3)
        assert code_of(opened) is ErrorCode.STORAGE_CORRUPT


def test_damage_found_without_marks_is_no_torn_tail_at_the_start_after() -> None:
    damaged = bytearray(LOG)
    damaged[ENDS[1] + 20] ^= 1
    first, _ = reopened((0, bytes(damaged)), known_flushed_offset=None)
    assert code_of(first) is ErrorCode.STORAGE_CORRUPT
    mark = first.log.flushed_offset
    second, sizes = reopened((0, bytes(damaged)), known_flushed_offset=mark)
    assert code_of(second) is ErrorCode.STORAGE_CORRUPT
    assert sizes == {0: len(LOG)}


@pytest.mark.parametrize(
    "name",
    ["", "x", "0001-1", f"{'0' * 32}-", f"{'0' * 32}-01", f"{'g' * 32}-1", f"{'A' * 32}-1"],
)
def test_other_names_are_no_partition_directories(name: str) -> None:
    assert parse_directory_name(name) is None


def test_names_come_back() -> None:
    assert parse_directory_name(directory_name(KEY) + "/") == KEY
    assert segment_name(42) == "00000000000000000042.log"
    assert parse_segment_name(segment_name(42)) == (42, 0)
    for name in ("42.log", "0000000000000000004x.log", "00000000000000000042.index"):
        assert parse_segment_name(name) is None
