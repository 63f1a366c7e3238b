"""The columns that Spark sees, made of the SDK's Arrow columns.

Stop 10 of a record's walk. Owns names, order and types: those of Spark's Kafka connector, and equal
to what Spark makes of `source_schema`, which refuses anything that differs in type, order or
nullability. How stored bytes become columns is the SDK's.
"""

from typing import Final

import pyarrow as pa

from tidelog.client.bulk.arrow_columns import BINARY, HEADERS, ArrowColumns, one_array, repeated

COLUMNS_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = [
    pa.field("key", BINARY),
    pa.field("value", BINARY),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA: Final = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])


def source_schema(*, include_headers: bool) -> str:
    """The columns of a data frame, in Spark's notation."""
    return f"{COLUMNS_DDL}, {HEADERS_DDL}" if include_headers else COLUMNS_DDL


def to_record_batch(columns: ArrowColumns, topic: str, partition: int) -> pa.RecordBatch:
    """One Arrow batch of records of one partition, with headers if they have been read."""
    count = columns.records
    assert count, "Spark's first batch fixes the schema: an empty one says nothing"
    arrays = [
        one_array(columns.keys),
        one_array(columns.values),
        repeated(topic, pa.string(), count),
        repeated(partition, pa.int32(), count),
        one_array(columns.offsets),
        one_array(columns.times).cast(_TIMESTAMP),
        one_array(columns.types),
    ]
    if columns.headers is None:
        return pa.record_batch(arrays, schema=_SCHEMA)
    return pa.record_batch([*arrays, one_array(columns.headers)], schema=_SCHEMA_WITH_HEADERS)
