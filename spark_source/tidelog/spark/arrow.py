"""From stored batches to Arrow record batches, without touching single records in Python.

Stop 10 of a record's walk. The columns and their order are those of Spark's Kafka connector, and
equal to what Spark makes of `source_schema`: Spark refuses anything that differs in type, order or
nullability.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelog.wire.batch import DecodedRecord

COLUMNS_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)
_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA: Final = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def source_schema(*, include_headers: bool) -> str:
    """The columns of a data frame, in Spark's notation."""
    return f"{COLUMNS_DDL}, {HEADERS_DDL}" if include_headers else COLUMNS_DDL


def to_record_batch(
    records: Sequence[DecodedRecord], topic: str, partition: int, *, include_headers: bool
) -> pa.RecordBatch:
    """One Arrow batch of records of one partition; `records` is not empty."""
    assert records, "Spark's first batch fixes the schema: an empty one says nothing"
    count = len(records)
    offsets, timestamps_ms, types, keys, values, headers = zip(*records, strict=True)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        _constant(topic, pa.string(), count),
        _constant(partition, pa.int32(), count),
        pa.array(offsets, pa.int64()),
        _to_timestamps(timestamps_ms),
        pa.array(types, pa.int32()),
    ]
    if not include_headers:
        return pa.record_batch(columns, schema=_SCHEMA)
    columns.append(_to_headers(headers))
    return pa.record_batch(columns, schema=_SCHEMA_WITH_HEADERS)


def _constant(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _to_timestamps(timestamps_ms: Sequence[int]) -> pa.Array:
    return pa.array(timestamps_ms, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP)


def _to_headers(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    return pa.array(
        [[{"key": key, "value": value} for key, value in of_record] for of_record in headers],
        _HEADERS,
    )
