"""What a log knows of transactions while batches, watermarks, rolls and cuts go over it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segment_bytes import PARTITION, Batch, batch_bytes, batches, segment_bytes
from tidelog.broker.directory.core.invariants import StableOffsets, check_log
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import TRANSACTIONS, find_section, has_transactions
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.recovery import Scan, scan_data
from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.broker.log.transactions.admission import ProducerHere
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.broker.log.transactions.open import Ended
from tidelog.wire.batch import checksum, iterate_headers, read_header, stamp
from tidelog.wire.ids import LeaderEpoch, Offset

PLAIN = Batch()


def wrote(producer_id: int = 7, epoch: int = 0) -> Batch:
    return Batch(producer_id=producer_id, producer_epoch=epoch, is_transactional=True)


def ended(
    producer_id: int = 7, epoch: int = 1, *, is_abort: bool = False, coordinator_epoch: int = 0
) -> Batch:
    return Batch(
        producer_id=producer_id,
        producer_epoch=epoch,
        is_control=True,
        is_abort=is_abort,
        coordinator_epoch=coordinator_epoch,
    )


class Replica:
    """A log of one of several replicas, and the bytes of its segments."""

    def __init__(self, *batches: Batch) -> None:
        self.log = PartitionLog(PARTITION, LeaderEpoch(0))
        self.log.keep_uncommitted()
        self.files: dict[SegmentKey, bytes] = {}
        self.stable = StableOffsets()
        self.roll()
        self.append(*batches)

    def append(self, *batches: Batch) -> None:
        for each in batches:
            data = batch_bytes(each, self.log.log_end_offset)
            self.files[self.log.segments[-1].key] += data
            header = read_header(data)
            self.log.take_in(header, marker_of(data, header))
            self._check()

    def roll(self) -> None:
        key = SegmentKey(PARTITION, self.log.log_end_offset)
        self.log.begin_segment(key)
        self.files[key] = b""

    def commit(self, offset: int) -> int:
        self.log.commit_to(offset)
        self._check()
        return self.log.last_stable_offset

    def cut(self, offset: int, *, is_unclean: bool = False) -> None:
        """As the owner does it: the last segment that is left is read again."""
        log = self.log
        if is_unclean:
            log.lower_high_watermark(offset)
        last = log.segment_of(offset)
        left = PartitionLog(PARTITION, LeaderEpoch(0))
        assert last.producers_before is not None
        left.know_producers(ProducerState.decode(last.producers_before))
        left.log_end_offset = last.base_offset
        left.begin_segment(last.key)
        data = b""
        for header, batch in self._batches(last.key):
            if header.next_offset <= offset:
                left.take_in(header, marker_of(batch, header))
                data += batch
        self.files[last.key] = data
        log.cut(left.segments[-1], left.producers, Offset(offset), ended=left.transactions.ended)
        self._check()

    def _batches(self, key: SegmentKey):  # type: ignore[no-untyped-def]
        data, position = self.files[key], 0
        while position < len(data):
            header = read_header(data, position)
            yield header, data[position : position + header.size_bytes]
            position += header.size_bytes

    def _check(self) -> None:
        check_log(self.log)
        self.stable.check([self.log])


def test_readers_go_as_far_as_every_transaction_has_ended_and_the_end_is_committed() -> None:
    replica = Replica(PLAIN, wrote(7), PLAIN, wrote(8), ended(7), PLAIN, ended(8, is_abort=True))
    assert [replica.commit(offset) for offset in range(8)] == [0, 1, 1, 1, 1, 3, 3, 7]


def test_two_markers_of_a_transaction_change_nothing_of_who_is_open_twice() -> None:
    replica = Replica(wrote(7), wrote(8), ended(7, is_abort=True))
    replica.append(ended(7), ended(9), ended(7, is_abort=True))
    assert replica.log.transactions.started == ((8, 1),)
    told = replica.log.segments[0].transactions
    assert told is not None
    assert told.aborted.entries() == [AbortedTransaction(7, Offset(0), 2)]
    assert replica.log.transactions.ended == [Ended(Offset(0), 2)]
    assert replica.commit(6) == 1


def test_what_a_leader_looks_at_is_known_of_a_producer() -> None:
    replica = Replica(wrote(7, 3))
    assert replica.log.producer_here(7) == ProducerHere(epoch=3, is_open=True)
    replica.append(ended(7, 4, coordinator_epoch=9))
    assert replica.log.producer_here(7) == ProducerHere(epoch=4, is_open=False, coordinator_epoch=9)
    assert replica.log.producer_here(8) is None


def test_plain_and_idempotent_batches_leave_nothing_of_transactions() -> None:
    replica = Replica(PLAIN, Batch(producer_id=7))
    replica.roll()
    assert replica.log.segments[0].transactions is None
    assert replica.commit(2) == 2


def test_a_cut_behind_a_marker_opens_the_transaction_again() -> None:
    replica = Replica(PLAIN, wrote(7), ended(7, is_abort=True), PLAIN)
    replica.commit(2)
    replica.cut(2)
    assert replica.log.transactions.started == ((7, 1),)
    told = replica.log.segments[0].transactions
    assert told is not None
    assert told.aborted.entries() == []
    replica.append(ended(7))
    assert replica.commit(3) == 3
    assert told.aborted.entries() == []


def test_a_cut_before_a_transaction_takes_it_away() -> None:
    replica = Replica(PLAIN, wrote(7), PLAIN)
    replica.cut(1)
    assert replica.log.transactions.started == ()
    assert replica.commit(1) == 1


def test_ends_between_a_watermark_and_a_cut_behind_it_still_hold_readers() -> None:
    replica = Replica(PLAIN, wrote(7), ended(7), PLAIN, PLAIN)
    assert replica.commit(2) == 1
    replica.cut(4)
    assert replica.log.transactions.ended == [Ended(Offset(1), 2)]
    assert replica.commit(2) == 1
    assert replica.commit(3) == 3


def test_a_cut_that_undoes_commits_holds_readers_at_ends_that_were_committed_before() -> None:
    replica = Replica(PLAIN, wrote(7), ended(7), PLAIN, PLAIN)
    assert replica.commit(5) == 5
    # The watermark goes back to a place that the index knows, below the cut.
    replica.cut(4, is_unclean=True)
    assert replica.log.high_watermark == 0
    assert replica.log.transactions.ended == [Ended(Offset(1), 2)]
    assert [replica.commit(offset) for offset in (3, 4)] == [0, 4]


def test_a_transaction_across_segments_is_told_by_the_one_that_holds_its_marker() -> None:
    """KAFKA-8351."""
    replica = Replica(wrote(7))
    replica.roll()
    replica.append(PLAIN)
    replica.roll()
    replica.append(wrote(8), ended(7, is_abort=True))
    replica.roll()
    told = [each.transactions for each in replica.log.segments[:-1]]
    assert [each and (each.first_open_offset, each.aborted.entries()) for each in told] == [
        (0, []),
        (0, []),
        (2, [AbortedTransaction(7, Offset(0), 3)]),
    ]
    for segment in replica.log.segments[:-1]:
        assert segment.transactions is not None
        assert made(replica, segment.key) == segment.transactions.encode()


def made(replica: Replica, key: SegmentKey) -> bytes:
    """The section of the sidecar that is made from the segment's bytes."""
    segment = replica.log.segment_of(key.base_offset)
    assert segment.producers_before is not None
    before = ProducerState.decode(segment.producers_before)
    builder = SidecarBuilder(SegmentFacts(key=key), before)
    builder.feed(replica.files[key])
    summary, data = builder.finish()
    assert has_transactions(summary)
    section = find_section(summary, TRANSACTIONS)
    found = data[section.byte_position : section.byte_position + section.length_bytes]
    assert section.checksum == checksum(found)
    return found


