"""Any flipped bit, any truncation of a segment or its sidecar: told, or harmless."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.log_shelf import LogShelf, batch_at, compacted, shelf_of
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.lookup_by_time import TimeSearch
from tidelog.broker.log.reading.reader import LogReader
from tidelog.wire.errors import ErrorCode, TidelogError

BATCHES = [batch_at(10 * n, 10 * n + 1, size=size) for n, size in enumerate([30, 900, 7_000] * 12)]


def shelf_of_kind(kind: str) -> LogShelf:
    if kind == "compacted":
        return compacted(BATCHES, {n for n in range(72) if n % 5})
    return shelf_of([BATCHES], is_sealed=kind == "sealed")


SHELVES = {kind: shelf_of_kind(kind) for kind in ("active", "sealed", "compacted")}


CONTENTS = {
    id(shelf): b"".join(content for *_, content in shelf.batches()) for shelf in SHELVES.values()
}


def everything_read(shelf: LogShelf) -> bytes:
    """From the start to the end, in pieces; then a few lookups."""
    reader, offset, found = LogReader(shelf), 0, []
    while offset < shelf.log.high_watermark:
        batches = asyncio.run(reader.read(shelf.log, offset, 20_000))
        found.append(batches.data)
        offset = batches.next_offset
    for offset in (70, 30, 11):
        batches = asyncio.run(LogReader(shelf).read(shelf.log, offset, 1))
        assert batches.data in CONTENTS[id(shelf)], "bytes of the log"
    search = TimeSearch(LogReader(shelf))
    assert asyncio.run(search.first_at(shelf.log, 351)) == (71, 351)
    return b"".join(found)


def judged(shelf: LogShelf, files: dict[SegmentKey, bytes], changed: bytes) -> str:
    """What a change of the only file in `files` leads to; the file is put back."""
    ((key, whole),) = files.items()
    files[key] = changed
    try:
        assert everything_read(shelf) == CONTENTS[id(shelf)], "a wrong byte was served"
    except TidelogError as error:
        if error.code is ErrorCode.STORAGE_CORRUPT:
            return "told"
        raise
    finally:
        files[key] = whole
    return "harmless"


def flipped(whole: bytes, bit: int) -> bytes:
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SHELVES))
@settings(max_examples=80, deadline=None)
@given(part=st.floats(0, 1, exclude_max=True), is_cut=st.booleans())
def test_a_damaged_segment_is_told_of(kind: str, part: float, is_cut: bool) -> None:
    shelf = SHELVES[kind]
    (whole,) = shelf.files.values()
    changed = (
        whole[: int(part * len(whole))] if is_cut else flipped(whole, int(part * len(whole) * 8))
    )
    assert judged(shelf, shelf.files, changed) == "told"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sealed", "compacted"])
@settings(max_examples=80, deadline=None)
@given(part=st.floats(0, 1, exclude_max=True), is_cut=st.booleans())
def test_a_damaged_sidecar_harms_no_reader(kind: str, part: float, is_cut: bool) -> None:
    shelf = SHELVES[kind]
    (whole,) = shelf.sidecars.values()
    changed = (
        whole[: int(part * len(whole))] if is_cut else flipped(whole, int(part * len(whole) * 8))
    )
    assert judged(shelf, shelf.sidecars, changed) == "harmless"
