"""Groups on whole nodes of a simulated cluster: a caller that finds coordinators, and members."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import Message

from tests.server.support.cluster_in_world import Cluster
from tidelog.v1 import (
    admin_pb2,
    common_pb2,
    coordinator_pb2,
    errors_pb2,
    group_admin_pb2,
    groups_pb2,
    metadata_pb2,
    produce_pb2,
    topic_admin_pb2,
)
from tidelog.wire.batch import encode_batch, read_header, route_sum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

ELSEWHERE = (
    errors_pb2.ERROR_CODE_NOT_COORDINATOR,
    errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
)
TRIES = 400
CALL_S = 5.0
Owned = dict[tuple[str, int], int]
"""Topic and partition → partition_assignment_epoch."""


class Groups:
    """A client of groups that looks its coordinators up, and again when they move."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic_ids: dict[str, bytes] = {}

    def living(self) -> list[int]:
        """Nodes whose process runs."""
        return [number for number, node in self.cluster.nodes.items() if node.node is not None]

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates the group; waits until there is one."""
        request = coordinator_pb2.FindCoordinatorsRequest(
            kind=coordinator_pb2.COORDINATOR_KIND_GROUP, keys=[group]
        ).SerializeToString()
        for attempt in range(TRIES):
            living = self.living()
            try:
                data = await self.cluster.call(
                    living[attempt % len(living)],
                    "CoordinatorService/FindCoordinators",
                    request,
                    CALL_S,
                )
            except TidelogError:
                await asyncio.sleep(0.1)
                continue
            (place,) = coordinator_pb2.FindCoordinatorsResponse.FromString(data).coordinators
            if not place.HasField("error") and place.broker_id in living:
                return place.broker_id
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody coordinates {group}")

    async def call(
        self, group: str, method: str, request: Message, service: str = "GroupService"
    ) -> bytes:
        """At the coordinator, again and again while that is safe and it is elsewhere."""
        for _ in range(TRIES):
            number = await self.coordinator(group)
            try:
                data = await self.cluster.call(
                    number, f"{service}/{method}", request.SerializeToString(), CALL_S
                )
            except TidelogError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)
                continue
            head = groups_pb2.CommitOffsetsResponse.FromString(data)
            if head.error.code not in ELSEWHERE:
                return data
            await asyncio.sleep(0.1)
        raise AssertionError(f"{method} of {group} is never answered")

    async def heartbeat(
        self, request: groups_pb2.GroupHeartbeatRequest
    ) -> groups_pb2.GroupHeartbeatResponse:
        """One heartbeat, answered."""
        data = await self.call(request.group, "GroupHeartbeat", request)
        return groups_pb2.GroupHeartbeatResponse.FromString(data)

    async def commit(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member: "Member | None" = None,
    ) -> list[int]:
        """Error codes, one for each offset; a refusal of the whole is raised."""
        request = groups_pb2.CommitOffsetsRequest(group=group, member_epoch=-1)
        if member is not None:
            request.member_id, request.member_epoch = member.member_id, member.epoch
        for (topic, partition), offset in offsets.items():
            request.offsets.add(
                topic_id=await self.topic_id(topic),
                partition=partition,
                committed_offset=offset,
                leader_epoch=-1,
            )
        data = await self.call(group, "CommitOffsets", request)
        answer = groups_pb2.CommitOffsetsResponse.FromString(data)
        if answer.HasField("error"):
            raise refusal(answer.error)
        return [each.error.code for each in answer.results]

    async def committed(self, group: str) -> dict[tuple[bytes, int], int]:
        """All that the group has committed."""
        request = groups_pb2.FetchOffsetsRequest(group=group, member_epoch=-1)
        data = await self.call(group, "FetchOffsets", request)
        answer = groups_pb2.FetchOffsetsResponse.FromString(data)
        assert not answer.HasField("error"), answer.error
        return {(each.topic_id, each.partition): each.committed_offset for each in answer.offsets}

    async def stable(self, group: str) -> dict[tuple[bytes, int], int | ErrorCode]:
        """The same as whoever goes on from there asks for it."""
        request = groups_pb2.FetchOffsetsRequest(group=group, member_epoch=-1, require_stable=True)
        data = await self.call(group, "FetchOffsets", request)
        answer = groups_pb2.FetchOffsetsResponse.FromString(data)
        assert not answer.HasField("error"), answer.error
        return {
            (each.topic_id, each.partition): ErrorCode(each.error.code)
            if each.HasField("error")
            else each.committed_offset
            for each in answer.offsets
        }

    async def admin(self, method: str, request: Message, number: int | None = None) -> bytes:
        """An operator's call, at any node."""
        chosen = self.living()[0] if number is None else number
        return await self.cluster.call(
            chosen, f"GroupAdminService/{method}", request.SerializeToString()
        )

    async def listed(self, number: int | None = None) -> list[group_admin_pb2.GroupListing]:
        """All groups, page by page."""
        found: list[group_admin_pb2.GroupListing] = []
        after = ""
        while True:
            request = group_admin_pb2.ListGroupsRequest(after_name=after, max_groups=400)
            data = await self.admin("ListGroups", request, number)
            page = group_admin_pb2.ListGroupsResponse.FromString(data)
            assert page.missing_coordinators == 0, page
            found += page.groups
            after = page.next_after_name
            if not after:
                return found

    async def described(
        self, group: str, number: int | None = None
    ) -> group_admin_pb2.GroupDescription:
        """The group as an operator sees it."""
        request = group_admin_pb2.DescribeGroupsRequest(groups=[group])
        data = await self.admin("DescribeGroups", request, number)
        (found,) = group_admin_pb2.DescribeGroupsResponse.FromString(data).groups
        return found

    async def topic(self, name: str, partitions: int, *, replicas: int = 1) -> bytes:
        """A new topic's id."""
        new = admin_pb2.NewTopic(name=name, partition_count=partitions, replication_factor=replicas)
        request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
        data = await self.cluster.call(1, "AdminService/CreateTopics", request)
        (made,) = admin_pb2.CreateTopicsResponse.FromString(data).results
        assert not made.HasField("error"), made
        self.topic_ids[name] = made.topic_id
        return made.topic_id

    async def topic_id(self, name: str) -> bytes:
        """Of a topic that was created here."""
        return self.topic_ids[name]

    async def produce(self, name: str, partition: int, count: int) -> None:
        """So many records, at the leader."""
        topic_id = TopicId(self.topic_ids[name])
        batch = encode_batch([(1, b"k", b"v", ())] * count)
        request = produce_pb2.ProduceRequest(acks=produce_pb2.ACKS_ALL)
        request.batches.add(
            topic_id=topic_id,
            partition=partition,
            leader_epoch=-1,
            batch=batch,
            route_sum=route_sum(topic_id, partition, read_header(batch).crc),
        )
        data = await self.cluster.call(
            await self.leader(name, partition),
            "ProduceService/Produce",
            request.SerializeToString(),
        )
        (told,) = produce_pb2.ProduceResponse.FromString(data).acknowledgements
        assert not told.HasField("error"), told

    async def trim(self, name: str, partition: int, before_offset: int) -> None:
        """Delete what is below, at the leader."""
        request = topic_admin_pb2.DeleteRecordsRequest()
        point = request.points.add(before_offset=before_offset)
        point.partition.topic_id, point.partition.partition = self.topic_ids[name], partition
        data = await self.cluster.call(
            await self.leader(name, partition),
            "TopicAdminService/DeleteRecords",
            request.SerializeToString(),
        )
        (told,) = topic_admin_pb2.DeleteRecordsResponse.FromString(data).results
        assert not told.HasField("error"), told

    async def leader(self, name: str, partition: int) -> int:
        """Who leads it, as the first node knows."""
        asked = metadata_pb2.GetMetadataRequest(topic_names=[name]).SerializeToString()
        data = await self.cluster.call(1, "MetadataService/GetMetadata", asked)
        (topic,) = metadata_pb2.GetMetadataResponse.FromString(data).topics
        return topic.partitions[partition].leader_id


