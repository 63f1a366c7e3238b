"""What a caller hands to `send_arrow`: columns of a table, checked before anything is sent.

Owns which Arrow types become bytes and times, and how large a slice may be. It needs pyarrow, and
must never make all of a table Python's at once: a slice at a time is.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.client.bulk.arrow_columns import BINARY
from tidelog.client.bulk.arrow_modules import pa, pc
from tidelog.client.bulk.records import (
    OVERHEAD_BYTES,
    check_largest,
    checked_times,
    even_of,
    oldest_of,
)
from tidelog.wire.batch import Columns
from tidelog.wire.errors import ErrorCode, TidelogError

SLICE_RECORDS_MAX: Final = 16_384
SLICE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of keys and values that are Python's at a time."""
DEFAULT_KEY: Final = "key"
"""The one column that may be missing though it is named."""


class ArrowRecords:
    """Columns of an Arrow table or record batch."""

    def __init__(
        self,
        topic: str,
        data: Any,
        *,
        value: str,
        key: str | None,
        timestamp: str | None,
        record_bytes_max: int,
    ) -> None:
        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise _refused(topic, f"data is of type {type(data).__name__}, not an Arrow table")
        if key == DEFAULT_KEY and key not in data.schema.names:
            key = None
        self.count: int = data.num_rows
        self._values = _binary(topic, data, value)
        self._keys = None if key is None else _binary(topic, data, key)
        self._times_ms = None if timestamp is None else _times_ms(topic, data, timestamp)
        self.oldest_ms = None if self._times_ms is None else _oldest_of(topic, self._times_ms)
        self._sizes = self._sizes_of(topic, record_bytes_max)
        content_bytes = self._values.nbytes + (0 if self._keys is None else self._keys.nbytes)
        mean_bytes = 1 + content_bytes // max(1, self.count)
        self.slice_records = max(1, min(SLICE_RECORDS_MAX, SLICE_BYTES_MAX // mean_bytes))

    @property
    def has_keys(self) -> bool:
        """Whether the keys place the records."""
        return self._keys is not None

    def take(self, start: int, end: int, now_ms: int) -> tuple[Columns, int | Sequence[int]]:
        """See `Source`."""
        count = end - start
        columns = Columns()
        columns.values = self._values.slice(start, count).to_pylist()
        columns.keys = [None] * count
        if self._keys is not None:
            columns.keys = self._keys.slice(start, count).to_pylist()
        columns.timestamps = [now_ms] * count
        if self._times_ms is not None:
            columns.timestamps = self._times_ms.slice(start, count).to_pylist()
        if isinstance(self._sizes, int):
            columns.even = even_of(columns)
            return columns, self._sizes
        return columns, self._sizes.slice(start, count).to_pylist()

    def _sizes_of(self, topic: str, limit: int) -> Any:
        """One number if all records take the same, else an array of them."""
        if not self.count:
            return OVERHEAD_BYTES
        sizes = pc.add(_lengths(self._values), OVERHEAD_BYTES)
        if self._keys is not None:
            sizes = pc.add(sizes, _lengths(self._keys))
        bounds = pc.min_max(sizes).as_py()
        largest = int(bounds["max"])
        check_largest(topic, largest, limit)
        return largest if bounds["min"] == largest else sizes


def _column(topic: str, data: Any, name: str) -> Any:
    if data.schema.names.count(name) != 1:
        raise _refused(topic, f"there is no one column {name!r} among {data.schema.names}")
    return data.column(name)


def _binary(topic: str, data: Any, name: str) -> Any:
    """Text and bytes of every kind as bytes; other types are for the caller to encode."""
    column = _column(topic, data, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_bytes = pa.types.is_fixed_size_binary(kind) or kind in _BYTES
    if not is_bytes:
        raise _refused(
            topic,
            f"column {name!r} is of type {column.type}",
            "cast it to text or binary first, as in pyarrow.compute.cast(column, 'string')",
        )
    if column.type != kind:
        column = column.cast(kind)
    return column if kind == BINARY else column.cast(_BYTES.get(kind, BINARY))


_BYTES: Final[dict[Any, Any]] = {
    pa.binary(): pa.binary(),
    pa.string(): pa.binary(),
    pa.large_binary(): pa.large_binary(),
    pa.large_string(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
    pa.string_view(): pa.large_binary(),
    pa.null(): pa.binary(),
}
"""Offsets of 64 bits stay: what has them may hold more than 32 bits address."""


def _times_ms(topic: str, data: Any, name: str) -> Any:
    """Times of any unit, or whole numbers of milliseconds since 1970."""
    column = _column(topic, data, name)
    if column.null_count:
        raise _refused(topic, f"column {name!r} has {column.null_count} nulls, a time has none")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise _refused(
            topic, f"column {name!r} is of type {column.type}", "give times or milliseconds"
        )
    return column


def _oldest_of(topic: str, column: Any) -> int | None:
    if not len(column):
        return None
    bounds = pc.min_max(column).as_py()
    return oldest_of(checked_times(topic, [bounds["min"], bounds["max"]]))


def _lengths(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0)


def _refused(topic: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"produce a table to {topic}",
        happened=happened,
        hint=hint or "name the columns of value, key and timestamp",
    )
