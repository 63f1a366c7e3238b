"""The record batch, Kafka's RecordBatch v2: one form for wire, disk and replication.

Owns the codec that `proto/BATCH.md` describes byte by byte. Nothing here reads a clock, a file or
a socket. A broker uses header, stamp and checksum; a client encode and decode_records.
"""

from tidelog.wire.batch.aborted import NONE_LEFT_OUT, AbortedStretch, aborted_batches
from tidelog.wire.batch.accelerated import (
    NO_ACCELERATOR,
    decode_batch_accelerated,
    decode_records,
    decode_uniform_runs,
    has_accelerator,
    use_accelerator,
)
from tidelog.wire.batch.checksum import (
    batch_checksum,
    checksum,
    extend_checksum,
    fetch_sum,
    route_sum,
    verify_checksum,
)
from tidelog.wire.batch.columns import Columns, Even
from tidelog.wire.batch.decode import OpenedBatch, decode_batch, decode_parts
from tidelog.wire.batch.encode import encode_batch, record_size_estimate
from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec
from tidelog.wire.batch.header import BatchHeader, iterate_headers, peek_size, read_header
from tidelog.wire.batch.layout import (
    HEADER_BYTES,
    MAGIC,
    Buffer,
    Codec,
    DecodedRecord,
    Header,
    RecordTuple,
    TimestampType,
)
from tidelog.wire.batch.limits import (
    BATCH_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSION_ALLOWANCE_BYTES,
    DECOMPRESSION_RATIO_MAX,
    DEFAULT_LIMITS,
    HEADERS_PER_BATCH_MAX,
    HEADERS_PER_RECORD_MAX,
    RECORDS_PER_BATCH_MAX,
    Limits,
)
from tidelog.wire.batch.stamp import PLACE_BYTES, place, stamp, stamp_append_time
from tidelog.wire.batch.uniform import UniformRun, run_times

__all__ = [
    "BATCH_BYTES_MAX",
    "DECOMPRESSED_BYTES_MAX",
    "DECOMPRESSION_ALLOWANCE_BYTES",
    "DECOMPRESSION_RATIO_MAX",
    "DEFAULT_LIMITS",
    "HEADERS_PER_BATCH_MAX",
    "HEADERS_PER_RECORD_MAX",
    "HEADER_BYTES",
    "MAGIC",
    "NONE_LEFT_OUT",
    "NO_ACCELERATOR",
    "PLACE_BYTES",
    "RECORDS_PER_BATCH_MAX",
    "AbortedStretch",
    "BatchHeader",
    "BatchTooLarge",
    "Buffer",
    "Codec",
    "Columns",
    "CorruptBatch",
    "DecodedRecord",
    "Even",
    "Header",
    "Limits",
    "OpenedBatch",
    "RecordTuple",
    "TimestampType",
    "UniformRun",
    "UnsupportedCodec",
    "aborted_batches",
    "batch_checksum",
    "checksum",
    "decode_batch",
    "decode_batch_accelerated",
    "decode_parts",
    "decode_records",
    "decode_uniform_runs",
    "encode_batch",
    "extend_checksum",
    "fetch_sum",
    "has_accelerator",
    "iterate_headers",
    "peek_size",
    "place",
    "read_header",
    "record_size_estimate",
    "route_sum",
    "run_times",
    "stamp",
    "stamp_append_time",
    "use_accelerator",
    "verify_checksum",
]
