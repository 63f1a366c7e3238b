"""The tail of what is led here, in memory: what one follower was sent a moment ago serves the next.

Owns a bounded number of bytes, of all partitions together; what came first goes first. Followers in
sync stand at nearly the same place, so that a log's end is read and verified once for all of them,
not once for each. It must never serve bytes of a log that was cut, opened anew or led in another
epoch since: then all that is kept of the partition is dropped.
"""

from collections import deque
from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.wire.batch import checksum
from tidelog.wire.ids import PartitionKey

CHAIN_MAX: Final = 256
"""Pieces in one answer: each holds a batch at least."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Whole verified batches."""

    data: bytes
    next_offset: int
    crc: int
    """Of the bytes."""


class _OfPartition:
    """What is kept of one partition, by the offset that it was asked for by."""

    __slots__ = ("cut_count", "leader_epoch", "log", "pieces")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.leader_epoch = log.leader_epoch
        self.cut_count = log.cut_count
        self.pieces: dict[int, Piece] = {}

    def is_of(self, log: PartitionLog) -> bool:
        """Whether the log has only grown since, if anything."""
        return (
            log is self.log
            and log.leader_epoch == self.leader_epoch
            and log.cut_count == self.cut_count
        )


class Tail:
    """One a broker, asked by every live stream."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._partitions: dict[PartitionKey, _OfPartition] = {}
        self._order: deque[tuple[_OfPartition, int]] = deque()
        self.size_bytes = 0

    def find(self, log: PartitionLog, offset: int, max_bytes: int) -> Piece | None:
        """What is kept from the offset on: one piece at least, more as far as they fit."""
        kept = self._partitions.get(log.key)
        if kept is None or not kept.is_of(log):
            return None
        first = kept.pieces.get(offset)
        if first is None:
            return None
        chain, size_bytes, next_offset = [first.data], len(first.data), first.next_offset
        while len(chain) < CHAIN_MAX:
            piece = kept.pieces.get(next_offset)
            if piece is None or size_bytes + len(piece.data) > max_bytes:
                break
            chain.append(piece.data)
            size_bytes += len(piece.data)
            next_offset = piece.next_offset
        if len(chain) == 1:
            return first
        data = b"".join(chain)
        return Piece(data, next_offset, checksum(data))

    def keep(self, log: PartitionLog, offset: int, data: bytes, next_offset: int) -> Piece:
        """What was just read of the log from the offset on."""
        assert data, "nothing is not kept"
        piece = Piece(data, next_offset, checksum(data))
        kept = self._partitions.get(log.key)
        if kept is None or not kept.is_of(log):
            kept = self._partitions[log.key] = _OfPartition(log)
        if offset not in kept.pieces:
            kept.pieces[offset] = piece
            self._order.append((kept, offset))
            self.size_bytes += len(data)
        self._shrink()
        return piece

    def _shrink(self) -> None:
        while self.size_bytes > self._bytes_max and self._order:
            kept, offset = self._order.popleft()
            self.size_bytes -= len(kept.pieces.pop(offset).data)
            if not kept.pieces and self._partitions.get(kept.log.key) is kept:
                del self._partitions[kept.log.key]
