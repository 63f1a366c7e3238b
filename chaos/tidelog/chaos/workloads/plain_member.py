"""A member of a group that does what the contract says, and nothing besides. Pure.

Owns what one member knows: its epoch, what it was told to own, what it reads at this moment. It is
driven by whoever carries its heartbeats and has no clock of its own. It stops reading by itself
when it was not heard for its session timeout, or has not given up what it should within its
rebalance timeout. Both are counted so that they end before the coordinator's: the one from when the
last answered heartbeat was sent, the other from the first one after it, which may have been
processed although its answer was lost.
"""

from typing import Final

from tidelog.wire.calls.groups import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
    Subscription,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import PartitionKey

_JOIN_AGAIN: Final = (ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH)


class PlainMember:
    """One life of a member."""

    def __init__(
        self,
        group: str,
        member_id: str,
        subscription: Subscription,
        *,
        instance_id: str = "",
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        takes_over: bool = False,
    ) -> None:
        self.group: Final = group
        self.member_id: Final = member_id
        self.instance_id: Final = instance_id
        self.session_timeout_ms: Final = session_timeout_ms
        self.rebalance_timeout_ms: Final = rebalance_timeout_ms
        self.takes_over = takes_over
        """Until it has joined: whoever has its instance id is dead."""
        self.subscription = subscription
        self.epoch = JOINING_EPOCH
        self.told: dict[PartitionKey, int] = {}
        """What it should own, each with its partition_assignment_epoch, as it was told last."""
        self.reading: dict[PartitionKey, int] = {}
        """What it owns at this moment: what it was told, and what it has not given up yet."""
        self.interval_ms = 0
        self.answers = 0
        self._sequence = 0
        self._ended_sequence = 0
        """Answers to this heartbeat and to earlier ones are for a member that has stopped since."""
        self._is_full = True
        self._is_subscription_news = True
        self._is_owned_news = True
        self._session_ends_ms = 0
        self._must_give_up_ms: int | None = None
        self._unanswered_since_ms: int | None = None

    def subscribe(self, subscription: Subscription) -> None:
        """From the next heartbeat on."""
        self.subscription = subscription
        self._is_subscription_news = True

    def give_up(self) -> list[PartitionKey]:
        """Stop reading what it should not own any more; told with the next heartbeat."""
        gone = sorted(key for key in self.reading if key not in self.told)
        for key in gone:
            del self.reading[key]
            self._is_owned_news = True
        self._must_give_up_ms = None
        return gone

    @property
    def must_give_up(self) -> bool:
        """It reads something that it was told to give up."""
        return any(key not in self.told for key in self.reading)

    def heartbeat(self, now_ms: int) -> Heartbeat:
        """The next one; ids and times are the carrier's."""
        self._sequence += 1
        if self._unanswered_since_ms is None:
            self._unanswered_since_ms = now_ms
        is_joining = self.epoch == JOINING_EPOCH
        is_full = self._is_full or is_joining
        is_owned_told = is_full or self._is_owned_news
        return Heartbeat(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            heartbeat_sequence=self._sequence,
            group_instance_id=self.instance_id,
            takes_over=is_joining and self.takes_over,
            session_timeout_ms=self.session_timeout_ms if is_full else None,
            rebalance_timeout_ms=self.rebalance_timeout_ms if is_full else None,
            subscription=self.subscription if is_full or self._is_subscription_news else None,
            owned=tuple(sorted(self.reading)) if is_owned_told else None,
        )

    def departure(self, *, is_for_a_while: bool = False) -> Heartbeat:
        """It stops reading at once, then says so."""
        self._sequence += 1
        self.stop_reading()
        return Heartbeat(
            group=self.group,
            member_id=self.member_id,
            member_epoch=AWAY_EPOCH if is_for_a_while else LEAVING_EPOCH,
            heartbeat_sequence=self._sequence,
            group_instance_id=self.instance_id,
        )

    def on_answer(self, sent: Heartbeat, answer: HeartbeatAnswer, sent_ms: int) -> None:
        """The answer to its last heartbeat; too late if it has stopped reading meanwhile."""
        if sent.heartbeat_sequence <= self._ended_sequence:
            return
        self.answers += 1
        self.takes_over = False
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        self._is_full = False
        if sent.subscription is self.subscription:
            self._is_subscription_news = False
        if sent.owned is not None and tuple(sorted(self.reading)) == sent.owned:
            self._is_owned_news = False
        self._session_ends_ms = sent_ms + self.session_timeout_ms
        since_ms, self._unanswered_since_ms = self._unanswered_since_ms, None
        if answer.assignment is not None:
            told = {each.key: each.partition_assignment_epoch for each in answer.assignment}
            self._take(told, sent_ms if since_ms is None else since_ms)

    def _take(self, told: dict[PartitionKey, int], since_ms: int) -> None:
        before = dict(self.reading)
        self.told = told
        self.reading.update(told)
        if self.reading != before:
            self._is_owned_news = True
        if self.must_give_up and self._must_give_up_ms is None:
            self._must_give_up_ms = since_ms + self.rebalance_timeout_ms

    def on_no_answer(self) -> None:
        """Lost, or refused for now: everything is told again."""
        self._is_full = True

    def on_refusal(self, code: ErrorCode) -> None:
        """It stops reading, or tries again."""
        if code in _JOIN_AGAIN:
            self.stop_reading()
        self._is_full = True

    def stop_reading(self) -> None:
        """At once, and to join again."""
        self.reading.clear()
        self.told = {}
        self.epoch = JOINING_EPOCH
        self._ended_sequence = self._sequence
        self._is_full = True
        self._must_give_up_ms = None

    def on_time(self, now_ms: int) -> None:
        """Stop reading if nobody could be sure any more that it owns anything."""
        is_late = self._must_give_up_ms is not None and now_ms >= self._must_give_up_ms
        if self.reading and (now_ms >= self._session_ends_ms or is_late):
            self.stop_reading()
