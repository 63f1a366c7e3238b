"""Range: each topic is cut into runs of neighbouring partitions, one a member. Pure.

Owns co-partitioning: of topics with the same number of partitions and the same subscribers
partition n goes to the same member, so that a join by key finds both sides in one place. Members
stand in the order of their names (instance ids of static members), so that a restart changes
nothing. The first members get one partition more of each topic that does not divide evenly.
"""

from tidelog.broker.groups.assignors.types import Assignment, Wanted, partitions_of
from tidelog.wire.ids import TopicId


def assign(wanted: Wanted) -> Assignment:
    """Every partition of every topic, to one of its subscribers."""
    subscribers: dict[TopicId, list[str]] = {}
    for member in wanted.members:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    assignment: Assignment = {member.member_id: [] for member in wanted.members}
    for topic_id, count in wanted.partition_counts.items():
        takers = subscribers.get(topic_id)
        if takers is None:
            continue
        keys = partitions_of(topic_id, count)
        at = 0
        for place, member_id in enumerate(takers):
            run = count // len(takers) + (place < count % len(takers))
            assignment[member_id].extend(keys[at : at + run])
            at += run
        assert at == count, f"{at} of {count} partitions of a topic were given"
    return assignment
