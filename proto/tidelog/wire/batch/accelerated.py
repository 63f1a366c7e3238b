"""Opens a batch with aiokafka's C decoder, where it is installed: for clients only.

Owns the only import of aiokafka, made at first use and never by a broker. The decoder gets our
header and decompressed bytes, so that it never decompresses by itself. It checks most bounds but
not all: it may read up to 20 bytes beyond what it is given, which are zeros of ours. It accepts
nothing that `decode_batch` refuses: offsets are compared here, and whatever it cannot read is read
again by ours, which says what is wrong.
"""

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter, itemgetter, lt
from typing import Any, Final, TypeAlias

from tidelog.wire.batch.decode import OpenedBatch, decode_batch, open_batch, read_records
from tidelog.wire.batch.header import BatchHeader
from tidelog.wire.batch.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    RECORD_HEADER_BYTES_MIN,
    Buffer,
    DecodedRecord,
)
from tidelog.wire.batch.limits import DEFAULT_LIMITS, Limits
from tidelog.wire.batch.uniform import UniformRun, read_uniform, uniform_runs

NO_ACCELERATOR: Final = "TIDELOG_NO_ACCELERATOR"
"""The environment variable that, set to 1, asks for decoding in Python alone.

Wire is pure and reads no environment: a program that starts (client, tests, benchmarks) reads the
variable and calls `use_accelerator`.
"""

_PADDING: Final = bytes(32)

_offset_of: Final = itemgetter(0)
_fields_of: Final[Callable[[Any], DecodedRecord]] = attrgetter(
    "offset", "timestamp", "timestamp_type", "key", "value", "headers"
)


_Accelerator: TypeAlias = Callable[[memoryview], Iterable[Any]]

_switch: Final = [True]


def use_accelerator(is_enabled: bool) -> None:
    """Switches the C decoder on or off for this process; it is on at first."""
    _switch[0] = is_enabled


def has_accelerator() -> bool:
    """Whether the C decoder is installed and not switched off."""
    return _switch[0] and _installed() is not None


def decode_records(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> list[DecodedRecord]:
    """All records of the batch, by the fastest decoder that is there."""
    decode = decode_batch_accelerated if has_accelerator() else decode_batch
    return decode(buffer, position, verify=verify, limits=limits, is_compacted=is_compacted)


def decode_batch_accelerated(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> list[DecodedRecord]:
    """As `decode_batch`, by the C decoder where that is faster; it must be installed."""
    accelerator = _installed()
    assert accelerator is not None, "aiokafka with its C decoder is not installed"
    opened = open_batch(buffer, position, verify=verify, limits=limits, is_compacted=is_compacted)
    records = read_uniform(opened.header, opened.body)
    if records is not None:
        return records
    return _read_one_by_one(accelerator, buffer, position, opened, limits, is_compacted)


def decode_uniform_runs(
    buffer: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    is_compacted: bool = False,
) -> tuple[OpenedBatch, list[UniformRun] | None, list[DecodedRecord]]:
    """For whoever wants columns: the batch and the runs that its records form, without a step a
    record; where they form none (None), the records, by the fastest decoder that is there.
    """
    opened = open_batch(buffer, position, verify=verify, limits=limits, is_compacted=is_compacted)
    runs = uniform_runs(opened.header, opened.body)
    if runs is not None:
        return opened, runs, []
    accelerator = _installed() if _switch[0] else None
    records = _read_one_by_one(accelerator, buffer, position, opened, limits, is_compacted)
    return opened, None, records


def _read_one_by_one(
    accelerator: _Accelerator | None,
    buffer: Buffer,
    position: int,
    opened: OpenedBatch,
    limits: Limits,
    is_compacted: bool,
) -> list[DecodedRecord]:
    header, body = opened
    records = None
    # A list of headers is made before it can be counted: a body that can hold more than are
    # admitted is not for a decoder that does not know the limit.
    is_countable = len(body) <= RECORD_HEADER_BYTES_MIN * limits.headers_per_batch_max
    if accelerator is not None and is_countable:
        head = buffer[position : position + HEADER_BYTES]
        records = _read_accelerated(accelerator, header, head, body, is_compacted)
    if records is None:
        return read_records(header, body, position, limits=limits)
    return records


def _read_accelerated(
    accelerator: _Accelerator, header: BatchHeader, head: Buffer, body: bytes, is_compacted: bool
) -> list[DecodedRecord] | None:
    """The records, or None if the C decoder or a check of its result finds anything wrong."""
    uncompressed_head = bytearray(head)
    uncompressed_head[ATTRIBUTES_POSITION + 1] &= ~CODEC_MASK
    padded = b"".join((uncompressed_head, body, _PADDING))
    batch = accelerator(memoryview(padded)[: HEADER_BYTES + len(body)])
    try:
        records = list(map(_fields_of, batch))
    except (_corrupt_error(), ValueError, OverflowError, MemoryError):
        # Text that is not UTF-8, and lengths that no memory holds, are the last three.
        return None
    offsets = list(map(_offset_of, records))
    if is_compacted:
        last_offset = header.last_offset
        in_range = not offsets or (header.base_offset <= offsets[0] and offsets[-1] <= last_offset)
        is_right = in_range and all(map(lt, offsets, offsets[1:]))
    else:
        is_right = offsets == list(range(header.base_offset, header.next_offset))
    return records if is_right else None


@cache
def _installed() -> _Accelerator | None:
    try:
        from aiokafka.record._crecords import DefaultRecordBatch
    except ImportError:
        return None
    decoder: _Accelerator = DefaultRecordBatch
    return decoder


@cache
def _corrupt_error() -> type[Exception]:
    from aiokafka.errors import CorruptRecordException

    kind: type[Exception] = CorruptRecordException
    return kind
