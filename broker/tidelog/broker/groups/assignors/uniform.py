"""Uniform: as equal as the subscriptions allow, moving as few partitions as it can. Pure.

Members with equal subscriptions: counts differ by at most one, and no assignment with that property
moves fewer partitions. Members with different ones: `uniform_mixed`.
"""

from collections import deque
from collections.abc import Sequence

from tidelog.broker.groups.assignors import uniform_mixed
from tidelog.broker.groups.assignors.types import (
    Assignment,
    AssignorMember,
    Wanted,
    partitions_of,
)
from tidelog.wire.ids import PartitionKey


def assign(wanted: Wanted) -> Assignment:
    """Every partition of every topic, to one of its subscribers."""
    if not wanted.members:
        return {}
    first = wanted.members[0].topics
    if all(member.topics == first for member in wanted.members):
        return _assign_equal(wanted)
    return uniform_mixed.assign(wanted)


def _assign_equal(wanted: Wanted) -> Assignment:
    """Keep up to the quota, deal out the rest."""
    members = wanted.members
    subscribed = dict.fromkeys(members[0].topics)
    free = dict.fromkeys(
        key
        for topic_id, count in wanted.partition_counts.items()
        if topic_id in subscribed
        for key in partitions_of(topic_id, count)
    )
    former = {each.member_id: _still_there(wanted, each, free) for each in members}
    quotas = _quotas(members, former, len(free))
    assignment: Assignment = {}
    for member in members:
        kept = former[member.member_id][: quotas[member.member_id]]
        assignment[member.member_id] = kept
        for key in kept:
            del free[key]
    _deal_out(list(free), assignment, quotas)
    return assignment


def _still_there(
    wanted: Wanted, member: AssignorMember, free: dict[PartitionKey, None]
) -> list[PartitionKey]:
    """What it had: one of each topic first, so that what it keeps is spread over topics."""
    places: dict[bytes, int] = {}
    ranked = []
    for key in sorted(wanted.former.get(member.member_id, {})):
        if key in free:
            place = places.get(key.topic_id, 0)
            places[key.topic_id] = place + 1
            ranked.append((place, key))
    return [key for _, key in sorted(ranked)]


def _quotas(
    members: Sequence[AssignorMember],
    former: dict[str, list[PartitionKey]],
    partition_count: int,
) -> dict[str, int]:
    """How many each gets: one more for those that had the most, which moves the fewest."""
    share, left_over = divmod(partition_count, len(members))
    quotas = {}
    by_former = sorted(range(len(members)), key=lambda at: -len(former[members[at].member_id]))
    for place, at in enumerate(by_former):
        quotas[members[at].member_id] = share + (place < left_over)
    return quotas


def _deal_out(free: list[PartitionKey], assignment: Assignment, quotas: dict[str, int]) -> None:
    """In turns, so that each topic is spread."""
    takers = deque(
        member_id for member_id, keys in assignment.items() if len(keys) < quotas[member_id]
    )
    for key in free:
        assert takers, "there is room for every partition"
        member_id = takers.popleft()
        assignment[member_id].append(key)
        if len(assignment[member_id]) < quotas[member_id]:
            takers.append(member_id)
