"""Whether a follower's log is a prefix of the leader's, and where the two part. Pure.

Owns the rule of divergence. A follower's end counts for nothing before it has passed here: behind
the point where the logs part it stands for other records.
"""

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    Divergence,
    FollowerPosition,
)
from tidelog.wire.ids import LeaderEpoch, Offset


def divergence_of(
    log: PartitionLog, position: FollowerPosition, *, is_unclean: bool
) -> Divergence | None:
    """None: all of the follower's log is in the leader's, or was before that was trimmed.

    `is_unclean`: what the follower takes for committed the leader may never have had.
    """
    end_offset = position.log_end_offset
    if position.is_empty and end_offset <= log.log_start_offset:
        return None
    if position.last_epoch == NO_EPOCH:
        if is_unclean:
            # It begins where another leader's log began: of this one's it would miss the head.
            return Divergence(NO_EPOCH, log.log_start_offset)
        if end_offset <= log.log_end_offset:
            return None
        return Divergence(LeaderEpoch(log.leader_epochs.latest), log.log_end_offset)
    epoch, epoch_end = log.leader_epochs.end_offset_of(position.last_epoch, log.log_end_offset)
    if epoch == NO_EPOCH:
        # Also below its start: all there was committed, but the follower may have another's.
        return Divergence(NO_EPOCH, log.log_start_offset)
    if epoch == position.last_epoch and end_offset <= epoch_end:
        return None
    return Divergence(LeaderEpoch(epoch), Offset(epoch_end))


def cut_offset_of(log: PartitionLog, divergence: Divergence) -> Offset:
    """At the follower: where its log parts from the leader's, as far as one answer tells."""
    end_offset = divergence.end_offset
    if divergence.leader_epoch != NO_EPOCH:
        epochs = log.leader_epochs
        _, own_end = epochs.end_offset_of(divergence.leader_epoch, log.log_end_offset)
        end_offset = Offset(min(end_offset, max(own_end, log.log_start_offset)))
    return end_offset
