"""Reads the records of a batch in the plainest way: the judge of the real decoders.

Owns a second reading of `proto/BATCH.md`, with no speed in mind and nothing shared with the codec
but the header. Slow, and only for tests.
"""

from collections.abc import Sequence

from tidelog.wire.batch import BatchHeader, DecodedRecord, TimestampType

Plain = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class RefusedError(Exception):
    """The bytes are not what the format says."""


class _Reader:
    """Takes bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise RefusedError(f"{size} bytes of {self.left}")
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self) -> int:
        """Zigzag, seven bits a byte, at most ten bytes, cut to 64 bits."""
        groups: list[int] = []
        while not groups or groups[-1] >= 128:
            if len(groups) == 10:
                raise RefusedError("more than ten bytes")
            groups.append(self.take(1)[0])
        unsigned = 0
        for power, group in enumerate(groups):
            unsigned += group % 128 << 7 * power
        unsigned %= 2**64
        return unsigned // 2 if unsigned % 2 == 0 else -(unsigned + 1) // 2

    def content(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.take(size)

    def text(self) -> str:
        content = self.content()
        if content is None:
            raise RefusedError("a header without a name")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RefusedError(str(error)) from None


def plain(records: Sequence[DecodedRecord]) -> list[Plain]:
    """The same records, equal whatever kind of sequence held their headers."""
    return [(*record[:5], tuple(record[5])) for record in records]


def read_plainly(header: BatchHeader, body: bytes, *, is_compacted: bool) -> list[Plain]:
    """The records, or RefusedError."""
    reader = _Reader(body)
    records: list[Plain] = []
    last_delta = -1
    for _ in range(header.record_count):
        length = reader.number()
        began = reader.at
        reader.number()
        time_delta = reader.number()
        delta = reader.number()
        key, value = reader.content(), reader.content()
        count = reader.number()
        if count < 0:
            raise RefusedError(f"{count} headers")
        headers = []
        for _ in range(count):
            name = reader.text()
            headers.append((name, reader.content()))
        if reader.at - began != length:
            raise RefusedError(f"a record of {reader.at - began} bytes says {length}")
        follows = last_delta < delta <= header.last_offset_delta
        if not follows or (not is_compacted and delta != last_delta + 1):
            raise RefusedError(f"offset delta {delta} after {last_delta}")
        last_delta = delta
        time = (header.base_timestamp + time_delta + 2**63) % 2**64 - 2**63
        if header.timestamp_type is TimestampType.APPEND:
            time = header.max_timestamp
        kind = int(header.timestamp_type)
        records.append((header.base_offset + delta, time, kind, key, value, tuple(headers)))
    if reader.left:
        raise RefusedError(f"{reader.left} bytes left")
    return records
