"""One follower's stream as its leader keeps it: what was asked, what was sent. Pure.

Owns the incremental session of one stream. It must never let a position count of a log that has
parted from the leader's or lacks its head (`log_start`), send batches to a follower of another
leader epoch, nor go on after a gap without a full start. Stop 7 of a record's walk.

Theory of operation. A request names partitions, tells of progress in partitions that are named, or
takes partitions out; the numbers of requests ascend by one. An answer holds what is new:

    named ─▶ checked against the log ─┬▶ parted: divergence ─▶ out of the session
                                      ├▶ epoch, leader, head: error ─▶ out of the session
                                      ├▶ wrong lane: move ─▶ out of the session
                                      └▶ held: batches from its end on, ahead of its progress
                                              ▲ log end or watermark moved: ready again

What is out of the session is named again by the follower, once the cause is gone. The leader
sends ahead, but keeps at most a few answers that are not written yet (`unconfirmed_answers_max`).
Ready partitions take turns: the one that was served goes behind the others.

A watermark that moved is told with batches; by itself only when none have come for a while
(`numbers_wait_ms`) and none are on their way: a stream of small batches would have a third message
for each. Nobody waits for it but readers at the follower.
"""

from collections import deque
from typing import Final, Protocol

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader.lanes import lane_of
from tidelog.broker.replication.leader.partition import LeaderPartition, failed_news
from tidelog.broker.replication.shared.leader_check import divergence_of
from tidelog.broker.replication.shared.log_start import follower_lacks_head
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    FetchAsk,
    FollowerPosition,
    Lane,
    PartitionNews,
    ReplicationLimits,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionKey

NO_SESSION: Final = 0


class LeaderView(Protocol):
    """What a session may know of this broker's partitions."""

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> PartitionLog:
        """The log, led here at this very epoch; else a typed error."""
        ...

    def is_in_sync(self, key: PartitionKey) -> bool:
        """Whether the session's follower is in the partition's in-sync set."""
        ...

    def is_unclean(self, key: PartitionKey) -> bool:
        """Whether somebody decided for a leader without all that is committed, and the session's
        follower has not come into sync since."""
        ...


class Counts(msgspec.Struct, frozen=True):
    """The follower stands there, in a log that is a prefix of the leader's."""

    position: FollowerPosition


class Watch(msgspec.Struct, frozen=True):
    """The session holds the partition from now on."""

    key: PartitionKey


class Unwatch(msgspec.Struct, frozen=True):
    """The session holds it no more."""

    key: PartitionKey


Effect = Counts | Watch | Unwatch


