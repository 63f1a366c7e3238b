"""Shows the watch of transactions what whole nodes have committed, batch by batch, log by log.

Owns how far each log was read. It reads as soon as a leader's watermark moves, before anybody is
answered, and before a compaction can take anything out of what it has not read.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.log.derived import walk
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.checkers.transactions.watch import TransactionsWatch
from tidelog.chaos.sim.ports.medium import Medium
from tidelog.metadata.internal_topics import TRANSACTIONS_TOPIC
from tidelog.wire.batch import BatchHeader, decode_batch
from tidelog.wire.batch.marker import MarkerType, read_marker
from tidelog.wire.ids import PartitionKey


class CommittedTransactions:
    """Of one run, all logs."""

    def __init__(self, watch: TransactionsWatch, name_of: Callable[[PartitionKey], str]) -> None:
        self._watch: Final = watch
        self._name_of: Final = name_of
        self._read_to: Final[dict[PartitionKey, int]] = {}
        self._positions: Final[dict[tuple[str, str], int]] = {}
        """By medium and file, behind the last committed batch that was read."""
        self._stable: Final[dict[tuple[str, int, PartitionKey], int]] = {}
        """By node, its life and the log, the last stable offset that it showed last."""

    def see(self, log: PartitionLog, medium: Medium) -> None:
        """A log whose leader may have committed more."""
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
                self._read_to[log.key] = int(header.next_offset)
                self._show(log.key, data, position, header)

    def see_stable(self, name: str, life: int, log: PartitionLog) -> None:
        """Of any replica: it never falls in one life."""
        place, stable = (name, life, log.key), int(log.last_stable_offset)
        before = self._stable.get(place, 0)
        if stable < before and log.log_start_offset <= stable:
            self._watch.report(
                f"stable_fell: of {self._name_of(log.key)}-{log.key.partition} at {name} from "
                f"{before} to {stable}"
            )
        self._stable[place] = stable
        if stable > max(log.high_watermark, log.log_start_offset):
            self._watch.report(
                f"stable_ahead: of {log.key} at {name} {stable} is above the watermark "
                f"{log.high_watermark}"
            )

    def _show(self, key: PartitionKey, data: bytes, position: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_marker(data, header, position)
            self._watch.on_marker(
                key,
                header.producer_id,
                header.producer_epoch,
                is_commit=marker.type is MarkerType.COMMIT,
                coordinator_epoch=marker.coordinator_epoch,
                offset=int(header.base_offset),
            )
        elif header.is_transactional:
            self._watch.on_data(
                key, header.producer_id, header.producer_epoch, int(header.base_offset)
            )
        elif self._name_of(key) == TRANSACTIONS_TOPIC:
            for _, _, _, name, value, _ in decode_batch(data, position, is_compacted=True):
                if name is not None:
                    self._watch.on_record(name, value)
