"""Groups on a real process: kill -9 amid commits, and streams of the easy path."""

import queue
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import grpc
import pytest

from tests.support.node import NodeProcess, node
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    coordinator_pb2,
    coordinator_pb2_grpc,
    errors_pb2,
    group_admin_pb2,
    group_admin_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
    records_pb2,
    records_pb2_grpc,
    subscribe_pb2,
    subscribe_pb2_grpc,
)

__all__ = ["node"]

pytestmark = [pytest.mark.slow, pytest.mark.live]

AnswerT = TypeVar(
    "AnswerT",
    groups_pb2.GroupHeartbeatResponse,
    groups_pb2.CommitOffsetsResponse,
    groups_pb2.FetchOffsetsResponse,
)


def topic(address: str, name: str, partitions: int) -> bytes:
    """A new topic's id."""
    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        new = admin_pb2.NewTopic(name=name, partition_count=partitions)
        answer = stub.CreateTopics(
            admin_pb2.CreateTopicsRequest(topics=[new]), timeout=HANG_SECONDS, wait_for_ready=True
        )
        return answer.results[0].topic_id


def found(channel: grpc.Channel, group: str) -> None:
    """The coordinator is there; there is one broker only."""
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    request = coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=[group]
    )

    def is_found() -> bool:
        answer = stub.FindCoordinators(request, timeout=HANG_SECONDS, wait_for_ready=True)
        return not answer.coordinators[0].HasField("error")

    wait_until(is_found, told=lambda: "nobody coordinates the group")


def settled(call: Callable[[], AnswerT]) -> AnswerT:
    """The answer of a coordinator that has loaded."""

    def answered() -> AnswerT | None:
        answer = call()
        is_loading = answer.error.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
        return None if is_loading else answer

    answer = wait_until(answered)
    assert answer is not None
    return answer


def beat(
    stub: groups_pb2_grpc.GroupServiceStub, request: groups_pb2.GroupHeartbeatRequest
) -> groups_pb2.GroupHeartbeatResponse:
    """One heartbeat, numbered."""
    request.heartbeat_sequence += 1
    answer = settled(
        partial(stub.GroupHeartbeat, request, timeout=HANG_SECONDS, wait_for_ready=True)
    )
    assert not answer.HasField("error"), answer
    request.member_epoch = answer.member_epoch
    return answer


def member(name: str) -> groups_pb2.GroupHeartbeatRequest:
    """The first heartbeat of a member of `g`."""
    request = groups_pb2.GroupHeartbeatRequest(group="g", member_id=name)
    request.subscription.topics.append("letters")
    request.owned.SetInParent()
    return request


def test_members_and_commits_outlive_kill_9(node: NodeProcess) -> None:
    topic_id = topic(node.bootstrap, "letters", 2)
    members = [member("m1"), member("m2")]
    with grpc.insecure_channel(node.bootstrap) as channel:
        found(channel, "g")
        stub = groups_pb2_grpc.GroupServiceStub(channel)
        owned = dict.fromkeys(("m1", "m2"), 2)

        def turn() -> None:
            for request in members:
                answer = beat(stub, request)
                if answer.HasField("assignment"):
                    mine = [each.partition for each in answer.assignment.partitions]
                    owned[request.member_id] = len(mine)
                    request.ClearField("owned")
                    request.owned.SetInParent()
                    if mine:
                        request.owned.topics.add(topic_id=topic_id, partitions=sorted(mine))

        wait_until(lambda: owned == {"m1": 1, "m2": 1}, turn=turn, told=lambda: owned)
    commit = groups_pb2.CommitOffsetsRequest(group="loose", member_epoch=-1)
    commit.offsets.add(topic_id=topic_id, leader_epoch=-1)
    for offset in range(1, 4):
        commit.offsets[0].committed_offset = offset
        with grpc.insecure_channel(node.bootstrap) as channel:
            stub = groups_pb2_grpc.GroupServiceStub(channel)
            answered = settled(
                partial(stub.CommitOffsets, commit, timeout=HANG_SECONDS, wait_for_ready=True)
            )
            assert not answered.results[0].HasField("error"), answered
        node.restart()
        with grpc.insecure_channel(node.bootstrap) as channel:
            stub = groups_pb2_grpc.GroupServiceStub(channel)
            asked = groups_pb2.FetchOffsetsRequest(group="loose", member_epoch=-1)
            stored = settled(
                partial(stub.FetchOffsets, asked, timeout=HANG_SECONDS, wait_for_ready=True)
            )
            assert [each.committed_offset for each in stored.offsets] == [offset]
            for request in members:
                epoch = request.member_epoch
                assert beat(stub, request).member_epoch == epoch, "it is a member still"


def test_a_stream_of_the_easy_path_goes_on_where_its_group_stopped(node: NodeProcess) -> None:
    topic(node.bootstrap, "letters", 1)
    with grpc.insecure_channel(node.bootstrap) as channel:
        records = records_pb2_grpc.RecordsServiceStub(channel)
        request = records_pb2.ProduceRecordsRequest(
            topic="letters",
            partition=0,
            records=[records_pb2.Record(value=b"%d" % number) for number in range(4)],
        )
        records.ProduceRecords(request, timeout=HANG_SECONDS, wait_for_ready=True)
    assert read(node, acknowledged=3) == [b"0", b"1", b"2", b"3"]
    # The member leaves behind the end of its stream; one that is killed first waits out a session.
    wait_empty(node, "easy")
    node.restart()
    assert read(node, acknowledged=4) == [b"3"]


def wait_empty(node: NodeProcess, group: str) -> None:
    """Until the group has no member."""
    with grpc.insecure_channel(node.bootstrap) as channel:
        stub = group_admin_pb2_grpc.GroupAdminServiceStub(channel)
        asked = group_admin_pb2.DescribeGroupsRequest(groups=[group])

        def is_empty() -> bool:
            told = stub.DescribeGroups(asked, timeout=HANG_SECONDS, wait_for_ready=True)
            return bool(told.groups[0].state == group_admin_pb2.GROUP_STATE_EMPTY)

        wait_until(is_empty)


def read(node: NodeProcess, *, acknowledged: int) -> list[bytes]:
    """The values up to the last one, of which all below the offset are acknowledged."""
    to_send: queue.SimpleQueue[subscribe_pb2.SubscribeRequest | None] = queue.SimpleQueue()
    begin = subscribe_pb2.SubscribeRequest()
    begin.begin.group, begin.begin.credit_records = "easy", 10
    begin.begin.topics.append("letters")
    begin.begin.start_at = subscribe_pb2.START_AT_EARLIEST
    to_send.put(begin)
    values: list[bytes] = []
    with grpc.insecure_channel(node.bootstrap) as channel:
        stub = subscribe_pb2_grpc.SubscribeServiceStub(channel)
        told = stub.Subscribe(iter(to_send.get, None), timeout=HANG_SECONDS, wait_for_ready=True)
        for response in told:
            values += [record.value for record in response.records.records]
            if values and values[-1] == b"3" and response.HasField("records"):
                done = subscribe_pb2.SubscribeRequest()
                done.acknowledge.positions.add(topic="letters", next_offset=acknowledged)
                to_send.put(done)
            if response.HasField("acknowledged"):
                assert not response.acknowledged.failures
                to_send.put(None)
    return values
