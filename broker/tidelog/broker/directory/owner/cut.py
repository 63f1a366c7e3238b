"""Cuts the tail of a log on the disk and reads again what is left of its last segment.

Thin I/O: the core has seen to it that nothing else is written to the partition, and that the marks
no longer promise what goes. It must never leave a log with a hole in it, whenever it is
interrupted, nor change anything before what stays was read and found whole.
"""

from typing import Final

from tidelog.broker.directory.core.messages import CutTail, TailCut
from tidelog.broker.directory.owner.files import SegmentFiles
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.opening.files import read_producers, read_summary, size_of
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.recovery import corruption
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.ports import Disk
from tidelog.wire.batch import CorruptBatch, peek_size, read_header, verify_checksum
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, Offset

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Read at a time: one batch fits whatever its size; between two pieces others come in turn."""


async def cut_tail(disk: Disk, files: SegmentFiles, effect: CutTail) -> TailCut:
    """What is left of the last segment, once the cut is durable."""
    left = PartitionLog(effect.key, NO_LEADER_EPOCH)
    known = await _producers_before(disk, effect)
    if known is None and effect.has_transactions_before:
        assert effect.before is not None, f"{effect.key}: nothing lies before its first segment"
        raise corruption(
            f"{disk.name}/{effect.before.sidecar_path}",
            0,
            "it does not tell which transactions are open behind its segment",
            verb="cut",
        )
    left.know_producers(ProducerState() if known is None else known)
    removed = effect.later
    segment = None
    if effect.last is not None:
        # A job that has begun to give names to what it made of the segment comes to its end.
        await files.wait_unread(effect.last)
        await _read_again(disk, files, left, effect, effect.last)
        segment = left.segments[-1]
        if segment.next_offset < effect.log_start_offset:
            removed, segment = (effect.last, *effect.later), None
    await files.remove_last_first(removed)
    if segment is not None:
        directory = directory_name(effect.key)
        await files.remove((), (segment.key,))
        await disk.flush([], directories=[directory])
        file = await files.opened(segment.key)
        await disk.truncate(file, segment.size_bytes)
        await disk.flush([file], directories=[directory])
    is_all_known = known is not None and (
        effect.producers_before is None or effect.is_all_before_known
    )
    return TailCut(
        segment=segment,
        producers=left.producers,
        are_producers_known=is_all_known,
        ended=tuple(left.transactions.ended),
    )


async def _producers_before(disk: Disk, effect: CutTail) -> ProducerState | None:
    """The state behind the segment before, as memory or its sidecar tells it; None: it is lost."""
    if effect.producers_before is not None:
        return ProducerState.decode(effect.producers_before)
    before = effect.before
    if before is None:
        is_from_zero = effect.last is None or not effect.last.base_offset
        return ProducerState() if is_from_zero else None
    name = before.sidecar_path.rpartition("/")[2]
    if name not in await disk.list(directory_name(effect.key)):
        return None
    summary = await read_summary(disk, before, await size_of(disk, before))
    return None if summary is None else await read_producers(disk, summary)


async def _read_again(
    disk: Disk, files: SegmentFiles, left: PartitionLog, effect: CutTail, last: SegmentKey
) -> None:
    """Take the batches that end at or before the cut into the log `left`."""
    left.log_end_offset = last.base_offset
    segment = left.begin_segment(last)
    file = await files.opened(last)
    while segment.size_bytes < file.size_bytes:
        data = await disk.read(file, segment.size_bytes, PIECE_BYTES)
        try:
            if _take_batches(left, data, effect.offset):
                return
        except TidelogError as error:
            raise corruption(
                f"{disk.name}/{last.path}", segment.size_bytes, error.happened, verb="cut"
            ) from None


def _take_batches(left: PartitionLog, data: bytes, cut_offset: Offset) -> bool:
    """Take the whole batches at the front of `data`, at least one; True: the next one reaches
    behind the cut."""
    position = 0
    while position < len(data):
        size_bytes = peek_size(data, position)
        if position and (size_bytes is None or position + size_bytes > len(data)):
            return False
        header = read_header(data, position, is_compacted=True)
        if header.next_offset > cut_offset:
            return True
        verify_checksum(data, header, position)
        if (
            header.base_offset < left.log_end_offset
            or header.leader_epoch < left.leader_epochs.latest
        ):
            raise CorruptBatch(
                tried="read on",
                happened=f"a batch of leader epoch {header.leader_epoch} begins at offset "
                f"{header.base_offset}, the one before ends at {left.log_end_offset}",
            )
        left.take_in(header, marker_of(data, header, position) if header.is_control else None)
        position += header.size_bytes
    return False
