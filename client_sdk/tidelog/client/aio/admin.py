"""The asyncio admin client: topics, offsets and the cluster's description.

Owns the calls that programs make beside reading and writing; operators have the synchronous client
and the command line. Every call has a deadline.
"""

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

from tidelog.client import options as client_options
from tidelog.client import wire, wire_admin
from tidelog.client.admin_types import DeletedTopic, NewPartitions
from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.engine.backoff import Backoff
from tidelog.client.engine.metadata import MetadataCache
from tidelog.client.errors import PeerError
from tidelog.client.lifecycle import Client
from tidelog.client.options import AdminArguments, AdminOptions
from tidelog.client.security import security_of
from tidelog.client.sync import admin as shared
from tidelog.client.sync.admin_base import all_or_raise
from tidelog.client.sync.connections import all_failed
from tidelog.client.types import (
    ClusterDescription,
    CreatedTopic,
    NewTopic,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncAdminClient(Client):
    """Creates, deletes, grows, lists and describes."""

    def __init__(self, **arguments: Unpack[AdminArguments]) -> None:
        options = client_options.build(AdminOptions, "AsyncAdminClient", arguments)
        security = security_of("AsyncAdminClient", options)
        super().__init__()
        self._options = options
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._connections = AsyncConnections(options.client_id, security)
        self._calls = AsyncClusterCalls(
            self._connections,
            client_options.bootstrap_addresses("AsyncAdminClient", options.bootstrap_servers),
            MetadataCache(),
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )

    async def start(self) -> None:
        """Reach the cluster; not needed, but it says soon if there is none."""
        self._check_usable("start the admin client")
        await self._calls.refresh((), self._options.bootstrap_timeout_ms)

    async def close(self) -> None:
        """Break the connections."""
        if self._refusal is not None:
            return
        self._become_closed()
        await self._connections.close()

    stop = close

    async def __aenter__(self) -> Self:
        self._check_usable("use the admin client")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic]:
        """Create topics; the first that could not be created raises, the others are created."""
        return all_or_raise(await self.try_create_topics(new_topics, timeout_ms, validate_only))

    async def try_create_topics(
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
        data = await self._any("create topics", wire.CREATE_TOPICS, request, limit_ms)
        return wire.read_created_topics(data)

    async def delete_topics(
        self, topics: Iterable[str | bytes], timeout_ms: int | None = None
    ) -> list[DeletedTopic]:
        """Delete topics with all their records, by name or by id."""
        request = wire_admin.delete_topics_request(topics, validate_only=False)
        data = await self._once(
            "delete topics", wire_admin.DELETE_TOPICS, request, self._limit_ms(timeout_ms)
        )
        return all_or_raise(wire_admin.read_deleted_topics(data))

    async def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], timeout_ms: int | None = None
    ) -> dict[str, int]:
        """Raise numbers of partitions to these in all; topic → its number now."""
        wanted = {
            name: NewPartitions(count) if isinstance(count, int) else count
            for name, count in topic_partitions.items()
        }
        request = wire_admin.create_partitions_request(wanted, validate_only=False)
        data = await self._once(
            "create partitions", wire_admin.CREATE_PARTITIONS, request, self._limit_ms(timeout_ms)
        )
        return dict(all_or_raise(wire_admin.read_partition_counts(data)))

    async def list_topics(
        self, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """The names of all topics, sorted."""
        found = await self._describe("list topics", [], self._limit_ms(timeout_ms))
        return sorted(topic.name for topic in found if include_internal or not topic.is_internal)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Settings and partitions of the named topics, as one broker knows them; None: of all."""
        names = [] if topics is None else list(topics)
        if topics is not None and not names:
            return []
        return await self._describe("describe topics", names, self._limit_ms(timeout_ms))

    async def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        data = await self._any(
            "describe the cluster",
            wire.DESCRIBE_CLUSTER,
            wire.describe_cluster_request(),
            self._limit_ms(timeout_ms),
        )
        return wire.read_cluster_description(data)

    async def list_partition_offsets(
        self, partitions: Mapping[TopicPartition, str | int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets at `earliest`, `latest`, `max_timestamp`, or a time in ms since 1970."""
        tried = "list partition offsets"
        self._check_usable(tried)
        wanted = {
            TopicPartition(*name): shared.offset_wanted(spec) for name, spec in partitions.items()
        }
        answers = await self._calls.offsets(wanted, self._limit_ms(timeout_ms), tried=tried)
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._options.request_timeout_ms if timeout_ms is None else timeout_ms

    async def _describe(
        self, tried: str, names: list[str], timeout_ms: int
    ) -> list[TopicDescription]:
        request = wire.describe_topics_request(names)
        data = await self._any(tried, wire.DESCRIBE_TOPICS, request, timeout_ms)
        return all_or_raise(wire.read_topic_descriptions(data))

    async def _any(self, tried: str, method: str, request: bytes, timeout_ms: int) -> bytes:
        """Asked again until somebody answers."""
        await self._learn_brokers(tried, timeout_ms)
        return await self._calls.any(method, request, timeout_ms)

    async def _once(self, tried: str, method: str, request: bytes, timeout_ms: int) -> bytes:
        """Passed on only by a broker that did nothing: unreachable, or without a controller.

        After a silence the change may have been made, and asking anybody else would deny it.
        """
        await self._learn_brokers(tried, timeout_ms)
        deadline = time.monotonic() + timeout_ms / 1000
        failures: list[tuple[str, TidelogError]] = []
        for address in self._calls.addresses():
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            try:
                return await self._connections.call(address, method, request, left_ms)
            except TidelogError as error:
                passed_over = {ErrorCode.UNAVAILABLE}
                if isinstance(error, PeerError):
                    passed_over.add(ErrorCode.NOT_CONTROLLER)
                if error.code not in passed_over:
                    raise
                failures.append((address, error))
        raise all_failed(failures)

    async def _learn_brokers(self, tried: str, timeout_ms: int) -> None:
        """Fails soon and in words if there is nobody."""
        self._check_usable(tried)
        if not self._calls.metadata.is_known:
            await self._calls.refresh((), timeout_ms)
