"""Partitioners as kafka-python has them.

Owns what a partitioner is shown of the cluster. The default is the client's own: keys go where
Kafka's clients put them, records without a key stay together for a batch.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tidelog.wire.partitioner import murmur2, partition_for_key

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "TopicView", "murmur2"]


class TopicView:
    """The part of kafka-python's ClusterMetadata that partitioners use."""

    def __init__(self, partitions_for: Callable[[str], set[int]], topic: str) -> None:
        self._partitions_for = partitions_for
        self._topic = topic

    def topics(self) -> set[str]:
        """The topic of the record at hand."""
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int]:
        """All of them."""
        return self._partitions_for(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        """All of them as well: a record waits in the producer until its partition has a leader."""
        return self._partitions_for(topic)


class Partitioner(ABC):
    """Chooses a partition for each record that names none."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: TopicView,
    ) -> int:
        """The partition's number."""


class DefaultPartitioner(Partitioner):
    """Keys by murmur2, the rest anywhere. The very class stands for the client's own choice."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: TopicView,
    ) -> int:
        every = sorted(cluster.partitions_for_topic(topic))
        if serialized_key is None:
            return random.choice(every)
        return every[partition_for_key(serialized_key, len(every))]


class StickyPartitioner(DefaultPartitioner):
    """Records without a key stay together for a batch: what the client does by itself."""


def is_clients_own(partitioner: Any) -> bool:
    """Whether the client chooses as this one would."""
    return partitioner is None or type(partitioner) in (DefaultPartitioner, StickyPartitioner)