class Member:
    """A member that does at once what it is told."""

    def __init__(
        self,
        groups: Groups,
        group: str,
        name: str,
        topics: Iterable[str],
        *,
        pattern: str = "",
        session_ms: int = 6_000,
    ) -> None:
        self.groups = groups
        self.group = group
        self.member_id = name
        self.subscription = groups_pb2.Subscription(topics=topics, topic_pattern=pattern)
        self.session_ms = session_ms
        self.epoch = 0
        self.sequence = 0
        self.owned: Owned = {}
        self.last: groups_pb2.GroupHeartbeatResponse | None = None
        self._ids: dict[str, bytes] = {}
        self._has_reported = True

    async def join(self) -> None:
        """The first heartbeat."""
        self.epoch, self.owned = 0, {}
        request = self._request()
        request.subscription.CopyFrom(self.subscription)
        request.session_timeout_ms = self.session_ms
        request.owned.SetInParent()
        await self._send(request)

    async def beat(self) -> None:
        """Report, and take what comes; a refusal is raised."""
        request = self._request()
        if not self._has_reported:
            request.owned.topics.extend(self._owned_topics())
            self._has_reported = True
        await self._send(request)

    async def leave(self) -> None:
        """For good."""
        self.epoch = -1
        await self._send(self._request())
        self.owned = {}

    def _request(self) -> groups_pb2.GroupHeartbeatRequest:
        self.sequence += 1
        return groups_pb2.GroupHeartbeatRequest(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            heartbeat_sequence=self.sequence,
        )

    async def _send(self, request: groups_pb2.GroupHeartbeatRequest) -> None:
        answer = self.last = await self.groups.heartbeat(request)
        if answer.HasField("error"):
            raise refusal(answer.error)
        self.epoch = answer.member_epoch
        if answer.HasField("assignment"):
            before = self.owned
            self.owned = {
                (each.topic_name, each.partition): each.partition_assignment_epoch
                for each in answer.assignment.partitions
            }
            self._ids.update(
                (each.topic_name, each.topic_id) for each in answer.assignment.partitions
            )
            self._has_reported = self.owned.keys() == before.keys()

    def _owned_topics(self) -> list[common_pb2.TopicPartitions]:
        found: dict[str, common_pb2.TopicPartitions] = {}
        for topic, partition in sorted(self.owned):
            each = found.setdefault(topic, common_pb2.TopicPartitions(topic_id=self._ids[topic]))
            each.partitions.append(partition)
        return list(found.values())


def refusal(error: errors_pb2.Error) -> TidelogError:
    """As an exception."""
    return TidelogError(
        ErrorCode(error.code), tried=error.tried, happened=error.happened, hint=error.hint
    )


async def settle(members: Sequence[Member], rounds: int = 50) -> None:
    """Beat in turns until two rounds in a row bring nothing new."""
    calm = 0
    for _ in range(rounds):
        before = [(dict(each.owned), each.epoch) for each in members]
        for each in members:
            await each.beat()
        await asyncio.sleep(0.2)
        same = before == [(each.owned, each.epoch) for each in members]
        calm = calm + 1 if same else 0
        if calm == 3:
            return
    raise AssertionError([(each.member_id, each.epoch, each.owned) for each in members])
