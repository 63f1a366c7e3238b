"""What is kept in memory of logs' ends."""

from tests.broker.support.copy_log import CopyLog
from tidelog.broker.replication.leader.tail import Tail


def kept(tail: Tail, log: CopyLog, offset: int, max_bytes: int = 1) -> None:
    """One batch, as it was read of the log."""
    piece = log.piece(offset, max_bytes, log.log.log_end_offset)
    assert piece is not None
    tail.keep(log.log, offset, piece.data, piece.next_offset)


def filled(count: int) -> CopyLog:
    log = CopyLog()
    log.lead(1)
    for number in range(count):
        log.write(b"%d" % number)
    return log


def test_what_one_follower_was_sent_serves_the_next() -> None:
    tail, log = Tail(1_000), filled(1)
    assert tail.find(log.log, 0, 1_000) is None
    kept(tail, log, 0)
    assert tail.find(log.log, 0, 1_000) == log.piece(0, 1_000, 1)


def test_pieces_behind_one_another_are_joined_as_far_as_they_fit() -> None:
    tail, log = Tail(10_000), filled(4)
    size = log.batches[0][0].size_bytes
    for offset in range(4):
        kept(tail, log, offset)
    assert tail.find(log.log, 0, 10_000) == log.piece(0, 10_000, 4)
    assert tail.find(log.log, 1, 2 * size) == log.piece(1, 2 * size, 4)
    assert tail.find(log.log, 0, 1) == log.piece(0, 1, 4), "one whatever its size"
    assert tail.find(log.log, 4, 10_000) is None


def test_its_bytes_are_bounded_and_what_came_first_goes_first() -> None:
    log = filled(10)
    size = log.batches[0][0].size_bytes
    tail = Tail(3 * size)
    for offset in range(10):
        kept(tail, log, offset)
        assert tail.size_bytes <= 3 * size
    assert [tail.find(log.log, offset, 1) is not None for offset in range(10)] == (
        [False] * 7 + [True] * 3
    )


def test_nothing_is_served_of_a_log_that_was_cut_or_is_led_anew() -> None:
    tail, log = Tail(1_000), filled(2)
    kept(tail, log, 0)
    log.lead(2)
    assert tail.find(log.log, 0, 1) is None
    kept(tail, log, 0)
    assert tail.find(log.log, 0, 1) is not None
    log.log.cut_count += 1
    assert tail.find(log.log, 0, 1) is None


def test_nothing_is_served_of_a_log_that_was_opened_anew() -> None:
    tail, log = Tail(1_000), filled(2)
    kept(tail, log, 0)
    assert tail.find(filled(2).log, 0, 1) is None


def test_what_was_dropped_with_its_log_leaves_the_budget_as_well() -> None:
    log = filled(3)
    size = log.batches[0][0].size_bytes
    tail = Tail(2 * size)
    kept(tail, log, 0)
    log.lead(2)
    kept(tail, log, 0)
    kept(tail, log, 1)
    kept(tail, log, 2)
    assert tail.size_bytes == 2 * size
    assert tail.find(log.log, 2, 1) is not None
