"""The easy path on whole nodes: one stream is a member, records come, acknowledgements commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.broker.support.group_world import CALL_S, Groups, Member, settle
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.ports import Stream
from tidelog.v1 import common_pb2, subscribe_pb2, topic_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.slow
EARLIEST = subscribe_pb2.START_AT_EARLIEST
LATEST = subscribe_pb2.START_AT_LATEST


class Subscriber:
    """One stream; collects what comes."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.records: list[tuple[str, int, int]] = []
        """Topic, partition, offset."""
        self.assigned: list[tuple[str, int]] | None = None
        self.revoked: list[tuple[str, int]] = []
        self.is_idle = False
        self.acknowledged: dict[int, list[int]] = {}
        """Correlation id → codes of failures."""
        self.error: TidelogError | None = None
        self.news = asyncio.Event()

    async def listen(self) -> None:
        """Until the stream ends."""
        try:
            while (data := await self.stream.receive()) is not None:
                self._take(subscribe_pb2.SubscribeResponse.FromString(data))
                self.news.set()
        except TidelogError as error:
            self.error = error
        self.news.set()

    def _take(self, told: subscribe_pb2.SubscribeResponse) -> None:
        match told.WhichOneof("response"):
            case "records":
                part = told.records
                assert part.records
                self.records += [
                    (part.topic, part.partition, record.offset) for record in part.records
                ]
            case "assignment":
                self.assigned = [(each.topic, each.partition) for each in told.assignment.assigned]
                self.revoked += [(each.topic, each.partition) for each in told.assignment.revoked]
                self.is_idle = told.assignment.is_idle
            case "acknowledged":
                codes = [int(each.error.code) for each in told.acknowledged.failures]
                self.acknowledged[told.acknowledged.correlation_id] = codes

    @property
    def has_ended(self) -> bool:
        """With an error."""
        return self.error is not None

    @property
    def code(self) -> ErrorCode | None:
        """Why it has ended; None: it goes on, or ended in order."""
        return None if self.error is None else self.error.code

    async def until(self, condition: object) -> None:
        """Wait until it holds, or the stream ends."""
        assert callable(condition)
        async with asyncio.timeout(60):
            while not condition() and self.error is None:
                self.news.clear()
                await self.news.wait()

    async def acknowledge(
        self, *places: tuple[str, int, int], correlation_id: int = 1
    ) -> list[int]:
        """Topic, partition, next offset; the codes of what was not stored."""
        request = subscribe_pb2.SubscribeRequest()
        request.acknowledge.correlation_id = correlation_id
        for topic, partition, offset in places:
            request.acknowledge.positions.add(topic=topic, partition=partition, next_offset=offset)
        self.acknowledged.pop(correlation_id, None)
        await self.stream.send(request.SerializeToString())
        await self.until(lambda: correlation_id in self.acknowledged)
        return self.acknowledged.get(correlation_id, [-1])

    async def credit(self, records: int) -> None:
        """More may come."""
        request = subscribe_pb2.SubscribeRequest()
        request.credit.records = records
        await self.stream.send(request.SerializeToString())


@asynccontextmanager
async def subscribed(
    cluster: Cluster,
    number: int = 1,
    *,
    group: str = "g",
    topics: tuple[str, ...] = ("t",),
    pattern: str = "",
    start_at: subscribe_pb2.StartAt.ValueType = EARLIEST,
    credit: int = 1_000,
    timeout_ms: int = 0,
    instance: str = "",
    isolation_level: common_pb2.IsolationLevel.ValueType = common_pb2.ISOLATION_LEVEL_UNSPECIFIED,
) -> AsyncIterator[Subscriber]:
    """A stream at a node; ended in order at the end."""
    stream = cluster.network.stream(
        cluster.nodes[number].address, "/tidelog.v1.SubscribeService/Subscribe"
    )
    request = subscribe_pb2.SubscribeRequest()
    begin = request.begin
    begin.group, begin.topic_pattern = group, pattern
    begin.topics.extend(topics)
    begin.start_at, begin.credit_records = start_at, credit
    begin.acknowledge_timeout_ms, begin.group_instance_id = timeout_ms, instance
    begin.isolation_level = isolation_level
    await stream.send(request.SerializeToString())
    subscriber = Subscriber(stream)
    task = asyncio.create_task(subscriber.listen())
    try:
        yield subscriber
    finally:
        if subscriber.error is None:
            await stream.end_sending()
        await task


