"""One partition as a plain list of records, and for compacted topics what a dictionary keeps.

Knows nothing of a broker. It is told what was appended, trimmed, cut and lost, and says whether
what a log serves is possible; what was seen missing must never come back.
"""

from collections.abc import Sequence

import msgspec

UNLIMITED = -1


class Record(msgspec.Struct, frozen=True):
    """One record with its place."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class Sent(msgspec.Struct, frozen=True):
    """A batch on its way, its records counted from offset 0."""

    records: tuple[Record, ...]
    size_bytes: int
    sent_at_ms: int


class Keeping(msgspec.Struct, frozen=True):
    """What retention may take."""

    retention_ms: int
    retention_bytes: int


class PartitionModel:
    """Of one partition, over all lives of its directory."""

    def __init__(self, *, is_compacted: bool, delete_retention_ms: int) -> None:
        self.is_compacted = is_compacted
        self.delete_retention_ms = delete_retention_ms
        self.records: dict[int, Record] = {}
        """By offset, ascending."""
        self.batches: dict[int, tuple[int, int, int]] = {}
        """Base offset → next offset, bytes, when it was sent."""
        self.log_start = 0
        self.trim_asked = 0
        self.end = 0
        self.certain_end = 0
        """No crash takes what lies below."""
        self.pending: list[Sent] = []
        """Handed over, not answered."""
        self._gone: set[int] = set()
        self._doubtful: set[int] = set()
        """Older values of keys whose last one was cut off: a compaction may have taken them."""

    # -- what happens ----------------------------------------------------------------------------

    def store(self, sent: Sent, base_offset: int) -> None:
        """It was answered, or found after a crash."""
        assert base_offset == self.end, f"stored at {base_offset}, the log ended at {self.end}"
        self.end = base_offset + len(sent.records)
        self.batches[base_offset] = (self.end, sent.size_bytes, sent.sent_at_ms)
        for place, record in enumerate(sent.records, start=base_offset):
            self.records[place] = msgspec.structs.replace(record, offset=place)
            self._gone.discard(place)
            self._doubtful.discard(place)

    def boundary(self, offset: int) -> int:
        """Where the batch begins that holds the offset."""
        return max((base for base in self.batches if base <= offset), default=0)

    def cut(self, end: int) -> None:
        """The log ends there now."""
        latest = self._latest()
        for offset in [each for each in self.records if each >= end]:
            record = self.records.pop(offset)
            if latest.get(record.key) == offset:
                self._doubtful.update(
                    each.offset for each in self.records.values() if each.key == record.key
                )
        for base in [each for each in self.batches if each >= end]:
            del self.batches[base]
        self.end = end
        self.certain_end = min(self.certain_end, end)

    def move_start(
        self, log_start: int, *, now_ms: int, keepings: Sequence[Keeping], why: str
    ) -> None:
        """The log begins there now; by retention only as far as it may."""
        assert log_start >= self.log_start, f"the log's start went back: {log_start}: {why}"
        if log_start > max(self.log_start, self.trim_asked):
            assert not self.is_compacted, f"a compacted log begins at {log_start}: {why}"
            assert self._may_go(log_start, keepings, now_ms), (
                f"retention has moved the start from {self.log_start} to {log_start}: {why}"
            )
        self.log_start = log_start

    def _may_go(self, log_start: int, keepings: Sequence[Keeping], now_ms: int) -> bool:
        """Each record by size or by age, or below a trim.

        Between two looks retention may have checked more than once, each time with another setting:
        what size has taken bares an old segment to the next check, which takes that by age.
        """
        taken = max(self.log_start, self.trim_asked)
        taken = max(taken, *(self._taken_by_size(each.retention_bytes) for each in keepings))
        return all(
            any(
                each.retention_ms != UNLIMITED and record.time_ms < now_ms - each.retention_ms
                for each in keepings
            )
            for record in self.records.values()
            if taken <= record.offset < log_start
        )

    def _taken_by_size(self, retention_bytes: int) -> int:
        """The highest offset behind which there is still that much."""
        if retention_bytes == UNLIMITED:
            return 0
        left_bytes = sum(sent.size_bytes for sent in self.pending)
        for end, size_bytes, _ in sorted(self.batches.values(), reverse=True):
            if left_bytes >= retention_bytes:
                return end
            left_bytes += size_bytes
        return 0

    # -- what is seen ----------------------------------------------------------------------------

    def visible(self, high_watermark: int) -> list[Record]:
        """What a plain log serves."""
        return [
            record
            for offset, record in sorted(self.records.items())
            if self.log_start <= offset < high_watermark
        ]

    def check_read(self, found: Sequence[Record], high_watermark: int, now_ms: int) -> None:
        """A read from the start to the high watermark."""
        wanted = self.visible(high_watermark)
        if not self.is_compacted:
            assert list(found) == wanted, _difference(wanted, found)
            return
        served = {record.offset: record for record in found}
        assert list(served) == sorted(served), "offsets ascend"
        for offset, record in served.items():
            assert self.records.get(offset) == record, f"{record} was never stored there"
            assert offset not in self._gone, f"{record} came back"
        latest = self._latest(high_watermark)
        for record in wanted:
            if record.offset in served:
                continue
            is_last = latest[record.key] == record.offset
            assert not is_last or self._may_miss(record, now_ms), f"{record} is missing"
            self._gone.add(record.offset)

    def is_possible(self, record: Record) -> bool:
        """Whether a read may serve it."""
        return self.records.get(record.offset) == record and record.offset not in self._gone

    def take_in_life(self, end: int, found: Sequence[Record], *, is_machine: bool) -> None:
        """A crash is over: which of what was under way is there; what is not never comes back."""
        lowest = self.certain_end if is_machine else self.end
        assert end >= lowest, f"it ends at {end}, {lowest} was certain"
        if end < self.end:
            at_batch = end in self.batches or end == self.log_start
            assert at_batch, f"it ends at {end}, inside of a batch"
            self.cut(end)
        behind = {record.offset: record for record in found if record.offset >= self.end}
        for sent in self.pending:
            first = behind.get(self.end)
            is_trimmed = first is None and self.end < self.log_start
            if is_trimmed or (first is not None and first.value == sent.records[0].value):
                self.store(sent, self.end)
        assert self.end == end, f"it ends at {end}; what was sent explains only {self.end}"
        self.pending.clear()
        self.certain_end = end

    def _latest(self, below: int | None = None) -> dict[bytes | None, int]:
        """The dictionary: key → offset of its last record."""
        return {
            record.key: offset
            for offset, record in sorted(self.records.items())
            if below is None or offset < below
        }

    def _may_miss(self, record: Record, now_ms: int) -> bool:
        if record.offset in self._doubtful:
            return True
        sent_at_ms = self.batches[self.boundary(record.offset)][2]
        return record.value is None and now_ms >= sent_at_ms + self.delete_retention_ms


def _difference(wanted: Sequence[Record], found: Sequence[Record]) -> str:
    missing = [each for each in wanted if each not in found]
    extra = [each for each in found if each not in wanted]
    return f"missing {missing[:3]}, not to be served {extra[:3]} ({len(wanted)}/{len(found)})"
