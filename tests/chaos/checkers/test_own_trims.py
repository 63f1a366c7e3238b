"""Which copies are trimmed as an earlier version did, and how far."""

import msgspec
import pytest

from tests.chaos.checkers.test_cluster_invariants import board_of, image, partition, topic
from tidelog.chaos.checkers.cluster.board import ClusterBoard, OwnTrim, PartitionBoard, Position
from tidelog.chaos.sim.cluster.own_trims import start_in
from tidelog.chaos.sim.cluster.small_files import may_keep_a_head
from tidelog.metadata.image.image import PartitionImage


def held(*, watermark: int) -> PartitionBoard:
    """All three copies end at 20; what the second knows as committed is another matter."""
    board = board_of()
    board.committed = 16
    board.positions = {
        node_id: Position(log_end_offset=20, flushed_offset=20, high_watermark=16)
        for node_id in (1, 2, 3)
    }
    board.positions[2].high_watermark = watermark
    return board


@pytest.mark.parametrize(("watermark", "start"), [(16, 15), (9, 8), (0, -1)])
def test_a_copy_is_trimmed_below_the_watermark_that_it_knows_itself(
    watermark: int, start: int
) -> None:
    assert start_in(held(watermark=watermark), 2) == start


def test_a_copy_is_not_trimmed_while_others_have_not_flushed_or_are_moved() -> None:
    board = held(watermark=16)
    board.positions[3].flushed_offset = 7
    assert start_in(board, 2) == 6
    board.was_moved = True
    board.image = msgspec.structs.replace(
        board.image, in_sync_replicas=board.image.in_sync_replicas[:2]
    )
    assert start_in(board, 2) == -1


@pytest.mark.parametrize(
    ("shown", "has_left", "unreadable_below"),
    [
        ((partition(leader=2, epoch=2),), False, 6),
        ((partition(leader=2, epoch=2), partition(leader=3, epoch=3)), True, 6),
        ((partition(leader=3, epoch=2),), False, 0),
        ((partition(leader=3, epoch=2), partition(leader=1, epoch=3)), False, 0),
        ((partition(leader=3, epoch=3),), False, 6),
        ((partition(leader=3, epoch=3),), True, 0),
        ((partition(leader=3, epoch=3, in_sync=(1, 3)),), False, 6),
    ],
)
def test_what_lies_below_a_trimmed_copy_is_not_to_be_read_if_it_was_elected_whoever_saw_it_lead(
    shown: tuple[PartitionImage, ...], *, has_left: bool, unreadable_below: int
) -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition())))
    (held,) = board.partitions.values()
    held.own_trims[2] = OwnTrim(start=6, has_left=has_left)
    for version, each in enumerate(shown, 2):
        board.see_image(image(version, topic(each)))
    assert held.unreadable_below == unreadable_below


def test_a_leader_that_is_trimmed_while_it_is_dead_has_not_led_so_yet() -> None:
    board = ClusterBoard()
    board.see_image(image(1, topic(partition(leader=2))))
    (held,) = board.partitions.values()
    held.own_trims[2] = OwnTrim(start=6)
    board.see_image(image(2, topic(partition(leader=2), minimum=1)))
    board.see_image(image(3, topic(partition(leader=3, epoch=2))))
    assert held.unreadable_below == 0


def test_no_copy_is_cut_while_another_one_is_trimmed_by_its_own_node() -> None:
    board = held(watermark=16)
    assert not may_keep_a_head(board, 1)
    board.own_trims[2] = OwnTrim(start=15)
    assert may_keep_a_head(board, 1), "cut below 15 it would wait for an operator"
    assert not may_keep_a_head(board, 2), "the others hold all that it holds"
    assert not may_keep_a_head(board, 4), "it has no copy"
