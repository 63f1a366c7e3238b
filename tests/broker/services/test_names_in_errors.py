"""Errors of calls about a topic's partitions name the topic: its id says nothing to people."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

import pytest

from tests.broker.support.node_fixtures import with_node
from tests.broker.support.node_in_world import PlainClient, partition_batch
from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.state.messages import Caller
from tidelog.broker.log.producer_state import WINDOW_BATCHES
from tidelog.broker.services.groups.handler import GroupsHandler
from tidelog.broker.shared.meter import Meter
from tidelog.v1 import coordinator_pb2, errors_pb2, group_admin_pb2, groups_pb2, producer_id_pb2
from tidelog.wire.batch import encode_batch
from tidelog.wire.calls.groups import CommitAnswer, CommitOffsets, OffsetToCommit
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

Told = Callable[[PlainClient, bytes], Awaitable[list[errors_pb2.Error]]]


def numbered(producer_id: int, sequence: int, *, epoch: int = 0, records: int = 1) -> bytes:
    return encode_batch(
        [(1, None, b"v", ())] * records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def of_writes(client: PlainClient, topic_id: bytes) -> list[errors_pb2.Error]:
    """A gap, an overlap, a duplicate, an old epoch, an id that was made up, damage."""
    raw = await client.call("ProducerIdService/AllocateProducerId", b"")
    given = producer_id_pb2.AllocateProducerIdResponse.FromString(raw).producer_id
    batches = [numbered(given, 0, epoch=1)]
    batches += [numbered(given, 1 + each, epoch=1) for each in range(WINDOW_BATCHES)]
    batches += [numbered(given, 50, epoch=1), numbered(given, WINDOW_BATCHES, epoch=1, records=5)]
    batches += [numbered(given, 0, epoch=1), numbered(given, 0), numbered(given + 10**9, 0)]
    damaged = bytearray(numbered(given, 9, epoch=1))
    damaged[-1] ^= 1
    answers = [await client.produce(partition_batch(topic_id, 0, each)) for each in batches]
    answers.append(await client.produce(partition_batch(topic_id, 0, bytes(damaged))))
    return [answer.error for (answer,) in answers if answer.HasField("error")]


async def of_commits(client: PlainClient, topic_id: bytes) -> list[errors_pb2.Error]:
    """Of a partition that is not there."""
    find = coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=["g"]
    )
    await client.call("CoordinatorService/FindCoordinators", find.SerializeToString())
    request = groups_pb2.CommitOffsetsRequest(group="g", member_epoch=-1)
    request.offsets.add(topic_id=topic_id, partition=7, committed_offset=1, leader_epoch=-1)
    raw = await client.call("GroupService/CommitOffsets", request.SerializeToString())
    answer = groups_pb2.CommitOffsetsResponse.FromString(raw)
    return [each.error for each in answer.results if each.HasField("error")]


async def of_altered_offsets(client: PlainClient, topic_id: bytes) -> list[errors_pb2.Error]:
    """Above the log's end, and of a partition that is not there."""
    request = group_admin_pb2.AlterGroupOffsetsRequest(group="g")
    for partition in (0, 7):
        request.offsets.add(topic_id=topic_id, partition=partition, committed_offset=1_000)
    raw = await client.call("GroupAdminService/AlterGroupOffsets", request.SerializeToString())
    answer = group_admin_pb2.AlterGroupOffsetsResponse.FromString(raw)
    return [each.error for each in answer.results if each.HasField("error")]


CALLS: Final[dict[str, tuple[Told, int]]] = {
    "Produce": (of_writes, 6),
    "CommitOffsets": (of_commits, 1),
    "AlterGroupOffsets": (of_altered_offsets, 2),
}
"""With how many errors each has to tell."""


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_error_tells_a_topic_s_id_whose_name_is_known(name: str) -> None:
    told, count = CALLS[name]

    async def work(client: PlainClient) -> None:
        topic_id = await client.create_topic("orders")
        errors = await told(client, topic_id)
        assert len(errors) == count, errors
        for error in errors:
            assert topic_id.hex() not in f"{error.tried} {error.happened} {error.hint}", error
            assert "orders" in f"{error.tried} {error.happened}", error

    with_node(work)


class OneCoordinator:
    """Of every group; refuses the only offset of a commit in its own words."""

    def of(self, group: str) -> "OneCoordinator":
        del group
        return self

    async def ask(self, request: CommitOffsets, caller: Caller) -> CommitAnswer:
        del caller
        (offset,) = request.offsets
        error = TidelogError(
            ErrorCode.STALE_ASSIGNMENT,
            tried="commit offsets",
            happened=f"{offset.key} is not owned by the member any more",
        )
        return CommitAnswer(errors=(error,))


def test_what_the_coordinator_refuses_is_told_by_the_topic_s_name() -> None:
    key = PartitionKey(TopicId(b"t" * 16), PartitionId(0))
    offset = OffsetToCommit(key=key, committed_offset=Offset(1), leader_epoch=LeaderEpoch(0))
    request = CommitOffsets(group="g", offsets=(offset,))
    coordinators = cast(GroupCoordinators, OneCoordinator())
    handler = GroupsHandler(coordinators, Meter(()), lambda _, number: f"orders-{number}")
    (error,) = asyncio.run(handler.commit(request)).errors
    assert error is not None
    assert error.code is ErrorCode.STALE_ASSIGNMENT
    assert error.happened == "orders-0 is not owned by the member any more"
