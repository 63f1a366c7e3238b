"""Elections that an operator asks for: many partitions in one decision. Pure."""

from collections.abc import Sequence

from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.leaders import (
    Election,
    elect_preferred,
    elect_unclean,
)
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.refusals import invalid

PARTITIONS_MAX = 10_000
Key = tuple[TopicId, int]


def elect(
    image: Image, keys: Sequence[Key], *, is_unclean: bool, broker_id: BrokerId
) -> Decision[tuple[Election, ...]]:
    """Of the named partitions; none named: all whose preferred replica does not lead."""
    tried = "elect leaders"
    refuse_too_many(len(keys), PARTITIONS_MAX, tried=tried, what="partitions")
    refuse_duplicates(
        [f"{topic_id.hex()}-{partition}" for topic_id, partition in keys],
        tried=tried,
        what="partition",
    )
    if is_unclean and not keys:
        raise invalid(
            tried,
            "no partition is named, and an unclean election loses records",
            "Name each partition.",
        )
    elections = [
        elect_unclean(image, topic_id, partition, broker_id=broker_id)
        if is_unclean
        else elect_preferred(image, topic_id, partition)
        for topic_id, partition in keys or _not_preferred(image)
    ]
    records: tuple[MetadataRecord, ...] = tuple(
        each.record for each in elections if each.record is not None
    )
    return Decision(records=records, answer=tuple(elections))


def _not_preferred(image: Image) -> Sequence[Key]:
    return [
        (topic.topic_id, partition.partition)
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader_id != partition.replicas[0]
    ][:PARTITIONS_MAX]
