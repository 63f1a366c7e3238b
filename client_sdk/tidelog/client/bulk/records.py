"""What a caller hands to `send_batch`, checked as a whole before anything of it is sent.

Owns the checks and their errors: lengths of the columns, types, sizes, timestamps, headers. They
are `send()`'s, made by column. It must never change a list of the caller's.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from tidelog.client.arguments.options import ProducerOptions, Serializer
from tidelog.client.arguments.records import as_bytes, checked_headers, checked_time, too_large
from tidelog.client.types.records import Headers
from tidelog.wire.batch import Columns, Even, Header, record_size_estimate
from tidelog.wire.errors import ErrorCode, TidelogError

OVERHEAD_BYTES: Final = record_size_estimate(None, None, ())
Contents = list[bytes | None]
_PLAIN: Final = frozenset({bytes, type(None)})


class Source(Protocol):
    """Records that are known to be right, and are taken in slices."""

    count: int
    slice_records: int
    """How many are taken at a time."""
    oldest_ms: int | None
    """The lowest of the times that the caller gave; None: he gave none."""

    def take(self, start: int, end: int, now_ms: int) -> tuple[Columns, int | Sequence[int]]:
        """Those from `start` up to `end`, and the sizes that a `Run` wants."""
        ...


class GivenRecords:
    """Columns of Python values."""

    slice_records = 16_384

    def __init__(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[Headers | None] | None,
        timestamps_ms: int | Sequence[int] | None,
        options: ProducerOptions,
    ) -> None:
        self.count = len(values)
        for name, column in (("keys", keys), ("headers", headers), ("timestamp_ms", timestamps_ms)):
            if isinstance(column, Sequence) and len(column) != self.count:
                raise _uneven(topic, self.count, name, len(column))
        self._values = contents_of(values, "value", options.value_serializer)
        self._keys = None if keys is None else contents_of(keys, "key", options.key_serializer)
        self._headers: dict[int, Sequence[Header]] = {
            place: checked
            for place, found in enumerate(() if headers is None else headers)
            if found is not None and (checked := checked_headers(found))
        }
        self._timestamps_ms = checked_times(topic, timestamps_ms)
        self.oldest_ms = oldest_of(self._timestamps_ms)
        self._sizes = self._sizes_of(topic, options.max_request_size)

    def take(self, start: int, end: int, now_ms: int) -> tuple[Columns, int | Sequence[int]]:
        """See `Source`."""
        given, times_ms = self._headers, self._timestamps_ms
        columns = Columns()
        columns.values = self._values[start:end]
        columns.keys = self._keys[start:end] if self._keys else [None] * (end - start)
        if given:
            places = range(start, end)
            columns.headers = {place - start: given[place] for place in places if place in given}
        if times_ms is None or isinstance(times_ms, int):
            columns.timestamps = [now_ms if times_ms is None else times_ms] * (end - start)
        else:
            columns.timestamps = list(times_ms[start:end])
        if not isinstance(self._sizes, int):
            return columns, self._sizes[start:end]
        columns.even = even_of(columns)
        return columns, self._sizes

    def _sizes_of(self, topic: str, limit: int) -> int | list[int]:
        sizes = sizes_of(self._values, self._keys)
        if self._headers:
            sizes = [sizes] * self.count if isinstance(sizes, int) else sizes
            for place, headers in self._headers.items():
                sizes[place] += record_size_estimate(None, None, headers) - OVERHEAD_BYTES
        check_largest(topic, sizes, limit)
        return sizes


def sizes_of(values: Contents, keys: Contents | None) -> int | list[int]:
    """What each record without headers takes at most; one number if all take the same."""
    lengths = _lengths(values)
    key_lengths = [0] if keys is None else _lengths(keys)
    if not lengths:
        return OVERHEAD_BYTES
    is_even = _is_constant(lengths) and _is_constant(key_lengths)
    if is_even:
        return OVERHEAD_BYTES + lengths[0] + key_lengths[0]
    if keys is None:
        return [OVERHEAD_BYTES + length for length in lengths]
    return [OVERHEAD_BYTES + a + b for a, b in zip(lengths, key_lengths, strict=True)]


def even_of(columns: Columns) -> Even | None:
    """Of records that all take the same: what of it a length of 0 does not leave open."""
    keys, key, value = columns.keys, columns.keys[0], columns.values[0]
    # A null and nothing take the same room.
    if not value or (not key and keys.count(None) != len(keys)):
        return None
    return Even(len(columns), -1 if key is None else len(key), len(value))


def check_largest(topic: str, sizes: int | Sequence[int], limit: int) -> None:
    """A record that fits no request is refused before any other is sent."""
    largest = sizes if isinstance(sizes, int) else max(sizes)
    if largest > limit:
        raise too_large(topic, largest, limit)


def checked_times(topic: str, times_ms: int | Sequence[int] | None) -> int | Sequence[int] | None:
    """Times that a record can hold."""
    if times_ms is None:
        return None
    if isinstance(times_ms, int):
        return checked_time(topic, times_ms)
    if set(map(type, times_ms)) - {int}:
        return [checked_time(topic, each) for each in times_ms]
    for found in (min(times_ms), max(times_ms)) if times_ms else ():
        checked_time(topic, found)
    return times_ms


def oldest_of(times_ms: int | Sequence[int] | None) -> int | None:
    """The lowest of them."""
    return (
        times_ms if times_ms is None or isinstance(times_ms, int) else min(times_ms, default=None)
    )


def contents_of(given: Sequence[Any], name: str, serializer: Serializer | None) -> Contents:
    """Keys or values as bytes; where all are bytes nothing is done for each of them."""
    found = list(given) if serializer is None else list(map(serializer, given))
    if _PLAIN.issuperset(map(type, found)):
        return found
    return [
        each if each is None else as_bytes(each, name, f"{name}s[{at}]")
        for at, each in enumerate(found)
    ]


def _lengths(contents: Iterable[bytes | None]) -> list[int]:
    try:
        return list(map(len, contents))  # type: ignore[arg-type]
    except TypeError:  # a null among them has no length
        return [0 if each is None else len(each) for each in contents]


def _is_constant(lengths: list[int]) -> bool:
    return lengths.count(lengths[0]) == len(lengths)


def _uneven(topic: str, count: int, name: str, found: int) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"produce a batch to {topic}",
        happened=f"there are {count} values and {found} {name}",
        hint=f"give one of {name} for each value",
    )