def test_a_trimmed_beginning_of_an_open_transaction_holds_readers_at_the_logs_start() -> None:
    replica = Replica(PLAIN, wrote(7), PLAIN, PLAIN)
    assert replica.commit(4) == 1
    replica.log.trim(Offset(3), LeaderEpoch(0))
    assert replica.log.last_stable_offset == 3
    replica.append(ended(7, is_abort=True))
    assert replica.commit(5) == 5


def test_a_log_that_goes_on_elsewhere_knows_no_transaction() -> None:
    replica = Replica(wrote(7), ended(7), wrote(8))
    replica.log.cut(None, ProducerState(), Offset(0))
    replica.log.restart(Offset(50), LeaderEpoch(0))
    assert replica.log.last_stable_offset == 50
    assert replica.log.transactions.started == ()
    assert replica.log.transactions.ended == []


@pytest.mark.parametrize(
    "batches",
    [
        (wrote(7, 5), ended(7, 3, coordinator_epoch=2)),
        (ended(7, 5, coordinator_epoch=9), wrote(7, 5), ended(7, 5, coordinator_epoch=2)),
        (ended(7, 5), wrote(7, 4), PLAIN, ended(7, 4, is_abort=True)),
    ],
)
def test_recovery_takes_what_is_stored(batches: Sequence[Batch]) -> None:
    """KAFKA-9144: whether a coordinator may write is judged at new markers, by the leader."""
    live = Replica(*batches).log
    data = b"".join(batch_bytes(each, offset) for offset, each in enumerate(batches))
    found = PartitionLog(PARTITION, LeaderEpoch(0))
    found.begin_segment(SegmentKey(PARTITION, Offset(0)))
    assert scan_data(found, Scan(leader_epoch_max=LeaderEpoch(0)), data) == len(data)
    assert found.producers == live.producers
    assert found.transactions.started == live.transactions.started == ()
    assert found.transactions.ended == live.transactions.ended


