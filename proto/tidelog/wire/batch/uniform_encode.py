"""Encodes records of equal lengths: a run of them is one join and a few columns of bytes.

Owns a way of encoding that spends its time in C. In a run every record takes the same number of
bytes and differs from its neighbour in timestamp, offset and content only: the constant bytes are
the separator of a join, and the numbers are written over it with a stride. What it does not encode
(headers, nulls among contents, other lengths) is left to the loop that goes record by record; both
give the same bytes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, cast

from tidelog.wire.batch.columns import Columns, Even
from tidelog.wire.batch.varint import LEADS_AFTER_PLAIN, VARINTS, counted_varints

_RECORDS_MIN: Final = 24
"""A run costs about as much to set up as this many records cost one by one."""

_WIDER_FROM: Final = (64, 8_192, 1 << 20)
"""From these numbers on an encoded number takes one byte more."""

_TIME_DELTA_MAX: Final = (1 << 27) - 1
"""A day and a half, in four bytes."""

_TIMES_SHARED_MIN: Final = 8
"""With so many records of one timestamp each timestamp is looked up once."""

_NULL: Final = -1


def encode_uniform(columns: Columns) -> bytes | None:
    """The records' bytes, or None where they are not alike. Timestamps must be in order."""
    count, times_ms = len(columns), columns.timestamps
    if count < _RECORDS_MIN or columns.headers:
        return None
    if times_ms[-1] - times_ms[0] > _TIME_DELTA_MAX:
        return None
    lengths = _lengths(columns)
    if lengths is None:
        return None
    wider_times = [bisect_left(times_ms, times_ms[0] + delta) for delta in _WIDER_FROM]
    bounds = sorted({0, count, *(at for at in (*wider_times, *_WIDER_FROM) if at < count)})
    runs = [_encode_run(columns, start, end, lengths) for start, end in pairwise(bounds)]
    # Each record begins with the header count, 0, of the one before it: the first has none.
    return b"".join((memoryview(runs[0])[1:], *runs[1:], b"\x00"))


def _lengths(columns: Columns) -> Even | None:
    keys, values = columns.keys, columns.values
    # Looking at each of them costs as much as encoding them: who knows it says so.
    if columns.even is not None and columns.even.records == len(columns):
        return columns.even
    has_keys = keys[0] is not None
    if not has_keys and keys.count(None) != len(keys):
        return None
    try:
        key_lengths = set(map(len, cast("list[bytes]", keys))) if has_keys else {_NULL}
        value_lengths = set(map(len, cast("list[bytes]", values)))
    except TypeError:  # a null among them has no length
        return None
    if len(key_lengths) > 1 or len(value_lengths) > 1:
        return None
    return Even(len(values), key_lengths.pop(), value_lengths.pop())


def _encode_run(columns: Columns, start: int, end: int, lengths: Even) -> bytearray:
    """Records whose timestamps take equally many bytes, and whose offsets do."""
    times_ms = columns.timestamps
    offsets = counted_varints(end)[start:end]
    time = VARINTS[times_ms[start] - times_ms[0]]
    numbers = time + offsets[0] + VARINTS[lengths.key_bytes]
    value_length = VARINTS[lengths.value_bytes]
    contents = cast("Sequence[bytes]", columns.values[start:end])
    content_bytes = lengths.value_bytes
    if lengths.key_bytes == _NULL:
        numbers += value_length
    else:
        content_bytes += lengths.key_bytes + len(value_length)
    # Attributes and header count are the two bytes more.
    lead = LEADS_AFTER_PLAIN[len(numbers) + content_bytes + 2]
    between = lead + numbers
    if lengths.key_bytes == _NULL:
        body = bytearray(between).join((b"", *contents))
    else:
        parts = [between, b"", value_length, b""] * len(contents)
        parts[1::4] = cast("Sequence[bytes]", columns.keys[start:end])
        parts[3::4] = contents
        body = bytearray().join(parts)
    size = len(between) + content_bytes
    assert len(body) == size * len(contents), f"{len(body)} bytes are not whole records of {size}"
    if times_ms[end - 1] != times_ms[start]:
        _write_column(body, len(lead), size, len(time), _times(times_ms, start, end))
    _write_column(body, len(lead) + len(time), size, len(offsets[0]), offsets)
    return body


def _write_column(
    body: bytearray, at: int, size: int, width: int, numbers: Iterable[bytes]
) -> None:
    """Each record's number of `width` bytes, in the record's place `at`."""
    joined = b"".join(numbers)
    for place in range(width):
        body[at + place :: size] = joined[place::width]


def _times(times_ms: list[int], start: int, end: int) -> list[bytes]:
    base_ms = times_ms[0]
    if (times_ms[end - 1] - times_ms[start]) * _TIMES_SHARED_MIN > end - start:
        return [VARINTS[time_ms - base_ms] for time_ms in times_ms[start:end]]
    encoded: list[bytes] = []
    while start < end:
        after = bisect_right(times_ms, times_ms[start], start, end)
        encoded.append(VARINTS[times_ms[start] - base_ms] * (after - start))
        start = after
    return encoded
