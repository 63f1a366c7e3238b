"""An answer in the making: partitions in turns, until its bytes are spent. Pure.

Owns the byte budgets. What is read of a log between two steps may be overtaken: a partition that
was dropped, named again or is led no more since its read began is left out.
"""

from typing import Final

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader.partition import LeaderPartition, failed_news
from tidelog.broker.replication.leader.session import Effect, LeaderSession
from tidelog.broker.replication.leader.tail import Piece
from tidelog.broker.replication.shared.messages import FetchAnswer, PartitionNews
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

REPLIES_MAX: Final = 1_000
"""Errors, divergences and moves in one answer: their texts have to fit a message."""
NUMBERS_MAX: Final = 20_000
"""Partitions of which an answer tells numbers."""


class Read(msgspec.Struct, frozen=True, gc=False):
    """Read whole batches, up to the log's end, also what is not flushed."""

    held: LeaderPartition
    offset: int
    max_bytes: int
    upper_bound: int

    @property
    def log(self) -> PartitionLog:
        """Where."""
        return self.held.log


class AnswerDraft:
    """`next_read`, then `take` or `fail` it, until there is none; then `finish`."""

    def __init__(self, session: LeaderSession) -> None:
        assert session.has_work, "an answer says something"
        self._session = session
        self._session_id = session.session_id
        self._left_bytes = session.answer_bytes_max
        self._pieces: list[tuple[LeaderPartition, PartitionNews]] = []
        self._turns = self._in_turns() if session.is_window_open else []
        self._is_full = session.is_full_start_wanted
        self.effects: list[Effect] = []

    def next_read(self) -> Read | None:
        """What to read next; None: the answer is as full as it gets."""
        session = self._session
        while self._turns and not self._is_full and self._is_current:
            key = self._turns.pop()
            held = session.partitions.get(key)
            if held is None or key not in session.ready:
                continue
            del session.ready[key]
            if not self._is_led(held):
                continue
            if held.has_batches:
                limits = session.limits
                return Read(
                    held,
                    held.read_offset,
                    min(self._left_bytes, limits.partition_bytes_max),
                    held.log.log_end_offset,
                )
            if held.has_numbers:
                session.numbers[key] = None
        return None

    def take(self, read: Read, piece: Piece | None) -> None:
        """What was read; None: there is nothing yet."""
        session, held = self._session, read.held
        if not self._holds(held) or not self._is_led(held):
            return
        if piece is None:
            return
        if len(piece.data) > self._left_bytes and self._pieces:
            session.ready[held.key] = None
            session.first = held.key
            self._is_full = True
            return
        self._left_bytes -= len(piece.data)
        self._is_full = self._left_bytes <= 0
        self._pieces.append((held, held.news(piece)))
        session.numbers.pop(held.key, None)
        if held.has_batches:
            session.ready[held.key] = None

    def fail(self, read: Read, error: TidelogError) -> None:
        """It could not be read: the follower is told, and names the partition again later."""
        held = read.held
        if not self._holds(held):
            return
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log was trimmed meanwhile: read from its new start on.
            self._session.ready[held.key] = None
            return
        self._leave(held, error)

    def finish(self) -> FetchAnswer | None:
        """The answer; None: there is nothing to say after all."""
        session = self._session
        if not self._is_current:
            return None
        if session.is_full_start_wanted:
            return self._full_start()
        # The number of the last request stands for all that the answer holds: what was read for
        # an earlier naming would be taken for the present one's.
        batches = [news for held, news in self._pieces if self._holds(held)]
        has_more = bool(batches or session.replies or session.is_answer_wanted)
        if not has_more and not session.may_tell_numbers:
            return None
        replies = [session.replies.popleft() for _ in range(min(len(session.replies), REPLIES_MAX))]
        numbers = self._numbers()
        session.are_numbers_due = session.are_numbers_due and bool(session.numbers)
        session.is_answer_wanted = False
        session.answer_sequence += 1
        if batches:
            session.with_batches.append(session.answer_sequence)
        return FetchAnswer(
            session_id=session.session_id,
            session_sequence=session.session_sequence,
            answer_sequence=session.answer_sequence,
            partitions=(*replies, *batches, *numbers),
        )

    def _in_turns(self) -> list[PartitionKey]:
        """From the last to the first."""
        session = self._session
        turns = list(session.ready)
        turns.reverse()
        if session.first is not None and session.first in session.ready:
            turns.append(session.first)
        session.first = None
        return turns

    @property
    def _is_current(self) -> bool:
        return self._session.session_id == self._session_id

    def _holds(self, held: LeaderPartition) -> bool:
        return self._is_current and self._session.partitions.get(held.key) is held

    def _numbers(self) -> list[PartitionNews]:
        session, found = self._session, []
        for key in list(session.numbers)[:NUMBERS_MAX]:
            del session.numbers[key]
            held = session.partitions[key]
            if self._is_led(held) and held.has_numbers:
                found.append(held.news())
        return found

    def _is_led(self, held: LeaderPartition) -> bool:
        """Whether the partition is still led here as the follower believes; else it leaves."""
        try:
            log = self._session.view.find(held.key, held.leader_epoch)
        except TidelogError as error:
            self._leave(held, error)
            return False
        if log is not held.log:
            self._session.reply(_moved(held.key, held), self.effects)
            return False
        return True

    def _leave(self, held: LeaderPartition, error: TidelogError) -> None:
        news = failed_news(held.key, held.leader_epoch, error)
        self._session.reply(news, self.effects)

    def _full_start(self) -> FetchAnswer:
        session = self._session
        session.is_full_start_told = True
        return FetchAnswer(
            session_id=session.session_id,
            session_sequence=session.session_sequence,
            answer_sequence=session.answer_sequence,
            is_full_start_wanted=True,
        )


def _moved(key: PartitionKey, held: LeaderPartition) -> PartitionNews:
    error = TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"copy {key}",
        happened="its log was opened anew at the leader",
    )
    return failed_news(key, held.leader_epoch, error)
