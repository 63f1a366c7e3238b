"""Reads a sealed segment batch by batch inside the job: thin I/O over `JobFiles`.

Owns the verification of what goes into a compaction: header, chain of base offsets, order of leader
epochs, every checksum, and that all adds up to what the summary says. It must never hold more than
one piece and one batch, nor hand out a batch that it has not verified.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from tidelog.broker.log.compaction.cleaning import StoredBatch
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.state.recovery import corruption
from tidelog.ports.worker import JobFiles
from tidelog.wire.batch import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    BatchHeader,
    peek_size,
    read_header,
    verify_checksum,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BytePosition

PIECE_BYTES: Final = 1024 * 1024
"""Read at a time: a job yields at least once a MiB."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one read has brought."""

    bytes_read: int
    batches: list[StoredBatch]
    """Those that are whole now."""


def read_batches(files: JobFiles, summary: Summary) -> Generator[Piece, None, None]:
    """All batches of the segment; STORAGE_CORRUPT names file and byte."""
    chain = _Chain(summary)
    file_bytes = files.size_bytes(summary.key.path)
    if file_bytes != summary.size_bytes:
        first_wrong = max(0, min(file_bytes, summary.size_bytes))
        raise chain.damage(first_wrong, f"it has {file_bytes} bytes, not {summary.size_bytes}")
    rest = b""
    position = 0
    while position < file_bytes:
        data = files.read(summary.key.path, position, min(PIECE_BYTES, file_bytes - position))
        if not data:
            raise chain.damage(position, "it ends there")
        position += len(data)
        rest += data
        batches, used_bytes = chain.take(rest)
        rest = rest[used_bytes:]
        yield Piece(bytes_read=len(data), batches=batches)
    chain.finish(rest)


class _Chain:
    """What the next batch must fit, and what has been seen."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        offsets = summary.next_offset - summary.base_offset
        # A follower that copies a compacted log has gaps in segments that it never compacted.
        self._has_gaps = summary.is_compacted or summary.record_count < offsets
        self._position = 0
        self._next_offset = summary.base_offset
        self._leader_epoch = -1
        self._batch_count = 0
        self._record_count = 0

    def take(self, data: bytes) -> tuple[list[StoredBatch], int]:
        """The whole batches at the front of the bytes, and how many bytes they have."""
        batches: list[StoredBatch] = []
        at = 0
        while len(data) - at >= HEADER_BYTES:
            try:
                size_bytes = peek_size(data, at) or 0
                if BATCH_BYTES_MAX >= size_bytes > len(data) - at:
                    break
                header = read_header(data, at, is_compacted=self._has_gaps)
                verify_checksum(data, header, at)
            except TidelogError as error:
                raise self.damage(self._position, error.happened) from None
            self._note(header)
            batch = data[at : at + size_bytes]
            batches.append(
                StoredBatch(byte_position=BytePosition(self._position), header=header, data=batch)
            )
            self._position += size_bytes
            at += size_bytes
        return batches, at

    def _note(self, header: BatchHeader) -> None:
        base_offset, expected = header.base_offset, self._next_offset
        is_gap = self._has_gaps and base_offset > expected
        if base_offset != expected and not is_gap:
            raise self.damage(self._position, f"its base offset is {base_offset}, not {expected}")
        if header.leader_epoch < self._leader_epoch:
            raise self.damage(
                self._position,
                f"its leader epoch is {header.leader_epoch}, after {self._leader_epoch}",
            )
        self._next_offset = header.next_offset
        self._leader_epoch = header.leader_epoch
        self._batch_count += 1
        self._record_count += header.record_count

    def finish(self, rest: bytes) -> None:
        """Everything was read: it must be what the summary says."""
        summary = self._summary
        if rest:
            raise self.damage(self._position, f"the batch is cut off after {len(rest)} bytes")
        found = (self._next_offset, self._batch_count, self._record_count)
        if found != (summary.next_offset, summary.batch_count, summary.record_count):
            raise self.damage(
                self._position,
                f"it ends at offset {found[0]} after {found[1]} batches of {found[2]} records, its "
                f"sidecar says {summary.next_offset}, {summary.batch_count} and "
                f"{summary.record_count}",
            )

    def damage(self, byte_position: int, happened: str) -> TidelogError:
        """File and byte."""
        return corruption(self._summary.key.path, byte_position, happened, verb="compact")
