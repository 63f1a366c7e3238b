"""The group contract served from memory, one model coordinator for each group.

For tests of the client alone: what a real coordinator does belongs to tests on a real node.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.client.support.contract_errors import error
from tests.client.support.group_model import FakeCoordinator
from tidelog.client.engine.group.messages import GroupPartition, Heartbeat, OffsetToCommit
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import groups as wire_groups
from tidelog.contract import groups as contract
from tidelog.v1 import coordinator_pb2, groups_pb2
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, TopicId

if TYPE_CHECKING:
    from tests.client.support.contract_server import ContractServer


class GroupService:
    """Handlers of a ContractServer."""

    def __init__(self, server: "ContractServer") -> None:
        self.coordinators: dict[str, FakeCoordinator] = {}
        self.interval_ms = 50
        self.session_ms = 45_000
        self.commit_error: ErrorCode | None = None
        """What commits are answered with, as a whole."""
        self.is_away = False
        """There is no coordinator."""
        self.is_forgetful = False
        """Committed offsets cannot be looked up at the moment."""
        self.heartbeats: list[groups_pb2.GroupHeartbeatRequest] = []
        self.commits: list[groups_pb2.CommitOffsetsRequest] = []
        self._server = server
        self._topics: list[GroupPartition] = []
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Callable[[bytes, Any], bytes]]:
        return {
            wire_groups.FIND_COORDINATORS: self.find,
            contract.GROUP_HEARTBEAT: self.heartbeat,
            contract.COMMIT_OFFSETS: self.commit,
            contract.FETCH_OFFSETS: self.look_up,
        }

    def on_created(self, name: str, topic_id: bytes, count: int) -> None:
        with self._lock:
            new = [
                GroupPartition(
                    topic_partition=TopicPartition(name, number), topic_id=TopicId(topic_id)
                )
                for number in range(count)
            ]
            self._topics += new
            for coordinator in self.coordinators.values():
                coordinator.create(new)

    def of(self, group: str) -> FakeCoordinator:
        found = self.coordinators.get(group)
        if found is None:
            found = FakeCoordinator(session_ms=self.session_ms, interval_ms=self.interval_ms)
            found.create(self._topics)
            self.coordinators[group] = found
        return found

    def committed(self, group: str) -> dict[int, int]:
        """By partition, of the only topic."""
        with self._lock:
            stored = self.of(group).committed.values()
            return {each.topic_partition.partition: each.committed_offset for each in stored}

    def find(self, data: bytes, context: Any) -> bytes:
        request = coordinator_pb2.FindCoordinatorsRequest.FromString(data)
        place = coordinator_pb2.CoordinatorPlace(
            key=request.keys[0], broker_id=1, address=self._server.address
        )
        if self.is_away:
            place = coordinator_pb2.CoordinatorPlace(
                key=request.keys[0], error=error(ErrorCode.COORDINATOR_NOT_AVAILABLE), broker_id=-1
            )
        return coordinator_pb2.FindCoordinatorsResponse(coordinators=[place]).SerializeToString()

    def heartbeat(self, data: bytes, context: Any) -> bytes:
        request = groups_pb2.GroupHeartbeatRequest.FromString(data)
        wish = owned = None
        if request.HasField("subscription"):
            wish = Subscription(
                topics=tuple(request.subscription.topics),
                topic_pattern=request.subscription.topic_pattern,
            )
        if request.HasField("owned"):
            owned = tuple(
                GroupPartition(
                    topic_partition=TopicPartition("", number), topic_id=TopicId(each.topic_id)
                )
                for each in request.owned.topics
                for number in each.partitions
            )
        asked = Heartbeat(member_epoch=request.member_epoch, subscription=wish, owned=owned)
        with self._lock:
            self.heartbeats.append(request)
            if self.is_away:
                told = error(ErrorCode.NOT_COORDINATOR)
                return groups_pb2.GroupHeartbeatResponse(error=told).SerializeToString()
            group = self.of(request.group)
            answer = group.heartbeat(request.member_id, asked, time.monotonic_ns())
        response = groups_pb2.GroupHeartbeatResponse(
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            session_timeout_ms=answer.session_timeout_ms,
            is_idle=answer.is_idle,
        )
        if answer.error is not None:
            response.error.CopyFrom(error(answer.error.code))
        if answer.assignment is not None:
            response.assignment.SetInParent()
            for each in answer.assignment:
                response.assignment.partitions.add(
                    topic_id=each.topic_id,
                    partition=each.topic_partition.partition,
                    partition_assignment_epoch=each.partition_assignment_epoch,
                    topic_name=each.topic_partition.topic,
                )
        return response.SerializeToString()

    def commit(self, data: bytes, context: Any) -> bytes:
        request = groups_pb2.CommitOffsetsRequest.FromString(data)
        offsets = tuple(
            OffsetToCommit(
                topic_partition=TopicPartition("", each.partition),
                topic_id=TopicId(each.topic_id),
                committed_offset=Offset(each.committed_offset),
                leader_epoch=LeaderEpoch(each.leader_epoch),
                metadata=each.metadata,
            )
            for each in request.offsets
        )
        response = groups_pb2.CommitOffsetsResponse()
        with self._lock:
            self.commits.append(request)
            if self.is_away or self.commit_error is not None:
                code = self.commit_error or ErrorCode.NOT_COORDINATOR
                response.error.CopyFrom(error(code))
                return response.SerializeToString()
            refused, results = self.of(request.group).commit(
                request.member_id, request.member_epoch, offsets, time.monotonic_ns()
            )
        if refused is not None:
            response.error.CopyFrom(error(refused.code))
            return response.SerializeToString()
        for each, result in zip(offsets, results, strict=True):
            told = response.results.add(
                topic_id=each.topic_id, partition=each.topic_partition.partition
            )
            _set_error(told, result)
        return response.SerializeToString()

    def look_up(self, data: bytes, context: Any) -> bytes:
        request = groups_pb2.FetchOffsetsRequest.FromString(data)
        partitions = tuple(
            GroupPartition(
                topic_partition=TopicPartition("", number), topic_id=TopicId(each.topic_id)
            )
            for each in request.topics
            for number in each.partitions
        )
        response = groups_pb2.FetchOffsetsResponse()
        with self._lock:
            if self.is_away or self.is_forgetful:
                response.error.CopyFrom(error(ErrorCode.NOT_COORDINATOR))
                return response.SerializeToString()
            for each in self.of(request.group).look_up(partitions):
                response.offsets.add(
                    topic_id=each.topic_id,
                    partition=each.topic_partition.partition,
                    committed_offset=each.committed_offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    commit_time_ms=-1,
                )
        return response.SerializeToString()


def _set_error(told: groups_pb2.OffsetCommitResult, result: TidelogError | None) -> None:
    if result is not None:
        told.error.CopyFrom(error(result.code))
