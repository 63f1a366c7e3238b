"""Who owned a partition of a group when, and what was delivered of it: the journals put together.

Pure but for the reading of journals. Owns stints, gaps and moves, all on the one clock that the
processes of a machine share.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.groups.journal import Delivered, Moved, read_member_journal

NS_PER_MS: Final = 1_000_000


class Stint(msgspec.Struct, frozen=True, kw_only=True):
    """From when a member was told that a partition is its own until it was told otherwise."""

    member: str
    from_ns: int
    to_ns: float
    """Infinite: it was never told."""


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """The longest times between two deliveries of a partition."""

    within_ms: float
    """Both to the same member, with no other owner in between."""
    over_move_ms: float
    """Between the last delivery to one owner and the first to the next; 0: it never moved."""

    @property
    def longest_ms(self) -> float:
        """Of the two."""
        return max(self.within_ms, self.over_move_ms)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a group: everything in the order of time."""

    stints: tuple[Stint, ...]
    deliveries: tuple[tuple[str, Delivered], ...]
    """With the member."""

    @property
    def moves(self) -> int:
        """How often it went from one member to another."""
        return sum(before.member != after.member for before, after in pairwise(self.stints))

    @property
    def owners(self) -> list[str]:
        """In turn."""
        return [stint.member for stint in self.stints]

    def gaps(self, from_ns: int = 0) -> Gaps:
        """Of all that begin at that time or later."""
        within = over = 0
        for (before, last), (after, first) in pairwise(self.deliveries):
            if last.returned_ns < from_ns:
                continue
            gap_ns = first.returned_ns - last.returned_ns
            if before == after:
                within = max(within, gap_ns)
            else:
                over = max(over, gap_ns)
        return Gaps(within_ms=within / NS_PER_MS, over_move_ms=over / NS_PER_MS)

    def delay_ms(self, acknowledged_ns: Mapping[int, int], from_ns: int = 0) -> float:
        """The longest time from the acknowledgement of a record to its delivery, of all that were
        acknowledged at that time or later. It leaves out how long nothing was written.
        """
        longest = 0
        for _, each in self.deliveries:
            for offset in each.offsets:
                at_ns = acknowledged_ns.get(offset, -1)
                if at_ns >= from_ns:
                    longest = max(longest, each.returned_ns - at_ns)
        return longest / NS_PER_MS


def read_members(journals: Mapping[str, Path], partition_count: int) -> list[Seen]:
    """By partition."""
    stints: list[list[Stint]] = [[] for _ in range(partition_count)]
    deliveries: list[list[tuple[str, Delivered]]] = [[] for _ in range(partition_count)]
    for member, file in journals.items():
        given: dict[int, int] = {}
        for entry in read_member_journal(file):
            match entry:
                case Delivered():
                    deliveries[entry.partition].append((member, entry))
                case Moved(is_given=True):
                    given.update(dict.fromkeys(entry.partitions, entry.at_ns))
                case Moved():
                    for partition in entry.partitions:
                        from_ns = given.pop(partition)
                        stints[partition].append(
                            Stint(member=member, from_ns=from_ns, to_ns=entry.at_ns)
                        )
        for partition, from_ns in given.items():
            stints[partition].append(Stint(member=member, from_ns=from_ns, to_ns=math.inf))
    return [
        Seen(
            stints=tuple(sorted(owned, key=lambda stint: stint.from_ns)),
            deliveries=tuple(sorted(found, key=lambda each: each[1].returned_ns)),
        )
        for owned, found in zip(stints, deliveries, strict=True)
    ]


def least_moves(owned: Mapping[str, int], after: Sequence[str], partition_count: int) -> int:
    """How many partitions have to change hands so that these members have equal shares."""
    share, rest = divmod(partition_count, len(after))
    had = sorted((owned.get(member, 0) for member in after), reverse=True)
    kept = sum(min(count, share + (place < rest)) for place, count in enumerate(had))
    return partition_count - kept
