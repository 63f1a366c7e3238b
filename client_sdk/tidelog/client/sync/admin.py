"""The synchronous admin client.

Owns topics, offsets and the cluster's description; the modules beside it own the other calls. Every
call has a deadline.
"""

from collections.abc import Iterable, Mapping

from tidelog.client import options as client_options
from tidelog.client import wire
from tidelog.client.engine.fetch_messages import OffsetSpec
from tidelog.client.sync.admin_base import all_or_raise
from tidelog.client.sync.admin_configs import ConfigCalls
from tidelog.client.sync.admin_partitions import PartitionCalls
from tidelog.client.sync.admin_quorum import QuorumCalls
from tidelog.client.sync.admin_topics import TopicCalls
from tidelog.client.sync.cluster_calls import Wanted
from tidelog.client.types import (
    ClusterDescription,
    CreatedTopic,
    NewTopic,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from tidelog.wire.errors import TidelogError

_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


class AdminClient(TopicCalls, ConfigCalls, PartitionCalls, QuorumCalls):
    """Creates, changes, lists and describes. Safe to share between threads."""

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic]:
        """Create topics; the first that could not be created raises, the others are created."""
        results = self.try_create_topics(new_topics, timeout_ms, validate_only)
        return all_or_raise(results)

    def try_create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic | TidelogError]:
        """The same with each topic's own outcome, in order."""
        limit_ms = self._limit_ms(timeout_ms)
        request = wire.create_topics_request(
            new_topics, validate_only=validate_only, timeout_ms=limit_ms
        )
        return wire.read_created_topics(
            self._any("create topics", wire.CREATE_TOPICS, request, limit_ms)
        )

    def list_topics(
        self, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(
            topic.name
            for topic in self.describe_topics(timeout_ms=timeout_ms)
            if include_internal or not topic.is_internal
        )

    def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Settings and partitions of the named topics; without names: of all."""
        names = [] if topics is None else list(topics)
        if topics is not None and not names:
            return []
        data = self._any(
            "describe topics",
            wire.DESCRIBE_TOPICS,
            wire.describe_topics_request(names),
            self._limit_ms(timeout_ms),
        )
        return all_or_raise(wire.read_topic_descriptions(data))

    def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        data = self._any(
            "describe the cluster",
            wire.DESCRIBE_CLUSTER,
            wire.describe_cluster_request(),
            self._limit_ms(timeout_ms),
        )
        return wire.read_cluster_description(data)

    def list_partition_offsets(
        self,
        partitions: Mapping[TopicPartition, str | int],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets at `earliest`, `latest`, `max_timestamp`, or a time in ms since 1970."""
        self._check_usable("list partition offsets")
        wanted = {TopicPartition(*name): _wanted(spec) for name, spec in partitions.items()}
        answers = self._calls.offsets(
            wanted, self._limit_ms(timeout_ms), tried="list partition offsets"
        )
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }


def _wanted(spec: str | int) -> Wanted:
    if isinstance(spec, int):
        return OffsetSpec.AT_TIME, spec
    if spec not in _SPECS:
        raise client_options.invalid(
            "list of offsets", f"{spec!r} is none of {', '.join(_SPECS)} or a time in milliseconds"
        )
    return _SPECS[spec], -1
