"""What was handed over to storage, what of it is flushed, and which messages wait for that.

Owns the sequences of `Persist` and `ResetLog`, the flushed index and the held messages. Nothing
that promises something leaves before its sequence is reported; see "Durability" in docs/raft.md.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import Entry, HardState, Snapshot
from tidelog.wire.ids import LogIndex


class _Write(msgspec.Struct):
    """Handed over, not flushed yet."""

    sequence: int
    last_index: LogIndex
    """What it makes flushed; lowered when a later write cuts the log below it, so that its
    completion never speaks for an entry that took the place of its own."""
    hard_state: HardState | None


class _Held(msgspec.Struct):
    sequence: int
    message: Message


class Persistence:
    """Between a change in memory and its being flushed."""

    def __init__(self, hard_state: HardState, persisted_index: LogIndex) -> None:
        self.persisted_state = hard_state
        self.persisted_index = persisted_index
        self.flushed_sequence = 0
        self._sequence = 0
        self._handed_state = hard_state
        self._state_sequence = 0
        self._truncate_from: LogIndex | None = None
        self._entries: list[Entry] = []
        self._writes: deque[_Write] = deque()
        self._held: deque[_Held] = deque()

    def stage_append(self, entries: Sequence[Entry]) -> None:
        """To be handed over at the end of this input."""
        self._entries.extend(entries)

    def stage_truncate(self, index: LogIndex) -> None:
        """Cut the log in storage, before what is appended in the same input."""
        assert not self._entries, "a log is cut before it is appended to"
        assert self._truncate_from is None, "a log is cut once in an input"
        self._truncate_from = index
        self.forget_from(index)

    def forget_from(self, index: int) -> None:
        """No write handed over so far speaks for this entry or a later one any more."""
        last = LogIndex(index - 1)
        self.persisted_index = min(self.persisted_index, last)
        for write in self._writes:
            write.last_index = min(write.last_index, last)

    def take(self, hard_state: HardState) -> Persist | None:
        """Everything staged, as one write; None if there is nothing."""
        is_state_new = self._is_new(hard_state)
        if not (is_state_new or self._entries or self._truncate_from is not None):
            return None
        self._sequence += 1
        entries = tuple(self._entries)
        handed = hard_state if is_state_new else None
        last_index = entries[-1].index if entries else LogIndex(0)
        self._writes.append(
            _Write(sequence=self._sequence, last_index=last_index, hard_state=handed)
        )
        persist = Persist(
            sequence=self._sequence,
            hard_state=handed,
            truncate_from=self._truncate_from,
            entries=entries,
        )
        self._entries.clear()
        self._truncate_from = None
        if is_state_new:
            self._handed_state = hard_state
            self._state_sequence = self._sequence
        return persist

    def reset(self, snapshot: Snapshot, hard_state: HardState) -> ResetLog:
        """The log in storage gives way to a snapshot."""
        assert not self._entries, "nothing is appended before a reset"
        assert self._truncate_from is None, "nothing is cut before a reset"
        self._sequence += 1
        self._writes.append(
            _Write(sequence=self._sequence, last_index=snapshot.last_index, hard_state=hard_state)
        )
        self._handed_state = hard_state
        self._state_sequence = self._sequence
        return ResetLog(sequence=self._sequence, snapshot=snapshot, hard_state=hard_state)

    def complete(self, sequence: int) -> None:
        """Everything up to this sequence is flushed."""
        assert sequence <= self._sequence, f"nothing of sequence {sequence} was handed over"
        self.flushed_sequence = max(self.flushed_sequence, sequence)
        while self._writes and self._writes[0].sequence <= sequence:
            write = self._writes.popleft()
            self.persisted_index = max(self.persisted_index, write.last_index)
            if write.hard_state is not None:
                self.persisted_state = write.hard_state

    def state_barrier(self, hard_state: HardState) -> int:
        """The sequence whose flush makes term and vote durable."""
        return self._sequence + 1 if self._is_new(hard_state) else self._state_sequence

    def data_barrier(self, hard_state: HardState) -> int:
        """The sequence whose flush makes everything so far durable."""
        is_staged = self._entries or self._truncate_from is not None or self._is_new(hard_state)
        return self._sequence + 1 if is_staged else self._sequence

    def hold(self, sequence: int, message: Message) -> None:
        """Until this sequence is flushed."""
        assert sequence > self.flushed_sequence, "what is flushed already needs no wait"
        self._held.append(_Held(sequence=sequence, message=message))

    def release(self) -> list[Message]:
        """What waited for no more than is flushed now, in the order in which it was held."""
        flushed = self.flushed_sequence
        if not self._held:
            return []
        ready = [held.message for held in self._held if held.sequence <= flushed]
        if ready:
            self._held = deque(held for held in self._held if held.sequence > flushed)
        return ready

    def _is_new(self, hard_state: HardState) -> bool:
        handed = self._handed_state
        return hard_state is not handed and hard_state != handed