def test_records_come_from_leaders_on_all_brokers_and_acknowledgements_are_commits() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 3)
        for partition in range(3):
            await groups.produce("t", partition, 5)
        async with subscribed(cluster) as reader:
            await reader.until(lambda: len(reader.records) == 15)
            assert reader.assigned == [("t", 0), ("t", 1), ("t", 2)]
            for partition in range(3):
                offsets = [each[2] for each in reader.records if each[1] == partition]
                assert offsets == list(range(5)), "in ascending order, each once"
            assert await reader.acknowledge(("t", 0, 5), ("t", 1, 2)) == []
            await groups.produce("t", 0, 2)
            await reader.until(lambda: ("t", 0, 6) in reader.records)
        committed = await groups.committed("g")
        assert committed == {(topic_id, 0): 5, (topic_id, 1): 2, (topic_id, 2): 0}
        async with subscribed(cluster, 2) as again:
            await again.until(lambda: len(again.records) == 10)
            assert sorted(again.records) == [
                *(("t", 0, offset) for offset in (5, 6)),
                *(("t", 1, offset) for offset in (2, 3, 4)),
                *(("t", 2, offset) for offset in range(5)),
            ]

    three(brokers_expected=3).run(work)


def test_what_was_acknowledged_before_the_sending_ended_is_stored_and_answered() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 1)
        await groups.produce("t", 0, 20)
        async with subscribed(cluster) as reader:
            await reader.until(lambda: len(reader.records) == 20)
            for number in range(1, 21):
                request = subscribe_pb2.SubscribeRequest()
                request.acknowledge.correlation_id = number
                request.acknowledge.positions.add(topic="t", partition=0, next_offset=number)
                await reader.stream.send(request.SerializeToString())
            await groups.produce("t", 0, 5)
        assert reader.error is None
        assert list(reader.acknowledged) == list(range(1, 21)), "each once, in their order"
        assert not any(reader.acknowledged.values())
        assert await groups.committed("g") == {(topic_id, 0): 20}

    three(brokers_expected=3).run(work)


def test_two_streams_share_a_group_and_a_partition_waits_for_acknowledgements() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2)
        for partition in range(2):
            await groups.produce("t", partition, 3)
        async with subscribed(cluster, 1) as first:
            await first.until(lambda: len(first.records) == 6)
            async with subscribed(cluster, 2) as second:
                await first.until(lambda: len(first.revoked) == 1)
                await asyncio.sleep(3)
                assert second.assigned in (None, []), "it is held back"
                assert second.records == []
                ((topic, partition),) = first.revoked
                assert await first.acknowledge((topic, partition, 2)) == []
                assert await first.acknowledge((topic, partition, 3)) == []
                await second.until(lambda: second.assigned == [(topic, partition)])
                await groups.produce("t", partition, 1)
                await second.until(lambda: len(second.records) == 1)
                assert second.records == [(topic, partition, 3)]
                codes = await first.acknowledge((topic, partition, 3))
                assert codes == [ErrorCode.STALE_ASSIGNMENT]
            await first.until(lambda: first.assigned == [("t", 0), ("t", 1)])

    three(brokers_expected=3).run(work)


