"""What becomes of sealed segments: a sidecar takes the place of memory, a compaction theirs. Pure.

Owns the comparison of what a sidecar says with what the log knew when it wrote the segment. It must
never give up what is in memory for a sidecar that says something else: then the file was damaged
between the write and its reading, and the partition stops.
"""

from tidelog.broker.directory.core import stopping
from tidelog.broker.directory.core.messages import RemoveFiles, ReplaceSegments, SegmentSealed
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.leader_epochs import EpochStart, LeaderEpochs
from tidelog.broker.log.sidecar.blocks import block_seed, frame_blocks
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, find_section
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.sidecar.index import INDEX
from tidelog.broker.log.state.log import NO_GAPS, PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError


def on_sealed(state: DirectoryState, message: SegmentSealed) -> None:
    """Let go of what the sidecar tells as well."""
    partition = state.partitions.get(message.key.partition)
    if partition is None or partition.log.failure is not None:
        return
    log = partition.log
    segment = next((each for each in log.segments if each.key == message.key), None)
    cut = partition.cut
    is_being_cut = cut is not None and segment is not None and segment.next_offset > cut.offset
    is_overtaken = is_being_cut or message.cut_count not in (None, log.cut_count)
    if segment is None or not segment.is_sealed or is_overtaken:
        # Trimmed, replaced or cut while the job ran: the sidecar tells of what is no more.
        state.emit(RemoveFiles(sidecars=(message.key,)))
        return
    segment.judge_producers(
        are_whole=_is_state_before_known(log, segment)
        and not _has_forgotten(segment, message.summary)
    )
    happened = _difference(log, segment, message.summary)
    if happened:
        error = TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=f"seal {segment.key.path}", happened=happened
        )
        stopping.fail_partition(state, log.key, error)
    else:
        segment.take_summary(message.summary)


def on_replaced(state: DirectoryState, message: ReplaceSegments) -> None:
    """Segments that a compaction has written take the place of others; those go."""
    made = tuple(summary.key for summary in message.made)
    partition = state.partitions.get(message.key)
    if partition is None:
        return
    log = partition.log
    present = [segment for segment in log.segments if segment.key in message.removed]
    # A trim may have taken the first of them meanwhile; a cut those behind some offset.
    is_whole = tuple(segment.key for segment in present) == message.removed[-len(present) :]
    is_cut = partition.cut is not None or message.cut_count not in (None, log.cut_count)
    is_cut = is_cut or not all(segment.is_sealed for segment in present)
    if not present or not is_whole or is_cut:
        state.emit(RemoveFiles(segments=made))
        return
    segments = [Segment.from_summary(summary) for summary in message.made]
    for segment in segments:
        segment.judge_producers(are_whole=present[-1].are_producers_whole)
    log.replace(present, segments)
    state.emit(RemoveFiles(segments=tuple(segment.key for segment in present)))


def _difference(log: PartitionLog, segment: Segment, summary: Summary) -> str:
    """What the summary says otherwise than the log; empty: nothing."""
    for what, found, known in (
        ("ends at offset", summary.next_offset, segment.next_offset),
        ("has a length of", summary.size_bytes, segment.size_bytes),
    ):
        if found != known:
            return f"its file {what} {found}, {known} was written"
    # Of batches without records, which a follower may copy, a sidecar tells no time.
    if log.gaps_from == NO_GAPS and summary.max_timestamp != segment.max_timestamp:
        return (
            f"its highest timestamp is {summary.max_timestamp}, {segment.max_timestamp} was written"
        )
    if _epochs(log, segment, summary.leader_epochs) != _epochs(
        log, segment, log.leader_epochs.starts
    ):
        return f"its leader epochs are {summary.leader_epochs}, not {log.leader_epochs.starts}"
    sums = {section.name: section.checksum for section in summary.sections}
    if segment.index is not None:
        blocks = frame_blocks(block_seed(segment.key, INDEX), segment.index.packed())
        if sums.get(INDEX) != checksum(blocks):
            return "the index made from its file is not the one that was kept while it was written"
    producers = segment.producers_at_end
    is_measure = segment.are_producers_whole and segment.were_producers_known
    if producers is None or not is_measure:
        return ""
    if sums.get(PRODUCERS) != checksum(producers):
        return "the producers in its file are not those that wrote it"
    transactions = segment.transactions
    if sums.get(TRANSACTIONS) != (transactions and checksum(transactions.encode())):
        return "the transactions in its file are not those that were written"
    return ""


def _epochs(
    log: PartitionLog, segment: Segment, starts: tuple[EpochStart, ...]
) -> tuple[EpochStart, ...]:
    """As far as both must agree: a job that finds no sidecar before begins with the segment."""
    epochs = LeaderEpochs(starts)
    epochs.truncate(segment.next_offset)
    epochs.trim(max(log.log_start_offset, segment.base_offset))
    return epochs.starts


def _has_forgotten(segment: Segment, made: Summary) -> bool:
    """Whether a sidecar that was made again may tell less of producers than the one before it:
    compaction drops batches that they are made of. Whoever goes by it knows less than the log."""
    known = segment.summary
    if known is None:
        return segment.is_compacted
    return find_section(known, PRODUCERS).checksum != find_section(made, PRODUCERS).checksum


def _is_state_before_known(log: PartitionLog, segment: Segment) -> bool:
    """Whether the job could begin with the producers as the log knew them at the segment."""
    place = log.segments.index(segment)
    if place == 0:
        return segment.base_offset == 0 or segment.producers_before is not None
    before = log.segments[place - 1]
    return before.summary is not None and before.are_producers_whole
