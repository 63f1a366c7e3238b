"""Opens a batch with aiokafka's C decoder, where it is installed: clients only.

Owns the only import of aiokafka, made at first use. The decoder gets a header of ours and
decompressed bytes, so that it never decompresses by itself. It may read up to 20 bytes behind
the end of what it gets, so zeros of ours follow. Every exception of it becomes CorruptBatch.
"""

import os
from functools import cache
from operator import attrgetter
from typing import Any, Final

from tidelog.wire.batch.checksum import verify_checksum
from tidelog.wire.batch.decode import decode_batch, decompressed_body
from tidelog.wire.batch.errors import CorruptBatch
from tidelog.wire.batch.header import read_header
from tidelog.wire.batch.layout import HEADER_BYTES, Buffer, DecodedRecord
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits

SWITCH: Final = "TIDELOG_NO_ACCELERATOR"


@cache
def accelerator() -> Any:
    """The C decoder's class, or None if it is switched off or not installed."""
    if os.environ.get(SWITCH) == "1":
        return None
    try:
        from aiokafka.record._crecords import DefaultRecordBatch
    except ImportError:
        return None
    return DefaultRecordBatch


_FIELDS: Final = attrgetter("offset", "timestamp", "timestamp_type", "key", "value", "headers")
_PADDING: Final = bytes(32)


def decode_batch_accelerated(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> list[DecodedRecord]:
    """As `decode_batch`, but read by the C decoder; which must be there."""
    decoder = accelerator()
    assert decoder is not None, "the accelerator is not installed or switched off"
    header = read_header(buffer, position, limits=limits, is_compacted=is_compacted)
    if verify:
        verify_checksum(buffer, header, position)
    body = decompressed_body(buffer, header, position, limits)
    head = bytearray(buffer[position : position + HEADER_BYTES])
    head[22] &= 0xF8
    padded = b"".join((head, body, _PADDING))
    try:
        batch = decoder(memoryview(padded)[: HEADER_BYTES + len(body)])
        return list(map(_FIELDS, batch))
    except Exception as error:
        raise CorruptBatch(
            tried=f"read the records of the batch at byte {position}", happened=str(error)
        ) from None


def decode_records(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> list[DecodedRecord]:
    """All records of the batch, by the fastest decoder that is there."""
    decode = decode_batch if accelerator() is None else decode_batch_accelerated
    return decode(buffer, position, verify=verify, limits=limits, is_compacted=is_compacted)