def test_nothing_is_sent_without_credit_and_a_slow_client_is_told_so() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 10)
        async with subscribed(cluster, credit=0, timeout_ms=5_000) as reader:
            await reader.until(lambda: reader.assigned == [("t", 0)])
            await asyncio.sleep(2)
            assert reader.records == []
            await reader.credit(4)
            await reader.until(lambda: len(reader.records) == 4)
            await asyncio.sleep(1)
            assert len(reader.records) == 4
            assert await reader.acknowledge(("t", 0, 5)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
            assert await reader.acknowledge(("t", 0, 4)) == []
            await asyncio.sleep(10)
            assert not reader.has_ended, "all is acknowledged"
            await reader.credit(1)
            await reader.until(lambda: False)
            assert reader.code is ErrorCode.DEADLINE_EXCEEDED
        await asyncio.sleep(1)
        assert (await groups.described("g")).members == []

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_a_broken_stream_leaves_at_once_and_another_goes_on() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 3)
        async with subscribed(cluster) as reader:
            await reader.until(lambda: len(reader.records) == 3)
            await reader.acknowledge(("t", 0, 1))
            reader.stream.cancel()
            await reader.until(lambda: False)
        async with subscribed(cluster) as other:
            await other.until(lambda: len(other.records) == 2)
            assert other.records == [("t", 0, 1), ("t", 0, 2)]

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_a_static_member_whose_broker_died_goes_on_at_once_through_another() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2, replicas=3)
        await groups.produce("t", 0, 3)
        coordinator = await groups.coordinator("g")
        first, second = (each for each in groups.living() if each != coordinator)
        async with subscribed(cluster, first, instance="i") as reader:
            await reader.until(lambda: len(reader.records) == 3)
            await reader.acknowledge(("t", 0, 1))
            cluster.nodes[first].kill()
            await reader.until(lambda: False)
        began_ns = cluster.world.loop.now_ns
        async with subscribed(cluster, second, instance="i") as other:
            await other.until(lambda: bool(other.assigned))
            assert other.assigned == [("t", 0), ("t", 1)]
            assert cluster.world.loop.now_ns - began_ns < 5_000_000_000, "not a session's 45 s"
            await other.until(lambda: len(other.records) == 2)
            assert other.records == [("t", 0, 1), ("t", 0, 2)]

    three(brokers_expected=3).run(work)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("is_coordinator", [False, True])
def test_a_stream_begun_again_after_its_broker_died_reads_on_at_once(
    is_coordinator: bool, partitions: int
) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", partitions, replicas=3)
        for partition in range(partitions):
            await groups.produce("t", partition, 3)
        coordinator = await groups.coordinator("g")
        others = [each for each in groups.living() if each != coordinator]
        first = coordinator if is_coordinator else others[0]
        async with subscribed(cluster, first) as reader:
            await reader.until(lambda: len(reader.records) == 3 * partitions)
            for partition in range(partitions):
                await reader.acknowledge(("t", partition, 1))
            cluster.nodes[first].kill()
            await reader.until(lambda: False)
        began_ns = cluster.world.loop.now_ns
        async with subscribed(cluster, others[1]) as other:
            await other.until(lambda: len(other.records) == 2 * partitions)
            took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
            assert took_ms < 5_000, f"{took_ms} ms, as for a session's 45 s"
            assert sorted(other.records) == [
                ("t", partition, offset) for partition in range(partitions) for offset in (1, 2)
            ]
            for partition in range(partitions):
                assert await other.acknowledge(("t", partition, 3)) == []

    three(brokers_expected=3).run(work)


@pytest.mark.parametrize("is_coordinator", [False, True])
def test_without_a_majority_every_wait_ends_with_what_is_missing(is_coordinator: bool) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1, replicas=3)
        await groups.produce("t", 0, 3)
        coordinator = await groups.coordinator("g")
        others = [each for each in groups.living() if each != coordinator]
        left = coordinator if is_coordinator else others[0]
        async with subscribed(cluster, left) as reader:
            await reader.until(lambda: len(reader.records) == 3)
            for number in groups.living():
                if number != left:
                    cluster.nodes[number].kill()
            began_ns = cluster.world.loop.now_ns
            codes = await reader.acknowledge(("t", 0, 3))
            took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
            assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            assert took_ms <= 10_500, f"the client waited for {took_ms} ms"
            began_ns = cluster.world.loop.now_ns
            async with subscribed(cluster, left) as other:
                await other.until(lambda: False)
                took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
                assert took_ms <= 10_500, f"the client waited for {took_ms} ms"
                assert other.error is not None
                assert other.error.retriable
                assert "not ready to read" in other.error.happened
            reader.stream.cancel()

    three(brokers_expected=3).run(work)


