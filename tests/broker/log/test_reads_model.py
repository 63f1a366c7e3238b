"""Reads of a log against a list: whatever was rolled, sealed, compacted, trimmed in between."""

import asyncio

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.broker.support.log_shelf import LogShelf, batch_at
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.lookup_by_time import NONE_FOUND, TimeSearch
from tidelog.broker.log.reading.reader import Batches, LogReader
from tidelog.broker.log.sidecar.reader import SidecarReader
from tidelog.wire.batch import decode_batch
from tidelog.wire.errors import ErrorCode, TidelogError

TIMES = st.integers(0, 40)
SIZES = st.sampled_from([1, 200, 1_500, 5_000, 70_000])


class LogAgainstList(RuleBasedStateMachine):
    """What the files hold, batch by batch, is the list; caches are tiny, so that they overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = LogShelf()
        self.log = self.shelf.log
        self.epoch = 0
        sidecars = SidecarReader(
            self.shelf.read_sidecar, index_tops_bytes_max=48, blocks_max=2, resume_places_max=3
        )
        self.reader = LogReader(self.shelf, sidecars)
        self.next_offset = 0

    @rule(times=st.lists(TIMES, min_size=1, max_size=4), size=SIZES, count=st.integers(1, 5))
    def append(self, times: list[int], size: int, count: int) -> None:
        for _ in range(count):
            self.shelf.append(batch_at(*times, size=size // len(times)), epoch=self.epoch)

    @rule()
    def lead_anew(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 3))
    def commit(self, back: int) -> None:
        batches = self.shelf.batches()
        ends = [each[1] for each in batches] or [self.log.log_end_offset]
        self.shelf.commit(max(self.log.high_watermark, ends[-1 - min(back, len(ends) - 1)]))

    @rule()
    def roll(self) -> None:
        self.shelf.roll()

    @rule(times=st.lists(TIMES, min_size=1, max_size=30), size=SIZES)
    def fill_a_segment(self, times: list[int], size: int) -> None:
        for time_ms in times:
            self.shelf.append(batch_at(time_ms, size=size), epoch=self.epoch)
        self.shelf.commit()
        self.shelf.roll()
        self.shelf.seal(self.log.segments[-1])

    @precondition(lambda self: any(each.is_sealed and each.index for each in self.log.segments))
    @rule(data=st.data())
    def seal(self, data: st.DataObject) -> None:
        ready = [each for each in self.log.segments if each.is_sealed and each.index is not None]
        self.shelf.seal(data.draw(st.sampled_from(ready)))

    @rule(mask=st.integers(0, 2**16 - 1), data=st.data())
    def compact(self, mask: int, data: st.DataObject) -> None:
        self._compact(mask, data)

    def _compact(self, mask: int, data: st.DataObject) -> None:
        ready = 0
        for segment in self.log.segments:
            if segment.index is not None or segment.next_offset > self.log.high_watermark:
                break
            ready += 1
        if ready:
            first = data.draw(st.integers(0, ready - 1))
            last = data.draw(st.integers(first, ready - 1))
            self.shelf.compact(first, last, lambda offset: bool(mask >> offset % 16 & 1))

    @rule(part=st.integers(0, 100))
    def trim(self, part: int) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        self.shelf.trim(start + (end - start) * part // 100)

    @rule(part=st.integers(0, 100), max_bytes=st.sampled_from([1, 300, 5_000, 66_000, 1 << 20]))
    def read(self, part: int, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        self.next_offset = self._read(start + (end - start) * part // 100, max_bytes, None)

    @rule(max_bytes=st.sampled_from([1, 5_000, 1 << 20]))
    def read_on(self, max_bytes: int) -> None:
        self.next_offset = max(self.next_offset, self.log.log_start_offset)
        if self.next_offset <= self.log.high_watermark:
            self.next_offset = self._read(self.next_offset, max_bytes, None)

    @rule(part=st.integers(0, 100), bound_part=st.integers(0, 100))
    def read_below_a_bound(self, part: int, bound_part: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        bound = start + (end - start) * bound_part // 100
        self._read(start + (bound - start) * part // 100, 1 << 20, bound)

    @rule(
        part=st.integers(0, 100),
        trim_part=st.integers(0, 100),
        mask=st.integers(0, 2**16 - 1),
        data=st.data(),
    )
    def read_while_it_is_changed(
        self, part: int, trim_part: int, mask: int, data: st.DataObject
    ) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        offset = start + (end - start) * part // 100
        before = self.shelf.batches()

        def change(key: SegmentKey) -> None:
            del key
            self.shelf.on_read = lambda key: None
            self._compact(mask, data)
            self.trim(trim_part)

        self.shelf.on_read = change
        found = self._read_or_nothing(offset)
        self.shelf.on_read = lambda key: None
        if found is None:
            assert offset < self.log.log_start_offset, "nothing was trimmed"
            return
        contents = {each[2] for each in before}
        for position, size in _split(found.data):
            assert found.data[position : position + size] in contents, "bytes of the log"

    def _read_or_nothing(self, offset: int) -> Batches | None:
        try:
            return asyncio.run(self.reader.read(self.log, offset, 1 << 20))
        except TidelogError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise

    def _read(self, offset: int, max_bytes: int, bound: int | None) -> int:
        """One read, held against the list; where it ended."""
        limit = self.log.high_watermark if bound is None else bound
        wanted = [each for each in self.shelf.batches() if each[1] > offset]
        found = asyncio.run(self.reader.read(self.log, offset, max_bytes, upper_bound=bound))
        if not wanted or wanted[0][1] > limit:
            assert found.data == b"", "nothing lies below the bound"
            assert found.next_offset == offset
            return offset
        count = len(_split(found.data))
        assert count, f"a batch lies at {offset} below {limit}"
        assert found.data == b"".join(each[2] for each in wanted[:count])
        assert found.next_offset == wanted[count - 1][1] <= limit
        assert count == 1 or len(found.data) <= max_bytes
        return found.next_offset

    @rule(timestamp_ms=TIMES)
    def search_by_time(self, timestamp_ms: int) -> None:
        expected = next((each for each in self._records() if each[1] >= timestamp_ms), NONE_FOUND)
        search = TimeSearch(self.reader)
        assert asyncio.run(search.first_at(self.log, timestamp_ms)) == expected

    @rule()
    def search_the_newest(self) -> None:
        records = self._records()
        newest = max((each[1] for each in records), default=-1)
        expected = next((each for each in records if each[1] == newest), NONE_FOUND)
        assert asyncio.run(TimeSearch(self.reader).newest(self.log)) == expected

    def _records(self) -> list[tuple[int, int]]:
        """Offsets and times of what is committed and not trimmed."""
        return [
            (record[0], record[1])
            for _, next_offset, content in self.shelf.batches()
            if next_offset <= self.log.high_watermark
            for record in decode_batch(content, is_compacted=True)
            if record[0] >= self.log.log_start_offset
        ]

    @invariant()
    def nothing_fails_and_nothing_stays_pinned(self) -> None:
        assert self.shelf.failures == []
        assert not any(self.shelf.pins.values())
        assert self.shelf.removed == []


def _split(data: bytes) -> list[tuple[int, int]]:
    """Position and length of each batch."""
    places, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        places.append((position, size))
        position += size
    return places


LIMITS = settings(max_examples=300, stateful_step_count=50, deadline=None)


@pytest.mark.slow
def test_whatever_happens_to_a_log_reads_and_searches_answer_as_the_list_does() -> None:
    run_state_machine_as_test(LogAgainstList, settings=LIMITS)
