"""A node that knows groups: the contract of GroupAdminService from memory, with mishaps on demand.

For tests of the client and the command line alone; the same tests run against a real node where
they need no members.
"""

from collections.abc import Callable
from typing import Any

import grpc

from tests.client.support.contract_errors import error
from tests.client.support.contract_server import BROKER_ID, ContractServer
from tidelog.client.wire import groups_admin as calls
from tidelog.client.wire.groups import FIND_COORDINATORS
from tidelog.contract.groups import FETCH_OFFSETS
from tidelog.v1 import common_pb2, coordinator_pb2, group_admin_pb2, groups_pb2
from tidelog.wire.errors import ErrorCode

Key = tuple[bytes, int]
Members = dict[str, list[Key]]


class GroupServer(ContractServer):
    """Offsets by group and partition; members by group, with what they own."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[str, dict[Key, int]] = {}
        self.undecided: dict[tuple[str, Key], group_admin_pb2.UndecidedOffset] = {}
        self.members: dict[str, Members] = {}
        self.missing_coordinators = 0
        self.lists_before_all = 0
        """So many answers still lack the groups of one coordinator, which moves."""
        self.failures: list[ErrorCode] = []
        """Each is answered once, for every group or partition that is asked for."""
        self.asked: list[str] = []
        self.page_max = 10_000

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Its own before those of a node whose groups have members at work."""
        return (_Handlers(self), *super().handlers())

    def join(self, group: str, member_id: str, *owned: tuple[str, int]) -> None:
        """A member with what it owns."""
        keys = [(self.topics[topic], partition) for topic, partition in owned]
        self.members.setdefault(group, {})[member_id] = keys

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """An offset."""
        self.offsets.setdefault(group, {})[self.topics[topic], partition] = offset

    def fill(self, topic: str, partition: int, start: int, end: int) -> None:
        """What a partition holds."""
        log = self.log(topic, partition)
        log.start_offset, log.end_offset = start, end

    # Inside.

    def known(self) -> list[str]:
        return sorted({*self.offsets, *self.members})

    def name_of(self, topic_id: bytes) -> str:
        return next((name for name, found in self.topics.items() if found == topic_id), "")

    def lag(self, group: str) -> int:
        return sum(
            self.logs[key].end_offset - offset
            for key, offset in self.offsets.get(group, {}).items()
        )

    def _missing_now(self) -> int:
        if self.lists_before_all:
            self.lists_before_all -= 1
            return 1
        return self.missing_coordinators

    def list_groups(self, data: bytes) -> bytes:
        request = group_admin_pb2.ListGroupsRequest.FromString(data)
        found = [
            group_admin_pb2.GroupListing(
                group=name,
                state=self.state(name),
                type=groups_pb2.GROUP_TYPE_RECONCILED,
                member_count=len(self.members.get(name, {})),
                lag=self.lag(name),
            )
            for name in self.known()
            if name > request.after_name
            and (not request.states or self.state(name) in request.states)
        ]
        page = found[: self.page_max]
        return group_admin_pb2.ListGroupsResponse(
            groups=page,
            next_after_name=page[-1].group if len(page) < len(found) else "",
            missing_coordinators=self._missing_now(),
        ).SerializeToString()

    def state(self, group: str) -> group_admin_pb2.GroupState.ValueType:
        if self.members.get(group):
            return group_admin_pb2.GROUP_STATE_STABLE
        return group_admin_pb2.GROUP_STATE_EMPTY

    def describe_groups(self, data: bytes) -> bytes:
        request = group_admin_pb2.DescribeGroupsRequest.FromString(data)
        described = []
        failure = self._failure()
        for name in request.groups:
            code = failure or (None if name in self.known() else ErrorCode.GROUP_NOT_FOUND)
            if code is not None:
                described.append(group_admin_pb2.GroupDescription(group=name, error=error(code)))
            else:
                described.append(self._described(name))
        return group_admin_pb2.DescribeGroupsResponse(groups=described).SerializeToString()

    def _described(self, name: str) -> group_admin_pb2.GroupDescription:
        members = self.members.get(name, {})
        owners = {key: member for member, keys in members.items() for key in keys}
        offsets = self.offsets.get(name, {})
        keys = sorted({*owners, *offsets}, key=lambda key: (self.name_of(key[0]), key[1]))
        return group_admin_pb2.GroupDescription(
            group=name,
            state=self.state(name),
            type=groups_pb2.GROUP_TYPE_RECONCILED,
            group_epoch=3,
            assignment_epoch=3,
            assignor=groups_pb2.ASSIGNOR_UNIFORM,
            coordinator_id=BROKER_ID,
            members=[self._member(member, keys) for member, keys in sorted(members.items())],
            partitions=[
                group_admin_pb2.GroupPartition(
                    topic_name=self.name_of(key[0]),
                    topic_id=key[0],
                    partition=key[1],
                    committed_offset=offsets.get(key, -1),
                    log_start_offset=self.logs[key].start_offset,
                    high_watermark=self.logs[key].end_offset,
                    lag=self.logs[key].end_offset - offsets[key] if key in offsets else -1,
                    member_id=owners.get(key, ""),
                    commit_time_ms=7 if key in offsets else -1,
                    undecided=self.undecided.get((name, key)),
                )
                for key in keys
            ],
        )

    def _member(self, member_id: str, keys: list[Key]) -> group_admin_pb2.MemberDescription:
        return group_admin_pb2.MemberDescription(
            member_id=member_id,
            client_id="till",
            address="127.0.0.1:5000",
            member_epoch=3,
            subscription=groups_pb2.Subscription(topics=sorted(self.topics)),
            assigned=[
                groups_pb2.AssignedPartition(
                    topic_id=topic_id, partition=partition, topic_name=self.name_of(topic_id)
                )
                for topic_id, partition in keys
            ],
            target=[
                common_pb2.TopicPartitions(topic_id=topic_id, partitions=[partition])
                for topic_id, partition in keys
            ],
            silence_ms=40,
        )

    def alter_offsets(self, data: bytes) -> bytes:
        request = group_admin_pb2.AlterGroupOffsetsRequest.FromString(data)
        response = group_admin_pb2.AlterGroupOffsetsResponse
        code = self._failure()
        if code is None and self.members.get(request.group):
            code = ErrorCode.GROUP_NOT_EMPTY
        if code is not None:
            return response(error=error(code)).SerializeToString()
        offsets = self.offsets.get(request.group, {})
        results, is_right = [], True
        for wanted in request.offsets:
            key = (wanted.topic_id, wanted.partition)
            log = self.logs[key]
            is_held = log.start_offset <= wanted.committed_offset <= log.end_offset
            is_right = is_right and is_held
            results.append(
                group_admin_pb2.AlteredOffset(
                    partition=common_pb2.TopicPartition(topic_id=key[0], partition=key[1]),
                    error=None if is_held else error(ErrorCode.OFFSET_OUT_OF_RANGE),
                    previous_offset=offsets.get(key, -1),
                )
            )
        if is_right and not request.validate_only:
            for wanted in request.offsets:
                place = self.offsets.setdefault(request.group, {})
                place[wanted.topic_id, wanted.partition] = wanted.committed_offset
        refused = None if is_right else error(ErrorCode.OFFSET_OUT_OF_RANGE)
        return response(error=refused, results=results).SerializeToString()

    def delete_offsets(self, data: bytes) -> bytes:
        request = group_admin_pb2.DeleteGroupOffsetsRequest.FromString(data)
        results = []
        failure = self._failure()
        for topic in request.topics:
            for partition in topic.partitions:
                code = failure
                if code is None and self.members.get(request.group):
                    code = ErrorCode.GROUP_NOT_EMPTY
                if code is None and not request.validate_only:
                    self.offsets.get(request.group, {}).pop((topic.topic_id, partition), None)
                results.append(
                    group_admin_pb2.DeletedOffset(
                        partition=common_pb2.TopicPartition(
                            topic_id=topic.topic_id, partition=partition
                        ),
                        error=None if code is None else error(code),
                    )
                )
        return group_admin_pb2.DeleteGroupOffsetsResponse(results=results).SerializeToString()

    def delete_groups(self, data: bytes) -> bytes:
        request = group_admin_pb2.DeleteGroupsRequest.FromString(data)
        results = []
        failure = self._failure()
        for name in request.groups:
            code = failure
            if code is None and name not in self.known():
                code = ErrorCode.GROUP_NOT_FOUND
            if code is None and self.members.get(name):
                code = ErrorCode.GROUP_NOT_EMPTY
            if code is None and not request.validate_only:
                del self.offsets[name]
            results.append(
                group_admin_pb2.DeleteGroupResult(
                    group=name, error=None if code is None else error(code)
                )
            )
        return group_admin_pb2.DeleteGroupsResponse(results=results).SerializeToString()

    def remove_members(self, data: bytes) -> bytes:
        request = group_admin_pb2.RemoveMembersRequest.FromString(data)
        members = self.members.get(request.group, {})
        chosen = list(request.member_ids) or list(members)
        removed = [each for each in chosen if members.pop(each, None) is not None]
        return group_admin_pb2.RemoveMembersResponse(removed_member_ids=removed).SerializeToString()

    def find_coordinators(self, data: bytes) -> bytes:
        request = coordinator_pb2.FindCoordinatorsRequest.FromString(data)
        failure = self._failure()
        return coordinator_pb2.FindCoordinatorsResponse(
            coordinators=[
                coordinator_pb2.CoordinatorPlace(key=key, error=error(failure), broker_id=-1)
                if failure is not None
                else coordinator_pb2.CoordinatorPlace(
                    key=key, broker_id=BROKER_ID, address=self.address
                )
                for key in request.keys
            ]
        ).SerializeToString()

    def fetch_offsets(self, data: bytes) -> bytes:
        request = groups_pb2.FetchOffsetsRequest.FromString(data)
        return groups_pb2.FetchOffsetsResponse(
            offsets=[
                groups_pb2.CommittedOffset(
                    topic_id=topic_id,
                    partition=partition,
                    committed_offset=offset,
                    leader_epoch=-1,
                    metadata="noted",
                )
                for (topic_id, partition), offset in self.offsets.get(request.group, {}).items()
            ]
        ).SerializeToString()

    def _failure(self) -> ErrorCode | None:
        return self.failures.pop(0) if self.failures else None


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, server: GroupServer) -> None:
        self._server = server
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            calls.LIST_GROUPS: server.list_groups,
            calls.DESCRIBE_GROUPS: server.describe_groups,
            calls.ALTER_OFFSETS: server.alter_offsets,
            calls.DELETE_OFFSETS: server.delete_offsets,
            calls.DELETE_GROUPS: server.delete_groups,
            calls.REMOVE_MEMBERS: server.remove_members,
            FIND_COORDINATORS: server.find_coordinators,
            FETCH_OFFSETS: server.fetch_offsets,
        }

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            return None

        def reply(data: bytes, context: Any) -> bytes:
            del context
            self._server.asked.append(method.rpartition("/")[2])
            return handler(data)

        return grpc.unary_unary_rpc_method_handler(reply)