@pytest.mark.parametrize("group", ["g", ""])
def test_a_topic_that_is_deleted_and_made_again_is_read_at_once(group: str) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2)
        await groups.produce("t", 0, 3)
        async with subscribed(cluster, group=group) as reader:
            await reader.until(lambda: len(reader.records) == 3)
            request = topic_admin_pb2.DeleteTopicsRequest()
            request.topics.add(name="t")
            await cluster.call(1, "TopicAdminService/DeleteTopics", request.SerializeToString())
            await reader.until(lambda: bool(reader.revoked))
            assert await reader.acknowledge(("t", 0, 3)) == [ErrorCode.STALE_ASSIGNMENT]
            await groups.topic("t", 2)
            await groups.produce("t", 0, 1)
            began_ns = cluster.world.loop.now_ns
            await reader.until(lambda: len(reader.records) == 4)
            took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
            assert took_ms < 8_000, f"it took {took_ms} ms"
            assert await reader.acknowledge(("t", 0, 1)) == []

    three(brokers_expected=3).run(work)


def test_of_two_streams_of_one_name_the_later_one_stays() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 2)
        async with (
            subscribed(cluster, instance="i") as former,
            subscribed(cluster, group="h") as reader,
        ):
            await former.until(lambda: len(former.records) == 2)
            await reader.until(lambda: len(reader.records) == 2)
            async with subscribed(cluster, instance="i") as later:
                await later.until(lambda: len(later.records) == 2)
                await former.until(lambda: False)
                assert former.code is ErrorCode.INSTANCE_ID_IN_USE
                assert await later.acknowledge(("t", 0, 2)) == []

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_latest_begins_where_the_first_owner_began_also_for_the_next_one() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 1)
        await groups.produce("t", 0, 3)
        async with subscribed(cluster, start_at=LATEST) as reader:
            await reader.until(lambda: reader.assigned == [("t", 0)])
            await groups.produce("t", 0, 2)
            await reader.until(lambda: len(reader.records) == 2)
        async with subscribed(cluster, start_at=LATEST) as other:
            await other.until(lambda: len(other.records) == 2)
            assert other.records == [("t", 0, 3), ("t", 0, 4)]
        async with subscribed(
            cluster, group="none", start_at=subscribe_pb2.START_AT_NONE
        ) as refused:
            await refused.until(lambda: False)
            assert refused.code is ErrorCode.NO_OFFSET_FOR_PARTITION

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_without_a_group_everything_is_read_and_new_topics_of_the_pattern_too() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t1", 2)
        await groups.produce("t1", 1, 2)
        async with subscribed(cluster, group="", topics=(), pattern="t.*") as reader:
            await reader.until(lambda: len(reader.records) == 2)
            assert reader.assigned == [("t1", 0), ("t1", 1)]
            assert await reader.acknowledge(("t1", 1, 2)) == []
            await groups.topic("t2", 1)
            await groups.produce("t2", 0, 1)
            await reader.until(lambda: ("t2", 0, 0) in reader.records)

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.parametrize("group", ["g", ""])
def test_a_topic_that_is_not_there_ends_the_stream_by_its_name(group: str) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.coordinator("g")
        await groups.topic("t", 1)
        for topics in (("missing",), ("t", "missing")):
            began_ns = cluster.world.loop.now_ns
            async with subscribed(cluster, group=group, topics=topics) as reader:
                await reader.until(lambda: False)
            took_ms = (cluster.world.loop.now_ns - began_ns) // 1_000_000
            assert reader.code is ErrorCode.UNKNOWN_TOPIC
            assert reader.error is not None
            assert "missing" in reader.error.happened
            assert took_ms <= 5_000, f"the client waited for {took_ms} ms"
        for bad, code in (
            ("bad name!", ErrorCode.INVALID_TOPIC_NAME),
            ("__groups", ErrorCode.INVALID_ARGUMENT),
        ):
            async with subscribed(cluster, group=group, topics=("t", bad)) as reader:
                await reader.until(lambda: False)
            assert reader.code is code, bad
        if group:
            assert (await groups.described(group)).members == [], "it joins nothing"

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.parametrize("group", ["g", ""])
def test_a_topic_that_has_just_been_made_is_waited_for_and_one_of_a_pattern_for_ever(
    group: str,
) -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.coordinator("g")
        async with (
            subscribed(cluster, group=group, topics=("new",)) as reader,
            subscribed(cluster, group=group + "h" if group else "", pattern="n.*") as other,
        ):
            await asyncio.sleep(1)
            assert reader.assigned is None
            await groups.topic("new", 1)
            await groups.produce("new", 0, 2)
            await reader.until(lambda: len(reader.records) == 2)
            await asyncio.sleep(20)
            await other.until(lambda: len(other.records) == 2)

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_what_cannot_be_is_refused_with_a_reason() -> None:
    async def work(cluster: Cluster) -> None:
        refused = {
            "no topics": subscribed(cluster, topics=()),
            "much credit": subscribed(cluster, credit=100_001),
            "short time": subscribed(cluster, timeout_ms=10),
            "static without a group": subscribed(cluster, group="", instance="i"),
            "pattern": subscribed(cluster, topics=(), pattern="("),
        }
        for what, opened in refused.items():
            async with opened as reader:
                await reader.until(lambda: False)
                assert reader.code is ErrorCode.INVALID_ARGUMENT, what
        await Groups(cluster).topic("t", 1)
        async with subscribed(cluster) as reader:
            await reader.acknowledge(("t" * 250, 0, 1))
            await reader.until(lambda: False)
            assert reader.code is ErrorCode.INVALID_ARGUMENT, "a name that no topic has"

    Cluster(controllers=1, roles="controller,broker").run(work)


