"""Writes a compacted segment and its sidecar inside the job: thin I/O over `JobFiles`.

Owns the two unfinished files of one group. What is written is verified once more by the builder of
sidecars as it goes by. Leader epochs and producers are those behind the last segment that is
replaced: batches that compaction drops have taken part in both.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from tidelog.broker.log.compaction.contract import OFFSETS_PER_SEGMENT_MAX, Replacement
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import UNFINISHED_SUFFIX, SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, encode_sidecar
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.ports.worker import JobFiles
from tidelog.wire.ids import Offset

WRITE_BYTES: Final = 1024 * 1024
"""Written at a time: a job yields at least once a MiB."""


class SegmentWriter:
    """One group's new segment: `add` its batches, `drain` now and then, `finish`."""

    def __init__(
        self, files: JobFiles, group: tuple[Summary, ...], *, cleaned_below: int, created: list[str]
    ) -> None:
        first, last = group[0], group[-1]
        assert last.next_offset - first.base_offset <= OFFSETS_PER_SEGMENT_MAX, "a group too wide"
        self._files = files
        self._epochs = _epochs(group)
        self._facts = SegmentFacts(
            key=SegmentKey(
                first.key.partition,
                Offset(first.base_offset),
                1 + max(each.generation for each in group),
            ),
            is_contiguous=False,
            next_offset=last.next_offset,
            cleaned_below=_cleaned_below(group, cleaned_below),
            replaces=tuple(Replaced(each.base_offset, each.generation) for each in group),
        )
        self._builder = SidecarBuilder(self._facts)
        self._created = created
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.bytes_written = 0
        self._log_path = self._facts.key.path + UNFINISHED_SUFFIX
        self._create(self._log_path)

    def _create(self, path: str) -> None:
        self._files.create(path)
        self._created.append(path)

    def add(self, data: bytes) -> None:
        """The next batch."""
        self._builder.feed(data)
        self._pending.append(data)
        self._pending_bytes += len(data)

    def drain(self, *, is_last: bool = False) -> Generator[int, None, None]:
        """Write what has gathered, if it is enough to be worth it."""
        if not self._pending_bytes or (self._pending_bytes < WRITE_BYTES and not is_last):
            return
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        yield from self._append(self._log_path, data)

    def finish(
        self, producers: ProducerState, transactions: SegmentTransactions | None = None
    ) -> Generator[int, None, Replacement]:
        """Flush the segment, then its sidecar; `producers`: those behind the last replaced,
        `transactions`: what all that are replaced tell of them."""
        yield from self.drain(is_last=True)
        self._files.flush(self._log_path)
        summary, data = _carried_over(
            *self._builder.finish(), self._epochs, producers, transactions
        )
        path = summary.key.sidecar_path + UNFINISHED_SUFFIX
        self._create(path)
        yield from self._append(path, data)
        self._files.flush(path)
        return Replacement(made=summary)

    def _append(self, path: str, data: bytes) -> Generator[int, None, None]:
        view = memoryview(data)
        for start in range(0, len(data), WRITE_BYTES):
            piece = view[start : start + WRITE_BYTES]
            self._files.append(path, [piece])
            self.bytes_written += len(piece)
            yield len(piece)


def _cleaned_below(group: tuple[Summary, ...], cleaned_below: int) -> int:
    """A round that reads a segment for its tombstones only has compared its keys with nothing."""
    return max(cleaned_below, min(each.cleaned_below for each in group))


def _epochs(group: tuple[Summary, ...]) -> tuple[EpochStart, ...]:
    """The whole history up to the group's end. The last segment's sidecar tells it all, unless it
    was made again without the ones before it: then they still know."""
    starts: dict[int, int] = {}
    for each in group:
        for start in each.leader_epochs:
            starts.setdefault(start.epoch, start.start_offset)
    return tuple(EpochStart(epoch, starts[epoch]) for epoch in sorted(starts))


def _carried_over(
    summary: Summary,
    data: bytes,
    epochs: tuple[EpochStart, ...],
    producers: ProducerState,
    transactions: SegmentTransactions | None,
) -> tuple[Summary, bytes]:
    """The sidecar with these instead of what the batches that are left tell."""
    sections = {
        each.name: data[each.byte_position : each.byte_position + each.length_bytes]
        for each in summary.sections
    }
    sections[PRODUCERS] = producers.encode()
    sections.pop(TRANSACTIONS, None)
    if transactions is not None:
        sections[TRANSACTIONS] = transactions.encode()
    carried = msgspec.structs.replace(summary, leader_epochs=epochs, sections=())
    return encode_sidecar(carried, sections)
