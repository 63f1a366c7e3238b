"""Marks that wait to be written, and what waits for them to be durable. Pure.

Owns the way of a mark: noted, written with the next batches or by itself, flushed with the round
after that. It must never let a mark of one partition go by another way than the marks before it:
the last one of a kind counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.broker.directory.core.promises import Cut, CutPhase, Promise, Removal
from tidelog.broker.log.marks.marks import Mark, MarkKind, start_marks
from tidelog.broker.log.state.log import NO_GAPS
from tidelog.wire.ids import Offset, PartitionKey

if TYPE_CHECKING:
    from tidelog.broker.directory.core.rounds import WriteRound


class PendingMarks:
    """What a directory's marks have still to say."""

    __slots__ = (
        "_are_committed_due",
        "_are_flushes_due",
        "_committed",
        "_postponed",
        "_promises",
        "are_unflushed",
        "flushed",
        "written_promises",
    )

    def __init__(self) -> None:
        self.flushed: dict[PartitionKey, Offset] = {}
        """FLUSHED marks to be written."""
        self._postponed: dict[PartitionKey, Offset] = {}
        """Of a write that did not fit: written with the next batches, not by themselves."""
        self._committed: dict[PartitionKey, Offset] = {}
        """COMMITTED marks to be written, with whatever is written next."""
        self._are_committed_due = False
        """Nothing was written for so long that they are written by themselves; flushed with what
        comes, as the death of the process alone loses nothing that was written."""
        self._promises: list[Promise] = []
        """Of which the marks are to be written."""
        self.are_unflushed = False
        self._are_flushes_due = False
        """Nothing was flushed for so long that marks are flushed by themselves."""
        self.written_promises: list[Promise] = []
        """Of which the marks are written, and wait for a round."""

    @property
    def committed(self) -> Mapping[PartitionKey, Offset]:
        """COMMITTED marks to be written."""
        return self._committed

    @property
    def is_write_due(self) -> bool:
        """Whether marks are written also without batches."""
        return bool(self.flushed or self._promises or self._are_committed_due)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits but COMMITTED marks, which go with what comes."""
        return not (self.flushed or self.are_unflushed or self._promises or self.written_promises)

    def is_flush_due(self, *, is_quiet: bool, is_stopping: bool) -> bool:
        """Whether marks are flushed also without batches: after a quiet tick, or when somebody
        waits for them."""
        is_due = is_quiet and (self._are_flushes_due or is_stopping)
        return self.are_unflushed and (is_due or bool(self.written_promises))

    def all_promises(self) -> list[Promise]:
        """Those that wait for a write, then those that wait for a round."""
        return [*self._promises, *self.written_promises]

    def note_flushed(self, key: PartitionKey, offset: Offset) -> None:
        """All below the offset is durable."""
        self.flushed[key] = offset

    def note_committed(self, key: PartitionKey, offset: Offset) -> None:
        """One of several replicas has committed so far."""
        self._committed[key] = offset

    def promise(self, promise: Promise) -> None:
        """Write its marks; it comes true once they are durable."""
        self._promises.append(promise)

    def unsay_flushed(self, key: PartitionKey) -> None:
        """A lower mark is about to be asked for: none that says more comes behind it."""
        self.flushed.pop(key, None)
        self._postponed.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """The partition is served no more."""
        self.unsay_flushed(key)
        self._committed.pop(key, None)

    def postpone(self, flushed: dict[PartitionKey, Offset]) -> None:
        """These did not fit: they go with the next batches."""
        self._postponed = flushed

    def go_with(self, round_: WriteRound) -> None:
        """Write all that waits with this write."""
        flushed = {**self._postponed, **self.flushed}
        self.flushed, self._postponed = {}, {}
        marks = [Mark(key, MarkKind.FLUSHED, offset) for key, offset in flushed.items()]
        committed_count = len(self._committed)
        self._are_committed_due = False
        if committed_count:
            committed, self._committed = self._committed, {}
            marks += [Mark(key, MarkKind.COMMITTED, offset) for key, offset in committed.items()]
        for plan in round_.plans:
            if plan.gaps_from != NO_GAPS:
                marks.append(Mark(plan.segment.partition, MarkKind.GAPS, plan.gaps_from))
        promises, self._promises = self._promises, []
        # Behind the others: a cut lowers what one of them may have said.
        for promise in promises:
            marks += _marks_of(promise)
        round_.take_marks(marks, promises, is_flush_wanted=len(marks) > committed_count)

    def note_written(self, promises: list[Promise]) -> None:
        """Marks were written that something waits for, or that a start should know."""
        self.are_unflushed = True
        self.written_promises += promises

    def take_written(self) -> list[Promise]:
        """The round that begins covers all marks that were written; what it makes true."""
        self.are_unflushed = self._are_flushes_due = False
        promises, self.written_promises = self.written_promises, []
        return promises

    def note_quiet(self) -> None:
        """A tick has passed: what waits for others to go with goes by itself now."""
        self._are_committed_due = bool(self._committed)
        self._are_flushes_due = self.are_unflushed

    def drop_all(self) -> None:
        """The disk has failed: nothing is written any more."""
        self.flushed, self._postponed, self._committed = {}, {}, {}
        self._promises, self.written_promises = [], []
        self.are_unflushed = False


def _marks_of(promise: Promise) -> list[Mark]:
    """What is to be durable before the promise is kept."""
    if isinstance(promise, Removal):
        kinds = (MarkKind.FLUSHED, MarkKind.COMMITTED, MarkKind.LOG_START)
        return [Mark(promise.key, kind, 0) for kind in kinds]
    if not isinstance(promise, Cut):
        return start_marks(promise.key, promise.offset, promise.start_epoch)
    if promise.phase is CutPhase.RESTARTING:
        assert promise.restart is not None, f"{promise.key}: it goes on where it was"
        return start_marks(promise.key, promise.restart.offset, promise.restart.start_epoch)
    # Not the offset that was asked for: the batch that holds it goes as a whole.
    log = promise.partition.log
    marks = [Mark(promise.key, MarkKind.FLUSHED, log.flushed_offset)]
    if promise.is_undoing_commits:
        marks.append(Mark(promise.key, MarkKind.COMMITTED, log.flushed_offset))
    return marks
