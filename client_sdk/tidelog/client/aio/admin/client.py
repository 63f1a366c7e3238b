"""The asyncio admin client: topics, offsets, groups and the cluster's description.

Owns the calls that programs make beside reading and writing; operators have the synchronous client
and the command line. Every call has a deadline.
"""

import time
from collections.abc import Iterable, Mapping

from tidelog.client.aio.admin.transactions import AsyncTransactionCalls
from tidelog.client.shared.asking import doubt_of
from tidelog.client.shared.checked import checked
from tidelog.client.shared.portions import few_partitions, portions
from tidelog.client.sync.admin.base import all_or_raise
from tidelog.client.types.admin import DeletedTopic, NewPartitions
from tidelog.client.types.records import (
    ClusterDescription,
    CreatedTopic,
    NewTopic,
    TopicDescription,
)
from tidelog.client.wire import admin as wire_admin
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import TidelogError


class AsyncAdminClient(AsyncTransactionCalls):
    """Creates, deletes, grows, lists and describes."""

    @checked
    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[CreatedTopic]:
        """Create topics; the first that could not be created raises, the others are created."""
        return all_or_raise(await self.try_create_topics(new_topics, timeout_ms, validate_only))

    @checked
    async def try_create_topics(
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
                results += await self._create(request, left_ms, validate_only=validate_only)
            except TidelogError as error:
                if len(part) == len(wanted):
                    raise
                # Others were created, or may be yet.
                results += [error] * len(part)
        return results

    async def _create(
        self, request: bytes, timeout_ms: int, *, validate_only: bool
    ) -> list[CreatedTopic | TidelogError]:
        tried, method = "create topics", wire.CREATE_TOPICS
        doubt = doubt_of(tried, method, may_repeat=False, validate_only=validate_only)
        data = await self._any(tried, method, request, timeout_ms, doubt=doubt)
        # A try that was not answered may have made what a later one was told is there already.
        return [
            doubt.told(each) if doubt is not None and isinstance(each, TidelogError) else each
            for each in wire.read_created_topics(data)
        ]

    @checked
    async def delete_topics(
        self, topics: Iterable[str | bytes], timeout_ms: int | None = None
    ) -> list[DeletedTopic]:
        """Delete topics with all their records, by name or by id."""
        answers = await self._ask_in_portions(
            "delete topics",
            wire_admin.DELETE_TOPICS,
            list(topics),
            lambda part: wire_admin.delete_topics_request(part, validate_only=False),
            self._limit_ms(timeout_ms),
            may_repeat=False,
        )
        found = [each for data in answers for each in wire_admin.read_deleted_topics(data)]
        return all_or_raise(found)

    @checked
    async def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], timeout_ms: int | None = None
    ) -> dict[str, int]:
        """Raise numbers of partitions to these in all; topic → its number now."""
        wanted = {
            name: NewPartitions(count) if isinstance(count, int) else count
            for name, count in topic_partitions.items()
        }
        answers = await self._ask_in_portions(
            "create partitions",
            wire_admin.CREATE_PARTITIONS,
            list(wanted.items()),
            lambda part: wire_admin.create_partitions_request(dict(part), validate_only=False),
            self._limit_ms(timeout_ms),
        )
        found = [each for data in answers for each in wire_admin.read_partition_counts(data)]
        return dict(all_or_raise(found))

    @checked
    async def list_topics(
        self, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """The names of all topics, sorted."""
        found = await self._describe("list topics", [], self._limit_ms(timeout_ms))
        return sorted(topic.name for topic in found if include_internal or not topic.is_internal)

    @checked
    async def describe_topics(
        self, topics: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[TopicDescription]:
        """Settings and partitions of the named topics, as one broker knows them; None: of all."""
        names = [] if topics is None else list(topics)
        if topics is not None and not names:
            return []
        return await self._describe("describe topics", names, self._limit_ms(timeout_ms))

    @checked
    async def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        data = await self._any(
            "describe the cluster",
            wire.DESCRIBE_CLUSTER,
            wire.describe_cluster_request(),
            self._limit_ms(timeout_ms),
        )
        return wire.read_cluster_description(data)

    async def _describe(
        self, tried: str, names: list[str], timeout_ms: int
    ) -> list[TopicDescription]:
        end = time.monotonic() + timeout_ms / 1000
        found: list[TopicDescription | TidelogError] = []
        for _, request in portions(wire.DESCRIBE_TOPICS, names, wire.describe_topics_request):
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            data = await self._any(tried, wire.DESCRIBE_TOPICS, request, left_ms)
            found += wire.read_topic_descriptions(data)
        return all_or_raise(found)
