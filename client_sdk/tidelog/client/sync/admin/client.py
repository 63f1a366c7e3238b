"""The synchronous admin client.

Owns topics and the cluster's description; the modules beside it own the other calls. Every
call has a deadline.
"""

import time
from collections.abc import Iterable

from tidelog.client.shared import leaders
from tidelog.client.shared.asking import ADDRESS_TIMEOUT_MS, doubt_of
from tidelog.client.shared.checked import checked
from tidelog.client.shared.portions import few_partitions, portions
from tidelog.client.sync.admin.base import all_or_raise
from tidelog.client.sync.admin.configs import ConfigCalls
from tidelog.client.sync.admin.partitions import PartitionCalls
from tidelog.client.sync.admin.quorum import QuorumCalls
from tidelog.client.sync.admin.quotas import QuotaCalls
from tidelog.client.sync.admin.records import RecordCalls
from tidelog.client.sync.admin.topics import TopicCalls
from tidelog.client.sync.admin.transactions import TransactionCalls
from tidelog.client.types.directories import BrokerLogDirs
from tidelog.client.types.records import (
    ClusterDescription,
    CreatedTopic,
    NewTopic,
    TopicDescription,
)
from tidelog.client.wire import calls as wire
from tidelog.client.wire import directories as wire_directories
from tidelog.wire.errors import TidelogError

TOPICS_A_REQUEST = 1_000


class AdminClient(
    TopicCalls, RecordCalls, ConfigCalls, QuotaCalls, PartitionCalls, QuorumCalls, TransactionCalls
):
    """Creates, changes, lists and describes. Safe to share between threads."""

    @checked
    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic]:
        """Create topics; the first that could not be created raises, the others are created."""
        results = self.try_create_topics(new_topics, timeout_ms, validate_only)
        return all_or_raise(results)

    @checked
    def try_create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic | TidelogError]:
        """The same with each topic's own outcome, in order."""
        limit_ms = self._limit_ms(timeout_ms)
        end = time.monotonic() + limit_ms / 1000
        wanted = list(new_topics)
        results: list[CreatedTopic | TidelogError] = []
        for part, request in portions(
            wire.CREATE_TOPICS,
            wanted,
            lambda part: wire.create_topics_request(
                part, validate_only=validate_only, timeout_ms=limit_ms
            ),
            few_partitions,
        ):
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            try:
                results += self._create(request, left_ms, validate_only=validate_only)
            except TidelogError as error:
                if len(part) == len(wanted):
                    raise
                # Others were created, or may be yet.
                results += [error] * len(part)
        return results

    def _create(
        self, request: bytes, timeout_ms: int, *, validate_only: bool
    ) -> list[CreatedTopic | TidelogError]:
        tried, method = "create topics", wire.CREATE_TOPICS
        doubt = doubt_of(tried, method, may_repeat=False, validate_only=validate_only)
        data = self._any(tried, method, request, timeout_ms, doubt=doubt)
        # A try that was not answered may have made what a later one was told is there already.
        return [
            doubt.told(each) if doubt is not None and isinstance(each, TidelogError) else each
            for each in wire.read_created_topics(data)
        ]

    @checked
    def list_topics(
        self, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """The names of all topics, sorted."""
        found = self._describe_topics("list topics", [], self._limit_ms(timeout_ms))
        return sorted(topic.name for topic in found if include_internal or not topic.is_internal)

    @checked
    def describe_topics(
        self,
        topics: Iterable[str] | None = None,
        timeout_ms: int | None = None,
        with_replicas: bool = False,
    ) -> list[TopicDescription]:
        """Settings and partitions of the named topics; without names: of all.

        Offsets and sizes are of each partition's leader; -1 where it could not be reached in time.
        With `with_replicas` every broker that holds a replica is asked how it stands.
        """
        names = [] if topics is None else list(topics)
        if topics is not None and not names:
            return []
        limit_ms = self._limit_ms(timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        found = self._describe_topics("describe topics", names, limit_ms)
        wanted = (
            leaders.topics_by_holder(found) if with_replicas else leaders.topics_by_leader(found)
        )
        answers: dict[int, list[TopicDescription]] = {}
        for place, (broker_id, asked) in enumerate(sorted(wanted.items())):
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            share_ms = max(1, left_ms // (len(wanted) - place))
            answers[broker_id] = self._described_by(
                broker_id, asked, min(share_ms, ADDRESS_TIMEOUT_MS), with_replicas=with_replicas
            )
        described = [leaders.with_answers(topic, answers) for topic in found]
        if with_replicas:
            described = [leaders.with_replicas(topic, answers) for topic in described]
        return described

    def _described_by(
        self, broker_id: int, names: list[str], timeout_ms: int, *, with_replicas: bool
    ) -> list[TopicDescription]:
        """As one broker knows them. Of one that cannot be asked nothing is known, and the rest is
        worth showing."""
        broker = self._calls.metadata.brokers.get(broker_id)
        if broker is None or broker.is_fenced:
            return []
        found: list[TopicDescription] = []
        end = time.monotonic() + timeout_ms / 1000
        for start in range(0, len(names), TOPICS_A_REQUEST):
            request = wire.describe_topics_request(
                names[start : start + TOPICS_A_REQUEST], with_replicas=with_replicas
            )
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            try:
                data = self._connections.call(
                    broker.address, wire.DESCRIBE_TOPICS, request, left_ms
                )
            except TidelogError:
                break
            described = wire.read_topic_descriptions(data)
            found += [each for each in described if not isinstance(each, TidelogError)]
        return found

    @checked
    def describe_log_dirs(
        self,
        broker_ids: Iterable[int] = (),
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
        directories_only: bool = False,
    ) -> list[BrokerLogDirs]:
        """Data directories with their replicas and sizes, of these brokers or of all; one that
        could not be asked has a `failure`."""
        limit_ms = self._limit_ms(timeout_ms)
        names = list(topics)
        wanted: dict[bytes, tuple[int, ...]] = {}
        if names:
            found = self._describe_topics("describe log directories", names, limit_ms)
            wanted = {topic.topic_id: () for topic in found}
        request = wire_directories.describe_log_dirs_request(
            broker_ids, wanted, directories_only=directories_only
        )
        data = self._any(
            "describe log directories", wire_directories.DESCRIBE_LOG_DIRS, request, limit_ms
        )
        return wire_directories.read_log_dirs(data)

    def _describe_topics(
        self, tried: str, names: list[str], timeout_ms: int
    ) -> list[TopicDescription]:
        """As whoever answers first knows them."""
        end = time.monotonic() + timeout_ms / 1000
        found: list[TopicDescription | TidelogError] = []
        for _, request in portions(wire.DESCRIBE_TOPICS, names, wire.describe_topics_request):
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            data = self._any(tried, wire.DESCRIBE_TOPICS, request, left_ms)
            found += wire.read_topic_descriptions(data)
        return all_or_raise(found)

    @checked
    def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        data = self._any(
            "describe the cluster",
            wire.DESCRIBE_CLUSTER,
            wire.describe_cluster_request(),
            self._limit_ms(timeout_ms),
        )
        return wire.read_cluster_description(data)
