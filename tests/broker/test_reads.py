"""How much of a log is read for an answer: no more than the answer needs."""

import asyncio
from typing import cast

import pytest

from tidelog.broker.handlers.fetch import FetchHandler, FetchPosition, FetchRequest
from tidelog.broker.handlers.fetch_stream import FetchSession, FetchStreamRequest
from tidelog.broker.handlers.offsets import OffsetQuery, OffsetsHandler, OffsetSpec
from tidelog.broker.limits import BrokerLimits
from tidelog.broker.log.names import PartitionKey, SegmentKey
from tidelog.broker.log.read import read_batches
from tidelog.broker.log.state import PartitionLog, Segment
from tidelog.broker.replicas import Replica, Replicas
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.ports import RequestContext
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.batch import encode_batch, iterate_headers, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

TOPIC = TopicId(bytes(16))
CONTEXT = RequestContext(
    principal="somebody", listener="client", client_id="", address="", deadline_ns=NO_DEADLINE_NS
)


class Shelf:
    """Logs in memory that count what is read of them; as much of `Replicas` as reads need."""

    def __init__(self) -> None:
        self.content: dict[SegmentKey, bytes] = {}
        self.replicas: dict[int, Replica] = {}
        self.read_bytes = 0

    def add(
        self, partition: int, segments: list[list[bytes]], committed: int | None = None
    ) -> None:
        """A log of batches; `committed` below its end if not all of it is."""
        key = PartitionKey(TOPIC, PartitionId(partition))
        log = PartitionLog(key, LeaderEpoch(0))
        for batches in segments:
            segment = Segment(log.log_end_offset)
            log.segments.append(segment)
            content = b""
            for batch in batches:
                stamped = log.log_end_offset.to_bytes(8, "big") + batch[8:]
                header = read_header(stamped)
                segment.add(header.base_offset, len(stamped), header.max_timestamp)
                log.log_end_offset = header.next_offset
                content += stamped
                if committed is None or header.next_offset <= committed:
                    log.advance(header.next_offset, log.end_position())
            self.content[SegmentKey(key, Offset(segment.base_offset))] = content
        self.replicas[partition] = Replica(log, TopicSettings(), "t")

    @property
    def owner(self) -> "Shelf":
        return self

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        del topic_id, leader_epoch, tried
        return self.replicas[partition]

    def watch(self, key: PartitionKey, watcher: object) -> None:
        del key, watcher

    async def read(self, segment: SegmentKey, byte_position: int, length_bytes: int) -> bytes:
        data = self.content[segment][byte_position : byte_position + length_bytes]
        self.read_bytes += len(data)
        return data

    def handler(self) -> FetchHandler:
        return FetchHandler(cast(Replicas, self), BrokerLimits())


def batch_at(timestamp_ms: int, size: int = 1_000) -> bytes:
    return encode_batch([(timestamp_ms, None, bytes(size), ())])


def newest(shelf: Shelf) -> tuple[int, int]:
    handler = OffsetsHandler(cast(Replicas, shelf), shelf.handler())
    query = OffsetQuery(TOPIC, 0, -1, OffsetSpec.MAX_TIMESTAMP, 0)
    (answer,) = asyncio.run(handler.list_offsets(CONTEXT, [query]))
    assert answer.error is None
    return answer.offset, answer.timestamp_ms


def test_the_newest_record_is_found_without_reading_the_log() -> None:
    shelf = Shelf()
    shelf.add(0, [[batch_at(1_000 * part + n) for n in range(500)] for part in range(5)])
    assert newest(shelf) == (2_499, 4_499)
    assert shelf.read_bytes < 200_000, "of 2.5 MB"


def test_the_newest_record_is_the_first_of_its_time_and_committed() -> None:
    times = [5, 9, 7, 9, 3, 4] + [1] * 20 + [8, 50, 60]
    for committed in range(len(times) + 1):
        shelf = Shelf()
        shelf.add(0, [[batch_at(each) for each in times]], committed)
        seen = times[:committed]
        expected = (seen.index(max(seen)), max(seen)) if seen else (-1, -1)
        assert newest(shelf) == expected, f"{committed} records are committed"


def position(partition: int) -> FetchPosition:
    return FetchPosition(TOPIC, partition, -1, 0, -1, 0)


def test_partitions_that_do_not_fit_the_answer_any_more_are_not_read_in_vain() -> None:
    shelf = Shelf()
    for partition in range(20):
        shelf.add(partition, [[batch_at(1, 60_000)]])
    positions = [position(partition) for partition in range(20)]
    request = FetchRequest(positions, 0, 1, 100_000)
    assert len(asyncio.run(shelf.handler().fetch(CONTEXT, request))) == 1
    assert shelf.read_bytes < 200_000
    shelf.read_bytes = 0
    session = FetchSession(shelf.handler(), lambda: None)
    session.take(FetchStreamRequest(positions, [], 10_000_000, 1, 100_000))
    seen = []
    for _ in range(20):
        answer = asyncio.run(session.next_answer())
        assert answer is not None
        seen += [each.partition for each in answer.partitions]
    assert sorted(seen) == list(range(20))
    assert shelf.read_bytes < 4_000_000, "each answer looks into one partition too many"


def damaged(shelf: Shelf, batch: int, byte: int) -> None:
    """Flip the lowest bit of one byte of a batch's header; all batches have one size."""
    key, content = next(iter(shelf.content.items()))
    changed = bytearray(content)
    changed[batch * len(batch_at(0)) + byte] ^= 1
    shelf.content[key] = bytes(changed)


# The last byte of: base offset, length, leader epoch.
@pytest.mark.parametrize("byte", [7, 11, 15])
def test_a_header_that_contradicts_its_neighbours_is_never_served(byte: int) -> None:
    shelf = Shelf()
    shelf.add(0, [[batch_at(number) for number in range(12)]])
    damaged(shelf, 9, byte)
    log = shelf.replicas[0].log
    before = asyncio.run(read_batches(log, shelf.read, 0, 1 << 20))
    # The length of a batch is found wrong where the next one should begin.
    assert before.next_offset in ((9,) if byte != 11 else (9, 10))
    assert len(before.data) <= before.next_offset * len(batch_at(0)) + 1
    with pytest.raises(TidelogError, match="damage at byte") as caught:
        asyncio.run(read_batches(log, shelf.read, before.next_offset, 1 << 20))
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


def test_every_flip_outside_the_checksum_is_refused_or_cuts_the_answer_before_it() -> None:
    whole = [batch_at(number, 50) for number in range(8)]
    size = len(whole[0])
    for byte in range(16):
        for bit in range(8):
            shelf = Shelf()
            shelf.add(0, [whole])
            content = bytearray(next(iter(shelf.content.values())))
            content[5 * size + byte] ^= 1 << bit
            shelf.content = dict.fromkeys(shelf.content, bytes(content))
            log = shelf.replicas[0].log
            found = asyncio.run(read_batches(log, shelf.read, 2, 1 << 20))
            served = [header.base_offset for _, header in iterate_headers(found.data[: 3 * size])]
            assert served == [2, 3, 4], f"byte {byte}, bit {bit}"
            assert found.next_offset <= 6, f"byte {byte}, bit {bit}"
