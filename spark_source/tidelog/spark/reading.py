"""A task's work: one range of offsets of one partition, as Arrow batches.

Owns the promise that a range yields exactly the offsets planned: all of them, of the topic planned,
of the leader epochs planned; or an error, or with failOnDataLoss=false a warning that names what is
missing. Runs in Spark's Python workers, which are reused from task to task: the clients are kept
for the life of the process, so that a thousand small tasks do not open a thousand connections.

Theory of operation. The consumer has no reset policy and is told the topic's id with the position,
so it never moves by itself. Each batch must begin where the one before it ended. What interrupts
that is explained before it is believed, by asking the leader where its log begins and ends:

    offset below the log's start      trimmed since it was planned         lost up to the start
    log ends before the range does    truncated since it was planned       lost from the end on
    later leader epoch than planned   truncated and written again          lost from there on
    another topic id, or no topic     deleted, or created again            lost from there on
    records missing in between        compaction, if the topic has it      nothing lost
                                      nothing explains it                  lost in between

Records that were written behind a truncation are not of this range, even if they fill its offsets:
a stream plans them next, from the place where the logs part.
"""

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelog.client import Consumer, TopicPartition
from tidelog.client.bulk.arrow_columns import ArrowColumns, decode_columns, join_columns
from tidelog.client.errors import LogTruncationError
from tidelog.client.sync.admin.positions import PositionClient
from tidelog.client.types.records import RawBatch
from tidelog.spark.arrow import to_record_batch
from tidelog.spark.losses import Loss, ends_below, hole, report, rewritten, topic_gone, trimmed
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import NO_EPOCH, OffsetRange
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError

ARROW_RECORDS_MIN: Final = 10_000
"""Small stored batches are gathered until one Arrow batch is worth its fixed cost."""
SILENCE_MS: Final = 1_000
"""So long nothing came: the leader is asked whether there is anything to come."""
LOOK_MS: Final = 2_000
"""How long one such question may take; a broker that has not heard of a topic has by then."""
CONTRADICTIONS_MAX: Final = 5
"""How often a read may fail for reasons that its leader then denies."""

_GONE: Final = (
    ErrorCode.UNKNOWN_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_PARTITION,
    ErrorCode.NO_OFFSET_FOR_PARTITION,
)
"""What a consumer says of a position that is of no topic any more."""


