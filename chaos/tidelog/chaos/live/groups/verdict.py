"""The verdict of a live group: what its members were given beside what producers were told.

Pure. Owns what a group promises while nobody dies: each acknowledged record is delivered once, in
the order of the partition, and a partition is never read by two members at one instant. It must
never trust its own checks: in every run a record is left out, one is delivered twice and a second
owner is put in, and all three must be found.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

import msgspec

from tidelog.chaos.checkers import Anomaly
from tidelog.chaos.live.groups.seen import Seen, Stint

ANOMALIES_MAX: Final = 5
"""Of one check in one partition."""
Told = Mapping[int, str]
"""What producers were told of a partition: offset and name of each acknowledged record."""


class GroupVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run showed."""

    delivered: int
    lost: int
    repeated: int
    reordered: int
    anomalies: tuple[Anomaly, ...]
    are_plants_found: bool


def judge_group(
    topic: str, told: Sequence[Told], seen: Sequence[Seen], committed: Mapping[int, int]
) -> GroupVerdict:
    """Partition by partition; `committed` is what the group has stored in the end."""
    anomalies: list[Anomaly] = []
    for partition, (promised, found) in enumerate(zip(told, seen, strict=True)):
        anomalies += check_partition(f"{topic}-{partition}", promised, found)
        behind = _behind(found)
        if found.deliveries and committed.get(partition, -1) != behind:
            detail = f"{committed.get(partition, -1)} where {behind} is behind the last delivery"
            anomalies.append(Anomaly("committed", f"{topic}-{partition}", detail))
    full = next((n for n, found in enumerate(seen) if len(offsets_of(found)) > 1), None)
    return GroupVerdict(
        delivered=sum(len(offsets_of(found)) for found in seen),
        lost=sum(1 for p, f in zip(told, seen, strict=True) for _ in lost(p, f)),
        repeated=sum(1 for found in seen for _ in repeated(found)),
        reordered=sum(1 for found in seen for _ in reordered(found)),
        anomalies=tuple(anomalies),
        are_plants_found=full is not None and are_plants_found(told[full], seen[full]),
    )


def check_partition(name: str, promised: Told, found: Seen) -> list[Anomaly]:
    """Every check."""
    checks = {
        "lost": lost(promised, found),
        "repeated": repeated(found),
        "reordered": reordered(found),
        "misplaced": misplaced(promised, found),
        "two_owners": two_owners(found),
        "not_owned": not_owned(found),
    }
    return [
        Anomaly(check, name, detail)
        for check, details in checks.items()
        for detail in islice(details, ANOMALIES_MAX)
    ]


def offsets_of(found: Seen) -> list[int]:
    """As they were delivered, whoever got them."""
    return [offset for _, each in found.deliveries for offset in each.offsets]


def _behind(found: Seen) -> int:
    return max(offsets_of(found), default=-1) + 1


def lost(promised: Told, found: Seen) -> Iterator[str]:
    """Acknowledged, and delivered to nobody."""
    delivered = set(offsets_of(found))
    for offset in sorted(promised.keys() - delivered):
        yield f"{promised[offset]} at {offset} was delivered to nobody"


def repeated(found: Seen) -> Iterator[str]:
    """Delivered before."""
    by_offset: dict[int, str] = {}
    for member, each in found.deliveries:
        for offset in each.offsets:
            if offset in by_offset:
                yield f"{offset} went to {by_offset[offset]}, then to {member}"
            by_offset[offset] = member


def reordered(found: Seen) -> Iterator[str]:
    """Delivered for the first time behind one that follows it in the partition."""
    highest, known = -1, set[int]()
    for member, each in found.deliveries:
        for offset in each.offsets:
            if offset < highest and offset not in known:
                yield f"{offset} came behind {highest}, to {member}"
            known.add(offset)
            highest = max(highest, offset)


def misplaced(promised: Told, found: Seen) -> Iterator[str]:
    """Another value than the producer was told of."""
    for member, each in found.deliveries:
        for offset, name in zip(each.offsets, each.names, strict=True):
            if promised.get(offset, name) != name:
                yield f"{member} got {name} at {offset}, which is {promised[offset]}'s"


def two_owners(found: Seen) -> Iterator[str]:
    """Two members had it at one instant: by what they were told, or by what they read."""
    for before, after in pairwise(found.stints):
        if after.from_ns < before.to_ns:
            yield f"{after.member} was given it while {before.member} had it"
    for (reader, earlier), (other, later) in pairwise(found.deliveries):
        if reader != other and later.returned_ns < earlier.done_ns:
            yield f"{other} got records of it while {reader} was not done with its own"


def not_owned(found: Seen) -> Iterator[str]:
    """Delivered to a member that was not told that the partition is its own."""
    for member, each in found.deliveries:
        is_owned = any(
            stint.member == member
            and stint.from_ns <= each.returned_ns
            and each.done_ns <= stint.to_ns
            for stint in found.stints
        )
        if not is_owned:
            yield f"{member} got {each.offsets[0]} to {each.offsets[-1]} without owning it"


def are_plants_found(promised: Told, found: Seen) -> bool:
    """Whether a record left out, one delivered twice and a second owner are noticed."""
    member, last = found.deliveries[-1]
    before = found.deliveries[:-1]
    short = msgspec.structs.replace(last, offsets=last.offsets[:-1], names=last.names[:-1])
    kept = {last.offsets[-1]: last.names[-1], **promised}
    double = (*found.deliveries, (member, last))
    second = Stint(member="nobody", from_ns=found.stints[-1].from_ns, to_ns=last.done_ns)
    return (
        any(lost(kept, Seen(stints=(), deliveries=(*before, (member, short)))))
        and any(repeated(Seen(stints=(), deliveries=double)))
        and any(two_owners(Seen(stints=(*found.stints, second), deliveries=())))
    )
