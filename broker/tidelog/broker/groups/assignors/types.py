"""What every assignor gets and gives. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.wire.ids import PartitionId, PartitionKey, TopicId


class AssignorMember(msgspec.Struct, frozen=True):
    """One that wants partitions."""

    member_id: str
    name: str
    """By what assignors order members: of a static one its instance id, so that the order stays."""
    topics: tuple[TopicId, ...]
    """Those that exist and that it subscribes to, none twice."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A question to an assignor."""

    members: Sequence[AssignorMember]
    """In ascending order of name, then member id."""
    partition_counts: Mapping[TopicId, int]
    """Of every topic that a member subscribes to, in ascending order of the topics' names."""
    former: Mapping[str, Mapping[PartitionKey, None]]
    """What members should have had until now, by member id."""


Assignment = dict[str, list[PartitionKey]]
"""By member id; every member is there."""


def partitions_of(topic_id: TopicId, count: int) -> list[PartitionKey]:
    """All of a topic, in ascending order."""
    return [PartitionKey(topic_id, PartitionId(number)) for number in range(count)]