class Clients:
    """What one process keeps open to one cluster; its tasks run one after the other."""

    def __init__(self, options: SourceOptions) -> None:
        self._bootstrap = options.bootstrap
        self._settings = options.client
        self._consumer: Consumer | None = None
        self._positions: PositionClient | None = None

    def consumer(self) -> Consumer:
        """Without a group, without a reset policy, making no topics."""
        if self._consumer is None:
            self._consumer = Consumer(
                bootstrap_servers=self._bootstrap,
                group_id=None,
                auto_offset_reset="none",
                allow_auto_create_topics=False,
                **self._settings.for_consumer(),
            )
        return self._consumer

    def positions(self) -> PositionClient:
        """Opened by the first range that has something to explain."""
        if self._positions is None:
            self._positions = PositionClient(
                bootstrap_servers=self._bootstrap, **self._settings.for_admin()
            )
        return self._positions

    def drop_consumer(self) -> None:
        """What a failed one believes and has prefetched is not taken over."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def close(self) -> None:
        """Close all."""
        self.drop_consumer()
        if self._positions is not None:
            self._positions.close()
            self._positions = None


_clients: dict[tuple[object, ...], Clients] = {}
"""By address and settings."""


def clients_of(options: SourceOptions) -> Clients:
    """Those of this process."""
    key = (options.bootstrap, options.client)
    if key not in _clients:
        _clients[key] = Clients(options)
    return _clients[key]


def read_range(options: SourceOptions, span: OffsetRange) -> Iterator[pa.RecordBatch]:
    """All records of the range, or an error: never fewer in silence."""
    gathered: list[ArrowColumns] = []
    count = 0
    for columns in RangeReader(options, span, clients_of(options)).columns():
        gathered.append(columns)
        count += columns.records
        if count >= ARROW_RECORDS_MIN:
            yield to_record_batch(join_columns(gathered), span.topic, span.partition)
            gathered, count = [], 0
    if gathered:
        yield to_record_batch(join_columns(gathered), span.topic, span.partition)


class RangeReader:
    """Reads one range once."""

    def __init__(
        self,
        options: SourceOptions,
        span: OffsetRange,
        clients: Clients,
        *,
        look_ms: int = LOOK_MS,
    ) -> None:
        self._look_ms = look_ms
        self._options = options
        self._span = span
        self._clients = clients
        self._name = TopicPartition(span.topic, span.partition)
        self._topic_id = bytes.fromhex(span.topic_id)
        self._position = span.start
        """All below it was yielded, or told as lost."""
        self._moved_at = time.monotonic()
        self._contradictions = 0
        self._is_compacted: bool | None = None

    def columns(self) -> Iterator[ArrowColumns]:
        """Stored batches, opened, and cut to the range at both ends."""
        while self._position < self._span.end:
            try:
                yield from self._read_on()
            except TidelogError as error:
                self._clients.drop_consumer()
                self._explain(error)

    def _read_on(self) -> Iterator[ArrowColumns]:
        """From the position on, until the range ends or the position is not what was read to."""
        consumer = self._clients.consumer()
        consumer.assign([self._name])
        consumer.seek(self._name, self._position, topic_id=self._topic_id)
        try:
            while self._position < self._span.end:
                found = consumer.poll_batches(timeout_ms=SILENCE_MS, include_left_out=True)
                if not found and self._look():
                    return
                for stored in found:
                    columns = self._take(stored)
                    if columns is not None:
                        yield columns
                    if self._position >= self._span.end:
                        break
        finally:
            # Also when Spark wants no more: else the broker would send on into this process.
            consumer.assign([])

    def _take(self, stored: RawBatch) -> ArrowColumns | None:
        """What of a batch is of the range; None: nothing."""
        span, header = self._span, stored.header
        if stored.next_offset <= self._position:
            return None
        if span.leader_epoch != NO_EPOCH and stored.leader_epoch > span.leader_epoch:
            found, planned = stored.leader_epoch, span.leader_epoch
            self._lose(rewritten(span.place, self._position, span.end, found, planned), span.end)
            return None
        first, end = max(self._position, header.base_offset), min(stored.next_offset, span.end)
        if first > self._position:
            self._explain_hole(min(first, span.end))
        if stored.is_left_out:
            # Nothing is missing: a marker, or what was aborted where only committed records count.
            self._move(max(self._position, end))
            return None
        columns = decode_columns(stored.data, with_headers=self._options.include_headers)
        columns = columns.between(first, end)
        if columns.records < end - first:
            self._explain_hole(end)
        self._move(max(self._position, end))
        return columns if columns.records else None

    def _explain_hole(self, end: int) -> None:
        """Records are missing somewhere from the position up to `end`."""
        if self._is_compacted is None:
            self._is_compacted = self._clients.positions().is_compacted(self._span.topic)
        if not self._is_compacted:
            report([hole(self._span.place, self._position, end)], fail_on_data_loss=self._is_strict)

    def _explain(self, error: TidelogError) -> None:
        """Why the consumer gave up; raises unless reading can go on behind it."""
        if isinstance(error, LogTruncationError):
            cut_at = error.divergent_offset
            self._lose(
                ends_below(self._span.place, self._position, self._span.end, cut_at), self._span.end
            )
            return
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE and error.code not in _GONE:
            raise error
        if self._look():
            return
        # The leader knows of no reason: metadata of another broker were older, most likely.
        self._contradictions += 1
        if self._contradictions > CONTRADICTIONS_MAX:
            raise error

    def _look(self) -> bool:
        """Ask the leader for the ends of its log; whether that moved the position."""
        span = self._span
        try:
            kept, log_end = self._bounds()
        except TidelogError as error:
            if error.code in _GONE:
                self._lose(topic_gone(span.topic, span.topic_id, again_as=None), span.end)
                return True
            if not error.retriable or self._is_late():
                raise
            return False
        if kept > self._position:
            self._lose(trimmed(span.place, self._position, kept), min(kept, span.end))
            return True
        if log_end < span.end and log_end <= self._position:
            self._lose(ends_below(span.place, self._position, span.end, log_end), span.end)
            return True
        if self._is_late():
            raise self._stalled()
        return False

    def _bounds(self) -> tuple[int, int]:
        """Where the log begins and ends, of the topic with the id planned."""
        positions, ids = self._clients.positions(), {self._span.topic: self._topic_id}
        version = self._span.metadata_version
        known = positions.topics(ids, self._look_ms, grace_ms=self._look_ms, version_min=version)
        if not known:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC,
                tried=f"read {self._span.place}",
                happened=f"there is no topic {self._span.topic!r}",
            )
        found = []
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            answers = positions.offsets({self._name: (spec, -1)}, ids, self._look_ms)
            found.append(answers[self._name].offset)
        return found[0], found[1]

    @property
    def _is_strict(self) -> bool:
        return self._options.fail_on_data_loss

    def _lose(self, loss: Loss, position: int) -> None:
        report([loss], fail_on_data_loss=self._is_strict)
        self._move(position)

    def _move(self, position: int) -> None:
        assert position >= self._position, f"{self._span.place} goes back to {position}"
        if position > self._position:
            self._position, self._moved_at = position, time.monotonic()

    def _is_late(self) -> bool:
        return (time.monotonic() - self._moved_at) * 1000 >= self._options.fetch_timeout_ms

    def _stalled(self) -> TidelogError:
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"read {self._span.place} up to offset {self._span.end}",
            happened=f"nothing came beyond offset {self._position} in "
            f"{self._options.fetch_timeout_ms} ms",
            hint="look at the partition with `tidelog topic describe`, or raise fetchTimeoutMs",
        )
