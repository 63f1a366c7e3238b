"""Which copies are trimmed as an earlier version did, and how far."""

import msgspec
import pytest

from tests.chaos.checkers.test_cluster_invariants import board_of
from tidelog.chaos.checkers.cluster.board import PartitionBoard, Position
from tidelog.chaos.sim.cluster.own_trims import start_in


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
