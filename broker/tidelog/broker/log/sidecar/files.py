"""Reads segments and their sidecars inside a job: thin I/O over `JobFiles`.

It must never read more than a piece at a time of what grows with a segment, but for sections that
are asked for whole. What it reads is checked before it is handed on.
"""

from collections.abc import Generator
from typing import Final

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.blocks import corrupt_sidecar
from tidelog.broker.log.sidecar.builder import SidecarBuilder, segment_damage
from tidelog.broker.log.sidecar.codec import (
    FIRST_READ_BYTES,
    PRODUCERS,
    TRANSACTIONS,
    check_section,
    decode_summary,
    find_section,
    has_transactions,
    summary_end,
)
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.ports.worker import JobFiles

PIECE_BYTES: Final = 1024 * 1024
"""Read at a time: a job yields at least once a MiB."""


def read_summary(files: JobFiles, key: SegmentKey) -> Summary | None:
    """Of the sidecar; None: there is no such file."""
    path = key.sidecar_path
    file_bytes = files.size_bytes(path)
    if file_bytes < 0:
        return None
    data = files.read(path, 0, FIRST_READ_BYTES)
    end = summary_end(data, key)
    if end > len(data) == FIRST_READ_BYTES:
        data = files.read(path, 0, end)
    return decode_summary(data, key, file_bytes=file_bytes)


def read_section(files: JobFiles, summary: Summary, name: str) -> Generator[int, None, bytes]:
    """A whole section of the sidecar that the summary was read from."""
    section = find_section(summary, name)
    path, pieces = summary.key.sidecar_path, []
    end = section.byte_position + section.length_bytes
    for position in range(section.byte_position, end, PIECE_BYTES):
        pieces.append(files.read(path, position, min(PIECE_BYTES, end - position)))
        yield len(pieces[-1])
    return check_section(summary.key, section, b"".join(pieces))


def read_producers(files: JobFiles, summary: Summary) -> Generator[int, None, ProducerState]:
    """The state behind the segment's last batch."""
    data = yield from read_section(files, summary, PRODUCERS)
    return ProducerState.decode(data, where=f"the producers in {summary.key.sidecar_path}")


def read_transactions(
    files: JobFiles, summary: Summary
) -> Generator[int, None, SegmentTransactions | None]:
    """What the segment tells of transactions; None: it has to do with none."""
    if not has_transactions(summary):
        return None
    data = yield from read_section(files, summary, TRANSACTIONS)
    where = f"the transactions in {summary.key.sidecar_path}"
    return SegmentTransactions.decode(data, where=where)


def read_before(
    files: JobFiles, previous: SegmentKey | None, base_offset: int
) -> Generator[int, None, tuple[tuple[EpochStart, ...], ProducerState]]:
    """Leader epochs and producers before the segment that begins at the offset, as the sidecar of
    the one before tells them; nothing if there is none."""
    summary = read_summary(files, previous) if previous is not None else None
    if summary is None:
        return (), ProducerState()
    if summary.next_offset > base_offset:
        raise corrupt_sidecar(
            summary.key, 0, f"its segment ends at offset {summary.next_offset}, behind the next"
        )
    producers = yield from read_producers(files, summary)
    return summary.leader_epochs, producers


def feed_segment(
    files: JobFiles, builder: SidecarBuilder, key: SegmentKey, size_bytes: int = -1
) -> Generator[int, None, None]:
    """All bytes of the segment's file, which must be as long as `size_bytes` says, if it says so.

    Whoever finds it shorter or longer than it must be learns of damage before that first.
    """
    file_bytes = files.size_bytes(key.path)
    if file_bytes < 0:
        raise segment_damage(key, 0, "the file is not there")
    wanted_bytes = file_bytes if size_bytes < 0 else size_bytes
    position = 0
    while position < min(wanted_bytes, file_bytes):
        data = files.read(key.path, position, min(PIECE_BYTES, wanted_bytes - position))
        if not data:
            raise segment_damage(key, position, f"it ends there, {file_bytes} bytes were there")
        builder.feed(data)
        position += len(data)
        yield len(data)
    if file_bytes != wanted_bytes:
        raise segment_damage(
            key, position, f"it has {file_bytes} bytes, {wanted_bytes} belong to it"
        )