@settings(max_examples=60)
@given(stored=batches(), rolls=st.sets(st.integers(0, 40)))
def test_the_order_of_a_log_that_is_read_again_is_the_order_of_the_live_one(
    stored: list[Batch], rolls: set[int]
) -> None:
    """Of batches and markers their places decide, whenever they are looked at."""
    data = segment_bytes(stored)
    live, again = (PartitionLog(PARTITION, LeaderEpoch(2**31 - 1)) for _ in range(2))
    entries: list[AbortedTransaction] = []
    live.begin_segment(SegmentKey(PARTITION, Offset(0)))
    for number, (position, header) in enumerate(iterate_headers(data)):
        if number in rolls and live.segments[-1].size_bytes:
            live.begin_segment(SegmentKey(PARTITION, live.log_end_offset))
        live.take_in(header, marker_of(data, header, position))
    again.begin_segment(SegmentKey(PARTITION, Offset(0)))
    assert scan_data(again, Scan(leader_epoch_max=again.leader_epoch), data) == len(data)
    for segment in live.segments:
        if segment.transactions is not None:
            entries += segment.transactions.aborted.entries()
    told = again.segments[0].transactions
    assert entries == ([] if told is None else told.aborted.entries())
    assert again.transactions.started == live.transactions.started
    assert again.transactions.ended == live.transactions.ended
    check_log(live)


def test_a_control_batch_that_is_no_marker_is_damage() -> None:
    data = bytearray(batch_bytes(ended(7)))
    # The type of the marker, in the last bytes of its key.
    place = bytes(data).index(b"\0\0\0\1", 61) + 3
    data[place] = 7
    stamp_checksum(data)
    found = PartitionLog(PARTITION, LeaderEpoch(0))
    found.begin_segment(SegmentKey(PARTITION, Offset(0)))
    scan = Scan(leader_epoch_max=LeaderEpoch(0))
    assert scan_data(found, scan, bytes(data)) == 0
    assert "its type is 7" in scan.damage


def stamp_checksum(data: bytearray) -> None:
    data[17:21] = checksum(bytes(data[21:])).to_bytes(4, "big")
    stamp(data, 0, base_offset=0, leader_epoch=0)


def test_a_segments_section_comes_back_and_nothing_else_is_believed() -> None:
    told = SegmentTransactions(first_open_offset=9)
    told.note(AbortedTransaction(7, Offset(0), 3))
    data = told.encode()
    assert data.hex() == "0000000000000009" + "000000000000000700000000000000000000000000000003"
    again = SegmentTransactions.decode(data, where="a test")
    assert (again.first_open_offset, again.encode()) == (9, data)
    for wrong in (data[:7], data[:-1], (-2).to_bytes(8, "big", signed=True)):
        with pytest.raises(Exception, match="STORAGE_CORRUPT"):
            SegmentTransactions.decode(wrong, where="a test")
