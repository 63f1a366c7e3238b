"""The synchronous admin client.

Owns topics, offsets and the cluster's description; the modules beside it own the other calls. Every
call has a deadline.
"""

import time
from collections.abc import Iterable, Mapping

from tidelog.client import leaders, wire
from tidelog.client import options as client_options
from tidelog.client.engine.fetch_messages import OffsetSpec
from tidelog.client.sync.admin_base import all_or_raise
from tidelog.client.sync.admin_configs import ConfigCalls
from tidelog.client.sync.admin_partitions import PartitionCalls
from tidelog.client.sync.admin_quorum import QuorumCalls
from tidelog.client.sync.admin_quotas import QuotaCalls
from tidelog.client.sync.admin_records import RecordCalls
from tidelog.client.sync.admin_topics import TopicCalls
from tidelog.client.sync.cluster_calls import Wanted
from tidelog.client.sync.connections import ADDRESS_TIMEOUT_MS
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


class AdminClient(TopicCalls, RecordCalls, ConfigCalls, QuotaCalls, PartitionCalls, QuorumCalls):
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
        found = self._describe_topics("list topics", [], self._limit_ms(timeout_ms))
        return sorted(topic.name for topic in found if include_internal or not topic.is_internal)

    def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Settings and partitions of the named topics; without names: of all.

        Offsets and sizes are of each partition's leader; -1 where it could not be reached in time.
        """
        names = [] if topics is None else list(topics)
        if topics is not None and not names:
            return []
        limit_ms = self._limit_ms(timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        found = self._describe_topics("describe topics", names, limit_ms)
        wanted = leaders.topics_by_leader(found)
        answers: dict[int, list[TopicDescription]] = {}
        for place, (broker_id, asked) in enumerate(sorted(wanted.items())):
            broker = self._calls.metadata.brokers.get(broker_id)
            left_ms = int((deadline - time.monotonic()) * 1000)
            if broker is None or left_ms <= 0:
                continue
            share_ms = max(1, left_ms // (len(wanted) - place))
            request = wire.describe_topics_request(asked)
            try:
                data = self._connections.call(
                    broker.address, wire.DESCRIBE_TOPICS, request, min(share_ms, ADDRESS_TIMEOUT_MS)
                )
            except TidelogError:
                # What this leader knows stays unknown; the rest is worth showing.
                continue
            described = wire.read_topic_descriptions(data)
            answers[broker_id] = [each for each in described if not isinstance(each, TidelogError)]
        return [leaders.with_answers(topic, answers) for topic in found]

    def _describe_topics(
        self, tried: str, names: list[str], timeout_ms: int
    ) -> list[TopicDescription]:
        """As whoever answers first knows them."""
        request = wire.describe_topics_request(names)
        data = self._any(tried, wire.DESCRIBE_TOPICS, request, timeout_ms)
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
        wanted = {TopicPartition(*name): offset_wanted(spec) for name, spec in partitions.items()}
        answers = self._calls.offsets(
            wanted, self._limit_ms(timeout_ms), tried="list partition offsets"
        )
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }


def offset_wanted(spec: str | int) -> Wanted:
    """What is asked of the log: `earliest`, `latest`, `max_timestamp`, or a time."""
    if isinstance(spec, int):
        return OffsetSpec.AT_TIME, spec
    if spec not in _SPECS:
        raise client_options.invalid(
            "list of offsets", f"{spec!r} is none of {', '.join(_SPECS)} or a time in milliseconds"
        )
    return _SPECS[spec], -1
