"""Calls that the user waits for: metadata, offsets, administration.

Owns deadlines and retries of unary calls. Every call ends within its timeout, with the answer or
with an error that says what was asked and why it did not work.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import ClusterView, MetadataCache, TopicView
from tidelog.client.engine.cluster.tries import Doubt, LeadersWord, Tries
from tidelog.client.shared.asking import nobody_is_told, only_reads
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import calls as wire
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetQuery, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, TopicId

_log = logging.getLogger("tidelog.client")
T = TypeVar("T")
Wanted = tuple[OffsetSpec, int]


class AsyncClusterCalls:
    """One per consumer or admin client."""

    def __init__(
        self,
        connections: AsyncConnections,
        bootstrap: tuple[str, ...],
        metadata: MetadataCache,
        backoff: Backoff,
        bootstrap_timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        self.metadata = metadata
        self._connections = connections
        self._bootstrap = bootstrap
        self._backoff = backoff
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._request_timeout_ms = request_timeout_ms

    def addresses(self) -> list[str]:
        """Known brokers first, then where the client began."""
        known = [broker.address for broker in self.metadata.brokers.values()]
        return list(dict.fromkeys((*known, *self._bootstrap)))

    async def any(
        self, method: str, request: bytes, timeout_ms: int, *, doubt: Doubt | None = None
    ) -> bytes:
        """Ask whoever answers, again until the timeout if nobody can be reached.

        A client that never reached the cluster gives up after bootstrap_timeout_ms.
        """
        if not self.metadata.is_known:
            timeout_ms = min(timeout_ms, self._bootstrap_timeout_ms)
            if len(self._bootstrap) > 1 and not only_reads(method):
                # Which of them answer is found out by a call that two of them may have at a time.
                deadline = time.monotonic() + timeout_ms / 1000
                await self.refresh((), timeout_ms)
                timeout_ms = max(1, int((deadline - time.monotonic()) * 1000))

        async def attempt(left_ms: int) -> bytes:
            limit_ms = min(left_ms, self._request_timeout_ms)
            # A try that one address has not answered counts, whatever the next one says.
            note = nobody_is_told if doubt is None else doubt.note
            return await self._connections.call_any(
                self.addresses(), method, request, limit_ms, note
            )

        return await self.until(timeout_ms, attempt, doubt=doubt)

    def delay_seconds(self, tries: int) -> float:
        """How long to wait after so many tries."""
        return self._backoff.delay_ms(tries) / 1000

    async def until(
        self, timeout_ms: int, attempt: Callable[[int], Awaitable[T]], *, doubt: Doubt | None
    ) -> T:
        """Try until it works, fails for good, or the time is over; the last error is raised.

        `doubt`: whether it may have been done although it failed; None: it changes nothing, and
        silence does not hide why earlier tries have failed.
        """
        tries = Tries(self._backoff, timeout_ms, time.monotonic_ns(), doubt=doubt)
        while True:
            try:
                return await attempt(tries.left_ms(time.monotonic_ns()))
            except TidelogError as error:
                further = tries.fail(error, time.monotonic_ns())
                text = tries.waiting_text(error, time.monotonic_ns())
            if isinstance(further, TidelogError):
                raise further
            if text is not None:
                _log.warning(text)
            await asyncio.sleep(further / 1000)

    async def refresh(
        self,
        topics: Iterable[str],
        timeout_ms: int,
        *,
        all_topics: bool = False,
        allow_auto_create: bool = False,
    ) -> ClusterView:
        """Fetch metadata and take it in."""
        request = wire.metadata_request(
            topics, all_topics=all_topics, allow_auto_create=allow_auto_create
        )
        answer = await self.any(wire.GET_METADATA, request, timeout_ms)
        view = wire.read_metadata(answer, is_complete=all_topics)
        self.metadata.apply(view, time.monotonic_ns())
        return view

    async def topic(self, name: str, timeout_ms: int, *, tried: str) -> TopicView:
        """The topic as metadata tells it; never creates it."""
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        view = await self.refresh((name,), timeout_ms)
        for topic in view.topics:
            if topic.error is not None and topic.error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise topic.error
        known = self.metadata.topics.get(name)
        if known is None:
            await self.refresh((), timeout_ms, all_topics=True)
            raise self.metadata.unknown_topic(name, tried=tried)
        return known

    async def offsets(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        timeout_ms: int,
        *,
        tried: str,
        topic_ids: Mapping[str, bytes] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAnswer]:
        """Ask the leaders; leaders that moved are looked up again.

        With `topic_ids` a topic that has another id there counts as missing: UNKNOWN_TOPIC_ID.
        """
        # A name that nobody knows is the caller's mistake: waiting would not make the topic appear.
        for topic in dict.fromkeys(name.topic for name in wanted):
            await self.topic(topic, timeout_ms, tried=tried)
        # Partitions may have been added since their topic was looked up.
        grown = {name.topic for name in wanted if not self.metadata.has(*name)}
        if grown:
            await self.refresh(sorted(grown), timeout_ms)
        found: dict[TopicPartition, OffsetAnswer] = {}

        async def attempt(left_ms: int) -> None:
            missing = {name: spec for name, spec in wanted.items() if name not in found}
            await self._ask_leaders(missing, found, left_ms, tried, topic_ids or {}, isolation)

        await self.until_led({name.topic for name in wanted}, timeout_ms, attempt)
        return found

    async def until_led(
        self, topics: Iterable[str], timeout_ms: int, attempt: Callable[[int], Awaitable[T]]
    ) -> T:
        """Try what only leaders can answer; after a failure they are looked up again."""
        word = LeadersWord()
        names = sorted(topics)

        async def attempt_and_look(left_ms: int) -> T:
            try:
                return await attempt(left_ms)
            except TidelogError as error:
                if error.retriable:
                    word.note(error)
                    await self._look_again(names, left_ms, word)
                raise

        return await self.until(timeout_ms, attempt_and_look, doubt=None)

    def leader_of(
        self, name: TopicPartition, topic_id: bytes | None, *, tried: str
    ) -> tuple[bytes, str, int]:
        """Topic id, the leader's address and its epoch; `topic_id`: the only id that will do."""
        topic = self.metadata.topics.get(name.topic)
        if topic is None:
            raise self.metadata.unknown_topic(name.topic, tried=tried)
        if topic_id not in (None, topic.topic_id):
            raise _another_topic(name.topic, tried)
        if not self.metadata.has(*name):
            raise _not_there(self.metadata, name, tried)
        leader = self.metadata.leader(name.topic, name.partition)
        if leader is None:
            raise TidelogError(
                ErrorCode.NOT_LEADER,
                tried=tried,
                happened=f"{name.topic}-{name.partition} has no leader at the moment",
            )
        return topic.topic_id, leader[0].address, leader[1]

    async def _look_again(self, topics: Iterable[str], timeout_ms: int, word: LeadersWord) -> None:
        """Leaders may have moved."""
        try:
            await self.refresh(topics, timeout_ms)
        except TidelogError as failure:
            if not word.outweighs(failure):
                raise

    async def _ask_leaders(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        found: dict[TopicPartition, OffsetAnswer],
        timeout_ms: int,
        tried: str,
        topic_ids: Mapping[str, bytes],
        isolation: IsolationLevel,
    ) -> None:
        by_address: dict[str, list[tuple[TopicPartition, OffsetQuery]]] = {}
        for name, (spec, timestamp_ms) in wanted.items():
            topic_id, address, leader_epoch = self.leader_of(
                name, topic_ids.get(name.topic), tried=tried
            )
            query = OffsetQuery(
                topic_id=TopicId(topic_id),
                partition=PartitionId(name.partition),
                spec=spec,
                leader_epoch=LeaderEpoch(leader_epoch),
                timestamp_ms=timestamp_ms,
            )
            by_address.setdefault(address, []).append((name, query))
        for address, asked in by_address.items():
            request = wire.list_offsets_request((query for _, query in asked), isolation)
            limit_ms = min(timeout_ms, self._request_timeout_ms)
            data = await self._connections.call(address, wire.LIST_OFFSETS, request, limit_ms)
            for (name, _), answer in zip(asked, wire.read_offsets(data), strict=True):
                if answer.error is not None:
                    raise answer.error
                found[name] = answer


def _another_topic(name: str, tried: str) -> TidelogError:
    """The name stands for a topic that was made since; or the broker that was asked lags."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=tried,
        happened=f"topic {name!r} has another id now: it was deleted and created again",
    )


def _not_there(metadata: MetadataCache, name: TopicPartition, tried: str) -> TidelogError:
    """A wrong number is the caller's mistake: waiting would not make the partition appear."""
    error = metadata.unknown_partition(name.topic, name.partition, tried=tried)
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT, tried=error.tried, happened=error.happened, hint=error.hint
    )
