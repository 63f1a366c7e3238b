"""What only a partition's leader knows, put into what another broker answered. Pure.

Owns the rule of whose answer counts: the one of the broker that leads the partition, of the same
topic; of a single replica its leader's for how far behind it is, its own broker's for its size and
whether it has stopped. It must never take an offset of a topic that was deleted and created again
meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidelog.client.types.records import PartitionDescription, ReplicaDescription, TopicDescription

_UNKNOWN = -1


def topics_by_leader(topics: Iterable[TopicDescription]) -> dict[int, list[str]]:
    """Whom to ask about which topics: leaders of partitions that the answerer knows nothing of."""
    wanted: dict[int, list[str]] = {}
    for topic in topics:
        missing = {
            each.leader
            for each in topic.partitions
            if each.high_watermark == _UNKNOWN and each.leader != _UNKNOWN
        }
        for leader in missing:
            wanted.setdefault(leader, []).append(topic.name)
    return wanted


def topics_by_holder(topics: Iterable[TopicDescription]) -> dict[int, list[str]]:
    """Whom to ask about which topics, to hear of every replica from its own broker."""
    wanted: dict[int, list[str]] = {}
    for topic in topics:
        for holder in dict.fromkeys(each for part in topic.partitions for each in part.replicas):
            wanted.setdefault(holder, []).append(topic.name)
    return wanted


def with_replicas(
    topic: TopicDescription, answers: Mapping[int, Sequence[TopicDescription]]
) -> TopicDescription:
    """The topic with a state for each replica, put together from what all brokers answered."""
    told: dict[tuple[int, int], dict[int, ReplicaDescription]] = {}
    for broker_id, described in answers.items():
        for each in described:
            if each.topic_id == topic.topic_id:
                for part in each.partitions:
                    states = {state.broker_id: state for state in part.replica_states}
                    told[broker_id, part.partition] = states
    return msgspec.structs.replace(
        topic,
        partitions=tuple(
            msgspec.structs.replace(
                part, replica_states=tuple(_state(part, each, told) for each in part.replicas)
            )
            for part in topic.partitions
        ),
    )


def _state(
    part: PartitionDescription,
    broker_id: int,
    told: Mapping[tuple[int, int], Mapping[int, ReplicaDescription]],
) -> ReplicaDescription:
    own = told.get((broker_id, part.partition), {}).get(broker_id)
    led = told.get((part.leader, part.partition), {}).get(broker_id)
    if own is None or led is None:
        return led or own or ReplicaDescription(broker_id=broker_id)
    return msgspec.structs.replace(own, lag=led.lag, caught_up_ago_ms=led.caught_up_ago_ms)


def with_answers(
    topic: TopicDescription, answers: Mapping[int, Sequence[TopicDescription]]
) -> TopicDescription:
    """The topic with offsets and sizes as each partition's leader answered, where it did."""
    known = {
        (broker_id, part.partition): part
        for broker_id, described in answers.items()
        for each in described
        if each.topic_id == topic.topic_id
        for part in each.partitions
        if part.high_watermark != _UNKNOWN
    }
    return msgspec.structs.replace(
        topic,
        partitions=tuple(
            _with_answer(part, known.get((part.leader, part.partition)))
            for part in topic.partitions
        ),
    )


def _with_answer(
    part: PartitionDescription, answer: PartitionDescription | None
) -> PartitionDescription:
    if answer is None or part.high_watermark != _UNKNOWN:
        return part
    return msgspec.structs.replace(
        part,
        log_start_offset=answer.log_start_offset,
        high_watermark=answer.high_watermark,
        size_bytes=answer.size_bytes,
    )
