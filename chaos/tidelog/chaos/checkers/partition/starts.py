"""Invariants of where copies begin: by a leader's word, and of those in sync never above it.

What leaders have decided is collected as it is seen: a start that stands in the log of the very
broker that metadata name as the leader of its start epoch. A copy that begins higher lacks records
that nobody gave up. What an earlier version had trimmed (`own_trims`) is known here beforehand: it
must not count before it was copied anew, and must move nobody else's start. If it leads, a copy
that holds nothing yet begins where it does, and is known as one of its kind: it may come into sync
again as long as its leader lacks the same head, because nobody who is asked could know better.
"""

from collections.abc import Iterator

from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.chaos.checkers.cluster.board import PartitionBoard, Position

Found = Iterator[str]


def note_decided(board: PartitionBoard, node_id: int, log: PartitionLog) -> None:
    """Take note of a start that this replica has decided, as the leader of its start epoch."""
    epoch = log.log_start_epoch
    if epoch == UNKNOWN_EPOCH:
        return
    # An only replica decides also while its broker is fenced, and nobody leads. Of an epoch that no
    # image was seen of whoever leads still is believed.
    believed = node_id if log.decides_its_start else None
    if not log.has_other_replicas or board.leaders.get(epoch, believed) == node_id:
        board.decided_start = max(board.decided_start, log.log_start_offset)


def start_moves_by_a_leaders_word(
    board: PartitionBoard, node_id: int, log: PartitionLog, before: Position
) -> Found:
    """The log start of a copy moves only to where some leader has let its own log begin."""
    start = log.log_start_offset
    if before.log_end_offset == before.log_start_offset and _is_of_own_trim(board, log):
        if start != before.log_start_offset:
            board.note_own_trim(node_id, start)
        return
    if start > max(before.log_start_offset, board.decided_start):
        yield (
            f"start_moved_alone: {board.name} at n{node_id}: its log begins at {start} by the "
            f"word of epoch {log.log_start_epoch}, was at {before.log_start_offset}; leaders have "
            f"decided {board.decided_start}"
        )


def in_sync_holds_the_head(board: PartitionBoard, node_id: int, log: PartitionLog) -> Found:
    """Whoever is in sync holds every record from the leader's log start on, but for those that a
    leader gave up."""
    own_trim = board.own_trims.get(node_id)
    if own_trim is None and _is_of_own_trim(board, log):
        own_trim = board.note_own_trim(node_id, log.log_start_offset)
    if log.log_start_offset <= board.decided_start:
        board.own_trims.pop(node_id, None)
    elif own_trim is None or own_trim.has_left:
        yield (
            f"in_sync_lacks_head: {board.name} at n{node_id}, in sync, begins at "
            f"{log.log_start_offset}, leaders have decided {board.decided_start}"
        )


def _is_of_own_trim(board: PartitionBoard, log: PartitionLog) -> bool:
    """Whether the log begins where one did that led, and that no leader had trimmed."""
    is_undecided = log.log_start_epoch == UNKNOWN_EPOCH
    return is_undecided and board.decided_start < log.log_start_offset <= board.unreadable_below
