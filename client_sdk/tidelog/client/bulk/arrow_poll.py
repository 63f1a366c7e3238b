"""poll_arrow(): what was fetched as one table, the same records that poll() would give.

Owns the table's columns, and what happens where a batch cannot be read: the records before it are
given, and the error stands before the next call. It needs pyarrow.
"""

from typing import Any, Final

import msgspec

from tidelog.client.bulk.arrow_columns import (
    BINARY,
    HEADERS,
    TIMES,
    ArrowColumns,
    decode_columns,
    join_columns,
    repeated,
)
from tidelog.client.bulk.arrow_modules import pa
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import iterate_headers
from tidelog.wire.errors import TidelogError

_FIELDS: Final = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMES),
    pa.field("key", BINARY),
    pa.field("value", BINARY),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])


class Decoded(msgspec.Struct, frozen=True):
    """The records of an answer, up to the first stored batch that cannot be read."""

    batches: list[ArrowColumns]
    next_offset: int
    """Behind what was read."""
    error: TidelogError | None = None


def decode_fetched(fetched: Fetched, *, verify: bool, with_headers: bool) -> Decoded:
    """The records from the wanted offset on; markers are left out, and what a reader of committed
    records is not given."""
    batches: list[ArrowColumns] = []
    next_offset, left_out = fetched.first_offset, fetched.left_out
    try:
        for position, header in iterate_headers(fetched.data, is_compacted=True):
            is_given = not (header.is_control or (left_out and header.base_offset in left_out))
            if is_given and header.next_offset > fetched.first_offset:
                columns = decode_columns(
                    fetched.data, position, verify=verify, with_headers=with_headers
                )
                wanted = columns.between(fetched.first_offset, header.next_offset)
                if wanted.records:
                    batches.append(wanted)
            next_offset = max(next_offset, header.next_offset)
    except TidelogError as error:
        return Decoded(batches, next_offset, error)
    return Decoded(batches, fetched.next_offset)


def take_table(
    core: ConsumerCore, fetched: Fetched | None, *, max_bytes: int, with_headers: bool
) -> Any:
    """The records of this answer and of those behind it that are there, up to `max_bytes`; raises
    what stands before the first of them."""
    tables: list[Any] = []
    taken_bytes = 0
    while fetched is not None:
        decoded = decode_fetched(fetched, verify=core.settings.verify, with_headers=with_headers)
        if decoded.batches:
            tables.append(_table(fetched.topic_partition, join_columns(decoded.batches)))
        core.partitions[fetched.topic_partition].hand_over(decoded.next_offset)
        if decoded.error is not None:
            core.ready.put_back(fetched, decoded.next_offset)
            if not tables:
                raise decoded.error
            break
        taken_bytes += len(fetched.data)
        fetched = None if taken_bytes >= max_bytes else core.take()
    if not tables:
        return (SCHEMA_WITH_HEADERS if with_headers else SCHEMA).empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _table(name: TopicPartition, columns: ArrowColumns) -> Any:
    """Of one partition; the columns keep their chunks."""
    count = columns.records
    chunks = [
        [repeated(name.topic, pa.string(), count)],
        [repeated(name.partition, pa.int32(), count)],
        columns.offsets,
        columns.times,
        columns.keys,
        columns.values,
    ]
    schema = SCHEMA
    if columns.headers is not None:
        chunks.append(columns.headers)
        schema = SCHEMA_WITH_HEADERS
    arrays = [pa.chunked_array(each) for each in chunks]
    return pa.Table.from_arrays(arrays, schema=schema)
