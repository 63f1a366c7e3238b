"""Lookups in sidecars against the index that they were made of, and searches by time."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.support.log_shelf import LogShelf, batch_at, compacted, shelf_of
from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.lookup_by_time import NONE_FOUND, TimeSearch
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.log.sidecar.codec import PRODUCERS, encode_sidecar
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES, Summary
from tidelog.broker.log.sidecar.digests import DIGESTS, digest_of, encode_digests
from tidelog.broker.log.sidecar.index import INDEX, INDEX_TOP, encode_index
from tidelog.broker.log.sidecar.reader import Recent, SidecarReader
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import Codec, encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

BATCHES = st.lists(
    st.tuples(st.integers(1_500, 9_000), st.integers(1, 50), st.integers(0, 1_000)),
    min_size=1,
    max_size=40,
)
"""Bytes, records, highest timestamp."""


class Sidecar:
    """One in memory, with many blocks: made of an index alone."""

    def __init__(self, batches: list[tuple[int, int, int]]) -> None:
        self.index = SparseIndex()
        offset = position = 0
        # Often enough to fill several blocks.
        for size_bytes, records, max_timestamp in batches * (900 // len(batches) + 1):
            self.index.add(offset, position, max_timestamp)
            offset += records
            position += size_bytes
        self.end_offset, self.size_bytes = offset, position
        key = LogShelf().key
        segment = Segment(SegmentKey(key, Offset(0)))
        index, top = encode_index(segment.key, self.index.entries())
        plain = Summary(
            topic_id=key.topic_id,
            partition=key.partition,
            base_offset=Offset(0),
            next_offset=Offset(offset),
            size_bytes=position,
            batch_count=1,
            record_count=1,
            max_timestamp=1_000,
            max_timestamp_offset=0,
            leader_epochs=(),
        )
        digests = encode_digests(segment.key, [7] * 3_000)
        sections = {INDEX: index, INDEX_TOP: top, DIGESTS: digests, PRODUCERS: b""}
        self.summary, self.data = encode_sidecar(plain, sections)
        self.reads: list[int] = []

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        assert segment == self.summary.key
        self.reads.append(length_bytes)
        return self.data[byte_position : byte_position + length_bytes]


@given(batches=BATCHES, part=st.floats(0, 1), timestamp_ms=st.integers(0, 1_001))
def test_a_lookup_in_a_sidecar_gives_what_the_index_in_memory_gives(
    batches: list[tuple[int, int, int]], part: float, timestamp_ms: int
) -> None:
    sidecar = Sidecar(batches)
    reader = SidecarReader(sidecar.read)
    offset, position = int(part * sidecar.end_offset), int(part * sidecar.size_bytes)

    async def look() -> None:
        found = await reader.floor(sidecar.summary, offset)
        assert (found.place, found.max_timestamp_before) == sidecar.index.highest_time_below(offset)
        found = await reader.floor_of_position(sidecar.summary, position)
        assert found.place == sidecar.index.floor_of_position(position)
        found = await reader.floor_of_time(sidecar.summary, timestamp_ms)
        assert found.place == sidecar.index.floor_of_time(timestamp_ms)

    asyncio.run(look())


def test_a_first_lookup_reads_the_top_and_one_block_later_ones_of_that_block_nothing() -> None:
    sidecar = Sidecar([(5_000, 1, 1)])
    reader = SidecarReader(sidecar.read)
    assert asyncio.run(reader.floor(sidecar.summary, 200)).place.base_offset == 200
    assert len(sidecar.reads) == 2
    asyncio.run(reader.floor(sidecar.summary, 201))
    assert len(sidecar.reads) == 2
    asyncio.run(reader.floor(sidecar.summary, 3))
    assert len(sidecar.reads) == 3
    assert sidecar.reads[-1] == 4_096


def test_every_flipped_byte_of_what_a_lookup_reads_is_told() -> None:
    sidecar = Sidecar([(5_000, 1, 1)])
    whole = sidecar.data
    begin = min(section.byte_position for section in sidecar.summary.sections)
    for position in range(begin, len(whole), 97):
        changed = bytearray(whole)
        changed[position] ^= 4
        sidecar.data = bytes(changed)
        try:
            for offset in range(0, 901, 100):
                found = asyncio.run(SidecarReader(sidecar.read).floor(sidecar.summary, offset))
                assert found.place == sidecar.index.floor(offset)
            digests = asyncio.run(SidecarReader(sidecar.read).digests(sidecar.summary, 0, 3_000))
            assert digests == [7] * 3_000
        except TidelogError as error:
            told = error
        else:
            pytest.fail(f"byte {position} is read by something")
        assert told.code is ErrorCode.STORAGE_CORRUPT


def test_a_segment_that_was_cut_and_sealed_again_is_not_looked_up_in_what_is_remembered() -> None:
    shelf = shelf_of([[batch_at(1, size=5_000) for _ in range(50)]], is_sealed=True)
    reader = LogReader(shelf)
    asyncio.run(reader.read(shelf.log, 30, 1))
    ((key, content),) = shelf.files.items()
    fresh = LogShelf()
    for number in range(50):
        fresh.append(batch_at(1, size=5_000 if number < 20 else 7_000))
    fresh.commit()
    fresh.roll()
    fresh.seal(fresh.log.segments[0])
    shelf.files[key], shelf.sidecars[key] = fresh.files[key], fresh.sidecars[key]
    assert shelf.files[key] != content
    for offset in (31, 30, 49):
        found = asyncio.run(reader.read(fresh.log, offset, 1))
        assert (found.base_offset, len(found.data)) == (offset, len(batch_at(1, size=7_000)))


def test_what_is_kept_in_memory_stays_within_its_limit() -> None:
    recent: Recent[int, str] = Recent(10)
    for number in range(100):
        recent.put(number, "x", 3)
        assert recent.weight <= 10
        recent.get(97)
    assert len(recent) == 3
    assert recent.get(97) == "x", "it was used again and again"
    recent.put(98, "y", 5)
    recent.put(1, "larger than all", 50)
    assert (len(recent), recent.weight) == (1, 50)


def test_the_digests_of_a_piece_are_those_of_its_place() -> None:
    shelf = shelf_of([[batch_at(1, size=60_000) for _ in range(20)]], is_sealed=True)
    segment = shelf.log.segments[0]
    data = shelf.files[segment.key]
    with shelf.reading(segment.key):
        reader = SidecarReader(shelf.read_sidecar)
        assert segment.summary is not None
        found = asyncio.run(reader.digests(segment.summary, 3, 4))
    starts = range(3 * DIGEST_BYTES, 7 * DIGEST_BYTES, DIGEST_BYTES)
    assert found == [digest_of(shelf.key, at, data[at : at + DIGEST_BYTES]) for at in starts]


def test_the_newest_record_is_found_without_reading_the_log() -> None:
    for is_sealed in (False, True):
        batches = [[batch_at(1_000 * part + n) for n in range(500)] for part in range(5)]
        shelf = shelf_of(batches, is_sealed=is_sealed)
        assert asyncio.run(TimeSearch(LogReader(shelf)).newest(shelf.log)) == (2_499, 4_499)
        assert shelf.read_bytes < 200_000, "of 2.5 MB"
        assert len(shelf.sidecar_reads) <= 2


def test_a_record_is_found_by_time_with_one_index_block_and_few_batches() -> None:
    shelf = shelf_of(
        [[batch_at(500 * part + n) for n in range(500)] for part in range(5)], is_sealed=True
    )
    search = TimeSearch(LogReader(shelf))
    for time_ms in (0, 1, 777, 1_499, 1_500, 2_499):
        shelf.sidecar_reads.clear()
        shelf.reads.clear()
        assert asyncio.run(search.first_at(shelf.log, time_ms)) == (time_ms, time_ms)
        assert len(shelf.sidecar_reads) <= 2, "the top level and one block"
        assert shelf.read_bytes <= 66_000
    assert asyncio.run(search.first_at(shelf.log, 2_500)) == NONE_FOUND


def test_the_newest_record_is_the_first_of_its_time_and_committed() -> None:
    times = [5, 9, 7, 9, 3, 4] + [1] * 20 + [8, 50, 60]
    for committed in range(len(times) + 1):
        shelf = shelf_of([[batch_at(each) for each in times]])
        shelf.commit(committed)
        seen = times[:committed]
        expected = (seen.index(max(seen)), max(seen)) if seen else NONE_FOUND
        found = asyncio.run(TimeSearch(LogReader(shelf)).newest(shelf.log))
        assert found == expected, f"{committed} records are committed"


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_newest_record_is_one_that_was_not_trimmed(is_sealed: bool) -> None:
    times = [5, 99, 7, 9, 3, 8, 9, 1]
    for start in range(len(times)):
        shelf = shelf_of([[batch_at(*times[:3]), batch_at(*times[3:])]], is_sealed=is_sealed)
        shelf.trim(start)
        newest = max(times[start:])
        expected = (times.index(newest, start), newest)
        assert asyncio.run(TimeSearch(LogReader(shelf)).newest(shelf.log)) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_a_time_is_found_to_the_record_in_compressed_batches(codec: Codec) -> None:
    shelf = LogShelf()
    for start in range(0, 400, 100):
        records = [(start + n, None, b"v" * 50, ()) for n in range(0, 100, 10)]
        shelf.append(encode_batch(records, codec=codec))
    shelf.commit()
    search = TimeSearch(LogReader(shelf))
    assert asyncio.run(search.first_at(shelf.log, 251)) == (26, 260)
    assert asyncio.run(search.first_at(shelf.log, 250)) == (25, 250)
    assert asyncio.run(search.newest(shelf.log)) == (39, 390)


def test_times_that_do_not_ascend_give_the_lowest_offset() -> None:
    shelf = shelf_of([[batch_at(50, 10), batch_at(20)], [batch_at(90), batch_at(60, 70)]])
    search = TimeSearch(LogReader(shelf))
    for time_ms, expected in ((0, 0), (11, 0), (50, 0), (51, 3), (90, 3), (91, -1)):
        assert asyncio.run(search.first_at(shelf.log, time_ms))[0] == expected


def test_a_compacted_log_is_searched_by_what_is_left_of_it() -> None:
    shelf = compacted([batch_at(n * 10) for n in range(100)], set(range(0, 100, 7)))
    search = TimeSearch(LogReader(shelf))
    assert asyncio.run(search.first_at(shelf.log, 10)) == (7, 70)
    assert asyncio.run(search.first_at(shelf.log, 981)) == NONE_FOUND
    # The last batch is there without its record; its header still tells of 990.
    assert asyncio.run(search.newest(shelf.log)) == (98, 980)


def test_a_search_goes_on_behind_what_is_trimmed_under_it() -> None:
    shelf = shelf_of(
        [[batch_at(n) for n in range(100 * part, 100 * part + 100)] for part in range(3)]
    )

    def trim(key: SegmentKey) -> None:
        shelf.on_read = lambda key: None
        shelf.trim(150)
        shelf.files.pop(key, None)

    shelf.on_read = trim
    assert asyncio.run(TimeSearch(LogReader(shelf)).first_at(shelf.log, 20)) == (150, 150)


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_search_goes_on_in_segments_that_are_compacted_meanwhile(is_newest: bool) -> None:
    # The highest times of the first and of the last segment are those of trimmed records, or of
    # ones that are not committed: they are looked into in vain.
    segments = [[batch_at(100 * part + n) for n in range(100)] for part in range(3)]
    segments.insert(0, [batch_at(900)] + [batch_at(n) for n in range(99)])
    segments.append([batch_at(250), batch_at(1_000)])
    shelf = shelf_of(segments, is_sealed=True)
    shelf.trim(50)
    shelf.commit(401)
    compacted: list[SegmentKey] = []

    def compact(key: SegmentKey) -> None:
        if not compacted:
            compacted.append(key)
            shelf.compact(1, 3, lambda offset: offset % 10 == 0)

    shelf.on_read = compact
    search = TimeSearch(LogReader(shelf))
    if is_newest:
        assert asyncio.run(search.newest(shelf.log)) == (390, 290)
    else:
        assert asyncio.run(search.first_at(shelf.log, 195)) == (300, 200)
    assert compacted
    assert shelf.failures == []
