"""What the driver asks a cluster: which partitions there are, and where they begin and end.

All talking is the SDK's; this module turns options into positions.
"""

import re
from types import TracebackType
from typing import Self

from tidelog.client import AdminClient, Consumer, TopicPartition
from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.spark.options import EARLIEST, LATEST, Place, SourceOptions, refused
from tidelog.wire.errors import ErrorCode, TidelogError


class Cluster:
    """One connection; closed by whoever opened it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = AdminClient(bootstrap_servers=options.bootstrap)
        self._consumer = Consumer(bootstrap_servers=options.bootstrap, group_id=None)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def earliest(self) -> Progress:
        """The first kept offset of every partition that is read."""
        return self._resolve(Place(word="earliest"), "startingOffsets")

    def latest(self) -> Progress:
        """The high watermark of every partition that is read."""
        return self._resolve(Place(word="latest"), "endingOffsets")

    def resolve_start(self) -> Progress:
        """Where the options let the read begin."""
        return self._resolve(self._options.starting, "startingOffsets")

    def resolve_end(self) -> Progress:
        """Where the options let the read end."""
        return self._resolve(self._options.ending, "endingOffsets")

    def _resolve(self, place: Place, option: str) -> Progress:
        partitions = self._partitions()
        found: dict[TopicPartition, int]
        if place.timestamp_ms is not None:
            found = self._at_time(list(partitions), place.timestamp_ms)
        elif place.offsets is not None:
            found = self._at_offsets(list(partitions), place.offsets, option)
        elif place.word == "earliest":
            found = self._consumer.beginning_offsets(list(partitions))
        else:
            found = self._consumer.end_offsets(list(partitions))
        return _to_progress(partitions, found)

    def _at_time(
        self, partitions: list[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """A partition without a record that late is taken at its end."""
        at_time = self._consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
        ends = self._consumer.end_offsets(partitions)
        return {
            partition: ends[partition] if (place := at_time[partition]) is None else place.offset
            for partition in partitions
        }

    def _at_offsets(
        self,
        partitions: list[TopicPartition],
        wanted: dict[str, dict[int, int]],
        option: str,
    ) -> dict[TopicPartition, int]:
        named = {
            TopicPartition(topic, number) for topic, numbers in wanted.items() for number in numbers
        }
        if wrong := sorted(named ^ set(partitions)):
            raise refused(
                option,
                f"it and the partitions that are read differ in "
                f"{', '.join(f'{topic}-{number}' for topic, number in wrong[:5])}",
                "name every partition that is read, and no other",
            )
        beginnings = self._consumer.beginning_offsets(partitions)
        ends = self._consumer.end_offsets(partitions)
        resolved = {}
        for partition in partitions:
            offset = wanted[partition.topic][partition.partition]
            words = {EARLIEST: beginnings[partition], LATEST: ends[partition]}
            resolved[partition] = words.get(offset, offset)
        return resolved

    def _partitions(self) -> dict[TopicPartition, tuple[str, int]]:
        """Every partition that the options name → (topic id, leader epoch)."""
        names = self._topic_names()
        found: dict[TopicPartition, tuple[str, int]] = {}
        for topic in self._admin.describe_topics(names) if names else []:
            numbers = self._options.assigned.get(topic.name)
            epochs = {each.partition: each.leader_epoch for each in topic.partitions}
            for number in sorted(epochs) if numbers is None else numbers:
                if number not in epochs:
                    raise TidelogError(
                        ErrorCode.UNKNOWN_PARTITION,
                        tried=f"read {topic.name}-{number}, as assign says",
                        happened=f"{topic.name} has {len(epochs)} partitions",
                    )
                place = TopicPartition(topic.name, number)
                found[place] = (topic.topic_id.hex(), epochs[number])
        return found

    def _topic_names(self) -> list[str]:
        if self._options.topic_pattern is not None:
            pattern = re.compile(self._options.topic_pattern)
            return [name for name in sorted(self._admin.list_topics()) if pattern.fullmatch(name)]
        return list(self._options.topics or sorted(self._options.assigned))


def _to_progress(
    partitions: dict[TopicPartition, tuple[str, int]], found: dict[TopicPartition, int]
) -> Progress:
    by_topic: dict[str, TopicProgress] = {}
    for place, (topic_id, epoch) in sorted(partitions.items()):
        progress = by_topic.setdefault(
            place.topic, TopicProgress(topic_id=topic_id, offsets={}, leader_epochs={})
        )
        progress.offsets[place.partition] = found[place]
        progress.leader_epochs[place.partition] = epoch
    return by_topic
