"""Fetches over several logs: no more is read than the answer needs."""

import asyncio
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec
import pytest

from tests.broker.support.log_shelf import TOPIC, LogShelf, batch_at, compacted, shelf_of
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.fetch.handler import FetchHandler, FetchRequest
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.records.handler import FetchRecordsRequest, RecordsHandler
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import RequestContext
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionId, PartitionKey

CONTEXT = RequestContext(
    principal="somebody", listener="client", client_id="", address="", deadline_ns=NO_DEADLINE_NS
)


class Node:
    """As much of `Replicas`, of a directory and of its owner as fetches need."""

    def __init__(self, shelves: list[LogShelf]) -> None:
        self.shelves = shelves
        self.reader = LogReader(self)

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        del topic_id, leader_epoch, tried
        return Replica(
            log=self.shelves[partition].log,
            settings=TopicSettings(),
            topic_name="t",
            directory=cast(LogDirectory, self),
        )

    def name_of(self, topic_id: bytes, partition: int) -> str:
        del topic_id
        return f"t-{partition}"

    def watch(self, key: PartitionKey, watcher: object) -> None:
        del key, watcher

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        return await self.shelves[segment.partition.partition].read(
            segment, byte_position, length_bytes
        )

    async def read_sidecar(
        self, segment: SegmentKey, byte_position: int, length_bytes: int
    ) -> bytes:
        return await self.shelves[segment.partition.partition].read_sidecar(
            segment, byte_position, length_bytes
        )

    def fail(self, key: PartitionKey, error: TidelogError) -> None:
        self.shelves[key.partition].fail(key, error)

    def reading(self, segment: SegmentKey) -> AbstractContextManager[None]:
        return self.shelves[segment.partition.partition].reading(segment)

    @property
    def read_bytes(self) -> int:
        return sum(shelf.read_bytes for shelf in self.shelves)

    def unwatch(self, key: PartitionKey, watcher: Any) -> None:
        """Nobody appends here."""

    def watch_doubt(self, doubter: Any) -> None:
        pass

    def unwatch_doubt(self, doubter: Any) -> None:
        pass

    def handler(self) -> FetchHandler:
        return FetchHandler(cast(Replicas, self), BrokerLimits(), sure_to_lead())


def sure_to_lead() -> Leadership:
    async def read_index(timeout_ms: int) -> int:
        return timeout_ms

    async def wait_applied(index: int) -> None:
        del index

    return Leadership(read_index, wait_applied, is_in_contact=lambda: True)


def position(partition: int) -> FetchPosition:
    return FetchPosition(topic_id=TOPIC, partition=PartitionId(partition), fetch_offset=Offset(0))


def test_partitions_that_do_not_fit_the_answer_any_more_are_not_read_in_vain() -> None:
    node = Node([shelf_of([[batch_at(1, size=60_000)]], number=number) for number in range(20)])
    positions = [position(partition) for partition in range(20)]
    request = FetchRequest(positions, 0, 1, 100_000)
    assert len(asyncio.run(node.handler().fetch(CONTEXT, request))) == 1
    assert node.read_bytes < 200_000
    session = FetchSession(node.handler(), lambda: None)
    session.take(FetchStreamRequest(positions, [], 10_000_000, 1, 100_000))
    seen = []
    for _ in range(20):
        answer = asyncio.run(session.next_answer(session.wanted_bytes()))
        assert answer is not None
        seen += [each.partition for each in answer.partitions]
    assert sorted(seen) == list(range(20))
    assert node.read_bytes < 4_000_000, "each answer looks into one partition too many"


