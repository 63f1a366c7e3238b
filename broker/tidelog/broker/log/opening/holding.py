"""Holds readers of committed records back, where an opening has not read what they may read. Thin
I/O.

After an unclean stop the watermark of a replica may lie in a sealed segment, or before one, that
was not read: its sidecar tells which transactions were aborted in it, but not which were committed,
nor where each of them ended. One that ends above the watermark has not ended for good. Until the
watermark has passed the segment, readers wait where the first of them can have begun.
"""

from itertools import pairwise

from tidelog.broker.log.opening.files import read_transactions
from tidelog.broker.log.sidecar.codec import has_transactions
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.broker.log.transactions.of_segment import NONE_OPEN
from tidelog.broker.log.transactions.open import Ended
from tidelog.ports import Disk
from tidelog.wire.ids import Offset


async def hold_readers(disk: Disk, log: PartitionLog) -> None:
    """Of one of several replicas that was opened from its files; its last segment was read."""
    for before, segment in pairwise((None, *log.segments[:-1])):
        summary = segment.summary if segment is not None else None
        if summary is None or not has_transactions(summary):
            continue
        if summary.next_offset > log.high_watermark:
            first_offset = await _first_offset(disk, log, before, summary.base_offset)
            log.transactions.hold(Ended(first_offset, summary.next_offset - 1))


async def _first_offset(
    disk: Disk, log: PartitionLog, before: Segment | None, base_offset: Offset
) -> Offset:
    """No transaction that ends in the segment at the offset begins below."""
    if before is None:
        return log.log_start_offset
    if before.summary is None:
        assert before.is_sealed, f"{before.key.path} is followed by another"
        told = before.transactions
    elif has_transactions(before.summary):
        told = await read_transactions(disk, before.summary)
        if told is None:
            return log.log_start_offset
    else:
        told = None
    is_open = told is not None and told.first_open_offset != NONE_OPEN
    return Offset(told.first_open_offset) if told is not None and is_open else base_offset
