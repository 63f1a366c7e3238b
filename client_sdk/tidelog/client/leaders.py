"""What only a partition's leader knows, put into what another broker answered. Pure.

Owns the rule of whose answer counts: the one of the broker that leads the partition, of the same
topic. It must never take an offset of a topic that was deleted and created again meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidelog.client.types import PartitionDescription, TopicDescription

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
