"""A node that stood still while others took over, and is asked before it knows: it led partitions,
coordinated groups, and was mostly the controller as well, which then believes its own heartbeats.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from tests.broker.support.node_in_world import partition_batch
from tests.server.cluster.test_replicas_in_world import isolate
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.v1 import (
    admin_pb2,
    coordinator_pb2,
    group_admin_pb2,
    groups_pb2,
    metadata_pb2,
    produce_pb2,
    producer_id_pb2,
    records_pb2,
)
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

OLD_OFFSET, NEW_OFFSET = 5, 50
STORED = 5
"""Records that the old leader took, and as many again the new one."""
PAUSE_S_MAX = 40.0
ASKED_MS = (0, 4, 8, 12, 30, 100, 300, 1_000)
"""When the woken node is asked: before its first heartbeat, after it, and when it surely knows."""
MOVED_ON = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNAVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.DEADLINE_EXCEEDED,
    }
)
"""What a client does not act on for good, or answers by looking for the leader."""


class Stage:
    """A topic with a partition that the node leads, a group that it coordinates, two producers."""

    def __init__(self, cluster: Cluster, *, is_controller: bool) -> None:
        self.cluster = cluster
        self.is_controller = is_controller
        self.old = self.new = self.coordinator = -1
        self.topic_id = b""
        self.partition = 0
        self.group = ""
        self.next_sequence = 0
        self.producer_ids: list[int] = []

    async def prepare(self) -> None:
        """Records and a commit of before."""
        new = admin_pb2.NewTopic(
            name="t", partition_count=9, replication_factor=3, configuration={"retention.ms": "-1"}
        )
        request = admin_pb2.CreateTopicsRequest(topics=[new])
        answer = admin_pb2.CreateTopicsResponse.FromString(
            await self.cluster.call(1, "AdminService/CreateTopics", request.SerializeToString())
        )
        self.topic_id = answer.results[0].topic_id
        metadata = await self._metadata(1)
        leaders = [each.leader_id for each in metadata.topics[0].partitions]
        for number in range(100):
            self.group = f"g{number}"
            self.old = await self._coordinator(1)
            if (self.old == metadata.controller_id) == self.is_controller and self.old in leaders:
                break
        self.partition = leaders.index(self.old)
        for _ in range(2):
            raw = await self._call(1, "ProducerIdService/AllocateProducerId", b"")
            answer_of = producer_id_pb2.AllocateProducerIdResponse.FromString
            self.producer_ids.append(answer_of(raw).producer_id)
        for _ in range(STORED):
            await self._until_done(self.old, self.produce_next)
        await self._until_done(self.old, lambda at: self.commit(at, OLD_OFFSET))

    async def replace(self, on_wake: Callable[[], None] = lambda: None) -> None:
        """The node stands still; others take over and go on; then it goes on as well."""
        process = self.cluster.nodes[self.old].process
        assert process is not None
        process.pause()
        self.other = 1 if self.old != 1 else 2
        async with asyncio.timeout(PAUSE_S_MAX):
            while True:
                await asyncio.sleep(0.2)
                metadata = await self._metadata(self.other)
                places = metadata.topics[0].partitions if metadata.topics else []
                self.new = places[self.partition].leader_id if places else self.old
                self.coordinator = await self._coordinator(self.other)
                if self.old not in (self.new, self.coordinator) and -1 not in (
                    self.new,
                    self.coordinator,
                ):
                    break
        for _ in range(STORED):
            await self._until_done(self.new, self.produce_next)
        await self._until_done(self.new, self.begin_late_producer)
        await self._until_done(self.coordinator, lambda at: self.commit(at, NEW_OFFSET))
        await self._until_done(self.coordinator, self.join)
        on_wake()
        process.resume()

    # -- calls: each gives the code of its error, 0: none ------------------------------------------

    async def produce_next(self, at: int) -> int:
        """The idempotent producer's next record, as plain records."""
        sequence = self.next_sequence
        request = records_pb2.ProduceRecordsRequest(
            topic="t",
            partition=self.partition,
            records=[records_pb2.Record(value=b"%d" % sequence)],
            timeout_ms=2_000,
            producer=records_pb2.ProducerIdentity(
                producer_id=self.producer_ids[0], producer_epoch=0, sequence=sequence
            ),
        )
        answer = records_pb2.ProduceRecordsResponse.FromString(
            await self._call(at, "RecordsService/ProduceRecords", request.SerializeToString())
        )
        code = answer.places[0].error.code
        if not code:
            # Asked several times at once: each that is stored is the same record.
            self.next_sequence = max(self.next_sequence, sequence + 1)
        return code

    async def begin_late_producer(self, at: int) -> int:
        """The first batch of a producer that the old leader never heard of."""
        return await self._produce_batch(at, 0)

    async def go_on_late(self, at: int) -> int:
        """Its second one."""
        return await self._produce_batch(at, 1)

    async def _produce_batch(self, at: int, sequence: int) -> int:
        batch = encode_batch(
            [(1, None, b"late", ())],
            producer_id=self.producer_ids[1],
            producer_epoch=0,
            base_sequence=sequence,
        )
        request = produce_pb2.ProduceRequest(
            batches=[partition_batch(self.topic_id, self.partition, batch)], timeout_ms=2_000
        )
        answer = produce_pb2.ProduceResponse.FromString(
            await self._call(at, "ProduceService/Produce", request.SerializeToString())
        )
        return answer.acknowledgements[0].error.code

    async def end(self, at: int) -> int | str:
        """ListOffsets LATEST."""
        request = metadata_pb2.ListOffsetsRequest()
        request.queries.add(
            topic_id=self.topic_id,
            partition=self.partition,
            leader_epoch=-1,
            spec=metadata_pb2.OFFSET_SPEC_LATEST,
        )
        answer = metadata_pb2.ListOffsetsResponse.FromString(
            await self._call(at, "MetadataService/ListOffsets", request.SerializeToString())
        )
        found = answer.answers[0]
        if not found.error.code and found.offset < 2 * STORED + 1:
            return f"the end is {found.offset}"
        return found.error.code

    async def commit(self, at: int, offset: int) -> int:
        """By nobody: only an empty group takes it."""
        request = groups_pb2.CommitOffsetsRequest(group=self.group, member_epoch=-1)
        request.offsets.add(topic_id=self.topic_id, committed_offset=offset, leader_epoch=-1)
        answer = groups_pb2.CommitOffsetsResponse.FromString(
            await self._call(at, "GroupService/CommitOffsets", request.SerializeToString())
        )
        return answer.error.code or answer.results[0].error.code

    async def join(self, at: int) -> int:
        """One member."""
        return await self._beat(at, 1, 0)

    async def beat(self, at: int) -> int:
        """The member lives."""
        return await self._beat(at, 2, 1)

    async def _beat(self, at: int, number: int, epoch: int) -> int:
        request = groups_pb2.GroupHeartbeatRequest(
            group=self.group, member_id="m", member_epoch=epoch, heartbeat_sequence=number
        )
        request.owned.SetInParent()
        request.subscription.topics.append("t")
        answer = groups_pb2.GroupHeartbeatResponse.FromString(
            await self._call(at, "GroupService/GroupHeartbeat", request.SerializeToString())
        )
        return answer.error.code

    async def committed(self, at: int) -> int | str:
        """FetchOffsets."""
        request = groups_pb2.FetchOffsetsRequest(group=self.group, member_epoch=-1)
        answer = groups_pb2.FetchOffsetsResponse.FromString(
            await self._call(at, "GroupService/FetchOffsets", request.SerializeToString())
        )
        found = [each.committed_offset for each in answer.offsets]
        if not answer.error.code and found != [NEW_OFFSET]:
            return f"{found} is committed"
        return answer.error.code

    async def describe(self, at: int) -> int | str:
        """DescribeGroups, which any broker answers: it asks the coordinator that it knows."""
        request = group_admin_pb2.DescribeGroupsRequest(groups=[self.group])
        answer = group_admin_pb2.DescribeGroupsResponse.FromString(
            await self._call(at, "GroupAdminService/DescribeGroups", request.SerializeToString())
        )
        found = answer.groups[0]
        if not found.error.code and len(found.members) != 1:
            return f"{len(found.members)} members"
        return found.error.code

    # -- the rest ----------------------------------------------------------------------------------

    async def _metadata(self, at: int) -> metadata_pb2.GetMetadataResponse:
        request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
        return metadata_pb2.GetMetadataResponse.FromString(
            await self._call(at, "MetadataService/GetMetadata", request.SerializeToString())
        )

    async def _coordinator(self, at: int) -> int:
        request = coordinator_pb2.FindCoordinatorsRequest(
            kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=[self.group]
        )
        answer = coordinator_pb2.FindCoordinatorsResponse.FromString(
            await self._call(at, "CoordinatorService/FindCoordinators", request.SerializeToString())
        )
        return answer.coordinators[0].broker_id

    async def _until_done(self, at: int, call: Callable[[int], Coroutine[Any, Any, int]]) -> None:
        for _ in range(200):
            if not await call(at):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("refused again and again")

    async def _call(self, at: int, method: str, message: bytes) -> bytes:
        return await self.cluster.call(at, method, message, seconds=12)


