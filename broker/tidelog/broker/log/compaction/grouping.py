"""Which neighbouring segments become one. Pure.

Owns the bounds of a group: segment.bytes by the sizes before the round, as Kafka's cleaner has it,
and the width in offsets. A segment that is larger than the bound by itself is a group of its own.
"""

from collections.abc import Sequence

from tidelog.broker.log.compaction.contract import OFFSETS_PER_SEGMENT_MAX
from tidelog.broker.log.sidecar.contents import Summary


def group_segments(segments: Sequence[Summary], segment_bytes: int) -> list[tuple[Summary, ...]]:
    """All segments, in order, in groups of neighbours."""
    groups: list[tuple[Summary, ...]] = []
    group: list[Summary] = []
    group_bytes = 0
    for segment in segments:
        is_full = group_bytes + segment.size_bytes > segment_bytes
        if group and (is_full or _width(group[0], segment) > OFFSETS_PER_SEGMENT_MAX):
            groups.append(tuple(group))
            group, group_bytes = [], 0
        group.append(segment)
        group_bytes += segment.size_bytes
    if group:
        groups.append(tuple(group))
    return groups


def _width(first: Summary, last: Summary) -> int:
    return last.next_offset - first.base_offset
