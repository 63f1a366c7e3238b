"""A task's work: one range of offsets of one partition, as Arrow batches.

Runs in Spark's Python workers, which are reused from task to task: the consumer is kept for the
life of the process, so that a thousand small tasks do not open a thousand connections.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelog.client import Consumer, TopicPartition
from tidelog.client.bulk.arrow_columns import ArrowColumns, decode_columns, join_columns
from tidelog.spark.arrow import to_record_batch
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import OffsetRange
from tidelog.wire.errors import ErrorCode, TidelogError

ARROW_RECORDS_MIN: Final = 10_000
"""Small stored batches are gathered until one Arrow batch is worth its fixed cost."""

_consumers: dict[str, Consumer] = {}
"""By bootstrap address; tasks of one worker process run one after the other."""


def read_range(options: SourceOptions, span: OffsetRange) -> Iterator[pa.RecordBatch]:
    """All records of the range, or an error: never fewer in silence."""
    gathered: list[ArrowColumns] = []
    count = 0
    for columns in _columns(options, span):
        gathered.append(columns)
        count += columns.records
        if count >= ARROW_RECORDS_MIN:
            yield to_record_batch(join_columns(gathered), span.topic, span.partition)
            gathered, count = [], 0
    if gathered:
        yield to_record_batch(join_columns(gathered), span.topic, span.partition)


def _columns(options: SourceOptions, span: OffsetRange) -> Iterator[ArrowColumns]:
    """Stored batches, opened, and cut to the range at both ends."""
    consumer = _consumer(options.bootstrap)
    place = TopicPartition(span.topic, span.partition)
    consumer.assign([place])
    position = _begin(consumer, place, options, span)
    while position < span.end:
        found = consumer.poll_batches(timeout_ms=options.fetch_timeout_ms)
        if not found:
            raise _stalled(options, span, position)
        for stored in found:
            if position >= span.end:
                break
            # A compaction may have left a batch without records.
            columns = decode_columns(stored.data, with_headers=options.include_headers)
            columns = columns.between(position, span.end)
            position = stored.next_offset
            if columns.records:
                yield columns
    consumer.assign([])


def _begin(
    consumer: Consumer, place: TopicPartition, options: SourceOptions, span: OffsetRange
) -> int:
    """Seek to the start, or to what is left of the range if that is allowed."""
    kept = consumer.beginning_offsets([place])[place]
    if kept > span.start and options.fail_on_data_loss:
        raise TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            tried=f"read {span.topic}-{span.partition} from offset {span.start}",
            happened=f"it is kept from offset {kept} on",
            hint="begin with a new checkpoint, or set failOnDataLoss to false to skip what is gone",
        )
    start = max(kept, span.start)
    consumer.seek(place, start)
    return start


def _stalled(options: SourceOptions, span: OffsetRange, position: int) -> TidelogError:
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"read {span.topic}-{span.partition} up to offset {span.end}",
        happened=f"nothing came beyond offset {position} in {options.fetch_timeout_ms} ms",
        hint="look at the partition with `tidelog topic describe`, or raise fetchTimeoutMs",
    )


def _consumer(bootstrap: str) -> Consumer:
    if bootstrap not in _consumers:
        _consumers[bootstrap] = Consumer(bootstrap_servers=bootstrap, group_id=None)
    return _consumers[bootstrap]