@pytest.mark.parametrize(
    ("fitting", "partition_count"), [(1, 2), (1, 4), (1, 5), (2, 3), (2, 6), (3, 4)]
)
def test_partitions_with_a_backlog_are_read_in_turn_however_many_fit_an_answer(
    fitting: int, partition_count: int
) -> None:
    batches = [batch_at(1, size=60_000)] * 8
    node = Node([shelf_of([batches], number=number) for number in range(partition_count)])
    positions = [
        msgspec.structs.replace(position(partition), max_bytes=61_000)
        for partition in range(partition_count)
    ]
    session = FetchSession(node.handler(), lambda: None)
    session.take(FetchStreamRequest(positions, [], 100_000_000, 1, fitting * 61_000 + 30_000))
    counts = [0] * partition_count
    for _ in range(5 * partition_count // fitting):
        answer = asyncio.run(session.next_answer(session.wanted_bytes()))
        assert answer is not None
        assert len(answer.partitions) == fitting
        for each in answer.partitions:
            counts[each.partition] += 1
        assert max(counts) - min(counts) <= 1, counts


def test_a_partition_whose_read_was_overtaken_by_a_change_keeps_its_turn() -> None:
    node = Node([shelf_of([[batch_at(1, size=60_000)]], number=number) for number in range(3)])
    session = FetchSession(node.handler(), lambda: None)
    positions = [position(partition) for partition in range(3)]
    session.take(FetchStreamRequest(positions, [], 10_000_000, 1, 61_000))

    def change(segment: SegmentKey) -> None:
        node.shelves[0].on_read = lambda key: None
        session.take(FetchStreamRequest([], [(TOPIC, 2)], 0, 2, 0))

    node.shelves[0].on_read = change
    assert asyncio.run(session.next_answer(61_000)) is None
    answer = asyncio.run(session.next_answer(61_000))
    assert answer is not None
    assert [each.partition for each in answer.partitions] == [0]


class Room:
    """Room for fewer bytes than are wanted."""

    def __init__(self, granted_bytes: int) -> None:
        self.wanted: list[int] = []
        self._granted_bytes = granted_bytes

    async def take(self, wanted_bytes: int) -> int:
        self.wanted.append(wanted_bytes)
        return self._granted_bytes

    def give_back(self) -> None:
        """Nobody counts here."""


def test_a_fetch_takes_room_for_what_there_is_to_read_and_reads_no_more_than_it_gets() -> None:
    node = Node([shelf_of([[batch_at(1, size=60_000)]], number=number) for number in range(20)])
    positions = [position(partition) for partition in range(20)]
    room = Room(130_000)
    context = msgspec.structs.replace(CONTEXT, answer_room=room)
    request = FetchRequest(positions, 0, 1, 8_000_000)
    assert len(asyncio.run(node.handler().fetch(context, request))) == 2
    assert 1_200_000 <= room.wanted[0] <= 1_210_000
    session = FetchSession(node.handler(), lambda: None)
    session.take(FetchStreamRequest(positions, [], 10_000_000, 1, 8_000_000))
    assert session.wanted_bytes() == room.wanted[0]
    answer = asyncio.run(session.next_answer(130_000))
    assert answer is not None
    assert len(answer.partitions) == 2


def test_a_poll_without_news_takes_no_room() -> None:
    node = Node([shelf_of([[batch_at(1, size=60_000)]])])
    room = Room(1)
    context = msgspec.structs.replace(CONTEXT, answer_room=room)
    asked = FetchPosition(topic_id=TOPIC, partition=PartitionId(0), fetch_offset=Offset(1))
    assert asyncio.run(node.handler().fetch(context, FetchRequest([asked], 0, 1, 0))) == []
    assert room.wanted == []


def test_a_gap_up_to_the_high_watermark_is_no_answer_and_no_error() -> None:
    shelf = shelf_of([[batch_at(1), batch_at(1, 2, 3)]])
    shelf.log.gaps_from = Offset(0)
    shelf.log.high_watermark = Offset(2)
    node = Node([shelf])
    asked = FetchPosition(topic_id=TOPIC, partition=PartitionId(0), fetch_offset=Offset(1))
    assert asyncio.run(node.handler().fetch(CONTEXT, FetchRequest([asked], 0, 0, 0))) == []
    session = FetchSession(node.handler(), lambda: None)
    session.take(FetchStreamRequest([asked], [], 1_000, 1, 0))
    assert asyncio.run(session.next_answer(session.wanted_bytes())) is None


class Topics:
    """As much of the metadata handler as plain records need."""

    topic_id = TOPIC

    async def topic(self, *_: object, **__: object) -> "Topics":
        return self


def test_plain_records_are_read_from_batches_of_which_compaction_has_left_some() -> None:
    node = Node([compacted([batch_at(n, n, n) for n in range(4)], {0, 2, 7})])
    unused: Any = None
    handler = RecordsHandler(
        cast(MetadataHandler, Topics()),
        unused,
        node.handler(),
        unused,
        broker_id=unused,
        time=unused,
        random=unused,
        limits=BrokerLimits(),
    )
    found = asyncio.run(
        handler.fetch_records(CONTEXT, FetchRecordsRequest("t", PartitionId(0), Offset(0), 10, 0))
    )
    assert [record[0] for record in found.records] == [0, 2, 7]
    assert found.next_offset == 12, "behind the last batch, which is empty"
