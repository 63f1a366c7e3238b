"""Invariants of a replica after each step that moved it: watermark, end, flush, election.

Every function is given the partition's board, the node and what its log says, and yields what must
not be. docs/simulation.md lists them.
"""

from collections.abc import Collection, Iterator, Mapping

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.cluster.board import PartitionBoard, Position

Found = Iterator[str]


def offsets_in_order(board: PartitionBoard, node: str, log: PartitionLog) -> Found:
    """Start, watermark and end of a log stand in this order."""
    if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
        yield (
            f"offset_order: {board.name} at {node}: {log.log_start_offset}, "
            f"{log.high_watermark}, {log.log_end_offset}"
        )


def starts_by_the_clusters_clock(
    board: PartitionBoard, node: str, log: PartitionLog, *, age_ms: int, trimmed_to: int
) -> Found:
    """Nothing is deleted by time before it is old by a right clock. `age_ms`: how old the oldest
    record may be; `trimmed_to`: below which offset clients have asked to delete."""
    is_young = board.retention_ms < 0 or age_ms < board.retention_ms
    if log.log_start_offset > trimmed_to and is_young and board.is_kept_by_time_alone:
        yield (
            f"deleted_too_early: {board.name} at {node} begins at {log.log_start_offset}, no "
            f"record is older than {age_ms} ms, retention.ms is {board.retention_ms}"
        )


def watermark_never_falls(
    board: PartitionBoard, node: str, log: PartitionLog, before: Position
) -> Found:
    """In one life of a process, whatever it becomes."""
    if log.high_watermark < before.high_watermark:
        yield (
            f"falling_watermark: {board.name} at {node}: {before.high_watermark} became "
            f"{log.high_watermark}"
        )


def nothing_committed_is_truncated(
    board: PartitionBoard, node: str, log: PartitionLog, before: Position
) -> Found:
    """A log is never cut below what it knew as committed."""
    if log.log_end_offset < before.high_watermark:
        yield (
            f"truncated_below_watermark: {board.name} at {node} ends at {log.log_end_offset}, "
            f"its watermark was {before.high_watermark}"
        )


def watermark_waits_for_enough(
    board: PartitionBoard,
    node: str,
    log: PartitionLog,
    before: Position,
    in_sync: int,
    in_sync_min: int,
) -> Found:
    """A leader's watermark moves only while as many are in sync as the topic asks for."""
    if log.high_watermark > before.high_watermark and in_sync < in_sync_min:
        yield (
            f"watermark_below_minimum: {board.name} at {node} moved to {log.high_watermark} "
            f"with {in_sync} in sync, {in_sync_min} are wanted"
        )


def watermark_waits_for_all(
    board: PartitionBoard, node: str, log: PartitionLog, in_sync: Mapping[str, PartitionLog]
) -> Found:
    """All that is committed is in every log of the in-sync set, flushed there with flush=sync."""
    if len(in_sync) < 2:
        return
    for name, other in in_sync.items():
        end = other.flushed_offset if board.is_flush_sync else other.log_end_offset
        if end < log.high_watermark:
            kind = "flushed" if board.is_flush_sync else "stored"
            yield (
                f"watermark_ahead: {board.name}: {node} has committed up to "
                f"{log.high_watermark}, {name}, in sync, has {kind} up to {end}"
            )


def watermark_is_flushed(board: PartitionBoard, node: str, log: PartitionLog) -> Found:
    """With flush=sync nothing is committed that its holder has not flushed."""
    if board.is_flush_sync and log.high_watermark > log.flushed_offset:
        yield (
            f"watermark_not_flushed: {board.name} at {node}: the watermark is "
            f"{log.high_watermark}, flushed is {log.flushed_offset}"
        )


def watermark_of_one_is_flushed(
    board: PartitionBoard, node: str, log: PartitionLog, before: Position
) -> Found:
    """Whatever the topic says, a leader that is in sync alone commits what it has flushed."""
    if before.high_watermark < log.high_watermark > log.flushed_offset:
        yield (
            f"watermark_in_one_memory: {board.name} at {node}, in sync alone, moved to "
            f"{log.high_watermark}, flushed is {log.flushed_offset}"
        )


def in_sync_holds_committed(board: PartitionBoard, node: str, log: PartitionLog) -> Found:
    """Whoever is in sync holds everything that is committed."""
    if log.log_end_offset < board.committed:
        yield (
            f"in_sync_lacks: {board.name} at {node}, in sync, ends at {log.log_end_offset}, "
            f"committed is {board.committed}"
        )


def leader_holds_committed(
    board: PartitionBoard, node: str, log: PartitionLog, leader_epoch: int
) -> Found:
    """Whoever is elected holds what was committed when it was."""
    wanted = board.epochs.get(leader_epoch, 0)
    if log.log_end_offset < wanted:
        yield (
            f"leader_lacks: {board.name}: {node} leads epoch {leader_epoch} and ends at "
            f"{log.log_end_offset}, {wanted} was committed before"
        )


def one_leader_an_epoch(board: PartitionBoard, node_id: int, leader_epoch: int) -> Found:
    """Only the broker that metadata name leads an epoch."""
    image = board.image
    if leader_epoch == image.leader_epoch and node_id != image.leader_id:
        yield (
            f"two_leaders: {board.name}: node {node_id} leads epoch {leader_epoch}, metadata "
            f"name {image.leader_id}"
        )


def nobody_counts_on_old_copies(
    board: PartitionBoard, epochs: Mapping[int, int], ends: Mapping[int, int]
) -> Found:
    """A replica in a directory that went back in time is neither in sync nor eligible, from the
    moment in which its broker may lead, until it holds what is committed.

    `epochs`: of the brokers that may lead; `ends`: where the logs end that are open.
    """
    image = board.image
    if len(image.replicas) == 1:
        return
    for node_id, epoch_before in board.old_copies.items():
        is_registered = epochs.get(node_id, epoch_before) > epoch_before
        is_sure = node_id in (*image.in_sync_replicas, *image.eligible_replicas)
        if is_registered and is_sure and ends.get(node_id, -1) < board.committed:
            yield (
                f"old_copy_counts: {board.name}: node {node_id} counts as sure to hold everything "
                "with a directory that went back in time"
            )


def left_alone_with_all_flushed(board: PartitionBoard, node: str, flushed_offset: int) -> Found:
    """The others go from beside an only replica once what is committed is on its disk."""
    if flushed_offset < board.committed:
        yield (
            f"left_alone: {board.name} is left to {node}, which has flushed up to "
            f"{flushed_offset}, committed is {board.committed}"
        )


def losses_have_causes(
    board: PartitionBoard, shaken: Collection[int], went_back: Collection[int] = ()
) -> Found:
    """Nobody is sure to hold everything only where no disk was promised to hold it, and the
    machine of each that was sure has crashed, or has an empty disk now; or where the directory of
    one of them went back in time."""
    image = board.image
    if image.in_sync_replicas or len(image.replicas) < 2 or board.damaged:
        return
    if any(each in went_back for each in image.last_known_eligible):
        return
    if board.is_flush_sync:
        yield f"lost_in_sync: {board.name}: nobody is in sync, though all of it was flushed"
    for node_id in image.last_known_eligible:
        if node_id not in shaken:
            yield (
                f"lost_in_sync: {board.name}: node {node_id} is not sure to hold everything, "
                "and its machine has never crashed nor lost its disk"
            )
