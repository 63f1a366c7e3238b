"""The columns that Spark sees, made of the SDK's Arrow columns.

Stop 10 of a record's walk. Owns names, order and types: those of Spark's Kafka connector, and equal
to what Spark makes of `columns.source_schema`: it refuses anything that differs in type, order or
nullability. How stored bytes become columns is the SDK's.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.bulk.arrow_columns import BINARY, HEADERS, ArrowColumns, one_array, repeated

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
    headers = _null_if_none(one_array(columns.headers))
    return pa.record_batch([*arrays, headers], schema=_SCHEMA_WITH_HEADERS)


def _null_if_none(headers: Any) -> Any:
    """A record without headers has null there, as Spark's Kafka connector gives it."""
    has_some = pc.greater(pc.list_value_length(headers), 0)
    return pc.if_else(has_some, headers, pa.scalar(None, HEADERS))
