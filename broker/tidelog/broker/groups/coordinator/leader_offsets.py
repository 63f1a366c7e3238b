"""Between which offsets any partitions hold committed records: their leaders are asked, at once.

Owns the split by leader. It must never wait for one broker longer than its deadline, nor make a
number up: what a leader did not tell is an error in its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from tidelog.broker.groups.coordinator.watermarks import OwnOffsets
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

KEYS_A_CALL: Final = 10_000

Found = Mapping[PartitionKey, OwnOffsets | TidelogError]


class OffsetPeers(Protocol):
    """The way to other brokers, and to this one."""

    async def offsets(self, broker_id: BrokerId, keys: Sequence[PartitionKey]) -> Found:
        """Of partitions that the broker leads."""
        ...


class LeaderOffsets:
    """`of` for any partitions."""

    def __init__(self, metadata: ImageSource, peers: OffsetPeers) -> None:
        self._metadata = metadata
        self._peers = peers

    async def of(self, keys: Iterable[PartitionKey]) -> Found:
        """Each of them, or why it is not known."""
        image = self._metadata.image()
        found: dict[PartitionKey, OwnOffsets | TidelogError] = {}
        by_leader: dict[BrokerId, list[PartitionKey]] = {}
        for key in dict.fromkeys(keys):
            leader = leader_of(image, key)
            if isinstance(leader, TidelogError):
                found[key] = leader
            else:
                by_leader.setdefault(leader, []).append(key)
        async with TaskScope() as scope:
            for broker_id, led in by_leader.items():
                scope.start(self._ask(broker_id, led, found), name="offsets of leaders")
        return found

    async def _ask(
        self,
        broker_id: BrokerId,
        keys: Sequence[PartitionKey],
        found: dict[PartitionKey, OwnOffsets | TidelogError],
    ) -> None:
        for first in range(0, len(keys), KEYS_A_CALL):
            part = keys[first : first + KEYS_A_CALL]
            try:
                answer = await self._peers.offsets(broker_id, part)
            except TidelogError as error:
                found.update((key, error) for key in keys[first:])
                return
            for key in part:
                found[key] = answer.get(key) or _unanswered(broker_id, key)


def leader_of(image: Image, key: PartitionKey) -> BrokerId | TidelogError:
    """Who leads the partition as this broker's metadata say, or why nobody can be asked of it."""
    tried = f"look up the leader of {image.name_partition(key.topic_id, key.partition)}"
    topic = image.topics.get(key.topic_id)
    if topic is None:
        return TidelogError(
            ErrorCode.UNKNOWN_TOPIC_ID, tried=tried, happened="there is no such topic"
        )
    if key.partition >= len(topic.partitions):
        return TidelogError(
            ErrorCode.UNKNOWN_PARTITION,
            tried=tried,
            happened=f"topic {topic.name} has {len(topic.partitions)} partitions",
        )
    leader_id = topic.partitions[key.partition].leader_id
    if leader_id == NO_LEADER:
        return TidelogError(
            ErrorCode.NOT_LEADER, tried=tried, happened="nobody leads it at the moment"
        )
    return leader_id


def _unanswered(broker_id: BrokerId, key: PartitionKey) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN,
        tried=f"describe {key}",
        happened=f"broker {broker_id} has not answered of it",
    )
