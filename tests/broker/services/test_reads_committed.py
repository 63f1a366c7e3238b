"""Readers of committed records on a broker: what each of the ways to read gives them, and when.

Logs grow, are committed, rolled and sealed while they are read, in fetches of any size. Every way
is held to one model: what committed transactions and none wrote below the last stable offset, once
and in order; and for readers of everything all below the watermark.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import pytest

from tests.broker.services.test_reads_fetch import CONTEXT, Node, Topics
from tests.broker.support.log_shelf import TOPIC, LogShelf
from tests.support.transaction_log import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    TransactionLog,
    random_log,
)
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.services.fetch import isolation as limits
from tidelog.broker.services.fetch.handler import FetchRequest, PartitionBatches
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.broker.services.records.handler import FetchRecordsRequest, RecordsHandler
from tidelog.broker.services.subscribe.ports import PeerReads
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.wire.batch import aborted_batches, decode_batch, iterate_headers
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetQuery, OffsetSpec
from tidelog.wire.ids import BrokerId, Offset, PartitionId, PartitionKey

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
KEY = PartitionKey(TOPIC, PartitionId(0))
UNUSED: Any = None
Found = tuple[list[int], int]
"""Offsets of records, and where to go on."""
Read = Callable[[int], Awaitable[Found]]


class WatchedNode(Node):
    """One log, and whoever waits for its news."""

    def __init__(self) -> None:
        super().__init__([LogShelf()])
        self.shelf = self.shelves[0]
        self.watchers: dict[Any, None] = {}

    def watch(self, key: PartitionKey, watcher: Any) -> None:
        del key
        self.watchers[watcher] = None

    def unwatch(self, key: PartitionKey, watcher: Any) -> None:
        del key
        self.watchers.pop(watcher, None)

    def commit(self, offset: int) -> None:
        """The watermark moves, and everybody is told."""
        self.shelf.commit(offset)
        for watcher in list(self.watchers):
            watcher(KEY)


class Growing:
    """A log that is stored batch by batch."""

    def __init__(self, log: TransactionLog) -> None:
        self.log = log
        self.node = WatchedNode()
        self.stored = 0
        self.high_watermark = 0
        self.seen = TransactionLog()
        """The model of what is stored so far."""

    def grow(self, count: int, random: Random | None = None) -> None:
        """Further batches; now and then a segment is rolled."""
        for batch in self.log.batches[self.stored : self.stored + count]:
            if random is not None and random.random() < 0.15 and self.stored:
                self.node.shelf.begin_segment()
            self._seal_some(random)
            assert self.node.shelf.append(batch.data) == batch.base_offset
            again = self.seen.add(batch.kind, batch.producer_id, len(batch.offsets))
            assert again.next_offset == batch.next_offset
            self.stored += 1

    def _seal_some(self, random: Random | None) -> None:
        for segment in self.node.shelf.log.segments:
            is_due = segment.is_sealed and segment.summary is None and segment.size_bytes
            if is_due and random is not None and random.random() < 0.3:
                self.node.shelf.seal(segment)

    def commit(self, batches: int | None = None) -> None:
        """Up to behind so many of the stored batches; None: all."""
        count = self.stored if batches is None else batches
        self.high_watermark = self.log.batches[count - 1].next_offset if count else 0
        self.node.commit(self.high_watermark)

    def expected(self, isolation: IsolationLevel, begin: int) -> list[int]:
        if isolation is COMMITTED:
            found = self.seen.committed_records(self.high_watermark)
        else:
            found = self.seen.all_records(self.high_watermark)
        return [offset for offset in found if offset >= begin]

    def end(self, isolation: IsolationLevel) -> int:
        if isolation is COMMITTED:
            return self.seen.last_stable_offset(self.high_watermark)
        return self.high_watermark


def position(offset: int, max_bytes: int = 0) -> FetchPosition:
    return FetchPosition(
        topic_id=TOPIC,
        partition=PartitionId(0),
        fetch_offset=Offset(offset),
        max_bytes=max_bytes,
    )


def taken(answer: PartitionBatches, offset: int) -> Found:
    """What a client makes of an answer."""
    headers = list(iterate_headers(answer.batches, is_compacted=True))
    left_out = aborted_batches([header for _, header in headers], answer.aborted)
    found: list[int] = []
    for at, header in headers:
        if not header.is_control and header.base_offset not in left_out:
            records = decode_batch(answer.batches, at, is_compacted=True)
            found += [record[0] for record in records if record[0] >= offset]
    return found, headers[-1][1].next_offset


def by_fetch(growing: Growing, isolation: IsolationLevel, random: Random) -> Read:
    handler = growing.node.handler()

    async def read(offset: int) -> Found:
        asked = position(offset, random.choice([0, 1, 200, 1_000]))
        request = FetchRequest([asked], 0, 1, 0, isolation=isolation)
        answers = await handler.fetch(CONTEXT, request)
        if not answers:
            return [], offset
        (answer,) = answers
        assert answer.error is None
        assert answer.last_stable_offset == growing.seen.last_stable_offset(answer.high_watermark)
        assert isolation is COMMITTED or not answer.aborted, "nobody asked for it"
        return taken(answer, offset)

    return read


def by_stream(growing: Growing, isolation: IsolationLevel, random: Random) -> Read:
    session = FetchSession(growing.node.handler(), lambda: None)
    session.take(FetchStreamRequest([], [], 0, 1, 0, isolation=isolation))
    state = {"position": -1, "epoch": 1}

    async def read(offset: int) -> Found:
        if offset != state["position"]:
            state["epoch"] += 1
            asked = position(offset, random.choice([0, 1, 200, 1_000]))
            session.take(FetchStreamRequest([asked], [], 0, state["epoch"], 0))
        session.take(FetchStreamRequest([], [], random.randrange(1, 3_000), 0, 0))
        state["position"] = offset
        answer = await session.next_answer(session.wanted_bytes()) if session.has_work else None
        if answer is None:
            return [], offset
        assert answer.session_epoch == state["epoch"]
        (part,) = answer.partitions
        assert part.error is None
        found, state["position"] = taken(part, offset)
        return found, state["position"]

    return read


def by_records(growing: Growing, isolation: IsolationLevel, random: Random) -> Read:
    handler = RecordsHandler(
        cast(MetadataHandler, Topics()),
        UNUSED,
        growing.node.handler(),
        UNUSED,
        broker_id=UNUSED,
        time=UNUSED,
        random=UNUSED,
        limits=BrokerLimits(),
    )

    async def read(offset: int) -> Found:
        asked = FetchRecordsRequest(
            "t", PartitionId(0), Offset(offset), random.choice([0, 1, 3, 50]), 0, isolation
        )
        found = await handler.fetch_records(CONTEXT, asked)
        assert found.last_stable_offset == growing.seen.last_stable_offset(found.high_watermark)
        return [record[0] for record in found.records], found.next_offset

    return read


def by_subscription(growing: Growing, isolation: IsolationLevel, random: Random) -> Read:
    del random
    handler = growing.node.handler()
    handler.limits = BrokerLimits(fetch_wait_ms_max=0)
    reads = PeerReads(UNUSED, UNUSED, UNUSED, handler, broker_id=BrokerId(1))

    async def read(offset: int) -> Found:
        found = await reads.read(BrokerId(1), {KEY: offset}, isolation)
        if not found:
            return [], offset
        (answer,) = found
        assert answer.error is None
        return [record[0] for record in answer.records], answer.next_offset

    return read


WAYS = [by_fetch, by_stream, by_records, by_subscription]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("seed", range(12))
def test_each_level_is_given_its_records_once_and_in_order(
    seed: int,
    isolation: IsolationLevel,
    way: Callable[[Growing, IsolationLevel, Random], Read],
) -> None:
    async def play() -> None:
        random = Random(seed)
        growing = Growing(random_log(random, 50, size_max=200))
        read = way(growing, isolation, random)
        begin = offset = 0
        found: list[int] = []
        for _ in range(40):
            growing.grow(random.randrange(4), random)
            least = sum(
                each.next_offset <= growing.high_watermark
                for each in growing.log.batches[: growing.stored]
            )
            growing.commit(random.randrange(least, growing.stored + 1))
            for _ in range(random.randrange(3)):
                given, next_offset = await read(offset)
                assert next_offset >= offset
                assert next_offset <= max(offset, growing.end(isolation)), "not decided yet"
                found, offset = found + given, next_offset
                assert found == [
                    each for each in growing.expected(isolation, begin) if each < offset
                ]
            if random.random() < 0.1:
                begin = offset = random.randrange(growing.high_watermark + 1)
                found = []
        growing.grow(100)
        growing.commit()
        for _ in range(1_000):
            given, offset = await read(offset)
            found += given
            if offset >= growing.end(isolation):
                break
        assert found == growing.expected(isolation, begin)
        assert offset == max(begin, growing.end(isolation)), "no lag is left"

    asyncio.run(play())


def log_of(*steps: tuple[str, int]) -> Growing:
    log = TransactionLog()
    for kind, producer_id in steps:
        log.add(kind, producer_id)
    growing = Growing(log)
    growing.grow(len(steps))
    growing.commit()
    return growing


def has_work(session: FetchSession) -> bool:
    return session.has_work


def test_a_long_poll_of_committed_records_ends_when_the_last_stable_offset_moves() -> None:
    async def play() -> None:
        log = TransactionLog()
        for kind, producer_id in ((DATA, 1), (PLAIN, -1), (COMMIT, 1)):
            log.add(kind, producer_id)
        growing = Growing(log)
        growing.grow(1)
        growing.commit()
        request = FetchRequest([position(0)], 30_000, 1, 0, isolation=COMMITTED)
        polling = asyncio.create_task(growing.node.handler().fetch(CONTEXT, request))
        everything = FetchRequest([position(0)], 30_000, 1, 0)
        (answer,) = await growing.node.handler().fetch(CONTEXT, everything)
        assert taken(answer, 0) == ([0], 1)
        growing.grow(1)
        growing.commit()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not polling.done(), "the watermark has moved, and not how far it may read"
        growing.grow(1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not polling.done(), "the marker is not committed"
        growing.commit()
        (answer,) = await polling
        assert taken(answer, 0) == ([0, 1], 3)

    asyncio.run(play())


def test_a_parked_stream_of_committed_records_wakes_when_the_last_stable_offset_moves() -> None:
    async def play() -> None:
        log = TransactionLog()
        for kind, producer_id in ((DATA, 1), (PLAIN, -1), (ABORT, 1)):
            log.add(kind, producer_id)
        growing = Growing(log)
        growing.grow(2)
        growing.commit()
        session = FetchSession(growing.node.handler(), lambda: None)
        session.take(FetchStreamRequest([position(0)], [], 10_000, 1, 0, isolation=COMMITTED))
        assert await session.next_answer(session.wanted_bytes()) is None
        assert has_work(session) is False
        growing.grow(1)
        growing.commit()
        assert has_work(session) is True
        answer = await session.next_answer(session.wanted_bytes())
        assert answer is not None
        (part,) = answer.partitions
        assert taken(part, 0) == ([1], 3)
        assert [(each.producer_id, each.first_offset) for each in part.aborted] == [(1, 0)]

    asyncio.run(play())


def test_min_bytes_counts_only_what_the_reader_may_have() -> None:
    growing = log_of((PLAIN, -1), (DATA, 1), *[(PLAIN, -1)] * 50)
    handler = growing.node.handler()
    log = growing.node.shelf.log
    one = len(growing.log.batches[0].data)
    assert log.available_bytes(0, 1 << 30) >= 50 * one
    assert 1 <= limits.available_bytes(log, 0, 1 << 30, COMMITTED) <= 4_096 + one
    assert limits.available_bytes(log, 1, 1 << 30, COMMITTED) == 0
    assert limits.available_bytes(log, 1, 1 << 30, UNCOMMITTED) >= 50 * one
    asked = FetchRequest([position(1)], 0, 1, 0, isolation=COMMITTED)
    assert asyncio.run(handler.fetch(CONTEXT, asked)) == []


@pytest.mark.parametrize("aborted_max", [1, 2, 5])
def test_an_answer_with_too_many_aborted_transactions_is_shorter_and_never_incomplete(
    aborted_max: int,
) -> None:
    steps = [(DATA, producer) for producer in range(20)]
    steps += [(ABORT, producer) for producer in range(20)] + [(PLAIN, -1)]
    growing = log_of(*steps)
    log, reader = growing.node.shelf.log, growing.node.reader

    async def play() -> None:
        offset, answers = 0, 0
        found: list[int] = []
        while offset < growing.high_watermark:
            read = await limits.read_batches(
                reader, log, offset, 1 << 20, COMMITTED, aborted_max=aborted_max
            )
            assert len(read.aborted) <= aborted_max
            answer = PartitionBatches(
                topic_id=TOPIC, partition=PartitionId(0), batches=read.data, aborted=read.aborted
            )
            given, next_offset = taken(answer, offset)
            assert next_offset == read.next_offset > offset
            found, offset = found + given, next_offset
            answers += 1
        assert found == [40]
        assert answers == 20 // aborted_max

    asyncio.run(play())


def test_a_compaction_between_the_batches_and_their_transactions_shows_nothing_aborted() -> None:
    """What was read has the aborted batch, the log knows of it no more: both are read again."""
    log = TransactionLog()
    for kind, producer_id in ((PLAIN, -1), (DATA, 1), (ABORT, 1), (PLAIN, -1), (PLAIN, -1)):
        log.add(kind, producer_id)
    growing = Growing(log)
    growing.grow(4)
    shelf = growing.node.shelf
    shelf.begin_segment()
    growing.grow(1)
    shelf.seal(shelf.log.segments[0])
    growing.commit()

    def clean(segment: SegmentKey) -> None:
        shelf.on_read = lambda key: None
        assert segment == shelf.log.segments[0].key
        shelf.compact(0, 0, lambda offset: offset in (0, 3))

    shelf.on_read = clean

    async def play() -> None:
        offset, found = 0, list[int]()
        while offset < growing.high_watermark:
            given, offset = await by_fetch(growing, COMMITTED, Random(0))(offset)
            found += given
        assert found == [0, 3, 4]

    asyncio.run(play())


def test_the_end_of_a_log_is_its_last_stable_offset_for_readers_of_committed_records() -> None:
    growing = log_of((PLAIN, -1), (DATA, 1), (PLAIN, -1))
    handler = OffsetsHandler(cast(Any, growing.node), growing.node.handler().leadership)
    query = OffsetQuery(topic_id=TOPIC, partition=PartitionId(0), spec=OffsetSpec.LATEST)
    for isolation, end in ((UNCOMMITTED, 3), (COMMITTED, 1)):
        (answer,) = asyncio.run(handler.list_offsets(CONTEXT, [query], isolation))
        assert answer.error is None
        assert answer.offset == end