CALLS: dict[str, Callable[[Stage, int], Coroutine[Any, Any, int | str]]] = {
    "ProduceRecords": Stage.produce_next,
    "Produce": Stage.go_on_late,
    "ListOffsets": Stage.end,
    "FetchOffsets": Stage.committed,
    "GroupHeartbeat": Stage.beat,
    "DescribeGroups": Stage.describe,
}


def is_old_news(outcome: int | str) -> bool:
    """Whether a client would act for good on what is not so any more."""
    if isinstance(outcome, str):
        return True
    return outcome != 0 and ErrorCode(outcome) not in MOVED_ON


async def old_news(stage: Stage, calls: Iterable[str]) -> list[str]:
    """What the woken node tells, asked again and again from its first moment on."""
    told: list[str] = []

    async def ask(name: str, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        outcome = await CALLS[name](stage, stage.old)
        if is_old_news(outcome):
            text = outcome if isinstance(outcome, str) else ErrorCode(outcome).name
            told.append(f"{name} after {after_ms} ms: {text}")

    await asyncio.gather(*(ask(name, at_ms) for at_ms in ASKED_MS for name in calls))
    return told


@pytest.mark.parametrize("is_controller", [True, False])
@pytest.mark.parametrize("seed", [4, 6])
def test_a_woken_node_tells_nobody_for_good_what_was_so_before_it_slept(
    seed: int, is_controller: bool
) -> None:
    async def work(cluster: Cluster) -> None:
        stage = Stage(cluster, is_controller=is_controller)
        await stage.prepare()
        await stage.replace()
        told = await old_news(stage, CALLS)
        assert not told, "; ".join(told)

    three(seed=seed, brokers_expected=3).run(work)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_woken_node_that_hears_of_no_other_does_not_count_its_own_word_as_a_controller_s(
    is_controller: bool,
) -> None:
    async def work(cluster: Cluster) -> None:
        stage = Stage(cluster, is_controller=is_controller)
        await stage.prepare()
        await stage.replace(on_wake=lambda: isolate(cluster, stage.old))
        # Where no controller is in reach at all it tells the end that it knows.
        told = await old_news(stage, CALLS.keys() - {"ListOffsets"})
        assert not told, "; ".join(told)

    # With this seed a controller that wakes answers its own heartbeat before it looks at the time.
    three(seed=4, brokers_expected=3).run(work)
