"""Which partitions a group's member has seen come: those that its topics have got since.

Owns how many partitions each topic had when the member first knew it. With `latest` a member skips
what was written before the group began to read. Of a partition that was added since nothing is to
be skipped: the latest offset would be behind what was written before anybody was given it. Such a
partition begins at its first record, as for a reader without a group.

Only what is seen can be known: a member that subscribed after the partition had come takes it for
one of those that were there, as does one that finds the topic by a pattern and is given the
partition with the first of that topic.
"""

from collections.abc import Collection, Iterable, Mapping

from tidelog.client.engine.cluster.metadata import ClusterView, TopicView
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode


class AddedPartitions:
    """Of one subscription."""

    def __init__(self) -> None:
        self._first_counts: dict[str, int] = {}

    def see(self, topic: str, partition_count: int) -> None:
        """The topic is known to have so many; what it has more later was added."""
        self._first_counts.setdefault(topic, partition_count)

    def see_missing(self, view: ClusterView, noticed: Collection[str]) -> None:
        """A topic that is subscribed and not there yet has everything added."""
        for topic in view.topics:
            is_missing = topic.error is not None and topic.error.code is ErrorCode.UNKNOWN_TOPIC
            if is_missing and topic.name in noticed:
                self.see(topic.name, 0)

    def see_assigned(
        self, names: Iterable[TopicPartition], topics: Mapping[str, TopicView]
    ) -> None:
        """Of a topic that nothing was known of, all that is assigned at once was there before."""
        counts: dict[str, int] = {}
        for name in names:
            known = topics.get(name.topic)
            least = 0 if known is None else len(known.partitions)
            counts[name.topic] = max(counts.get(name.topic, least), name.partition + 1)
        for topic, count in counts.items():
            self.see(topic, count)

    def has(self, name: TopicPartition) -> bool:
        """Whether the partition came after the topic was known."""
        first_count = self._first_counts.get(name.topic)
        return first_count is not None and name.partition >= first_count
