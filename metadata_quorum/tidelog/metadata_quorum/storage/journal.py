"""The journal: segments of blocks, one block a write, each flushed before the next is begun.

Owns the segment files and what is known of the log without its entries. A segment's name holds the
sequence of its first block and of the block before that, so that the name alone proves what had
been flushed. Nothing is ever cut off a segment except a block that could not be written; a log is
cut by a later block that says so. A failed flush is final, and so is a write that was broken off.
"""

import re
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import HardState
from tidelog.metadata_quorum.storage.blocks import Head, encode_block, encode_table, table_sum
from tidelog.metadata_quorum.storage.errors import failed
from tidelog.metadata_quorum.storage.marks import Mark
from tidelog.metadata_quorum.storage.plan import Plan
from tidelog.metadata_quorum.storage.terms import Terms
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex

SEGMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""A block that would make a segment longer goes into a new one; a larger block fills one alone."""

DAMAGED_SUFFIX: Final = ".damaged"
_NAME: Final = re.compile(r"journal-(\d{20})-(\d{20})\.log")


class Segment(msgspec.Struct, kw_only=True):
    """A segment as it is known while the journal is open."""

    sequence: int
    previous_sequence: int
    first_from_index: LogIndex | None
    """What the first block cuts the log from; None: not known, or there is none yet."""
    is_damaged: bool = False
    """Its bytes are kept when it is trimmed."""

    @property
    def name(self) -> str:
        """Of its file."""
        return segment_name(self.sequence, self.previous_sequence)


def segment_name(sequence: int, previous_sequence: int) -> str:
    """Sorts by sequence."""
    return f"journal-{sequence:020}-{previous_sequence:020}.log"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """Sequence and previous sequence; None: not the name of a segment."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


