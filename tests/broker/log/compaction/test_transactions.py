"""Transactions in compaction: what was aborted goes, markers stay as long as anybody needs them."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.broker.support.compaction_log import (
    EAGER,
    CompactedLog,
    batch,
    keyed,
    log_of,
    marker,
)
from tidelog.broker.log.compaction.contract import CompactArguments
from tidelog.broker.log.compaction.planner import plan_compaction
from tidelog.broker.log.compaction.transactions import RoundTransactions
from tidelog.broker.log.transactions.aborted import AbortedIndex, AbortedTransaction, encode_aborted
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.wire.batch import DecodedRecord, RecordTuple, read_header
from tidelog.wire.ids import Offset

LATER_MS = 10_000
MUCH_LATER_MS = 10**9
"""Behind every horizon that a round at `LATER_MS` gives."""


def wrote(
    records: Sequence[RecordTuple], base_offset: int, producer_id: int = 5, sequence: int = 0
) -> bytes:
    """A batch of a transaction."""
    return batch(
        records,
        base_offset,
        producer_id=producer_id,
        base_sequence=sequence,
        is_transactional=True,
    )


def shown(records: Sequence[DecodedRecord]) -> list[str]:
    return [
        f"{offset} {(key or b'').decode()}={'-' if value is None else value.decode()}"
        for offset, _, _, key, value, _ in records
    ]


def markers(log: CompactedLog) -> list[int]:
    return [header.base_offset for header, _ in log.batches() if header.is_control]


def compact_anew(log: CompactedLog, now_ms: int) -> None:
    """A round over the whole log: something new at its end makes it due."""
    log.seal([batch([keyed("new", str(log.next_offset))], log.next_offset)])
    assert log.compact(now_ms=now_ms) is not None


def test_aborted_records_go_whatever_their_key_and_supersede_nothing() -> None:
    log = CompactedLog()
    log.seal(
        [
            batch([keyed("a", "1"), keyed("b", "1")], 0),
            wrote([keyed("a", "2"), keyed("only here", "2"), keyed("b", None)], 2),
            marker(5, 5, is_abort=True),
            batch([keyed("c", "1")], 6),
        ]
    )
    log.compact(now_ms=LATER_MS)
    assert shown(log.records()) == ["0 a=1", "1 b=1", "6 c=1"]


def test_committed_records_count_as_any_others() -> None:
    log = CompactedLog()
    log.seal(
        [
            batch([keyed("a", "1"), keyed("b", "1")], 0),
            wrote([keyed("a", "2"), keyed("b", None)], 2),
            marker(4, 5),
            batch([keyed("c", "1")], 5),
        ]
    )
    log.compact(now_ms=LATER_MS)
    assert shown(log.records()) == ["2 a=2", "3 b=-", "5 c=1"]
    compact_anew(log, MUCH_LATER_MS)
    assert shown(log.records()) == ["2 a=2", "5 c=1", "6 new=6"]


def test_a_batch_is_judged_by_the_transactions_as_they_were_where_it_stands() -> None:
    """KAFKA-20036: the same producer commits, aborts, and commits again."""
    log = CompactedLog()
    log.seal(
        [
            wrote([keyed("a", "committed")], 0, sequence=0),
            marker(1, 5),
            wrote([keyed("b", "aborted")], 2, sequence=1),
            marker(3, 5, is_abort=True),
            wrote([keyed("c", "committed")], 4, sequence=2),
            marker(5, 5),
            batch([keyed("z", "1")], 6),
        ]
    )
    for _ in range(2):
        log.compact(now_ms=LATER_MS)
        assert shown(log.records()) == ["0 a=committed", "4 c=committed", "6 z=1"]


def test_a_batch_that_is_read_again_is_judged_as_before() -> None:
    ranges = RoundTransactions(
        AbortedIndex(
            encode_aborted(
                [
                    AbortedTransaction(5, Offset(10), 15),
                    AbortedTransaction(6, Offset(12), 18),
                    AbortedTransaction(5, Offset(20), 25),
                ]
            )
        ),
        is_from_start=True,
    )
    for _ in range(2):
        for producer_id, aborted in (
            (5, {10, 12, 14, 20, 24}),
            (6, {12, 14, 16, 17}),
            (7, set[int]()),
        ):
            found = set()
            for offset in (9, 10, 12, 14, 16, 17, 19, 20, 24, 26):
                header = read_header(wrote([keyed("a", "1")], offset, producer_id))
                if ranges.is_aborted(header):
                    found.add(offset)
            assert found == aborted


def test_a_transaction_across_segments_is_known_by_its_marker_behind_the_round() -> None:
    log = CompactedLog()
    log.seal([batch([keyed("a", "1")], 0), wrote([keyed("a", "aborted")], 1)])
    # The marker lies in a segment that is too large to be joined, and in the active one.
    log.aborted_behind = [AbortedTransaction(5, Offset(1), 9)]
    log.compact(now_ms=LATER_MS)
    assert shown(log.records()) == ["0 a=1"]


def test_compaction_stays_below_the_last_stable_offset() -> None:
    log = log_of([[keyed("a", "1")]], [[keyed("a", "2")]], [[keyed("a", "3")]])
    for bound, ends in ((3, 3), (2, 2), (1, 1), (0, None)):
        plan = plan_compaction(
            log.segments, EAGER, now_ms=LATER_MS, may_expire=True, bound_offset=bound
        )
        assert (None if plan is None else plan.arguments.segments[-1].next_offset) == ends


def test_a_marker_stays_until_all_batches_of_it_are_gone_and_the_horizon_is_past() -> None:
    log = CompactedLog()
    # Of a coordinator that does not raise epochs: the producer's last batch keeps its header.
    first = marker(2, 5, producer_epoch=0)
    log.seal([batch([keyed("z", "1")], 0), wrote([keyed("a", "1")], 1), first])
    compact_anew(log, LATER_MS)
    compact_anew(log, MUCH_LATER_MS)
    assert markers(log) == [2], "its batch has the latest record of a key"
    log.seal([batch([keyed("a", "2")], log.next_offset)])
    compact_anew(log, 2 * MUCH_LATER_MS)
    compact_anew(log, 3 * MUCH_LATER_MS)
    assert markers(log) == [2], "its batch has no record, and is there"
    end = log.next_offset
    log.seal([wrote([keyed("b", "1")], end, sequence=1), marker(end + 1, 5, producer_epoch=0)])
    compact_anew(log, 4 * MUCH_LATER_MS)
    assert markers(log)[0] == 2, "its horizon has just been given"
    compact_anew(log, 4 * MUCH_LATER_MS + EAGER.delete_retention_ms - 1)
    assert markers(log)[0] == 2
    compact_anew(log, 4 * MUCH_LATER_MS + EAGER.delete_retention_ms)
    assert markers(log) == [end + 1]


def test_while_the_clock_may_be_wrong_no_marker_goes() -> None:
    log = CompactedLog()
    log.seal([marker(0, 5), marker(1, 5), batch([keyed("z", "1")], 2)])
    for now_ms in (LATER_MS, MUCH_LATER_MS):
        log.seal([batch([keyed("new", str(log.next_offset))], log.next_offset)])
        log.compact(now_ms=now_ms, may_expire=False)
    assert markers(log) == [0, 1]


def test_control_records_are_never_merged_by_their_constant_key() -> None:
    log = CompactedLog()
    log.seal(
        [
            # A record of a user with a marker's key.
            batch([(1, b"\0\0\0\1", b"\0" * 6, ())], 0),
            wrote([keyed("a", "1")], 1, producer_id=5),
            marker(2, 5),
            wrote([keyed("b", "1")], 3, producer_id=6),
            marker(4, 6),
            wrote([keyed("c", "1")], 5, producer_id=7),
            marker(6, 7, is_abort=True),
            batch([keyed("z", "1")], 7),
        ]
    )
    log.compact(now_ms=LATER_MS)
    assert markers(log) == [2, 4, 6]
    assert [record[0] for record in log.records()] == [0, 1, 3, 7]


def test_compaction_of_a_part_of_the_log_keeps_the_aborted_index() -> None:
    """KAFKA-13727: the transaction began in a segment before, and its batch there stays as it is
    because the map was full."""
    log = CompactedLog()
    log.seal([batch([keyed("z", "1")], 0), wrote([keyed("a", "aborted")], 1)])
    log.seal([wrote([keyed("b", "aborted")], 2, sequence=1), marker(3, 5, is_abort=True)])
    log.seal([batch([keyed("y", "1")], 4)])
    told = [AbortedTransaction(5, Offset(1), 3)]
    assert log.aborted() == told
    # Only the second segment is written again.
    arguments = CompactArguments(
        segments=(log.segments[1],),
        first_dirty_offset=log.segments[1].next_offset,
        is_from_start=False,
        now_ms=LATER_MS,
        delete_retention_ms=0,
        segment_bytes=1,
        aborted=encode_aborted(told),
    )
    for _ in range(3):
        arguments = replace(arguments, segments=(log.segments[1],), now_ms=arguments.now_ms + 1)
        for replacement in log.run(arguments).replacements:
            log.swap(replacement)
    assert markers(log) == [3]
    assert log.aborted() == told


def test_the_entry_of_an_aborted_transaction_goes_with_its_marker() -> None:
    log = CompactedLog()
    log.seal([batch([keyed("z", "1")], 0), wrote([keyed("a", "1")], 1)])
    log.seal([marker(2, 5, is_abort=True), wrote([keyed("b", "1")], 3, 6), marker(4, 6)])
    for _ in range(3):
        compact_anew(log, LATER_MS)
    assert markers(log) == [2, 4]
    assert log.aborted() == [AbortedTransaction(5, Offset(1), 2)]
    compact_anew(log, MUCH_LATER_MS)
    assert markers(log) == [4]
    assert log.aborted() == []


def test_a_copy_of_what_is_left_has_no_transaction_open() -> None:
    """Redpanda 26.1.3: a batch without its marker would hold readers for ever."""
    log = CompactedLog()
    log.seal(
        [wrote([keyed("a", "1")], 0), marker(1, 5, is_abort=True), batch([keyed("z", "1")], 2)]
    )
    for now_ms in (LATER_MS, MUCH_LATER_MS, 2 * MUCH_LATER_MS):
        compact_anew(log, now_ms)
        copy = OpenTransactions()
        for header, data in log.batches():
            if header.is_transactional:
                copy.note(header, marker_of(data, header))
        assert not copy.started
    # Its producer is still known, by the header of its last batch.
    assert markers(log) == [1]


def test_a_marker_that_is_needed_at_a_segments_end_makes_no_round_due() -> None:
    log = CompactedLog()
    log.seal([wrote([keyed("a", "1")], 0), marker(1, 5), wrote([keyed("a", "2")], 2), marker(3, 5)])
    log.compact(now_ms=LATER_MS)
    for now_ms in (MUCH_LATER_MS, 2 * MUCH_LATER_MS):
        while log.compact(now_ms=now_ms) is not None:
            pass
    assert markers(log)[-1] == 3
    assert log.plan(now_ms=3 * MUCH_LATER_MS) is None
