"""From checked records to runs of one partition each: stop 2 of a record's walk, many at a time.

Owns the grouping by partition. Records are taken in slices, so that a long call fills the batches
of all partitions side by side and holds little beside them. Within a partition the order stays.
"""

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from tidelog.client.bulk.records import Source
from tidelog.client.engine.produce.run import Run
from tidelog.wire.batch import Columns

Place = int | None
"""A partition; None: wherever there is company."""
Chooser = Callable[[list[bytes | None]], list[Place]]
"""Called with the keys of a slice."""

SLICE_RECORDS_MAX: Final = 1 << 16
_PLACE_TYPE: Final = "H"
"""Two bytes for each record that was placed by its key."""


class Piece(msgspec.Struct, frozen=True):
    """Records of one partition, and which of the caller's they are."""

    partition: Place
    run: Run
    base: int
    positions: Sequence[int]
    """Counted from `base`."""


def pieces(source: Source, partition: Place, choose: Chooser | None) -> Iterator[Piece]:
    """All records of the source; what has no timestamp yet gets the time of its slice."""
    for start in range(0, source.count, source.slice_records):
        end = min(source.count, start + source.slice_records)
        columns, sizes = source.take(start, end, time.time_ns() // 1_000_000)
        if choose is None:
            yield Piece(partition, Run(columns, sizes), 0, range(start, end))
        else:
            yield from _grouped(columns, sizes, start, choose(columns.keys))


def _grouped(
    columns: Columns, sizes: int | Sequence[int], start: int, places: list[Place]
) -> Iterator[Piece]:
    count = len(places)
    assert count <= SLICE_RECORDS_MAX, f"a slice of {count} records"
    if places.count(places[0]) == count:
        yield Piece(places[0], Run(columns, sizes), 0, range(start, start + count))
        return
    members: defaultdict[Place, list[int]] = defaultdict(list)
    for number, place in enumerate(places):
        members[place].append(number)
    for place, numbers in members.items():
        chosen = _chosen(columns, numbers)
        of_chosen = sizes if isinstance(sizes, int) else _pick(sizes, numbers)
        yield Piece(place, Run(chosen, of_chosen), start, array(_PLACE_TYPE, numbers))


def _chosen(columns: Columns, numbers: list[int]) -> Columns:
    found, times = Columns(), columns.timestamps
    is_one_time = times.count(times[0]) == len(times)
    found.timestamps = times[: len(numbers)] if is_one_time else _pick(times, numbers)
    if columns.even is not None:
        found.even = columns.even._replace(records=len(numbers))
    found.keys = _pick(columns.keys, numbers)
    found.values = _pick(columns.values, numbers)
    if columns.headers:
        picked = ((place, columns.headers.get(number)) for place, number in enumerate(numbers))
        found.headers = {place: headers for place, headers in picked if headers}
    return found


def _pick(column: Sequence[Any], numbers: list[int]) -> list[Any]:
    """In C, and quicker than one by one."""
    if len(numbers) == 1:
        return [column[numbers[0]]]
    return list(itemgetter(*numbers)(column))