class LeaderSession:
    """`on_request`, `on_news`, `on_numbers_due`; `leader.answer.AnswerDraft` makes what is sent."""

    def __init__(self, view: LeaderView, lane: Lane, limits: ReplicationLimits) -> None:
        self.view = view
        self.lane = lane
        self.limits = limits
        self.session_id = NO_SESSION
        self.session_sequence = 0
        self.answer_sequence = 0
        self.confirmed_answer = 0
        self.answer_bytes_max = limits.answer_bytes_max
        self.partitions: dict[PartitionKey, LeaderPartition] = {}
        self.ready: dict[PartitionKey, None] = {}
        """Held, and something of them has moved; who is first is served first."""
        self.numbers: dict[PartitionKey, None] = {}
        """Held, and only numbers have moved."""
        self.are_numbers_due = False
        """They have waited long enough."""
        self.replies: deque[PartitionNews] = deque()
        """Errors, divergences and moves that are still to be told."""
        self.with_batches: deque[int] = deque()
        """Numbers of the unconfirmed answers that hold batches."""
        self.first: PartitionKey | None = None
        """Found no room in the last answer: its turn comes before the others'."""
        self.is_full_start_wanted = False
        """Nothing is taken in before one."""
        self.is_full_start_told = False
        self.is_answer_wanted = False
        """The follower asks whether it is heard."""

    @property
    def is_window_open(self) -> bool:
        """Whether the follower has written enough to be sent more."""
        unconfirmed = self.answer_sequence - self.confirmed_answer
        return unconfirmed < self.limits.unconfirmed_answers_max

    @property
    def has_work(self) -> bool:
        """Whether an answer is due."""
        if self.session_id == NO_SESSION:
            return False
        if self.is_full_start_wanted:
            return not self.is_full_start_told
        if not self.is_window_open:
            return False
        if self.ready or self.replies or self.is_answer_wanted:
            return True
        return self.may_tell_numbers

    @property
    def may_tell_numbers(self) -> bool:
        """Whether numbers alone are worth an answer."""
        return self.are_numbers_due and bool(self.numbers) and not self.with_batches

    @property
    def are_numbers_waiting(self) -> bool:
        """Whether somebody has to say when they are due."""
        return bool(self.numbers) and not self.are_numbers_due

    def on_request(self, ask: FetchAsk) -> list[Effect]:
        """Take a request in; one that does not follow the last one asks for a full start."""
        effects: list[Effect] = []
        is_start = ask.session_sequence == 1
        if is_start:
            self._start(ask, effects)
        elif not self._follows(ask):
            self._give_up(ask, effects)
            return effects
        else:
            self.session_sequence = ask.session_sequence
        is_probe = not (ask.positions or ask.removed or is_start) and (
            ask.confirmed_answer == self.confirmed_answer
        )
        self.is_answer_wanted |= is_probe
        self._confirm(ask.confirmed_answer)
        self.answer_bytes_max = min(
            self.limits.answer_bytes_max, ask.max_bytes or self.limits.answer_bytes_max
        )
        self._take_positions(ask, effects, is_start=is_start)
        return effects

    def on_news(self, key: PartitionKey) -> None:
        """Log end or watermark have moved, the partition stopped, or its leader is another."""
        held = self.partitions.get(key)
        if held is not None:
            (self.ready if held.has_batches else self.numbers)[key] = None

    def on_numbers_due(self) -> None:
        """What waits has waited long enough."""
        self.are_numbers_due = bool(self.numbers)

    def close(self) -> list[Effect]:
        """The stream is over."""
        effects: list[Effect] = []
        for key in list(self.partitions):
            self._drop(key, effects)
        return effects

    def reply(self, news: PartitionNews, effects: list[Effect]) -> None:
        """Tell why a partition leaves the session."""
        self._drop(news.key, effects)
        self.replies.append(news)

    def _take_positions(self, ask: FetchAsk, effects: list[Effect], *, is_start: bool) -> None:
        for key in ask.removed:
            self._drop(key, effects)
        if ask.removed and self.replies:
            # What was to be said of an earlier naming would be taken for a word on the new one.
            removed = frozenset(ask.removed)
            self.replies = deque(each for each in self.replies if each.key not in removed)
        for position in ask.positions:
            held = self.partitions.get(position.key)
            if held is not None:
                if not self._progress(held, position, effects):
                    self._give_up(ask, effects)
                    return
            elif is_start or position.key in ask.removed:
                self._name(position, effects)

    def _start(self, ask: FetchAsk, effects: list[Effect]) -> None:
        effects += self.close()
        self.replies.clear()
        self.with_batches.clear()
        self.session_id, self.session_sequence = ask.session_id, 1
        self.answer_sequence = self.confirmed_answer = 0
        self.is_full_start_wanted = self.is_full_start_told = self.is_answer_wanted = False
        self.are_numbers_due = False

    def _follows(self, ask: FetchAsk) -> bool:
        return (
            ask.session_id == self.session_id
            and not self.is_full_start_wanted
            and ask.session_sequence == self.session_sequence + 1
            and self.confirmed_answer <= ask.confirmed_answer <= self.answer_sequence
        )

    def _give_up(self, ask: FetchAsk, effects: list[Effect]) -> None:
        """Something was lost on the way: what is held may be wrong."""
        effects += self.close()
        self.replies.clear()
        self.session_id = ask.session_id
        self.is_full_start_wanted = True

    def _confirm(self, confirmed_answer: int) -> None:
        self.confirmed_answer = confirmed_answer
        while self.with_batches and self.with_batches[0] <= confirmed_answer:
            self.with_batches.popleft()

    def _name(self, position: FollowerPosition, effects: list[Effect]) -> None:
        key = position.key
        log = self._checked(position, effects, is_held=False)
        if log is None:
            return
        self.partitions[key] = LeaderPartition(log, position)
        self.ready[key] = None
        effects += [Watch(key), Counts(position)]
        self._place(self.partitions[key], effects)

    def _progress(
        self, held: LeaderPartition, position: FollowerPosition, effects: list[Effect]
    ) -> bool:
        """Take in how far the follower has come; False if it cannot be there."""
        if position.leader_epoch != held.leader_epoch:
            return False
        if not held.confirmed_offset <= position.log_end_offset <= held.next_offset:
            return False
        if self._checked(position, effects, is_held=True) is None:
            return True
        has_moved = position.log_end_offset > held.confirmed_offset
        held.confirmed_offset = position.log_end_offset
        held.position = position
        effects.append(Counts(position))
        if has_moved:
            self._place(held, effects)
        return True

    def _checked(
        self, position: FollowerPosition, effects: list[Effect], *, is_held: bool
    ) -> PartitionLog | None:
        """The log, if the follower's is a prefix of it; else the follower is told what is wrong."""
        key = position.key
        try:
            log = self.view.find(key, position.leader_epoch)
        except TidelogError as error:
            self.reply(failed_news(key, position.leader_epoch, error), effects)
            return None
        is_unclean = position.is_empty and self.view.is_unclean(key)
        divergence = divergence_of(log, position, is_unclean=is_unclean)
        if divergence is None or (is_held and divergence.leader_epoch == NO_EPOCH):
            # A log that was a prefix is one still, though what showed it may be trimmed by now.
            if not follower_lacks_head(log, position):
                return log
            self.reply(_head_missing(log, position), effects)
            return None
        news = PartitionNews(
            key=key,
            leader_epoch=position.leader_epoch,
            divergence=divergence,
            log_start_offset=log.log_start_offset,
            log_start_epoch=log.log_start_epoch,
        )
        self.reply(news, effects)
        return None

    def _place(self, held: LeaderPartition, effects: list[Effect]) -> None:
        """Send the partition to the other lane, if it belongs there by now."""
        key = held.key
        lane = lane_of(
            held.log,
            held.confirmed_offset,
            self.lane,
            lambda: self.view.is_in_sync(key),
            self.limits,
        )
        if lane is not self.lane:
            news = PartitionNews(key=key, leader_epoch=held.leader_epoch, move_to_lane=lane)
            self.reply(news, effects)

    def _drop(self, key: PartitionKey, effects: list[Effect]) -> None:
        if self.partitions.pop(key, None) is not None:
            self.ready.pop(key, None)
            self.numbers.pop(key, None)
            effects.append(Unwatch(key))


def _head_missing(log: PartitionLog, position: FollowerPosition) -> PartitionNews:
    error = TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"copy {log.key}",
        happened=f"the copy begins at offset {position.log_start_offset}, its leader's log at "
        f"{log.log_start_offset}, and no leader is known to have trimmed what lies between",
    )
    return PartitionNews(
        key=log.key,
        leader_epoch=position.leader_epoch,
        error=error,
        log_start_offset=log.log_start_offset,
        log_start_epoch=log.log_start_epoch,
        is_head_missing=True,
    )
