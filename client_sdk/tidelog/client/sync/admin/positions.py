"""What a reader that keeps its own positions asks before it reads on: a checkpoint's questions.

Owns the look-ups of topics as they are now, of offsets in topics whose ids are known, and of the
place where a log parts from what was read of it. It must never take the answer of another topic of
the same name, nor metadata older than what it has seen.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from tidelog.client.engine.cluster.metadata import TopicView
from tidelog.client.sync.admin.configs import ConfigCalls
from tidelog.client.sync.cluster_calls import Wanted
from tidelog.client.types.admin import ConfigResource, ConfigResourceType
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import calls as wire
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.offsets import OffsetAnswer
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

TOPICS_A_REQUEST: Final = 1_000
CLEANUP_POLICY: Final = "cleanup.policy"
_OUT_OF_RANGE: Final = ErrorCode.OFFSET_OUT_OF_RANGE
"""Trimmed, or cut below the offset: where the log begins and ends tells which."""


class PositionClient(ConfigCalls):
    """Looks up; reads no record and changes nothing."""

    @property
    def version(self) -> int:
        """Of the newest metadata that have come; -1: none has."""
        return self._calls.metadata.version

    def topics(
        self,
        names: Iterable[str],
        timeout_ms: int | None = None,
        *,
        grace_ms: int = 0,
        version_min: int = -1,
    ) -> dict[str, TopicView]:
        """The topics as they are now; those that are not there are left out.

        `grace_ms`: so long a missing one is looked for again, since brokers hear of a new topic
        one after the other. `version_min`: of metadata that somebody else has seen; a broker that
        has not heard as much is not believed.
        """
        self._check_usable("look topics up")
        wanted = list(dict.fromkeys(names))
        left = iter(wanted)
        while some := list(islice(left, TOPICS_A_REQUEST)):
            self._look(some, timeout_ms, version_min)
        known = self._calls.metadata.topics
        if grace_ms and any(name not in known for name in wanted):
            self._wait_known(wanted, grace_ms)
        return {name: known[name] for name in wanted if name in known}

    def all_topics(self, timeout_ms: int | None = None) -> dict[str, TopicView]:
        """Every topic of a user's as it is now."""
        self._check_usable("list topics")
        self._look(None, timeout_ms)
        known = self._calls.metadata.topics
        return {name: topic for name, topic in known.items() if not topic.is_internal}

    def leader_epoch(self, name: TopicPartition) -> int:
        """The newest that is known; -1: none."""
        return self._calls.metadata.leader_epoch(*name)

    def offsets(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        topic_ids: Mapping[str, bytes],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAnswer]:
        """Offsets by place or time; UNKNOWN_TOPIC_ID if a name stands for another topic."""
        tried = "find offsets"
        self._check_usable(tried)
        limit_ms = self._limit_ms(timeout_ms)
        return self._calls.offsets(wanted, limit_ms, tried=tried, topic_ids=topic_ids)

    def partings(
        self,
        read: Mapping[TopicPartition, tuple[int, int]],
        topic_ids: Mapping[str, bytes],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Where logs no longer hold what was read: partition → (offset read to, leader epoch of
        the record before it, or of a later one) in, the first offset that differs out.

        Logs that hold it all, or have trimmed it since, are left out.
        """
        found: dict[TopicPartition, int] = {}
        if read:
            topics = {name.topic for name in read}
            limit_ms = self._limit_ms(timeout_ms)
            self._calls.until_led(
                topics, limit_ms, lambda left_ms: self._compare(read, topic_ids, found, left_ms)
            )
        return found

    def is_compacted(self, topic: str) -> bool:
        """Whether records of the topic may be gone because newer ones have the same key."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self.describe_configs([resource], [CLEANUP_POLICY])
        return any("compact" in (entry.value or "") for entry in described[0].entries)

    def _wait_known(self, names: list[str], grace_ms: int) -> None:
        def attempt(left_ms: int) -> None:
            missing = [name for name in names if name not in self._calls.metadata.topics]
            if missing:
                self._look(missing[:TOPICS_A_REQUEST], left_ms)
            for name in missing:
                if name not in self._calls.metadata.topics:
                    raise self._calls.metadata.unknown_topic(name, tried="look topics up")

        try:
            self._calls.until(grace_ms, attempt, doubt=None)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise

    def _look(self, names: list[str] | None, timeout_ms: int | None, version_min: int = -1) -> None:
        def attempt(left_ms: int) -> None:
            view = self._calls.refresh(names or (), left_ms, all_topics=names is None)
            if view.version < max(self.version, version_min):
                raise TidelogError(
                    ErrorCode.UNAVAILABLE,
                    tried="look topics up",
                    happened="the broker that answered has not heard what others told before",
                )
            for topic in view.topics:
                if topic.error is not None and topic.error.code is not ErrorCode.UNKNOWN_TOPIC:
                    raise topic.error

        self._calls.until(self._limit_ms(timeout_ms), attempt, doubt=None)

    def _compare(
        self,
        read: Mapping[TopicPartition, tuple[int, int]],
        topic_ids: Mapping[str, bytes],
        found: dict[TopicPartition, int],
        timeout_ms: int,
    ) -> None:
        by_address: dict[str, dict[tuple[bytes, int], tuple[TopicPartition, FetchPosition]]] = {}
        for name, (offset, epoch) in read.items():
            topic_id, address, leader_epoch = self._calls.leader_of(
                name, topic_ids.get(name.topic), tried=f"compare {name.topic}-{name.partition}"
            )
            position = FetchPosition(
                topic_id=TopicId(topic_id),
                partition=PartitionId(name.partition),
                fetch_offset=Offset(offset),
                leader_epoch=LeaderEpoch(leader_epoch),
                last_fetched_epoch=LeaderEpoch(epoch),
                max_bytes=1,
                stays_here=True,
            )
            by_address.setdefault(address, {})[topic_id, name.partition] = (name, position)
        for address, asked in by_address.items():
            request = wire.fetch_request(position for _, position in asked.values())
            data = self._connections.call(address, wire.FETCH, request, timeout_ms)
            for part in wire.read_fetch(data):
                name, position = asked[part.topic_id, part.partition]
                if part.divergence is not None:
                    # The epoch may be unknown there and yet nothing below the offset be gone.
                    if part.divergence.end_offset < position.fetch_offset:
                        found[name] = max(0, part.divergence.end_offset)
                elif part.error is not None and part.error.code is not _OUT_OF_RANGE:
                    raise part.error
