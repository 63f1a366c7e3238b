"""Invariants of stored bytes and of time find replicas that differ, and what a wrong clock did."""

from tests.chaos.checkers.test_cluster_invariants import (
    KEY,
    board_of,
    log_at,
    partition,
    stored,
    topic,
)
from tidelog.chaos.checkers.cluster.board import ClusterBoard, PartitionBoard
from tidelog.chaos.checkers.partition import steps
from tidelog.chaos.checkers.partition.bytes import BytesWatch
from tidelog.chaos.sim.ports.clock import WALL_START_MS


def test_nothing_is_deleted_before_it_is_old_by_a_right_clock() -> None:
    of_an_hour = topic(partition(), retention_ms="3600000")
    board = PartitionBoard(KEY, of_an_hour, partition())
    by_size = topic(partition(), retention_ms="3600000", retention_bytes="9")

    def found(board: PartitionBoard, start: int, age_ms: int, trimmed_to: int = 0) -> int:
        log = log_at(9, watermark=9, start=start)
        by_clock = steps.starts_by_the_clusters_clock
        return len(list(by_clock(board, "n1", log, age_ms=age_ms, trimmed_to=trimmed_to)))

    assert found(board, 0, 10_000) == 0
    assert found(board, 4, 3_600_000) == 0
    assert found(board, 4, 3_599_999) == 1
    assert found(board, 4, 0, trimmed_to=4) == 0
    assert found(board, 4, 0, trimmed_to=3) == 1
    assert found(board_of(), 4, 10**12) == 1, "never by time"
    assert found(PartitionBoard(KEY, by_size, partition()), 4, 0) == 0


def stamps(
    times_ms: tuple[int, ...], *, topic_type: str, untimed: tuple[int, ...] = ()
) -> list[str]:
    board = ClusterBoard(now_ns=lambda: 9_000_000_000)
    of_type = topic(partition(), message_timestamp_type=topic_type)
    one, watch = PartitionBoard(KEY, of_type, partition()), BytesWatch(board)
    one.untimed_epochs = dict.fromkeys(untimed)
    log, medium = stored("a", "b", times_ms=times_ms, watermark=2)
    watch.check("n1", 1, one, log, medium)
    return [text.split(":")[0] for text in board.violations]


def test_the_time_of_an_append_is_none_before_the_run() -> None:
    right, day = WALL_START_MS + 8_000, 86_400_000
    assert stamps((right, right + 1_000), topic_type="LogAppendTime") == []
    assert stamps((right, right - day), topic_type="LogAppendTime") == ["stamped_early"]
    assert stamps((right + day, 0), topic_type="LogAppendTime") == ["stamped_early"]
    assert stamps((0, right + day), topic_type="CreateTime") == []


def test_a_leader_that_has_never_known_better_may_stamp_too_early_in_its_own_epoch_alone() -> None:
    early = (WALL_START_MS, 0)
    assert stamps(early, topic_type="LogAppendTime", untimed=(1,)) == []
    assert stamps(early, topic_type="LogAppendTime", untimed=(2,)) == ["stamped_early"]


def differing(ours: tuple[str, ...], theirs: tuple[str, ...], watermark: int) -> list[str]:
    board, one = ClusterBoard(), board_of()
    watch = BytesWatch(board)
    held = [stored(*ours, watermark=watermark), stored(*theirs, watermark=watermark)]
    for number, (log, medium) in enumerate(held):
        watch.check(f"n{number}", 1, one, log, medium)
    watch.compare_whole(one, [(f"n{n}", log, medium) for n, (log, medium) in enumerate(held)])
    return board.violations


def test_replicas_are_the_same_below_the_watermark() -> None:
    assert differing(("a", "b"), ("a", "b"), 2) == []
    assert differing(("a", "b"), ("a", "c"), 1) == []
    found = differing(("a", "b"), ("a", "c"), 2)
    assert {text.split(":")[0] for text in found} == {"replicas_differ"}
    assert len(found) == 2, "headers one by one, and all bytes"
