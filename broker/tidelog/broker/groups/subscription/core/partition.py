"""One partition of a subscription: what was read, what was sent, what was acknowledged. Pure.

acknowledged ≤ sent_end ≤ first offset of the buffer ≤ next_read
"""

from collections import deque

import msgspec

from tidelog.wire.batch import DecodedRecord, record_size_estimate
from tidelog.wire.ids import NO_OFFSET, Offset, PartitionKey


class SentPart(msgspec.Struct, frozen=True):
    """Records that were sent together."""

    end_offset: Offset
    """Behind the last one."""
    sent_ms: int
    count: int


class Partition(msgspec.Struct, kw_only=True):
    """As long as the member owns it, once."""

    key: PartitionKey
    topic: str
    next_read: Offset = NO_OFFSET
    """Where the next read begins; -1: not known yet."""
    acknowledged: Offset = NO_OFFSET
    """All below it is done, or was before."""
    sent_end: Offset = NO_OFFSET
    claimed: Offset = NO_OFFSET
    """The client says that all below it is done, be that stored or not."""
    is_ready: bool = False
    """It is known where to begin, and that is committed where nothing was."""
    is_finding: bool = False
    """It is being asked where to begin."""
    undecided_since_ms: int = -1
    """Since when a transaction in progress holds where to begin; -1: none does."""
    needs_reset: bool = False
    """What was committed is not in the log any more."""
    is_leaving: bool = False
    """To be given up once all that was sent is acknowledged."""
    high_watermark: Offset = Offset(0)
    last_stable_offset: Offset = Offset(0)
    buffer: deque[DecodedRecord] = msgspec.field(default_factory=deque)
    buffered_bytes: int = 0
    unacknowledged: deque[SentPart] = msgspec.field(default_factory=deque)

    def begin_at(self, offset: Offset) -> None:
        """Reading begins here."""
        assert not self.unacknowledged, f"{self.key}: reading begins anew behind what was sent"
        self.next_read = self.acknowledged = self.sent_end = self.claimed = offset
        self.buffer.clear()
        self.buffered_bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return not self.unacknowledged

    @property
    def unacknowledged_count(self) -> int:
        """Records; parts that are acknowledged in part count whole."""
        return sum(part.count for part in self.unacknowledged)

    def take(
        self,
        records: list[DecodedRecord],
        next_offset: Offset,
        high_watermark: Offset,
        last_stable_offset: Offset,
    ) -> None:
        """What a read brought."""
        assert next_offset >= self.next_read, f"{self.key}: a read goes back to {next_offset}"
        self.buffer.extend(records)
        self.buffered_bytes += sum(size_of(record) for record in records)
        self.next_read = next_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset

    def send(self, count_max: int, bytes_max: int, now_ms: int) -> tuple[DecodedRecord, ...]:
        """The next records for the client, at least one."""
        assert self.buffer, f"{self.key} has nothing to send"
        found: list[DecodedRecord] = []
        size_bytes = 0
        while self.buffer and len(found) < count_max:
            size = size_of(self.buffer[0])
            if found and size_bytes + size > bytes_max:
                break
            size_bytes += size
            found.append(self.buffer.popleft())
        self.buffered_bytes -= size_bytes
        self.sent_end = Offset(found[-1][0] + 1)
        self.unacknowledged.append(SentPart(self.sent_end, now_ms, len(found)))
        return tuple(found)

    def oldest_sent_ms(self) -> int | None:
        """Since when the client has the oldest records of which it has said nothing."""
        left = (each.sent_ms for each in self.unacknowledged if each.end_offset > self.claimed)
        return next(left, None)

    def acknowledge(self, offset: Offset) -> None:
        """All below the offset is done."""
        self.acknowledged = max(self.acknowledged, offset)
        while self.unacknowledged and self.unacknowledged[0].end_offset <= offset:
            self.unacknowledged.popleft()

    @property
    def has_passed_over(self) -> bool:
        """Whether reading has gone on behind all that the client was sent, and it has done with
        that: what lies between is of no reader, a marker or an aborted transaction."""
        is_idle = self.is_ready and not self.is_leaving and not self.buffer and self.is_done
        return is_idle and self.next_read > self.sent_end

    def pass_over(self) -> Offset:
        """What was read and not sent counts as sent, so that it can be committed; up to where."""
        assert self.has_passed_over, f"{self.key}: the client has yet to acknowledge"
        self.sent_end = self.claimed = self.next_read
        return self.next_read

    def stop(self) -> None:
        """Nothing more is read or sent."""
        self.is_leaving = True
        self.buffer.clear()
        self.buffered_bytes = 0


def size_of(record: DecodedRecord) -> int:
    """About what it takes in an answer."""
    return record_size_estimate(record[3], record[4], record[5])
