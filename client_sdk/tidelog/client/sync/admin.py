"""The synchronous admin client: topics and the cluster.

Owns nothing but the calls and their errors; every call has a deadline.
"""

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar, Unpack

from tidelog.client import options as client_options
from tidelog.client import wire
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.fetch_messages import OffsetSpec
from tidelog.client.engine.metadata import MetadataCache
from tidelog.client.lifecycle import Client
from tidelog.client.options import AdminArguments, AdminOptions
from tidelog.client.sync.cluster_calls import ClusterCalls, Wanted
from tidelog.client.sync.connections import Connections
from tidelog.client.types import (
    ClusterDescription,
    CreatedTopic,
    NewTopic,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from tidelog.wire.errors import TidelogError

T = TypeVar("T")
_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


class AdminClient(Client):
    """Creates, lists and describes. Safe to share between threads."""

    def __init__(self, **arguments: Unpack[AdminArguments]) -> None:
        options = client_options.build(AdminOptions, "AdminClient", arguments)
        super().__init__()
        self._options = options
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._connections = Connections(options.client_id)
        self._calls = ClusterCalls(
            self._connections,
            client_options.bootstrap_addresses("AdminClient", options.bootstrap_servers),
            MetadataCache(),
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic]:
        """Create topics; the first that could not be created raises, the others are created."""
        results = self.try_create_topics(new_topics, timeout_ms, validate_only)
        return _all_or_raise(results)

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
        return _all_or_raise(wire.read_topic_descriptions(data))

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

    def close(self) -> None:
        """Break the connections."""
        if self._refusal is not None:
            return
        self._become_closed()
        self._connections.close()

    def __enter__(self) -> Self:
        self._check_usable("use the admin client")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close_at_exit(self) -> None:
        """Nothing is lost by it: close."""
        self.close()

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._options.request_timeout_ms if timeout_ms is None else timeout_ms

    def _any(self, tried: str, method: str, request: bytes, timeout_ms: int) -> bytes:
        self._check_usable(tried)
        if not self._calls.metadata.is_known:
            # Learns the brokers, and fails soon and in words if there is nobody.
            self._calls.refresh((), timeout_ms)
        return self._calls.any(method, request, timeout_ms)


def _wanted(spec: str | int) -> Wanted:
    if isinstance(spec, int):
        return OffsetSpec.AT_TIME, spec
    if spec not in _SPECS:
        raise client_options.invalid(
            "list of offsets", f"{spec!r} is none of {', '.join(_SPECS)} or a time in milliseconds"
        )
    return _SPECS[spec], -1


def _all_or_raise(results: Iterable[T | TidelogError]) -> list[T]:
    found: list[T] = []
    for result in results:
        if isinstance(result, TidelogError):
            raise result
        found.append(result)
    return found
