"""What a coordinator noticed and nobody asked for. Pure.

Owns the counts and the list. Both are for metrics and a node's log; nothing is decided by them, and
notes that nobody takes are forgotten.
"""

import enum
from collections import deque
from typing import Final

import msgspec

NOTES_MAX: Final = 1_000
"""Notes that are kept until somebody takes them: the oldest go first."""


class NoteKind(enum.Enum):
    """What happened to a transactional id."""

    TIMED_OUT = "timed_out"
    """Its transaction took too long and is aborted."""
    ABORTED_BY_OPERATOR = "aborted_by_operator"
    TAKEN_OVER = "taken_over"
    """A transaction in progress is aborted because somebody took the id over."""
    ROTATED = "rotated"
    """Its producer id is used up; it got another one."""
    PREPARED_LONG = "prepared_long"
    """It is prepared, and nobody has decided it for a minute."""
    MARKERS_STUCK = "markers_stuck"
    """Its markers are refused again and again: readers of committed records stand still there."""
    EXPIRED = "expired"
    """Nobody used it for long; it is forgotten."""


class TransactionNote(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to a transactional id."""

    transactional_id: str
    kind: NoteKind


class TransactionNotes:
    """Collects what happened since somebody looked last."""

    def __init__(self) -> None:
        self.committed = 0
        """Transactions whose commit was decided, since the core was made."""
        self.aborted = 0
        self._notes: Final[deque[TransactionNote]] = deque(maxlen=NOTES_MAX)

    def add(self, transactional_id: str, kind: NoteKind) -> None:
        """Keeps one more."""
        self._notes.append(TransactionNote(transactional_id=transactional_id, kind=kind))

    def take(self) -> tuple[TransactionNote, ...]:
        """Returns those since the last time."""
        found = tuple(self._notes)
        self._notes.clear()
        return found