def test_a_stream_goes_on_when_the_coordinator_dies() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic("t", 2, replicas=3)
        coordinator = await groups.coordinator("g")
        number = next(each for each in groups.living() if each != coordinator)
        async with subscribed(cluster, number) as reader:
            await reader.until(lambda: reader.assigned == [("t", 0), ("t", 1)])
            cluster.nodes[coordinator].kill()
            await asyncio.sleep(2)
            for partition in range(2):
                for _ in range(100):
                    try:
                        await groups.produce("t", partition, 3)
                        break
                    except (TidelogError, AssertionError):
                        await asyncio.sleep(0.2)
            await reader.until(lambda: len(reader.records) >= 6)
            assert len(reader.records) == len(dict.fromkeys(reader.records)), "each once"
            assert await reader.acknowledge(("t", 0, 3), ("t", 1, 3)) == []
        assert await groups.committed("g") == {(topic_id, 0): 3, (topic_id, 1): 3}

    three(brokers_expected=3).run(work)


def test_a_member_of_its_own_and_a_stream_are_members_alike() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await groups.topic("t", 2)
        member = Member(groups, "g", "m", ["t"])
        await member.join()
        async with subscribed(cluster) as reader:
            for _ in range(20):
                await member.beat()
                await asyncio.sleep(0.2)
            assert reader.assigned is not None
            assert len(reader.assigned) == len(member.owned) == 1
        await settle([member])
        assert len(member.owned) == 2
        assert CALL_S > 0

    Cluster(controllers=1, roles="controller,broker").run(work)
