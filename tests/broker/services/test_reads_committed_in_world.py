"""Readers of committed records on whole nodes: followers, streams, groups, and leaders that die."""

import asyncio
from collections.abc import Callable

import pytest

from tests.broker.groups.coordinator.test_subscribe_in_world import subscribed
from tests.broker.support.group_world import Groups
from tests.broker.support.transaction_world import ABORT, COMMIT
from tests.broker.support.transaction_writes import TransactionWriter
from tests.server.cluster.test_fetch_in_world import three_racks
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.contract.fetch import read_stretches
from tidelog.v1 import common_pb2, fetch_pb2, metadata_pb2, records_pb2
from tidelog.wire.batch import aborted_batches, decode_batch, iterate_headers
from tidelog.wire.errors import TidelogError

pytestmark = pytest.mark.slow
COMMITTED = common_pb2.ISOLATION_LEVEL_READ_COMMITTED
UNCOMMITTED = common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
TOPIC = "t"


class History:
    """Transactions of two producers in one partition, and what readers are to be given of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.writers = [TransactionWriter(cluster, name, TOPIC) for name in ("a", "b")]
        self.committed: list[int] = []
        self.everything: list[int] = []

    async def write(self) -> None:
        """One is committed, one is aborted, and they lie among each other; the second writes on."""
        first, second = self.writers
        one, other = await first.calls.init("a"), await second.calls.init("b")
        kept = [await self._stored(first.write(one, 0))]
        await self._stored(second.write(other, 0))
        kept.append(await self._stored(first.write(one, 0, 1)))
        other = await second.calls.end("b", other, ABORT)
        kept.append(await self._stored(first.write(one, 0, 2)))
        await first.calls.end("a", one, COMMIT)
        await first.wait_ended([0])
        self.committed = kept
        self.open = other
        await self._stored(second.write(other, 0))

    async def _stored(self, writing: object) -> int:
        assert asyncio.iscoroutine(writing)
        offset = await writing
        assert isinstance(offset, int)
        self.everything.append(offset)
        return offset

    @property
    def stable(self) -> int:
        """Where the open transaction begins."""
        return self.everything[-1]

    async def finish(self) -> None:
        """The open one is committed after all."""
        second = self.writers[1]
        await second.calls.end("b", self.open, COMMIT)
        await second.wait_ended([0])
        self.committed.append(self.everything[-1])

    def leader(self) -> int:
        found = self.writers[0].leader(0)
        assert found is not None
        return found[0]


async def again(ask: Callable[[], object]) -> object:
    """Until it is answered: leaders move."""
    for _ in range(300):
        try:
            asking = ask()
            assert asyncio.iscoroutine(asking)
            return await asking
        except TidelogError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(0.1)
    raise AssertionError("nobody ever answers")


async def plain(
    cluster: Cluster, history: History, level: common_pb2.IsolationLevel.ValueType
) -> tuple[list[int], records_pb2.FetchRecordsResponse]:
    """FetchRecords from the beginning to where it stands still."""
    found: list[int] = []
    offset = 0
    while True:
        request = records_pb2.FetchRecordsRequest(
            topic=TOPIC, fetch_offset=offset, max_records=2, isolation_level=level
        )
        data = await cluster.call(
            history.leader(), "RecordsService/FetchRecords", request.SerializeToString()
        )
        answer = records_pb2.FetchRecordsResponse.FromString(data)
        found += [record.offset for record in answer.records]
        if answer.next_offset == offset:
            return found, answer
        offset = answer.next_offset


async def end(
    cluster: Cluster, history: History, level: common_pb2.IsolationLevel.ValueType
) -> int:
    """ListOffsets at the leader."""
    found = history.writers[0].leader(0)
    assert found is not None
    topic_id = found[1].log.key.topic_id
    request = metadata_pb2.ListOffsetsRequest(isolation_level=level)
    request.queries.add(topic_id=topic_id, leader_epoch=-1, spec=metadata_pb2.OFFSET_SPEC_LATEST)
    data = await cluster.call(
        history.leader(), "MetadataService/ListOffsets", request.SerializeToString()
    )
    (answer,) = metadata_pb2.ListOffsetsResponse.FromString(data).answers
    assert not answer.HasField("error"), answer
    return answer.offset


async def check(cluster: Cluster, history: History, stable: int) -> None:
    """By both levels, all that a leader tells."""
    found, answer = await plain(cluster, history, COMMITTED)
    assert found == history.committed
    assert answer.next_offset == answer.last_stable_offset == stable, "no lag is left"
    found, answer = await plain(cluster, history, UNCOMMITTED)
    assert found == history.everything
    assert answer.next_offset == answer.high_watermark
    assert await end(cluster, history, COMMITTED) == stable
    assert await end(cluster, history, UNCOMMITTED) == answer.high_watermark


def test_a_leader_shows_what_is_decided_and_so_does_the_one_after_it() -> None:
    async def work(cluster: Cluster) -> None:
        await Groups(cluster).topic(TOPIC, 1, replicas=3)
        history = History(cluster)
        await history.write()
        await check(cluster, history, history.stable)
        old = history.leader()
        cluster.nodes[old].kill()

        def is_led_by_another() -> bool:
            found = history.writers[0].leader(0)
            return found is not None and found[0] != old

        await cluster.wait(is_led_by_another)
        await again(lambda: check(cluster, history, history.stable))
        await history.finish()
        await again(lambda: check(cluster, history, history.everything[-1] + 2))

    three(brokers_expected=3).run(work)


def test_a_follower_knows_by_itself_what_is_decided() -> None:
    async def work(cluster: Cluster) -> None:
        topic_id = await Groups(cluster).topic(TOPIC, 1, replicas=3)
        history = History(cluster)
        await history.write()
        near = next(each for each in cluster.nodes if each != history.leader())

        async def read(offset: int, wait_ms: int) -> list[fetch_pb2.PartitionBatches]:
            request = fetch_pb2.FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                isolation_level=COMMITTED,
                client_rack=f"r{near}",
            )
            request.positions.add(
                topic_id=topic_id,
                fetch_offset=offset,
                leader_epoch=-1,
                last_fetched_epoch=-1,
                stays_here=True,
            )
            data = await cluster.call(near, "FetchService/Fetch", request.SerializeToString())
            return list(fetch_pb2.FetchResponse.FromString(data).partitions)

        found: list[int] = []
        offset = 0
        while offset < history.stable:
            for part in await read(offset, 1_000):
                given, offset = shown(part)
                found += given
                assert offset <= part.last_stable_offset <= history.stable
        assert found == history.committed
        parked = asyncio.create_task(read(offset, 30_000))
        await asyncio.sleep(1)
        assert not parked.done(), "what is open is not shown"
        await history.finish()
        (part,) = await parked
        assert shown(part)[0] == history.committed[-1:]

    three_racks().run(work)


def shown(part: fetch_pb2.PartitionBatches) -> tuple[list[int], int]:
    """What a client makes of an answer, and where it goes on."""
    assert not part.HasField("error"), part.error
    headers = list(iterate_headers(part.batches, is_compacted=True))
    left_out = aborted_batches(
        [header for _, header in headers], read_stretches(part.aborted_transactions)
    )
    found = [
        record[0]
        for at, header in headers
        if not header.is_control and header.base_offset not in left_out
        for record in decode_batch(part.batches, at, is_compacted=True)
    ]
    return found, headers[-1][1].next_offset


def test_a_group_is_sent_what_is_decided_and_its_lag_reaches_nought_behind_markers() -> None:
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        topic_id = await groups.topic(TOPIC, 1, replicas=3)
        history = History(cluster)
        await history.write()

        async def until_committed(offset: int) -> None:
            for _ in range(300):
                if await groups.committed("g") == {(topic_id, 0): offset}:
                    return
                await asyncio.sleep(0.1)
            raise AssertionError(f"committed: {await groups.committed('g')}, not {offset}")

        async with subscribed(cluster, isolation_level=COMMITTED) as reader:
            await reader.until(lambda: len(reader.records) == len(history.committed))
            assert [each[2] for each in reader.records] == history.committed
            assert await reader.acknowledge((TOPIC, 0, history.committed[-1] + 1)) == []
            await until_committed(history.stable)
            await history.finish()
            await reader.until(lambda: len(reader.records) == len(history.committed))
            assert [each[2] for each in reader.records] == history.committed
            assert await reader.acknowledge((TOPIC, 0, history.committed[-1] + 1)) == []
            await until_committed(history.committed[-1] + 2)

    three(brokers_expected=3).run(work)
