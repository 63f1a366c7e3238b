"""The names and types of the columns, in Spark's notation: those of its Kafka connector."""

from typing import Final

COLUMNS_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def source_schema(*, include_headers: bool) -> str:
    """The columns of a data frame."""
    return f"{COLUMNS_DDL}, {HEADERS_DDL}" if include_headers else COLUMNS_DDL
