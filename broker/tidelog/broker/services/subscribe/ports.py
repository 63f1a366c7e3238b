"""A subscription's ways: to its group's coordinator and to the leaders of its partitions.

Owns the choice between this broker and another one, and the conversions for the second. It must
never look a coordinator up once for all: it is looked up for every call, in this broker's image.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.broker.groups.coordinator.finding import CoordinatorFinder
from tidelog.broker.groups.coordinator.leader_offsets import Found, LeaderOffsets
from tidelog.broker.groups.state.answers import (
    AssignedPartition,
    CommitAnswer,
    FetchOffsetsAnswer,
    HeartbeatAnswer,
    StoredOffset,
)
from tidelog.broker.groups.state.messages import (
    BrokerLife,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
)
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import Begin
from tidelog.broker.groups.subscription.runner import Read
from tidelog.broker.services.fetch.handler import FetchHandler, FetchPosition, FetchRequest
from tidelog.broker.services.groups.parts import by_topic
from tidelog.broker.services.groups.peers import Coordinate, Coordinated, GroupPeers
from tidelog.broker.services.records.handler import decoded_records
from tidelog.metadata.image.image import NO_LEADER
from tidelog.metadata_quorum.port import ImageSource
from tidelog.metadata_quorum.shared.wire_errors import read_error
from tidelog.ports import Clock, RequestContext
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.v1 import fetch_pb2, groups_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionId,
    PartitionKey,
    TopicId,
)

CALL_MS: Final = 5_000
"""Longest wait for an answer of a coordinator."""
READ_BYTES: Final = 256 * 1024
"""Of one read, as it is stored."""
RECORDS_A_READ: Final = 2_000
"""More are read with the next one: they are decoded in one turn of the loop."""
_NS_PER_MS: Final = 1_000_000


class PeerGroup:
    """`GroupPort` of one stream."""

    def __init__(
        self,
        begin: Begin,
        finder: CoordinatorFinder,
        peers: GroupPeers,
        clock: Clock,
        own_life: Callable[[], BrokerLife],
    ) -> None:
        self._own_life = own_life
        self._begin = begin
        self._finder = finder
        self._peers = peers
        self._clock = clock

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """See `GroupPort`."""
        life = self._own_life()
        call = Coordinate(
            heartbeat=_heartbeat_message(request),
            broker_id=life.broker_id,
            broker_epoch=life.broker_epoch,
        )
        told = await self._call(call)
        _raise(told.heartbeat)
        return _read_heartbeat(told.heartbeat)

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """See `GroupPort`."""
        message = groups_pb2.CommitOffsetsRequest(
            group=request.group, member_id=request.member_id, member_epoch=request.member_epoch
        )
        for each in request.offsets:
            message.offsets.add(
                topic_id=each.key.topic_id,
                partition=each.key.partition,
                committed_offset=each.committed_offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
            )
        told = await self._call(Coordinate(commit=message))
        _raise(told.commit)
        errors = tuple(
            read_error(each.error) if each.HasField("error") else None
            for each in told.commit.results
        )
        return CommitAnswer(errors=errors)

    async def fetch_offsets(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """See `GroupPort`."""
        message = groups_pb2.FetchOffsetsRequest(
            group=request.group,
            topics=by_topic(request.keys),
            member_id=request.member_id,
            member_epoch=request.member_epoch,
        )
        told = await self._call(Coordinate(fetch=message))
        _raise(told.fetch)
        return FetchOffsetsAnswer(offsets=tuple(_read_stored(each) for each in told.fetch.offsets))

    async def _call(self, call: Coordinate) -> Coordinated:
        begin = self._begin
        context = RequestContext(
            principal=begin.principal,
            listener=CLUSTER_LISTENER,
            client_id=begin.client_id,
            address=begin.address,
            deadline_ns=self._clock.monotonic_ns() + CALL_MS * _NS_PER_MS,
        )
        try:
            # Also of a coordinator on this broker, which waits as long for what it has to store.
            async with asyncio.timeout(CALL_MS / 1_000):
                (place,) = await self._finder.find_groups(context, [begin.group])
                if isinstance(place, TidelogError):
                    raise place
                return await self._peers.coordinate(
                    context, place.broker_id, call, timeout_ms=CALL_MS
                )
        except TimeoutError:
            raise TidelogError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                tried=f"ask the coordinator of group {begin.group}",
                happened=f"no answer within {CALL_MS} ms: what it has to store is not committed",
                hint="`tidelog topic describe __groups` shows which replicas are missing.",
            ) from None


class PeerReads:
    """`ReadPort` of all streams."""

    def __init__(
        self,
        metadata: ImageSource,
        peers: GroupPeers,
        offsets: LeaderOffsets,
        fetch: FetchHandler,
        *,
        broker_id: BrokerId,
        own_context: Callable[[], RequestContext],
    ) -> None:
        self._metadata = metadata
        self._peers = peers
        self._offsets = offsets
        self._fetch = fetch
        self._broker_id = broker_id
        self._own_context = own_context

    def leader(self, key: PartitionKey) -> BrokerId | None:
        """See `ReadPort`."""
        partition = self._metadata.image().partition(key.topic_id, key.partition)
        if partition is None or partition.leader_id == NO_LEADER:
            return None
        return partition.leader_id

    async def offsets(self, keys: Sequence[PartitionKey]) -> Found:
        """See `ReadPort`."""
        return await self._offsets.of(keys)

    async def read(self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int]) -> list[Read]:
        """See `ReadPort`."""
        if broker_id == self._broker_id:
            return await self._read_here(wanted)
        message = fetch_pb2.FetchRequest(
            max_wait_ms=limits.READ_WAIT_MS, min_bytes=1, max_bytes=READ_BYTES
        )
        for key, offset in wanted.items():
            message.positions.add(
                topic_id=key.topic_id,
                partition=key.partition,
                leader_epoch=NO_LEADER_EPOCH,
                fetch_offset=offset,
                last_fetched_epoch=NO_LEADER_EPOCH,
            )
        found = []
        for each in await self._peers.fetch(broker_id, message):
            key = PartitionKey(TopicId(each.topic_id), PartitionId(each.partition))
            error = read_error(each.error) if each.HasField("error") else None
            found.append(_read(key, wanted[key], each.batches, each.high_watermark, error))
        return found

    async def _read_here(self, wanted: Mapping[PartitionKey, int]) -> list[Read]:
        positions = [
            FetchPosition(
                topic_id=key.topic_id,
                partition=key.partition,
                leader_epoch=NO_LEADER_EPOCH,
                fetch_offset=offset,
                last_fetched_epoch=NO_LEADER_EPOCH,
                max_bytes=0,
            )
            for key, offset in wanted.items()
        ]
        request = FetchRequest(positions, limits.READ_WAIT_MS, 1, READ_BYTES)
        found = []
        for each in await self._fetch.fetch(self._own_context(), request):
            key = PartitionKey(each.topic_id, PartitionId(each.partition))
            found.append(_read(key, wanted[key], each.batches, each.high_watermark, each.error))
        return found


def _read(
    key: PartitionKey, offset: int, batches: bytes, high_watermark: int, error: TidelogError | None
) -> Read:
    if error is not None:
        return Read(key=key, error=error)
    try:
        records, next_offset = decoded_records(batches, offset, RECORDS_A_READ)
    except TidelogError as damage:
        return Read(key=key, error=damage)
    return Read(key=key, records=records, next_offset=next_offset, high_watermark=high_watermark)


def _raise(
    message: groups_pb2.GroupHeartbeatResponse
    | groups_pb2.CommitOffsetsResponse
    | groups_pb2.FetchOffsetsResponse,
) -> None:
    if message.HasField("error"):
        raise read_error(message.error)


def _heartbeat_message(request: Heartbeat) -> groups_pb2.GroupHeartbeatRequest:
    message = groups_pb2.GroupHeartbeatRequest(
        group=request.group,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_sequence=request.heartbeat_sequence,
        group_instance_id=request.group_instance_id,
        takes_over=request.takes_over,
        rack=request.rack,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )
    if request.subscription is not None:
        message.subscription.topics.extend(request.subscription.topics)
        message.subscription.topic_pattern = request.subscription.topic_pattern
        message.subscription.SetInParent()
    if request.owned is not None:
        message.owned.topics.extend(by_topic(request.owned))
        message.owned.SetInParent()
    return message


def _read_heartbeat(message: groups_pb2.GroupHeartbeatResponse) -> HeartbeatAnswer:
    assignment = None
    if message.HasField("assignment"):
        assignment = tuple(
            AssignedPartition(
                PartitionKey(TopicId(each.topic_id), PartitionId(each.partition)),
                each.partition_assignment_epoch,
                each.topic_name,
            )
            for each in message.assignment.partitions
        )
    return HeartbeatAnswer(
        member_epoch=message.member_epoch,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        assignment=assignment,
        group_epoch=message.group_epoch,
        assignment_epoch=message.assignment_epoch,
        session_timeout_ms=message.session_timeout_ms,
        is_idle=message.is_idle,
    )


def _read_stored(
    message: groups_pb2.CommittedOffset,
) -> tuple[PartitionKey, StoredOffset | None]:
    key = PartitionKey(TopicId(message.topic_id), PartitionId(message.partition))
    if message.HasField("error"):
        raise read_error(message.error)
    if message.committed_offset < 0:
        return key, None
    return key, StoredOffset(
        committed_offset=Offset(message.committed_offset),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        metadata=message.metadata,
        commit_time_ms=message.commit_time_ms,
    )
