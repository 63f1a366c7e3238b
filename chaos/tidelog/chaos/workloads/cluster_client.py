"""What clients of a simulated cluster have in common: who leads what, and calls to it.

Stands on the Network port and the contract alone, not on the SDK, so that a mistake of the SDK
cannot hide one of a broker. It must never send to a broker that metadata do not name.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import Message

from tidelog.chaos.checkers.history.history import History
from tidelog.chaos.workloads.log_client import (
    GET_METADATA,
    REFUSALS,
    Topic,
    WorkloadPorts,
    error_of,
)
from tidelog.ports import DeathHint, PeerUnreachable
from tidelog.v1 import metadata_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

LIST_OFFSETS: Final = "/tidelog.v1.MetadataService/ListOffsets"
METADATA_AGE_NS: Final = 2_000_000_000
_ID_DIGITS: Final = 6

NOTHING_STORED: Final = REFUSALS | {
    ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.FENCED_PRODUCER_EPOCH,
    ErrorCode.INVALID_TIMESTAMP,
}
"""Answers that mean: this request has stored nothing, and will store nothing."""

_M = TypeVar("_M", bound=Message)


class Incarnation(Topic, frozen=True):
    """A topic by its id: created again under its name it is another one."""

    def key(self, partition: int) -> str:
        """The partition's name in a history."""
        return f"{self.name}@{self.topic_id.hex()[:_ID_DIGITS]}-{partition}"


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads a partition, as metadata have it."""

    broker_id: int
    address: str
    epoch: int


class ClusterClient:
    """A client's view of the cluster, and its way to ask."""

    def __init__(
        self, ports: WorkloadPorts, history: History, *, name: str, bootstrap: Sequence[str]
    ) -> None:
        self.ports = ports
        self.history = history
        self.name = name
        self._bootstrap = tuple(bootstrap)
        self._topics: dict[str, Incarnation] = {}
        self._leaders: dict[tuple[TopicId, int], Leader] = {}
        self._asked_ns: dict[str, int] = {}
        self.addresses: dict[int, str] = {}
        """Of brokers, as metadata told them last."""
        self.sealed = 0
        """Values that it has made."""
        self.on_error: Callable[[TidelogError], None] = _ignore
        """Told whatever a broker has answered with."""

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.ports.clock.monotonic_ns()

    def below(self, bound: int) -> int:
        """A number by seed."""
        return self.ports.random.below(bound)

    async def ask(
        self, address: str, method: str, request: Message, reply: type[_M], *, timeout_ms: int
    ) -> _M:
        """One call."""
        answer = await self.ports.network.call(
            address, method, request.SerializeToString(), timeout_ms=timeout_ms
        )
        return reply.FromString(answer)

    async def ask_any(
        self, method: str, request: Message, reply: type[_M], *, timeout_ms: int = 3_000
    ) -> _M:
        """One call to some broker; raises what it answered."""
        address = self._bootstrap[self.below(len(self._bootstrap))]
        return await self.ask(address, method, request, reply, timeout_ms=timeout_ms)

    async def find_topic(self, name: str) -> Incarnation | None:
        """The topic as it is now; None: there is none, or nobody can say."""
        known = self._topics.get(name)
        if known is not None and self.now_ns - self._asked_ns[name] < METADATA_AGE_NS:
            return known
        return await self.refresh(name)

    async def refresh(self, name: str) -> Incarnation | None:
        """Ask for the topic's metadata."""
        request = metadata_pb2.GetMetadataRequest(topic_names=[name])
        try:
            answer = await self.ask_any(GET_METADATA, request, metadata_pb2.GetMetadataResponse)
            topic = answer.topics[0]
            if topic.error.code:
                raise error_of(topic.error)
        except TidelogError as error:
            self.on_error(error)
            if error.code is ErrorCode.UNKNOWN_TOPIC:
                self._topics.pop(name, None)
            return None
        addresses = {broker.broker_id: broker.address for broker in answer.brokers}
        self.addresses |= addresses
        found = Incarnation(name, TopicId(topic.topic_id), len(topic.partitions))
        self._topics[name] = found
        self._asked_ns[name] = self.now_ns
        for each in topic.partitions:
            key = (found.topic_id, each.partition)
            self._leaders.pop(key, None)
            if each.leader_id in addresses:
                self._leaders[key] = Leader(
                    broker_id=each.leader_id,
                    address=addresses[each.leader_id],
                    epoch=each.leader_epoch,
                )
        return found

    async def offset_of(
        self, topic: Incarnation, partition: int, spec: metadata_pb2.OffsetSpec.ValueType
    ) -> int:
        """Where the partition begins or ends, as its leader says; raises what it answered."""
        leader = await self.find_leader(topic, partition)
        if leader is None:
            raise TidelogError(ErrorCode.NOT_LEADER, tried="ask for an offset", happened="nobody")
        query = metadata_pb2.OffsetQuery(
            topic_id=topic.topic_id, partition=partition, leader_epoch=-1, spec=spec
        )
        answer = await self.ask(
            leader.address,
            LIST_OFFSETS,
            metadata_pb2.ListOffsetsRequest(queries=[query]),
            metadata_pb2.ListOffsetsResponse,
            timeout_ms=3_000,
        )
        (found,) = answer.answers
        if found.HasField("error"):
            raise error_of(found.error)
        return found.offset

    async def find_leader(self, topic: Incarnation, partition: int) -> Leader | None:
        """Who leads the partition; asks if nobody is known."""
        leader = self._leaders.get((topic.topic_id, partition))
        if leader is None:
            await self.refresh(topic.name)
            leader = self._leaders.get((topic.topic_id, partition))
        return leader

    def forget_leader(self, topic: Incarnation, partition: int) -> None:
        """It does not lead any more, or does not answer."""
        self._leaders.pop((topic.topic_id, partition), None)

    def is_present(self, topic: Incarnation) -> bool:
        """Whether the name still means this topic, as far as is known."""
        known = self._topics.get(topic.name)
        return known is not None and known.topic_id == topic.topic_id


def is_nothing_stored(error: TidelogError) -> bool:
    """Whether the request that was answered so has stored nothing."""
    if isinstance(error, PeerUnreachable):
        return error.death_hint is not DeathHint.NONE
    return error.code in NOTHING_STORED


def _ignore(error: TidelogError) -> None:
    del error
