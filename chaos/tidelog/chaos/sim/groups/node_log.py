"""The log of `__groups` of whole nodes, shown to the watch batch by batch as it is committed.

Owns how far each partition was read. It reads as soon as a leader's watermark moves: a moment later
the segment may be closed and compacted, and what that leaves of the owners no longer tells who
owned a partition when one of the offsets that stay was committed.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.groups.state.messages import AppendRecords, StoredRecord
from tidelog.broker.groups.state.records import MEANINGLESS
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.checkers.log.derived import walk
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.wire.batch import decode_batch
from tidelog.wire.ids import PartitionKey

Place = tuple[str, str]
"""A file of a medium."""


class CommittedGroups:
    """Of one run, all partitions."""

    def __init__(self, watch: GroupsWatch, now_ns: Callable[[], int]) -> None:
        self.watch: Final = watch
        self._now_ns: Final = now_ns
        self._read_to: Final[dict[PartitionKey, int]] = {}
        self._positions: Final[dict[Place, int]] = {}
        """Behind the last committed batch that was read of a file: what is committed stays there
        for as long as the file has its name."""
        self.batches = 0

    def partitions(self) -> list[PartitionKey]:
        """Those in which anything is committed."""
        return sorted(self._read_to)

    def see(self, log: PartitionLog, medium: Medium) -> None:
        """A log of `__groups` whose leader may have committed more."""
        for segment in log.segments:
            if segment.next_offset <= self._read_to.get(log.key, 0):
                continue
            place = (medium.name, segment.key.path)
            begin = self._positions.get(place, 0)
            data = (seen_bytes(medium, segment.key.path) or b"")[begin : segment.size_bytes]
            for position, header in walk(data):
                if header.next_offset > log.high_watermark:
                    break
                self._positions[place] = begin + position + header.size_bytes
                if header.base_offset < self._read_to.get(log.key, 0):
                    continue
                self._check_whole(log.key, header.base_offset)
                self._read_to[log.key] = int(header.next_offset)
                if not header.is_control:
                    self._show(data, position)

    def _check_whole(self, key: PartitionKey, base_offset: int) -> None:
        """What was compacted before it was read is no history any more."""
        read_to = self._read_to.get(key, 0)
        if base_offset > read_to:
            self.watch.violations.append(f"unread: {key} goes on at {base_offset}, not {read_to}")

    def _show(self, data: bytes, position: int) -> None:
        records = tuple(
            StoredRecord(key, value)
            for _, _, _, key, value, _ in decode_batch(data, position, is_compacted=True)
            if key is not None and key != MEANINGLESS
        )
        self.batches += 1
        if records:
            self.watch.now_ns = self._now_ns()
            self.watch.on_committed(AppendRecords(token=1, records=records))
