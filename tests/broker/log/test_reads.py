"""What a reader of a log answers: how much it reads, and what it never serves."""

import asyncio

import pytest

from tests.broker.support.log_shelf import LogShelf, batch_at, compacted, shelf_of
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.lookup_by_time import TimeSearch
from tidelog.broker.log.reading.reader import COLD_READS_MAX, Batches, LogReader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset


def read(shelf: LogShelf, offset: int, max_bytes: int = 1 << 20) -> Batches:
    return asyncio.run(LogReader(shelf).read(shelf.log, offset, max_bytes))


def test_a_sequential_read_of_a_sealed_segment_asks_its_sidecar_once() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(500)]], is_sealed=True)
    reader = LogReader(shelf)
    offset, answers = 0, 0
    while offset < 500:
        offset = asyncio.run(reader.read(shelf.log, offset, 20_000)).next_offset
        answers += 1
    assert answers > 20
    assert len(shelf.sidecar_reads) == 2, "the top level and one block"
    assert shelf.read_bytes < 1.1 * len(shelf.files[shelf.log.segments[0].key])


def test_a_lookup_in_a_known_sidecar_reads_one_index_block_and_little_more_than_the_batch() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(1_200)]], is_sealed=True)
    reader = LogReader(shelf)
    asyncio.run(reader.read(shelf.log, 17, 1))
    shelf.sidecar_reads.clear()
    shelf.reads.clear()
    assert asyncio.run(reader.read(shelf.log, 1_111, 1)).base_offset == 1_111
    ((_, _, size),) = shelf.sidecar_reads
    assert size <= 4_096
    assert shelf.read_bytes < 8_192


@pytest.mark.parametrize("max_bytes", [1, 500, 4_000, 4_200, 70_000])
def test_an_offset_in_a_gap_answers_from_the_next_batch_on(max_bytes: int) -> None:
    sizes = [10, 70_000, 10, 3_000, 10, 5_000, 90_000, 10, 200_000, 10]
    shelf = compacted([batch_at(1, size=size) for size in sizes], {0, 1, 6, 8})
    for offset, expected in ((2, 6), (5, 6), (7, 8), (9, 9), (1, 1)):
        assert read(shelf, offset, max_bytes).base_offset == expected


# The last byte of: base offset, length, leader epoch, magic, checksum, records.
@pytest.mark.parametrize("byte", [7, 11, 15, 16, 20, 100])
@pytest.mark.parametrize("kind", ["active", "sealed", "compacted"])
def test_a_batch_with_a_flipped_bit_stops_the_partition_and_is_never_served(
    byte: int, kind: str
) -> None:
    batches = [batch_at(number) for number in range(200)]
    shelf = (
        compacted(batches, set(range(200)) - {3})
        if kind == "compacted"
        else shelf_of([batches], is_sealed=kind == "sealed")
    )
    ((key, content),) = shelf.files.items()
    size = len(batches[0])
    place = 99 if kind == "compacted" else 100
    changed = bytearray(content)
    changed[place * size + byte] ^= 1
    shelf.files[key] = bytes(changed)
    offset = 0
    # A digest tells of 64 KiB; a length is found wrong by its checksum.
    damage = 62 if kind == "compacted" else 100
    while offset < damage:
        found = read(shelf, offset)
        assert found.data in content, "only what was there before"
        offset = found.next_offset
    assert offset == damage
    with pytest.raises(TidelogError, match="damage at byte") as caught:
        read(shelf, offset)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert key.path in caught.value.tried
    assert shelf.failures == [caught.value]


def test_a_file_that_is_too_short_is_damage_where_it_ends() -> None:
    for kind in ("active", "sealed"):
        shelf = shelf_of([[batch_at(1) for _ in range(10)]], is_sealed=kind == "sealed")
        ((key, content),) = shelf.files.items()
        shelf.files[key] = content[:-5]
        assert read(shelf, 0).next_offset == 9
        with pytest.raises(TidelogError, match=f"damage at byte {len(content) - 5}"):
            read(shelf, 9)
        assert len(shelf.failures) == 1


def test_a_batch_of_another_epoch_than_the_log_knows_is_damage() -> None:
    shelf = LogShelf()
    for epoch in (0, 0, 2, 2, 5):
        shelf.append(batch_at(1), epoch=epoch)
    shelf.commit()
    assert read(shelf, 0).next_offset == 5
    ((key, content),) = shelf.files.items()
    changed = bytearray(content)
    changed[3 * len(batch_at(1)) + 15] = 5
    shelf.files[key] = bytes(changed)
    assert read(shelf, 0).next_offset == 3
    with pytest.raises(TidelogError, match="its leader epoch is 5, not 2"):
        read(shelf, 3)


