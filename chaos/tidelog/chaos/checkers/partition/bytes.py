"""Invariants of what replicas hold: below the watermark they are byte for byte the same.

The first tier compares headers batch by batch as watermarks move, each batch once for each life of
a replica; the second compares all bytes. Compacted topics are left out: their segments differ.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.cluster.board import ClusterBoard, PartitionBoard
from tidelog.chaos.checkers.log.derived import walk
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.metadata.settings.catalogue import CATALOGUE, CLOCK_SKEW_MAX_MS
from tidelog.wire.batch import BatchHeader

_NS_PER_MS: Final = 1_000_000
_OFF_MAX_MS: Final = int(CATALOGUE[CLOCK_SKEW_MAX_MS].default)


class Content(msgspec.Struct, frozen=True):
    """What is committed at a base offset."""

    checksum: int
    leader_epoch: int
    size_bytes: int


class BytesWatch:
    """Of one run."""

    def __init__(self, board: ClusterBoard) -> None:
        self._board = board
        self._contents: dict[tuple[bytes, int], dict[int, Content]] = {}
        self._checked: dict[tuple[str, int, str, int], int] = {}
        """By node, life, partition and cuts, up to which offset it was compared."""

    def check(
        self, node: str, life: int, board: PartitionBoard, log: PartitionLog, medium: Medium
    ) -> None:
        """What became committed since the last look."""
        if board.excuse is not None:
            return
        key = (node, life, board.name, log.cut_count)
        done = self._checked.get(key, -1)
        if done >= log.high_watermark:
            return
        contents = self._contents.setdefault((board.key.topic_id, board.key.partition), {})
        for segment in log.segments:
            if segment.next_offset <= done:
                continue
            data = seen_bytes(medium, segment.key.path) or b""
            for _, header in walk(data[: segment.size_bytes]):
                if header.next_offset > log.high_watermark:
                    break
                if header.base_offset < done:
                    continue
                own = Content(header.crc, header.leader_epoch, header.size_bytes)
                self._check_stamp(board, node, header)
                known = contents.setdefault(header.base_offset, own)
                if known != own:
                    self._board.report(
                        f"replicas_differ: {board.name}: {node} has {own} at "
                        f"{header.base_offset}, {known} was committed there"
                    )
        self._checked[key] = log.high_watermark

    def _check_stamp(self, board: PartitionBoard, node: str, header: BatchHeader) -> None:
        """The time of an append is none before this run, by whichever clock it was stamped: a right
        clock would delete the record for its age. Where a majority is down nobody may know what
        time it is; then one that is ahead is not noticed, and keeps its records for longer, nor is
        one that is behind and has never known better."""
        if not board.is_append_time or int(header.leader_epoch) in board.untimed_epochs:
            return
        now_ms = WALL_START_MS + self._board.now_ns() // _NS_PER_MS
        if header.max_timestamp < WALL_START_MS - _OFF_MAX_MS:
            self._board.report(
                f"stamped_early: {board.name}: {node} has a batch at {header.base_offset} that is "
                f"{now_ms - header.max_timestamp} ms old"
            )

    def compare_whole(
        self, board: PartitionBoard, held: Sequence[tuple[str, PartitionLog, Medium]]
    ) -> None:
        """All bytes below the lowest watermark, of all replicas."""
        if board.excuse is not None or len(held) < 2:
            return
        end = min(log.high_watermark for _, log, _ in held)
        begin = max(log.log_start_offset for _, log, _ in held)
        first: tuple[str, bytes] | None = None
        for node, log, medium in held:
            data = _bytes_between(log, medium, begin, end)
            if first is None:
                first = (node, data)
            elif first[1] != data:
                self._board.report(
                    f"replicas_differ: {board.name}: {first[0]} and {node} hold other bytes "
                    f"between {begin} and {end}"
                )


def _bytes_between(log: PartitionLog, medium: Medium, begin: int, end: int) -> bytes:
    parts = []
    for segment in log.segments:
        data = (seen_bytes(medium, segment.key.path) or b"")[: segment.size_bytes]
        for position, header in walk(data):
            if begin <= header.base_offset and header.next_offset <= end:
                parts.append(data[position : position + header.size_bytes])
    return b"".join(parts)
