"""How long partitions stood still: the longest time between two acknowledgements.

Pure. Owns the unavailability of a partition as producers feel it, whoever of them was answered.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.journal import Entry

NS_PER_MS: Final = 1_000_000


def acknowledged_at(entries: Iterable[Entry], partition_count: int) -> list[list[int]]:
    """By partition: when something of it was acknowledged, ascending."""
    found: list[list[int]] = [[] for _ in range(partition_count)]
    for entry in entries:
        if entry.outcome is Outcome.ACKNOWLEDGED:
            found[entry.partition].append(entry.ended_ns)
    for ends in found:
        ends.sort()
    return found


def longest_gap_ms(ends: Sequence[int], from_ns: int, to_ns: int) -> float:
    """The longest time between two acknowledgements that touches the span.

    The one before the span and the one after it count, so that a partition that never came back
    has stood still for the whole of it at least.
    """
    first = max(0, bisect_left(ends, from_ns) - 1)
    last = min(len(ends), bisect_right(ends, to_ns) + 1)
    times = list(ends[first:last])
    if not times or times[0] > from_ns:
        times.insert(0, from_ns)
    if times[-1] < to_ns:
        times.append(to_ns)
    gaps = (after - before for before, after in pairwise(times))
    return max(gaps, default=0) / NS_PER_MS
