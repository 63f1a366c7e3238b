"""Records by field instead of by record: what a producer collects until it seals a batch.

Owns the shape only. Lists of bytes and numbers hold nothing that the cyclic collector follows,
while a tuple a record would be one more object for each of its walks; and whole columns are encoded
in C.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from tidelog.wire.batch.layout import Header, RecordTuple


class Even(NamedTuple):
    """So many records from the first on have contents of these lengths, and no null among them."""

    records: int
    key_bytes: int
    """-1: none of them has a key."""
    value_bytes: int


class Columns:
    """The n-th entries of the three lists are the n-th record; headers are kept where there are."""

    __slots__ = ("even", "headers", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Sequence[Header]] = {}
        """By the record's place; a record without headers has no entry."""
        self.even: Even | None = None
        """What whoever filled the columns knows of the first records."""

    @classmethod
    def of(cls, records: Sequence[RecordTuple]) -> "Columns":
        """The same records, turned."""
        columns = cls()
        if records:
            timestamps, keys, values, headers = zip(*records, strict=True)
            columns.timestamps = list(timestamps)
            columns.keys = list(keys)
            columns.values = list(values)
            columns.headers = {place: found for place, found in enumerate(headers) if found}
        return columns

    def __len__(self) -> int:
        return len(self.values)

    def rows(self) -> Iterable[RecordTuple]:
        """Record by record."""
        headers: Iterable[Sequence[Header]] = repeat(())
        if self.headers:
            headers = map(self.headers.get, range(len(self)), repeat(()))
        return zip(self.timestamps, self.keys, self.values, headers, strict=False)
