"""A subscription's ways: to its group's coordinator and to the leaders of its partitions.

Owns the choice between this broker and another one, and the conversions for the second. It must
never look a coordinator up once for all: it is looked up for every call, in this broker's image.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog.broker.coordination.finding import CoordinatorFinder
from tidelog.broker.groups.coordinator.leader_offsets import Found, LeaderOffsets
from tidelog.broker.groups.state.messages import BrokerLife, Caller
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import Begin
from tidelog.broker.groups.subscription.runner import Read
from tidelog.broker.services.fetch.handler import FetchHandler, FetchRequest, PartitionBatches
from tidelog.broker.services.groups.handler import GroupsHandler
from tidelog.broker.services.groups.methods import COMMIT, FETCH, HEARTBEAT
from tidelog.broker.services.groups.peers import GroupPeers
from tidelog.broker.services.records.handler import decoded_records
from tidelog.contract.errors import read_error
from tidelog.contract.fetch import position_message, read_stretches
from tidelog.contract.groups import (
    commit_message,
    fetch_message,
    heartbeat_message,
    read_commit_answer,
    read_fetch_answer,
    read_heartbeat_answer,
)
from tidelog.contract.isolation import isolation_message
from tidelog.contract.partitions import read_partition
from tidelog.metadata.image.image import NO_LEADER
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, RequestContext
from tidelog.ports.request_context import CLUSTER_LISTENER, NO_DEADLINE_NS
from tidelog.v1 import fetch_pb2
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerId,
    Offset,
    PartitionId,
    PartitionKey,
)

CALL_MS: Final = 5_000
"""Longest wait for an answer of a coordinator."""
READ_BYTES: Final = 256 * 1024
"""Of one read, as it is stored."""
RECORDS_A_READ: Final = 2_000
"""More are read with the next one: they are decoded in one turn of the loop."""
_NS_PER_MS: Final = 1_000_000
AnswerT = TypeVar("AnswerT")


class PeerGroup:
    """`GroupPort` of one stream; to a coordinator on this very broker without protobuf."""

    def __init__(
        self,
        begin: Begin,
        finder: CoordinatorFinder,
        peers: GroupPeers,
        members: GroupsHandler,
        clock: Clock,
        own_life: Callable[[], BrokerLife],
    ) -> None:
        """`members`: of the coordinators on this broker."""
        self._begin = begin
        self._finder = finder
        self._peers = peers
        self._members = members
        self._clock = clock
        self._own_life = own_life

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """See `GroupPort`."""
        caller = self._caller(self._own_life())

        async def ask(broker_id: BrokerId) -> HeartbeatAnswer:
            if self._peers.is_own(broker_id):
                return await self._members.heartbeat(request, caller)
            message = heartbeat_message(request)
            told = await self._peers.coordinate(
                caller, broker_id, HEARTBEAT, message, timeout_ms=CALL_MS
            )
            return _raised(read_heartbeat_answer(told))

        return await self._at_coordinator(ask)

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """See `GroupPort`."""

        async def ask(broker_id: BrokerId) -> CommitAnswer:
            if self._peers.is_own(broker_id):
                return await self._members.commit(request)
            message = commit_message(request)
            told = await self._peers.coordinate(
                self._caller(), broker_id, COMMIT, message, timeout_ms=CALL_MS
            )
            return _raised(read_commit_answer(told))

        return await self._at_coordinator(ask)

    async def fetch_offsets(self, request: FetchOffsets) -> FetchOffsetsAnswer:
        """See `GroupPort`."""

        async def ask(broker_id: BrokerId) -> FetchOffsetsAnswer:
            if self._peers.is_own(broker_id):
                return await self._members.fetch(request)
            message = fetch_message(request)
            told = await self._peers.coordinate(
                self._caller(), broker_id, FETCH, message, timeout_ms=CALL_MS
            )
            return _raised(read_fetch_answer(told))

        return await self._at_coordinator(ask)

    def _caller(self, carrier: BrokerLife | None = None) -> Caller:
        begin = self._begin
        return Caller(client_id=begin.client_id, address=begin.address, carrier=carrier)

    async def _at_coordinator(self, ask: Callable[[BrokerId], Awaitable[AnswerT]]) -> AnswerT:
        """Ask wherever the group's coordinator is now."""
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
                (place,) = await self._finder.find(context, [begin.group])
                if isinstance(place, TidelogError):
                    raise place
                return await ask(place.broker_id)
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
    ) -> None:
        self._metadata = metadata
        self._peers = peers
        self._offsets = offsets
        self._fetch = fetch
        self._broker_id = broker_id

    def leader(self, key: PartitionKey) -> BrokerId | None:
        """See `ReadPort`."""
        partition = self._metadata.image().partition(key.topic_id, key.partition)
        if partition is None or partition.leader_id == NO_LEADER:
            return None
        return partition.leader_id

    async def offsets(self, keys: Sequence[PartitionKey]) -> Found:
        """See `ReadPort`."""
        return await self._offsets.of(keys)

    async def read(
        self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int], isolation: IsolationLevel
    ) -> list[Read]:
        """See `ReadPort`."""
        if broker_id == self._broker_id:
            return await self._read_here(wanted, isolation)
        message = fetch_pb2.FetchRequest(
            max_wait_ms=limits.READ_WAIT_MS,
            min_bytes=1,
            max_bytes=READ_BYTES,
            isolation_level=isolation_message(isolation),
        )
        message.positions.extend(position_message(each) for each in _positions(wanted))
        found = []
        for each in await self._peers.fetch(broker_id, message):
            key = read_partition(each.topic_id, each.partition)
            error = read_error(each.error) if each.HasField("error") else None
            found.append(
                _read(
                    key,
                    wanted[key],
                    PartitionBatches(
                        topic_id=key.topic_id,
                        partition=key.partition,
                        error=error,
                        batches=each.batches,
                        high_watermark=Offset(each.high_watermark),
                        last_stable_offset=Offset(each.last_stable_offset),
                        aborted=read_stretches(each.aborted_transactions),
                    ),
                )
            )
        return found

    async def _read_here(
        self, wanted: Mapping[PartitionKey, int], isolation: IsolationLevel
    ) -> list[Read]:
        request = FetchRequest(
            _positions(wanted), limits.READ_WAIT_MS, 1, READ_BYTES, isolation=isolation
        )
        found = []
        for each in await self._fetch.fetch(_own_context(self._broker_id), request):
            key = PartitionKey(each.topic_id, PartitionId(each.partition))
            found.append(_read(key, wanted[key], each))
        return found


def _own_context(broker_id: BrokerId) -> RequestContext:
    """Of what a broker reads here for its own clients."""
    name = f"broker-{broker_id}"
    return RequestContext(
        principal=name,
        listener=CLUSTER_LISTENER,
        client_id=name,
        address="",
        deadline_ns=NO_DEADLINE_NS,
    )


def _positions(wanted: Mapping[PartitionKey, int]) -> list[FetchPosition]:
    return [
        FetchPosition(topic_id=key.topic_id, partition=key.partition, fetch_offset=Offset(offset))
        for key, offset in wanted.items()
    ]


def _read(key: PartitionKey, offset: int, found: PartitionBatches) -> Read:
    if found.error is not None:
        return Read(key=key, error=found.error)
    try:
        records, next_offset = decoded_records(
            found.batches, offset, RECORDS_A_READ, aborted=found.aborted
        )
    except TidelogError as damage:
        return Read(key=key, error=damage)
    return Read(
        key=key,
        records=records,
        next_offset=Offset(next_offset),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
    )


def _raised(answer: AnswerT | TidelogError) -> AnswerT:
    if isinstance(answer, TidelogError):
        raise answer
    return answer
