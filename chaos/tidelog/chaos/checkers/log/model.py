"""One partition's log as its clients may rely on it: a list, and for compacted logs a dictionary.

Pure, and knows nothing of a broker: it is told what was sent, answered, read, trimmed and cut, and
when a node died and came back. From that it knows what must be there, what may be there, and what
must never be seen again; whatever contradicts it is a violation, named by its first word.

    certain_end   all below it was acknowledged as flushed, or committed: no crash takes it
    content       offset → record, as acknowledged or read; at or above certain_end a crash may
                  take it, and what a start has not found must never come back
    dead          identities that must not be seen: refused, cut off, lost at a start
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.chaos.checkers.log.records import RECORDS_MAX, Found, Outcome, Record, Sent

VIOLATIONS_MAX: Final = 20
ANY_TIME: Final = 1 << 62


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What of the partition's settings decides what may happen to records."""

    is_compacted: bool = False
    is_deleted: bool = True
    is_append_time: bool = False
    is_flush_sync: bool = True


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of itself with an answer."""

    log_start: int
    high_watermark: int
    log_end: int


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was known when a read began: the answer is judged by it."""

    offset: int
    log_start: int
    certain_end: int
    truncations: int


class LogModel:
    """Of one partition, over all lives of its node."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.violations: list[str] = []
        self.content: dict[int, Record] = {}
        self.certain_end = 0
        self.log_start = 0
        """The highest that was seen: it never falls."""
        self.trim_asked = 0
        self.acknowledged = 0
        self.truncations = 0
        self.retention_ms = ANY_TIME
        """The shortest that was ever configured."""
        self.retention_bytes = ANY_TIME
        self.delete_retention_ms = ANY_TIME
        self.wall_low_ms = 0
        """Now, by the lowest and by the highest that the node's wall clock ever was set to."""
        self.wall_high_ms = 0
        self.truncating_to: int | None = None
        self._certain_before = 0
        self.sends: list[Sent] = []
        self._records: dict[bytes, Record] = {}
        self._sent_at_ms: dict[bytes, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._doubtful: dict[bytes, int] = {}
        """By key the last send that may have superseded all before it."""
        self._dead: dict[bytes, str] = {}
        self._places: dict[bytes, int] = {}
        self._latest: dict[bytes, int] = {}
        """By key the last offset at which a record of it is known."""
        self._gone: dict[bytes, int] = {}
        """By key the highest offset of a tombstone that a read has found missing."""
        self._last_acknowledged: tuple[int, int] = (-1, -1)

    # -- appends -------------------------------------------------------------------------------

    def send(self, records: Sequence[Record], batch: bytes, *, is_flush_awaited: bool) -> Sent:
        """A batch is handed over."""
        sent = Sent(len(self.sends), records, batch)
        sent.is_flush_awaited = is_flush_awaited
        sent.certain_end_before = self.certain_end
        sent.truncations_before = self.truncations
        self.sends.append(sent)
        for record in records:
            self._records[record.identity] = record
            self._sent_at_ms[record.identity] = self.wall_low_ms
            self._numbers[record.identity] = sent.number
        return sent

    def acknowledge(self, sent: Sent, base_offset: int) -> None:
        """It was stored there; flushed, if that was awaited."""
        assert sent.outcome is Outcome.PENDING, "a send is answered once"
        sent.outcome = Outcome.ACKNOWLEDGED
        sent.base_offset = base_offset
        self.acknowledged += 1
        if sent.truncations_before != self.truncations:
            return
        if base_offset < sent.certain_end_before:
            self.violate(
                "reused_offset", f"{sent.number} got {base_offset}, below {sent.certain_end_before}"
            )
        number, last = self._last_acknowledged
        if (sent.number - number) * (base_offset - last) <= 0:
            self.violate(
                "reordered", f"send {sent.number} is at {base_offset}, send {number} at {last}"
            )
        self._last_acknowledged = max(self._last_acknowledged, (sent.number, base_offset))
        for place, record in enumerate(sent.records, start=base_offset):
            self._learn(place, record, "acknowledged")
        if sent.is_flush_awaited:
            self.certain_end = max(self.certain_end, base_offset + len(sent.records))

    def refuse(self, sent: Sent, reason: str) -> None:
        """It is not stored and never will be."""
        assert sent.outcome is Outcome.PENDING, "a send is answered once"
        sent.outcome = Outcome.REFUSED
        for record in sent.records:
            if record.identity in self._places:
                self.violate("failed_read", f"{_text(record)} was read, and then refused: {reason}")
            self._dead[record.identity] = "failed_read"

    def lose_track(self, sent: Sent) -> None:
        """Nobody knows what became of it."""
        assert sent.outcome is Outcome.PENDING, "a send is answered once"
        sent.outcome = Outcome.UNKNOWN
        for record in sent.records:
            self._doubt(record)

    # -- reads ---------------------------------------------------------------------------------

    def begin_read(self, offset: int) -> Reading:
        """To be kept until the answer is there."""
        return Reading(
            offset=offset,
            log_start=self.log_start,
            certain_end=self.certain_end,
            truncations=self.truncations,
        )

    def read(
        self, reading: Reading, found: Sequence[Found], next_offset: int, bounds: Bounds
    ) -> None:
        """An answer: whole batches from the one on that holds the offset, up to the next offset."""
        if reading.truncations != self.truncations or self.truncating_to is not None:
            return
        if reading.offset < reading.log_start:
            self.violate("below_start", f"{reading.offset} was served, begins at {self.log_start}")
        before = -1
        for each in found:
            if each.offset <= before:
                self.violate("poll_skip", f"offset {each.offset} comes behind {before}")
            before = each.offset
            self._check_found(each, bounds)
        if next_offset <= before or next_offset < reading.offset:
            self.violate("poll_skip", f"a read up to {before} goes on at {next_offset}")
        if self.policy.is_flush_sync:
            self.certain_end = max(self.certain_end, bounds.high_watermark)
        if self.policy.is_compacted:
            self._check_compacted(reading, found, next_offset, bounds)
        else:
            self._check_whole(reading, found, next_offset, bounds)

    def _check_found(self, each: Found, bounds: Bounds) -> None:
        record = self._records.get(each.identity)
        if record is None:
            self.violate("from_nowhere", f"{each.identity!r} at {each.offset} was never sent")
            return
        if each.offset >= bounds.high_watermark:
            self.violate("beyond_watermark", f"{each.offset} was served at {bounds.high_watermark}")
        if record.key != each.key or not (
            self.policy.is_append_time or record.timestamp_ms == each.timestamp_ms
        ):
            self.violate("wrong_bytes", f"{_text(record)} at {each.offset} was read as {each}")
        self._learn(each.offset, record, "read")

    def _learn(self, offset: int, record: Record, how: str) -> None:
        kind = self._dead.get(record.identity)
        if kind is not None:
            self.violate(kind, f"{_text(record)} was {how} at {offset} after it was given up")
            return
        known = self.content.get(offset)
        if known is not None and known.identity != record.identity:
            self.violate(
                "inconsistent_offsets",
                f"{offset} was {_text(record)} when {how}, {_text(known)} before",
            )
            return
        place = self._places.get(record.identity, offset)
        if place != offset:
            self.violate("duplicate", f"{_text(record)} was {how} at {offset}, is at {place}")
            return
        self.content[offset] = record
        self._places[record.identity] = offset
        if record.key is not None and self._latest.get(record.key, -1) < offset:
            self._latest[record.key] = offset

    def _check_whole(
        self, reading: Reading, found: Sequence[Found], next_offset: int, bounds: Bounds
    ) -> None:
        """Without compaction there are no gaps."""
        expected = reading.offset
        for each in found:
            if each.offset < reading.offset:
                continue  # the batch that holds the offset begins before it
            if each.offset != expected:
                self.violate("poll_skip", f"{each.offset} was served where {expected} belongs")
                return
            expected += 1
        if next_offset != expected:
            self.violate("poll_skip", f"a read goes on at {next_offset}, it ends at {expected}")
        if not found and reading.offset < min(bounds.high_watermark, reading.certain_end):
            self.violate("lost_write", f"nothing is at {reading.offset}, known: {bounds}")

    def _check_compacted(
        self, reading: Reading, found: Sequence[Found], next_offset: int, bounds: Bounds
    ) -> None:
        """What is missing was superseded, or was a tombstone long enough."""
        if next_offset == reading.offset < min(bounds.high_watermark, reading.certain_end):
            self.violate("stuck_read", f"a read at {reading.offset} does not go on: {bounds}")
        seen = {each.offset for each in found}
        for each in found:
            if each.key is not None and each.offset < self._gone.get(each.key, -1):
                self.violate(
                    "resurrected",
                    f"{each.identity!r} at {each.offset}: its tombstone at "
                    f"{self._gone[each.key]} is gone already",
                )
        end = min(next_offset, reading.certain_end)
        for offset in range(max(reading.offset, bounds.log_start), end):
            if offset not in seen and offset in self.content:
                self._check_missing(offset, self.content[offset])

    def _check_missing(self, offset: int, record: Record) -> None:
        if record.key is None:
            self.violate("lost_write", f"{_text(record)} at {offset} has no key, and is missing")
        elif self._may_be_cleaned(offset, record):
            if not self._is_superseded(offset, record):
                self._gone[record.key] = max(self._gone.get(record.key, -1), offset)
        elif not record.is_tombstone:
            self.violate(
                "compacted", f"{_text(record)} at {offset} is the last of {record.key!r}, missing"
            )
        else:
            self.violate(
                "lost_tombstone", f"{_text(record)} at {offset} was dropped before its time"
            )

    def _may_be_cleaned(self, offset: int, record: Record) -> bool:
        """Whether a compaction may have dropped it."""
        if record.key is None:
            return False
        age_ms = self.wall_high_ms - self._sent_at_ms[record.identity]
        is_old_tombstone = record.is_tombstone and age_ms >= self.delete_retention_ms
        return is_old_tombstone or self._is_superseded(offset, record)

    def find_time(
        self, reading: Reading, timestamp_ms: int, found: tuple[int, int] | None, bounds: Bounds
    ) -> None:
        """The first record at or after the time was said to be `found` (offset, its time)."""
        if reading.truncations != self.truncations or self.truncating_to is not None:
            return
        if self.policy.is_append_time:
            return
        end = min(bounds.high_watermark, reading.certain_end)
        if found is not None:
            offset, found_ms = found
            end = min(end, offset)
            record = self.content.get(offset)
            is_known = record is None or record.timestamp_ms == found_ms
            if found_ms < timestamp_ms or not is_known:
                self.violate("time_lookup", f"{timestamp_ms} is said to be at {found}: {record}")
        for offset in range(bounds.log_start, end):
            record = self.content.get(offset)
            if record is None or record.timestamp_ms < timestamp_ms:
                continue
            if self.policy.is_compacted and self._may_be_missing(offset, record):
                continue
            self.violate(
                "time_lookup",
                f"{timestamp_ms} is said to be at {found}, {_text(record)} at {offset} comes first",
            )
            return

    def find_newest(self, reading: Reading, found: tuple[int, int] | None, bounds: Bounds) -> None:
        """The first record of the highest time was said to be `found`."""
        if reading.truncations != self.truncations or self.truncating_to is not None:
            return
        if self.policy.is_append_time:
            return
        newest_ms = -1 if found is None else found[1]
        for offset in range(bounds.log_start, min(bounds.high_watermark, reading.certain_end)):
            record = self.content.get(offset)
            if record is None or record.timestamp_ms <= newest_ms:
                continue
            if self.policy.is_compacted and self._may_be_missing(offset, record):
                continue
            self.violate("max_timestamp", f"{found} is said to be the newest, {_text(record)} is")
            return

    def _may_be_missing(self, offset: int, record: Record) -> bool:
        return record.is_tombstone or record.key is None or self._is_superseded(offset, record)

    def _is_superseded(self, offset: int, record: Record) -> bool:
        """By a record that is known, or by one that may have been there."""
        assert record.key is not None, "only a record with a key has a next one"
        number = self._numbers[record.identity]
        return self._latest[record.key] > offset or self._doubtful.get(record.key, -1) > number

    def _doubt(self, record: Record) -> None:
        """The record may have been there, or was and is cut off: what it superseded may be gone."""
        if record.key is not None:
            number = self._numbers[record.identity]
            self._doubtful[record.key] = max(self._doubtful.get(record.key, -1), number)

    # -- where the log begins and ends ---------------------------------------------------------

    def see(self, bounds: Bounds, reading: Reading | None = None) -> None:
        """What a log says of itself: now, or in the answer to `reading`. Another answer may have
        left behind that one and come first, so it is held to what was known when it was asked."""
        log_start, certain_end = self.log_start, self.certain_end
        if reading is not None:
            log_start, certain_end = reading.log_start, min(certain_end, reading.certain_end)
        chain = (bounds.log_start, bounds.high_watermark, bounds.log_end)
        if list(chain) != sorted(chain):
            self.violate("offset_order", f"{bounds}")
        if bounds.log_start < log_start:
            self.violate("falling_start", f"{bounds.log_start}, it was {log_start}")
        if self.truncating_to is None and bounds.log_end < certain_end:
            self.violate("lost_write", f"the log ends at {bounds.log_end}, not {certain_end}")
        if bounds.log_start > max(self.log_start, self.trim_asked):
            self._check_retention(bounds.log_start)
        self.log_start = max(self.log_start, bounds.log_start)

    def _check_retention(self, log_start: int) -> None:
        """Nobody has asked for so much: only retention may have."""
        if not self.policy.is_deleted:
            self.violate("lost_head", f"the log begins at {log_start}, and nothing is deleted")
            return
        left_bytes = sum(
            len(sent.batch)
            for sent in self.sends
            if sent.base_offset < 0 or sent.base_offset + len(sent.records) > log_start
        )
        if left_bytes >= self.retention_bytes:
            return
        for offset in range(max(self.log_start, self.trim_asked), log_start):
            record = self.content.get(offset)
            if record is None or self.policy.is_append_time:
                continue
            if self.policy.is_compacted and self._may_be_cleaned(offset, record):
                continue  # a segment is as young as what a compaction has left in it
            if record.timestamp_ms + self.retention_ms > self.wall_high_ms:
                age_ms = self.wall_high_ms - record.timestamp_ms
                self.violate(
                    "lost_head",
                    f"{_text(record)} at {offset} was deleted {age_ms} ms old, {left_bytes} bytes "
                    f"before the end; kept: {self.retention_ms} ms, {self.retention_bytes} bytes",
                )
                return

    def trim(self, offset: int) -> None:
        """Somebody asks for it; whether or not it is answered, it may happen."""
        self.trim_asked = max(self.trim_asked, offset)

    def trimmed(self, asked: int, log_start: int) -> None:
        """It was done."""
        if log_start < asked:
            self.violate("falling_start", f"a trim to {asked} leaves {log_start}")
        self.log_start = max(self.log_start, log_start)

    def truncate(self, offset: int) -> None:
        """Somebody asks for it; from now on nothing behind the offset is certain."""
        assert self.truncating_to is None, "one truncation at a time"
        self.truncating_to = offset
        self._certain_before = self.certain_end
        self.certain_end = min(self.certain_end, max(0, offset - RECORDS_MAX + 1))

    def truncated(self, log_end: int | None, log_start: int = 0) -> None:
        """It was done: what lay behind is gone for good. None: nobody knows whether it was. A log
        that was trimmed beyond the offset meanwhile is empty where it begins."""
        assert self.truncating_to is not None, "a truncation ends that never began"
        offset, self.truncating_to = self.truncating_to, None
        self.truncations += 1
        self._last_acknowledged = (-1, -1)
        if log_end is not None and log_end > max(offset, log_start):
            self.violate("resurrected", f"a truncation to {offset} leaves {log_end}")
        if log_end is not None and log_end < self.certain_end:
            self.violate("lost_write", f"a truncation to {offset} leaves {log_end}")
        end = self.certain_end if log_end is None else min(offset, log_end)
        if log_end is not None:
            self.certain_end = min(self._certain_before, end)
        self._forget_from(end, "" if log_end is None else "resurrected")

    # -- lives of the node ---------------------------------------------------------------------

    def start(self, bounds: Bounds) -> None:
        """The node is back, and the log ends there: what it has not found is gone for good."""
        if self.truncating_to is not None:
            self.truncated(None)
        self._last_acknowledged = (-1, -1)
        self.see(bounds)
        self._forget_from(max(bounds.log_end, self.certain_end), "resurrected")

    def _forget_from(self, end: int, dead_as: str) -> None:
        for offset in [offset for offset in self.content if offset >= end]:
            record = self.content.pop(offset)
            del self._places[record.identity]
            self._doubt(record)
            if dead_as:
                self._dead[record.identity] = dead_as
        self._latest = {}
        for offset in sorted(self.content):
            key = self.content[offset].key
            if key is not None:
                self._latest[key] = offset
        self._gone = {key: offset for key, offset in self._gone.items() if offset < end}

    def drained(self, found: Sequence[Found], bounds: Bounds) -> None:
        """Everything that the log holds, at the end: what is certain has to be in it."""
        seen = {each.offset for each in found}
        for offset in range(bounds.log_start, self.certain_end):
            record = self.content.get(offset)
            if offset in seen:
                continue
            if not self.policy.is_compacted:
                self.violate("lost_write", f"offset {offset} is missing: {record}")
            elif record is not None:
                self._check_missing(offset, record)

    def violate(self, kind: str, text: str) -> None:
        """Something is wrong."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{kind} in {self.name}: {text}")


def _text(record: Record) -> str:
    return record.identity.decode()
