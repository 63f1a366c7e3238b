"""Says that a new leader does not know yet how far the log is committed. Pure."""

from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.errors import ErrorCode, TidelogError


def lag_of(log: PartitionLog, tried: str) -> TidelogError | None:
    """Why the end is not known yet; None: it is.

    Whatever an earlier leader had committed lies below the start of the present leader's epoch.
    """
    starts = log.leader_epochs.starts
    is_written = bool(starts) and starts[-1].epoch == log.leader_epoch
    epoch_start = starts[-1].start_offset if is_written else log.log_end_offset
    if log.high_watermark >= epoch_start:
        return None
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=tried,
        happened=f"the high watermark is at {log.high_watermark}, below {epoch_start}, where "
        f"leader epoch {log.leader_epoch} began: more may be committed",
        hint="ask again: the followers of a new leader tell it within moments",
    )
