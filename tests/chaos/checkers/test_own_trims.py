"""Which copies are trimmed as an earlier version did, and how far."""

import msgspec
import pytest

from tests.chaos.checkers.test_cluster_invariants import (
    begun,
    board_of,
    image,
    partition,
    topic,
)
from tidelog.chaos.checkers.cluster.board import ClusterBoard, OwnTrim, PartitionBoard, Position
from tidelog.chaos.checkers.partition import starts
from tidelog.chaos.sim.cluster.own_trims import start_in
from tidelog.chaos.sim.cluster.small_files import may_keep_a_head
from tidelog.metadata.image.image import PartitionImage
from tidelog.wire.ids import PartitionId, PartitionKey


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


def see(board: ClusterBoard, *shown: PartitionImage) -> PartitionBoard:
    """Show one image after the other."""
    for version, each in enumerate(shown, board.newest.version + 1):
        board.see_image(image(version, topic(each)))
    (held,) = board.partitions.values()
    return held


@pytest.mark.parametrize(
    ("leader", "epoch", "start", "is_by_right"),
    [
        (2, 2, 6, True),
        (2, 2, 7, False),
        (3, 2, 6, False),
        (3, 4, 6, True),
    ],
)
def test_a_copy_without_its_head_comes_back_into_sync_where_its_leader_lacks_the_same_head(
    *, leader: int, epoch: int, start: int, is_by_right: bool
) -> None:
    """Who leads in an image that nobody has shown may lack it as well."""
    board = ClusterBoard()
    held = see(board, partition(leader=2, epoch=1))
    held.note_own_trim(2, 6)
    held.unreadable_below = 6
    see(board, partition(leader=leader, epoch=2, partition_epoch=2, in_sync=(2, 3)))
    held.note_own_trim(1, start)
    assert held.own_trims[1].has_left
    see(
        board,
        partition(leader=leader, epoch=2, partition_epoch=3, in_sync=(2, 3)),
        partition(leader=leader, epoch=epoch, partition_epoch=4),
    )
    found = list(starts.in_sync_holds_the_head(held, 1, begun(start, -1)))
    assert bool(found) is not is_by_right


@pytest.mark.parametrize(("partition_epoch", "is_by_right"), [(2, False), (3, True)])
def test_a_copy_may_have_come_into_sync_unseen_before_it_was_trimmed(
    *, partition_epoch: int, is_by_right: bool
) -> None:
    board = ClusterBoard()
    held = see(board, partition(partition_epoch=1, in_sync=(1, 3)))
    held.note_own_trim(2, 6)
    see(board, partition(partition_epoch=partition_epoch))
    found = list(starts.in_sync_holds_the_head(held, 2, begun(6, -1)))
    assert bool(found) is not is_by_right


def test_one_that_took_the_head_from_its_leader_is_known_so_also_when_the_topic_is_gone() -> None:
    board = ClusterBoard()
    held = see(board, partition())
    held.unreadable_below = 6
    assert not list(starts.start_moves_by_a_leaders_word(held, 2, begun(6, -1), Position()))
    assert held.own_trims[2].start == 6
    assert board.is_headless(held.key, 2)
    assert not board.is_headless(held.key, 3)
    board.see_image(image(9))
    assert board.is_headless(held.key, 2)
    assert not board.is_headless(PartitionKey(held.key.topic_id, PartitionId(7)), 2)


def test_one_that_was_copied_anew_lacks_what_its_new_leader_lacks() -> None:
    held = see(ClusterBoard(), partition(in_sync=(1, 3)))
    held.note_own_trim(2, 7)
    held.unreadable_below = 7
    empty = Position(log_start_offset=7, log_end_offset=7)
    assert not list(starts.start_moves_by_a_leaders_word(held, 2, begun(5, -1), empty))
    assert held.own_trims[2].start == 5
    held.own_trims[2].has_left = False
    assert not list(
        starts.start_moves_by_a_leaders_word(
            held, 2, begun(5, -1), Position(log_start_offset=5, log_end_offset=5)
        )
    )
    assert not held.own_trims[2].has_left, "it stands where it stood"