class Journal:
    """Where the blocks go; made by `recovery`."""

    def __init__(
        self,
        disk: Disk,
        *,
        salt: bytes,
        terms: Terms,
        newest: Mark,
        marked: Mark,
        previous_from_index: LogIndex,
        is_after_reset: bool,
        next_sequence: int,
        segments: list[Segment],
        active: File | None,
        segment_bytes_max: int,
        boot: bytes,
    ) -> None:
        self._disk = disk
        self._salt = salt
        self.terms = terms
        self.hard_state = newest.hard_state
        self.sequence = newest.sequence
        self._next_sequence = next_sequence
        self._previous_from_index = previous_from_index
        self._is_after_reset = is_after_reset
        self._marked = marked
        is_marked = marked.sequence >= newest.sequence
        self._lowest_from: LogIndex | None = None if is_marked else newest.lowest_from
        self._segments = segments
        self._active = active
        self._is_name_flushed = True
        self._segment_bytes_max = segment_bytes_max
        self._boot = boot
        self.failure = ""
        """Why nothing can be written any more."""

    async def write(self, plan: Plan) -> None:
        """One block, flushed at return. One that did not fit changed nothing."""
        self.check_usable()
        table = encode_table(plan.entries)
        head = self._head(plan, table)
        pieces = encode_block(head, table, plan.entries, self._salt)
        self.failure = "a write was broken off"
        file = await self._append(pieces, head)
        self.failure = "a flush was broken off or failed"
        await self._disk.flush([file], directories=[] if self._is_name_flushed else [""])
        self.failure = ""
        self._is_name_flushed = True
        self._take_in(plan, head)

    def mark(self) -> Mark | None:
        """What is durable now, if the last mark does not say so."""
        marked = self._marked
        is_marked = marked.sequence == self.sequence and marked.hard_state == self.hard_state
        if is_marked and marked.boot == self._boot:
            return None
        return Mark(
            sequence=self.sequence,
            since_sequence=self._marked.sequence,
            lowest_from=self._lowest_from or LogIndex(self.terms.end_index + 1),
            base_index=self.terms.base_index,
            base_term=self.terms.base_term,
            end_index=self.terms.end_index,
            end_term=self.terms.end_term,
            hard_state=self.hard_state,
            boot=self._boot,
            segment_bytes=self._active.size_bytes if self._active is not None else 0,
        )

    def marked(self, mark: Mark) -> None:
        """It was written."""
        self._marked = mark
        self._lowest_from = None

    def check_usable(self) -> None:
        """Refuse after what cannot be made good."""
        if self.failure:
            raise failed(self._disk.name, self.failure)

    async def trim(self, first_index: LogIndex) -> None:
        """Drop the segments that only hold entries before this one, oldest first."""
        while len(self._segments) > 1 and self._may_drop_first(first_index):
            name = self._segments[0].name
            if self._segments[0].is_damaged:
                await self._disk.rename(name, name + DAMAGED_SUFFIX)
            else:
                await self._disk.remove(name)
            # One after the other: a crash must not leave a gap between segments.
            await self._disk.flush([], directories=[""])
            del self._segments[0]

    def _may_drop_first(self, first_index: LogIndex) -> bool:
        """Whether a later segment begins at or before the index, or is reached only by it."""
        following = [
            segment.first_from_index
            for segment in self._segments[1:]
            if segment.first_from_index is not None
        ]
        return any(first_from <= first_index for first_from in following)

    def _head(self, plan: Plan, table: bytes) -> Head:
        return Head(
            sequence=self._next_sequence,
            previous_sequence=self.sequence,
            is_reset=plan.is_reset,
            is_after_reset=self._is_after_reset,
            entry_count=len(plan.entries),
            data_bytes=sum(len(entry.data) for entry in plan.entries),
            table_sum=table_sum(table, self._salt),
            from_index=plan.from_index,
            previous_term=plan.previous_term,
            previous_from_index=self._previous_from_index,
            end_index=plan.end_index,
            end_term=plan.end_term,
            hard_state=plan.hard_state,
        )

    async def _append(self, pieces: list[bytes], head: Head) -> File:
        size_bytes = sum(len(piece) for piece in pieces)
        file = self._active
        if file is None or 0 < file.size_bytes > self._segment_bytes_max - size_bytes:
            file = await self._roll(head)
        if not file.size_bytes:
            self._segments[-1].first_from_index = head.from_index
        before = file.size_bytes
        try:
            await self._disk.append([Append(file, pieces)])
        except TidelogError:
            await self._disk.truncate(file, before)
            self.failure = ""
            raise
        return file

    async def _roll(self, head: Head) -> File:
        """The segment before was flushed with its last block."""
        segment = Segment(
            sequence=head.sequence,
            previous_sequence=head.previous_sequence,
            first_from_index=head.from_index,
        )
        try:
            file = await self._disk.open(segment.name, create=True)
        except TidelogError:
            self.failure = ""
            raise
        if self._active is not None:
            await self._disk.close(self._active)
        self._active = file
        self._is_name_flushed = False
        self._segments.append(segment)
        return file

    def _take_in(self, plan: Plan, head: Head) -> None:
        if plan.is_reset or plan.from_index <= self.terms.base_index:
            self.terms = Terms(LogIndex(plan.from_index - 1), plan.previous_term)
        self.terms.cut(plan.from_index)
        for entry in plan.entries:
            self.terms.append(entry.index, entry.term)
        assert self.terms.end_index == head.end_index, "the head tells where the log ends"
        self.hard_state = plan.hard_state
        self.sequence = head.sequence
        self._next_sequence = head.sequence + 1
        self._previous_from_index = plan.from_index
        self._is_after_reset = plan.is_reset
        lowest = self._lowest_from
        self._lowest_from = plan.from_index if lowest is None else min(lowest, plan.from_index)


def state_after(terms: Terms, hard_state: HardState, sequence: int, marked: Mark) -> Mark:
    """How a journal that was just recovered stands."""
    return Mark(
        sequence=sequence,
        since_sequence=marked.sequence,
        lowest_from=LogIndex(terms.base_index + 1),
        base_index=terms.base_index,
        base_term=terms.base_term,
        end_index=terms.end_index,
        end_term=terms.end_term,
        hard_state=hard_state,
    )