def test_a_block_of_another_place_in_the_same_file_is_never_served_from_a_compacted_segment() -> (
    None
):
    # Whole batches, moved: checksums, epochs and the order of offsets are all right.
    shelf = compacted([batch_at(1) for _ in range(300)], set(range(0, 300, 2)))
    ((key, content),) = shelf.files.items()
    size = len(batch_at(1))
    shelf.files[key] = content[: 10 * size] + content[20 * size : 30 * size] + content[20 * size :]
    with pytest.raises(TidelogError, match="contradict their digest"):
        read(shelf, 0)


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_sidecar_is_reported_and_reads_go_on_without_it(is_missing: bool) -> None:
    for shelf in (
        shelf_of([[batch_at(n) for n in range(1_000)]], is_sealed=True),
        compacted([batch_at(n) for n in range(1_000)], set(range(0, 1_000, 3))),
    ):
        key = shelf.log.segments[0].key
        if is_missing:
            del shelf.sidecars[key]
        else:
            content = shelf.sidecars[key]
            shelf.sidecars[key] = bytes(byte ^ 1 for byte in content)
        told: list[SegmentKey] = []
        reader = LogReader(shelf, on_damaged=told.append)
        # The last one lies behind the first MiB, where the segment is longer than that.
        for offset in (600, 999):
            shelf.reads.clear()
            assert asyncio.run(reader.read(shelf.log, offset, 5_000)).base_offset == offset
        assert len(shelf.reads) <= 2, "what was walked is known"
        assert asyncio.run(TimeSearch(reader).first_at(shelf.log, 750)) == (750, 750)
        assert told == [key], "once"
        assert shelf.failures == []


def test_what_looks_damaged_because_the_tail_is_cut_away_stops_nothing() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(8)]])
    size = len(batch_at(1))

    def cut(key: SegmentKey) -> None:
        shelf.files[key] = shelf.files[key][: 5 * size]
        shelf.log.high_watermark = shelf.log.log_end_offset = Offset(5)
        shelf.log.segments[0].size_bytes = 5 * size
        shelf.log.segments[0].next_offset = Offset(5)
        shelf.on_read = lambda key: None

    shelf.on_read = cut
    assert read(shelf, 6).data == b"", "it lies beyond the log's end now"
    assert shelf.failures == []


def test_a_log_that_is_changed_under_every_plan_gives_up_in_the_end() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(8)], [batch_at(1)]], is_sealed=True)

    def replace(key: SegmentKey) -> None:
        shelf.compact(0, 0, lambda offset: True)
        shelf.files[key] = b""

    shelf.on_read = replace
    with pytest.raises(TidelogError) as caught:
        read(shelf, 0)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert shelf.failures == []


def test_an_offset_that_is_trimmed_while_it_is_looked_for_is_out_of_range() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(8)], [batch_at(1)]], is_sealed=True)

    def trim(key: SegmentKey) -> None:
        shelf.trim(8)
        shelf.files.pop(key, None)

    shelf.on_read = trim
    with pytest.raises(TidelogError, match="the log begins at 8") as caught:
        read(shelf, 3)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert shelf.failures == []


def test_a_log_that_begins_inside_of_a_batch_serves_that_batch() -> None:
    shelf = shelf_of([[batch_at(1, 2, 3), batch_at(4, 5, 6)]])
    shelf.trim(1)
    found = read(shelf, 1)
    assert (found.base_offset, found.next_offset) == (0, 6)


def test_scans_of_old_segments_leave_room_and_are_served_in_their_order() -> None:
    async def main() -> None:
        shelf = shelf_of([[batch_at(1)] for _ in range(10)], is_sealed=True)
        reader = LogReader(shelf)
        under_way: list[SegmentKey] = []
        begun: list[int] = []
        is_open = asyncio.Event()
        plain_read = shelf.read

        async def slow_read(segment: SegmentKey, start: int, length: int) -> bytes:
            begun.append(segment.base_offset)
            if segment.base_offset < 8:
                under_way.append(segment)
                assert len(under_way) <= COLD_READS_MAX
                await is_open.wait()
                under_way.remove(segment)
            return await plain_read(segment, start, length)

        shelf.read = slow_read  # type: ignore[method-assign, assignment]
        reader = LogReader(shelf)
        scans = [asyncio.ensure_future(reader.read(shelf.log, offset, 1)) for offset in range(8)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(under_way) == COLD_READS_MAX
        hot = await reader.read(shelf.log, 9, 1)
        assert hot.base_offset == 9, "while the scans wait"
        is_open.set()
        answers = [await scan for scan in scans]
        assert [each.base_offset for each in answers] == list(range(8))
        assert [each for each in begun if each < 8] == list(range(8))

    asyncio.run(main())


def test_offsets_that_go_back_are_damage_where_gaps_are_allowed_and_no_digests_are_there() -> None:
    shelf = shelf_of([[batch_at(1) for _ in range(8)]])
    shelf.log.gaps_from = Offset(0)
    ((key, content),) = shelf.files.items()
    changed = bytearray(content)
    changed[5 * len(batch_at(1)) + 7] = 3
    shelf.files[key] = bytes(changed)
    assert read(shelf, 0).next_offset == 5
    with pytest.raises(TidelogError, match="its base offset is 3, not 5"):
        read(shelf, 5)
