"""Where each byte of a batch lies: the constants that `proto/BATCH.md` documents.

Owns byte positions, attribute bits, the two enumerations and the shapes of records; no behaviour.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeAlias

HEADER_STRUCT: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
PREFIX_BYTES: Final = 12
"""Base offset and batch length; the batch length counts everything after them."""

LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CHECKSUM_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""Also where the bytes under the checksum begin; they reach to the end of the batch."""
MAX_TIMESTAMP_POSITION: Final = 35

MAGIC: Final = 2
CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_ATTRIBUTE_BITS: Final = 0x7F

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count."""

RECORD_HEADER_BYTES_MIN: Final = 2
"""Of one header of a record: the lengths of its name and its value."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1


class Codec(IntEnum):
    """How the records after the header are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set the timestamps: the producer of a record, or the leader that appended its batch."""

    CREATE = 0
    APPEND = 1


Buffer: TypeAlias = bytes | bytearray | memoryview

Header: TypeAlias = tuple[str, bytes | None]

RecordTuple: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""What is encoded: timestamp_ms, key, value, headers."""

DecodedRecord: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, Sequence[Header]]
"""What is decoded: offset, timestamp_ms, timestamp_type (a TimestampType's number), key, value,
headers."""
