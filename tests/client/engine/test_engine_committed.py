"""Readers of committed records: what they are given, and where they stand where it is nothing."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from tests.client.engine.test_engine_consumer import T0, World, part
from tests.support.transaction_log import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    TransactionLog,
    random_log,
)
from tidelog.client.bulk.arrow_poll import decode_fetched
from tidelog.client.engine.fetch.messages import Fetched, SendFetch
from tidelog.client.reading.chunk import Chunk, decode
from tidelog.client.reading.consumer_parts import split
from tidelog.wire.batch import decode_records
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.ids import Offset

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
Read = Callable[[Fetched], list[int]]


def by_record(fetched: Fetched) -> list[int]:
    """As poll() gives them."""
    decoded = decode(fetched, verify=True, key_deserializer=None, value_deserializer=None)
    assert decoded.failed is None
    chunk = Chunk(fetched, decoded)
    found = [record.offset for record in chunk.take(chunk.count_left)]
    assert chunk.position == fetched.next_offset, "nothing is left, so all is passed over"
    return found


def by_batch(fetched: Fetched) -> list[int]:
    """As poll_batches() gives them."""
    everything = split(fetched, include_left_out=True)
    ends = [each.next_offset for each in everything]
    assert ends == sorted(ends)
    assert not ends or ends[-1] == fetched.next_offset, "it tells how far it has come"
    given = split(fetched)
    assert given == [each for each in everything if not each.is_left_out]
    return [
        record[0]
        for each in given
        for record in decode_records(each.data, is_compacted=True)
        if record[0] >= each.first_offset
    ]


def by_column(fetched: Fetched) -> list[int]:
    """As poll_arrow() gives them."""
    decoded = decode_fetched(fetched, verify=True, with_headers=False)
    assert (decoded.error, decoded.next_offset) == (None, fetched.next_offset)
    return [
        int(offset.as_py())
        for columns in decoded.batches
        for chunk in columns.offsets
        for offset in chunk
    ]


WAYS = [by_record, by_batch, by_column]


class Server:
    """Answers one reader from a log, as much at a time as it likes."""

    def __init__(
        self, log: TransactionLog, random: Random, high_watermark: int, isolation: IsolationLevel
    ) -> None:
        self.log = log
        self.random = random
        self.isolation = isolation
        self.high_watermark = high_watermark
        self.stable = log.last_stable_offset(high_watermark)
        self.end = self.stable if isolation is COMMITTED else high_watermark
        self.world = World(isolation=isolation)
        self._take(self.world.read_from(0))

    def _take(self, sent: SendFetch) -> None:
        (position,) = sent.positions
        self.position: int = position.fetch_offset
        self.session = sent.session_epoch

    def seek(self, offset: int) -> None:
        self.world.core.seek(T0, offset)
        for effect in self.world.tick():
            if isinstance(effect, SendFetch) and effect.positions:
                self._take(effect)

    def answer(self, count_max: int) -> bool:
        """One answer; False: there is nothing to answer."""
        wanted = [
            each
            for each in self.log.batches
            if each.next_offset > self.position and each.next_offset <= self.end
        ]
        wanted = wanted[: self.random.randrange(1, count_max + 1)]
        if not wanted:
            return False
        begin, end = wanted[0].base_offset, wanted[-1].next_offset
        aborted = self.log.aborted(begin, end) if self.isolation is COMMITTED else []
        whole = part(b"".join(each.data for each in wanted), begin)
        self.position = end
        told = msgspec.structs.replace(
            whole,
            high_watermark=Offset(self.high_watermark),
            last_stable_offset=Offset(self.stable),
            aborted=tuple(aborted),
        )
        self.world.answer(told, epoch=self.session)
        return True

    def take(self, read: Read) -> list[int]:
        """All that waits for the user."""
        found: list[int] = []
        while (fetched := self.world.core.take()) is not None:
            found += read(fetched)
            self.world.core.partitions[T0].hand_over(fetched.next_offset)
        self.world.tick()
        return found

    def expected(self, begin: int) -> list[int]:
        log = self.log
        if self.isolation is COMMITTED:
            found = log.committed_records(self.high_watermark)
        else:
            found = log.all_records(self.high_watermark)
        return [offset for offset in found if offset >= begin]


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("seed", range(15))
def test_each_level_is_given_its_records_once_and_in_order(
    seed: int, isolation: IsolationLevel, read: Read
) -> None:
    random = Random(seed)
    log = random_log(random, 60)
    bounds = [0, *(each.next_offset for each in log.batches)]
    server = Server(log, random, random.choice(bounds[len(bounds) // 2 :]), isolation)
    begin, found = 0, list[int]()
    for _ in range(4):
        for _ in range(random.randrange(12)):
            if not server.answer(6):
                break
            if random.random() < 0.7:
                found += server.take(read)
        found += server.take(read)
        state = server.world.core.partitions[T0]
        assert state.position is not None
        assert found == [each for each in server.expected(begin) if each < state.position]
        begin = random.randrange(log.next_offset)
        found = []
        server.seek(begin)
    while server.answer(6):
        found += server.take(read)
    assert found == server.expected(begin)
    state = server.world.core.partitions[T0]
    assert state.position is not None
    assert state.position == max(begin, server.end), "no lag is left"


@pytest.mark.parametrize("read", WAYS)
def test_the_position_moves_over_markers_and_aborted_tails(read: Read) -> None:
    log = TransactionLog()
    for kind, producer_id in ((DATA, 1), (COMMIT, 1), (DATA, 1), (DATA, 1), (ABORT, 1)):
        log.add(kind, producer_id)
    server = Server(log, Random(0), 5, COMMITTED)
    while server.answer(1):
        pass
    assert server.take(read) == [0]
    assert server.world.core.partitions[T0].position == 5
    assert server.world.core.partitions[T0].last_stable_offset == 5


def test_an_answer_without_aborted_transactions_marks_nothing() -> None:
    log = TransactionLog()
    for kind, producer_id in ((DATA, 1), (COMMIT, 1), (PLAIN, -1)):
        log.add(kind, producer_id)
    server = Server(log, Random(0), 3, COMMITTED)
    while server.answer(3):
        pass
    fetched = server.world.core.take()
    assert fetched is not None
    assert not fetched.left_out


def test_a_transaction_that_reaches_over_several_pieces_of_an_answer_is_left_out_of_all() -> None:
    log = TransactionLog()
    for _ in range(3):
        log.add(DATA, 1, size=150_000)
        log.add(PLAIN, -1)
    log.add(ABORT, 1)
    server = Server(log, Random(1), log.next_offset, COMMITTED)
    while server.answer(100):
        pass
    pieces = []
    while (fetched := server.world.core.take()) is not None:
        pieces.append(fetched)
        server.world.core.partitions[T0].hand_over(fetched.next_offset)
    assert len(pieces) > 1
    assert [offset for piece in pieces for offset in by_record(piece)] == [1, 3, 5]
