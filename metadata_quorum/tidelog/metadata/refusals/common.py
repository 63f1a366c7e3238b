"""The refusals that several decisions share, worded once.

Pure. A message names what was tried and what stands in the way; the catalogue of errors says what
to do unless a better hint is known here.
"""

from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.refusals import invalid


def unknown_broker(broker_id: BrokerId, image: Image, *, tried: str) -> TidelogError:
    """UNKNOWN_BROKER, with those that are there."""
    known = ", ".join(str(each) for each in sorted(image.brokers)[:20]) or "none"
    return TidelogError(
        ErrorCode.UNKNOWN_BROKER,
        tried=tried,
        happened=f"no broker {broker_id} is registered; these are: {known}",
    )


def find_partition(
    image: Image, topic_id: TopicId, partition: int, *, tried: str
) -> tuple[TopicImage, PartitionImage]:
    """The partition, or UNKNOWN_TOPIC_ID or UNKNOWN_PARTITION."""
    topic = image.topics.get(topic_id)
    if topic is None:
        raise TidelogError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            tried=tried,
            happened=f"there is no topic of the id {topic_id.hex()}",
        )
    if not 0 <= partition < len(topic.partitions):
        raise TidelogError(
            ErrorCode.UNKNOWN_PARTITION,
            tried=tried,
            happened=f"topic {topic.name} has {len(topic.partitions)} partitions",
        )
    return topic, topic.partitions[partition]


def refuse_duplicates(keys: list[str], *, tried: str, what: str) -> None:
    """INVALID_ARGUMENT naming the first key that stands twice."""
    seen: dict[str, None] = {}
    for key in keys:
        if key in seen:
            raise invalid(tried, f"it names {what} {key} twice", f"Name each {what} once.")
        seen[key] = None


def refuse_too_many(count: int, most: int, *, tried: str, what: str) -> None:
    """INVALID_ARGUMENT naming the limit."""
    if count > most:
        raise invalid(
            tried,
            f"it names {count} {what}, one request takes at most {most}",
            "Send several requests.",
        )
